"""The planner: what budget a graph needs, by every law at once.

Lower bounds: Section 9. The compiled law: ours. Trained laws: Section 6.1, Appendix A.3. Constructions: Sections 4, 8,
Appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from headcount.errors import InputError
from headcount.theory.counting import Family, check_sizes, log2_graphs
from headcount.theory.footprint import footprint
from headcount.theory.laws import (
    BUDGET,
    BUDGET_REGULAR,
    BUDGET_WIDE,
    COMPILED,
    HEADS,
    TrainedLaw,
    own_law,
)
from headcount.theory.lower_bounds import lower_bounds
from headcount.theory.upper_bounds import UpperBound, best_upper_bound, pseudo_inverse

PlannedAggregation = Literal["max", "softmax"]  # those for which laws of training are known


@dataclass(frozen=True)
class Row:
    """One answer: the split, what it costs, and why. Lower bounds and the compiled law leave the split open (None)."""

    kind: Literal["lower bound", "compiled", "trained law", "construction"]
    name: str
    heads: int | None
    key_dim: int | None
    budget: int
    parameters: int
    flops_per_token: int  # to form the query and the key
    context_flops: int | None  # for a whole context, logits included, where its length is given
    bytes: int
    bits_per_parameter: float  # log2(number of graphs)/(2·d_model·D_K)
    interval: tuple[float, float] | None
    sure: bool  # the condition holds at these sizes, and the constant is proved or measured
    reason: str


@dataclass(frozen=True)
class Plan:
    """A plan for one family of graphs: rows from lower bound to construction, and one sentence of advice."""

    items: int
    edges: int
    d_model: int
    variant: PlannedAggregation
    family: Family
    max_degree: int | None
    bits: float
    rows: tuple[Row, ...]
    advice: str

    def row(self, kind: str) -> Row | None:
        """Give the first row of a kind; of the lower bounds the highest."""
        rows = [row for row in self.rows if row.kind == kind]
        return max(rows, key=lambda row: row.budget if kind == "lower bound" else 0, default=None)


def plan(
    items: int,
    edges: int | None = None,
    *,
    d_model: int,
    variant: PlannedAggregation = "max",
    max_degree: int | None = None,
    bits_per_parameter: float = 8,
    margin: float | None = None,
    law: TrainedLaw | None = None,
    context_length: int | None = None,
) -> Plan:
    """Plan a key–query budget; without `edges` the graph is a permutation of the items.

    With `context_length` the rows count the flops of a whole context too: projections and logits (Appendix C).
    The first trained law is our own, or `law`; without `law` the paper's fits follow.

    >>> answer = plan(items=256, d_model=32)
    >>> trained = answer.row("trained law")
    >>> trained.heads, trained.key_dim, trained.budget
    (8, 7, 56)
    """
    if variant not in ("max", "softmax"):
        raise InputError(f"variant = {variant!r}: not known; choose max or softmax")
    if context_length is not None and context_length < 1:
        raise InputError(
            f"context_length = {context_length}: a context has at least 1 token; pass a larger number"
        )
    edges = check_sizes(items, edges, d_model)
    upper = best_upper_bound(items, edges, d_model, max_degree=max_degree, aggregation=variant)
    family = family_of(items, edges, max_degree)
    bits = log2_graphs(items, edges, family, max_degree)

    def row(kind, name, budget, sure, reason, heads=None, key_dim=None, interval=None) -> Row:
        cost = footprint(d_model, budget)
        whole = None if context_length is None else cost.context_flops(context_length)
        costs = (
            cost.parameters,
            cost.projection_flops,
            whole,
            cost.bytes,
            bits / (2 * d_model * budget),
        )
        return Row(kind, name, heads, key_dim, budget, *costs, interval, sure, reason)

    options = {"bits_per_parameter": bits_per_parameter, "margin": margin, "aggregation": variant}
    rows = [
        row(
            "lower bound",
            bound.name,
            int(bound.budget),
            True,
            f"{bound.assumptions} ({bound.reference})",
        )
        for bound in lower_bounds(
            items, edges, d_model, family=family, max_degree=max_degree, **options
        )
    ]
    if variant == "max":
        interval, reason = (
            COMPILED.interval_at(items, edges, d_model),
            _compiled_reason(items, edges, d_model),
        )
        rows.append(
            row(
                "compiled",
                "compiled law",
                ceil(COMPILED(items, edges, d_model)),
                False,
                reason,
                None,
                None,
                interval,
            )
        )
    for fit in (
        [law]
        if law
        else [own_law(items, edges, d_model), *_fits_of_the_paper(items, edges, d_model)]
    ):
        heads, key_dim = trained_split(items, edges, d_model, fit)
        interval = fit.interval_at(items, edges, d_model)
        reason = law_reason(fit, variant) + _interval_text("thresholds", interval)
        rows.append(
            row("trained law", fit.name, heads * key_dim, False, reason, heads, key_dim, interval)
        )
    if upper is not None:
        reason = _construction_reason(upper, edges, d_model, max_degree)
        split = upper.heads, upper.key_dim
        rows.append(row("construction", upper.name, upper.budget, upper.sure, reason, *split))
    if variant == "max" and d_model < items:
        better = pseudo_inverse(items, edges, d_model, max_degree)
        split = better.heads, better.key_dim
        rows.append(
            row("construction", better.name, better.budget, better.sure, better.basis, *split)
        )
    return Plan(
        items,
        edges,
        d_model,
        variant,
        family,
        max_degree,
        bits,
        tuple(rows),
        _advice(rows, variant, edges <= items),
    )


def family_of(items: int, edges: int, max_degree: int | None = None) -> Family:
    """Name the family whose graphs are counted: the graphs with m' edges, and with degrees up to Δ where it is given.

    >>> family_of(64, 64), family_of(64, 128, max_degree=2), family_of(64, 128), family_of(64, 128, max_degree=3)
    ('permutation', 'regular', 'graph', 'bounded')
    """
    if edges == items and max_degree in (None, 1):
        return "permutation"
    if max_degree is None or max_degree >= min(items - 1, edges):
        return "graph"  # Δ excludes no graph
    return "regular" if max_degree * items == edges else "bounded"


def trained_split(
    items: int, edges: int, d_model: int, law: TrainedLaw | None = None
) -> tuple[int, int]:
    """Split a trained law's budget, by default our own law's, into heads and width.

    The heads follow the paper's line 1.65·m'/d_model − 6.64, but are never fewer than m'/d_model: below
    m'/d_model = 10 the line falls under that, and it reaches 1 at 4.6, where one head fails to train.

    >>> trained_split(64, 64, 16), trained_split(512, 512, 16)
    ((4, 6), (46, 7))
    """
    budget = (law or own_law(items, edges, d_model))(items, edges, d_model)
    least = ceil(edges / d_model)
    key_dim = ceil(budget / max(least, round(HEADS(items, edges, d_model))))
    return max(least, ceil(budget / key_dim)), key_dim


def _fits_of_the_paper(items: int, edges: int, d_model: int) -> list[TrainedLaw]:
    """The main fit; Eq. (32) beyond permutations, and for these the fit without d_model = 16 where that is left out."""
    if edges > items:
        return [BUDGET, BUDGET_REGULAR]
    return [BUDGET, BUDGET_WIDE] if d_model > 16 else [BUDGET]


def law_reason(law: TrainedLaw, variant: PlannedAggregation) -> str:
    caveat = "; fitted for max, and softmax needs more (Fig. 5)" if variant == "softmax" else ""
    return f"{law.source}{caveat}."


def _compiled_reason(items: int, edges: int, d_model: int) -> str:
    caveat = "; fitted to permutations alone" if edges > items else ""
    ends = _interval_text("searches", COMPILED.interval_at(items, edges, d_model))
    return f"{COMPILED.source}{caveat}; headcount compile finds and certifies the weights of one graph.{ends}"


def _interval_text(what: str, ends: tuple[float, float] | None) -> str:
    return f" 95 % of new {what} lie in {ends[0]:,.0f} … {ends[1]:,.0f}." if ends else ""


def _construction_reason(
    upper: UpperBound, edges: int, d_model: int, max_degree: int | None
) -> str:
    if max_degree is None or upper.name != "general-graph":
        return upper.basis
    skew = (
        "holds" if max_degree * d_model <= edges else "fails: the largest degree drives the heads"
    )
    return f"{upper.basis} Eq. (33), Δ ≤ m'/d_model, {skew}."


def _advice(rows: list[Row], variant: PlannedAggregation, sparse: bool) -> str:
    floor = max((row for row in rows if row.kind == "lower bound"), key=lambda row: row.budget)
    trained = next(row for row in rows if row.kind == "trained law")
    heads = "one head" if trained.heads == 1 else f"{trained.heads:,} heads"
    start = "Train" if variant == "max" else "Start above"
    text = f"{start} {heads} of width {trained.key_dim} (D_K = {trained.budget:,})"
    if floor.budget > 1:
        text += f"; the {floor.name} rules out D_K < {floor.budget:,}"
    for row in rows:
        if row.kind == "compiled" and sparse:  # the law is one of permutations
            text += f"; compiled weights need about {row.budget:,}"
    built = [row for row in rows if row.kind == "construction"]
    if not built:
        return f"{text}; the paper has no softmax construction beyond permutations."
    sure = [row for row in built if row.sure]
    best = min(sure or built, key=lambda row: row.budget)
    doubt = "" if sure else ", which is not certain"
    return f"{text}; the {best.name} construction takes {best.budget:,}{doubt}."
