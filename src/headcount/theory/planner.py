"""The planner: what to train for a graph, beside what every bound and law says of its budget."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

from headcount.errors import InputError
from headcount.notebook import html_table
from headcount.theory.adviser import USUAL_CHANCE, Advice, advise
from headcount.theory.counting import Family, check_degree, check_sizes, family_of, log2_graphs
from headcount.theory.footprint import footprint
from headcount.theory.laws import (
    COMPILED,
    PlannedAggregation,
    TrainedLaw,
    law_reason,
    paper_laws,
)
from headcount.theory.lower_bounds import lower_bounds
from headcount.theory.upper_bounds import UpperBound, best_upper_bound, pseudo_inverse

Kind = Literal["lower bound", "compiled", "trained law", "construction"]


@dataclass(frozen=True)
class Row:
    """One answer: the split, what it costs, and why.

    Lower bounds and the compiled law leave the split open (None).
    """

    kind: Kind
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
    """A plan for one family of graphs: what to train, and rows from lower bound to construction.

    `advised` is the advice on training, `advice` its text with the bounds beside it. `in_range` is
    false where the sizes are outside what was measured: then there is no split to train.
    """

    items: int
    edges: int
    d_model: int
    variant: PlannedAggregation
    family: Family
    max_degree: int | None
    bits: float
    in_range: bool
    advised: Advice
    rows: tuple[Row, ...]
    advice: str

    def _repr_html_(self) -> str:
        rows = [
            (row.name, row.kind, row.budget, row.heads, row.key_dim, row.bits_per_parameter)
            for row in self.rows
        ]
        columns = ("law", "kind", "D_K", "heads", "d_k", "bits per parameter")
        return html_table(columns, rows, self.advice)

    def row(self, kind: str) -> Row | None:
        """The first row of a kind; of the lower bounds the highest."""
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
    steps: int | None = None,
    budget: int | None = None,
    heads: int | None = None,
    chance: float = USUAL_CHANCE,
) -> Plan:
    """Plan heads, width and steps, with every bound and law; without `edges` for a permutation.

    `variant` is how heads are aggregated. `max_degree` Δ narrows the family of graphs.
    `bits_per_parameter` and `margin` are assumptions of the lower bounds (see `lower_bounds`).
    `steps`, `budget` (D_K), `heads` and `chance` fix parts of the advice (see `advise`). The first
    trained law is the law of steps, followed by the paper's fits; `law`, from `fit_law`, replaces
    the fits. With `context_length` rows also count the flops of a whole context: projections and
    logits (Appendix C).

    >>> answer = plan(items=256, d_model=32)
    >>> split = answer.advised.split
    >>> split.heads, split.key_dim, split.steps
    (4, 12, 50000)
    """
    if variant not in get_args(PlannedAggregation):
        raise InputError(f"variant = {variant!r}: not known; choose max or softmax")
    if context_length is not None and context_length < 1:
        raise InputError(
            f"context_length = {context_length}: a context has at least 1 token; "
            "pass a larger number"
        )
    edges = check_sizes(items, edges, d_model)
    if max_degree is not None:
        check_degree(items, edges, max_degree)
    family = family_of(items, edges, max_degree)
    bits = log2_graphs(items, edges, family, max_degree)
    case = _Case(items, edges, d_model, variant, family, max_degree, bits, context_length)
    fixed = {"steps": steps, "budget": budget, "heads": heads}
    advised = advise(*case.sizes, variant=variant, max_degree=max_degree, chance=chance, **fixed)
    rows = [
        *_bound_rows(case, bits_per_parameter, margin),
        *_compiled_rows(case),
        *_advised_rows(case, advised),
        *_trained_rows(case, law),
        *_construction_rows(case),
    ]
    return Plan(
        items,
        edges,
        d_model,
        variant,
        family,
        max_degree,
        bits,
        advised.outside is None,
        advised,
        tuple(rows),
        _advice(advised, rows, edges <= items),
    )


@dataclass(frozen=True)
class _Case:
    """What is planned for."""

    items: int
    edges: int
    d_model: int
    variant: PlannedAggregation
    family: Family
    max_degree: int | None
    bits: float
    context_length: int | None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """What a law takes."""
        return self.items, self.edges, self.d_model

    def row(
        self,
        kind: Kind,
        name: str,
        budget: int,
        reason: str,
        *,
        sure: bool,
        split: tuple[int, int] | tuple[None, None] = (None, None),
        interval: tuple[float, float] | None = None,
    ) -> Row:
        """An answer with its costs."""
        cost = footprint(self.d_model, budget)
        length = self.context_length
        return Row(
            kind,
            name,
            *split,
            budget,
            cost.parameters,
            cost.projection_flops,
            None if length is None else cost.context_flops(length),
            cost.bytes,
            self.bits / (2 * self.d_model * budget),
            interval,
            sure,
            reason,
        )


def _bound_rows(case: _Case, bits_per_parameter: float, margin: float | None) -> Iterator[Row]:
    bounds = lower_bounds(
        *case.sizes,
        family=case.family,
        max_degree=case.max_degree,
        bits_per_parameter=bits_per_parameter,
        margin=margin,
        aggregation=case.variant,
    )
    for bound in bounds:
        reason = f"{bound.assumptions} ({bound.reference})"
        yield case.row("lower bound", bound.name, int(bound.budget), reason, sure=True)


def _compiled_rows(case: _Case) -> Iterator[Row]:
    """The compiled law: it was fitted under max, to permutations."""
    if case.variant != "max":
        return
    interval, budget = COMPILED.interval_at(*case.sizes), ceil(COMPILED(*case.sizes))
    caveat = "; fitted to permutations alone" if case.edges > case.items else ""
    reason = (
        f"{COMPILED.source}{caveat}; headcount compile finds and certifies the weights of one "
        f"graph.{_interval_text('searches', interval)}"
    )
    yield case.row("compiled", "compiled law", budget, reason, sure=False, interval=interval)


def _advised_rows(case: _Case, advised: Advice) -> Iterator[Row]:
    for split in (advised.split, *advised.others):
        if split is not None:
            yield case.row(
                "trained law",
                f"{split.steps:,} steps",
                split.budget,
                "The law of steps, fitted to our runs. Followed at fresh points, its advice passed "
                "on 28 of 28 regular and 25 of 28 random graphs (docs/law.md).",
                sure=True,
                split=(split.heads, split.key_dim),
            )


def _trained_rows(case: _Case, law: TrainedLaw | None) -> Iterator[Row]:
    """Laws of the budget alone."""
    for fit in [law] if law else paper_laws(*case.sizes):
        interval, budget = fit.interval_at(*case.sizes), ceil(fit(*case.sizes))
        reason = law_reason(fit, case.variant) + _interval_text("thresholds", interval)
        yield case.row("trained law", fit.name, budget, reason, sure=False, interval=interval)


def _construction_rows(case: _Case) -> Iterator[Row]:
    """The paper's construction that applies, and the pseudo-inverse one, which is measured."""
    found: list[tuple[UpperBound, str]] = []
    degree = case.max_degree
    usual = best_upper_bound(*case.sizes, max_degree=degree, aggregation=case.variant)
    if usual is not None:
        found.append((usual, _construction_reason(usual, case.edges, case.d_model, degree)))
    if case.variant == "max" and case.d_model < case.items:
        better = pseudo_inverse(*case.sizes, degree)
        found.append((better, better.basis))
    for bound, reason in found:
        split = bound.heads, bound.key_dim
        yield case.row(
            "construction", bound.name, bound.budget, reason, sure=bound.sure, split=split
        )


def _interval_text(what: str, ends: tuple[float, float] | None) -> str:
    return f" 95 % of new {what} fall within {ends[0]:,.0f} … {ends[1]:,.0f}." if ends else ""


def _construction_reason(
    upper: UpperBound, edges: int, d_model: int, max_degree: int | None
) -> str:
    if max_degree is None or upper.name != "general-graph":
        return upper.basis
    skew = (
        "holds" if max_degree * d_model <= edges else "fails: the largest degree drives the heads"
    )
    return f"{upper.basis} Eq. (33), Δ ≤ m'/d_model, {skew}."


def _advice(advised: Advice, rows: list[Row], sparse: bool) -> str:
    """The advice on training, followed by what the bounds say."""
    floor = max((row for row in rows if row.kind == "lower bound"), key=lambda row: row.budget)
    parts = []
    if floor.budget > 1:
        parts.append(f"the {floor.name} rules out D_K < {floor.budget:,}")
    for row in rows:
        if row.kind == "compiled" and sparse:  # the law is one of permutations
            parts.append(f"compiled weights need about {row.budget:,}")
    built = [row for row in rows if row.kind == "construction"]
    if built:
        sure = [row for row in built if row.sure]
        best = min(sure or built, key=lambda row: row.budget)
        doubt = "" if sure else ", which is not certain"
        parts.append(f"the {best.name} construction takes {best.budget:,}{doubt}")
    else:
        parts.append("the paper has no softmax construction beyond permutations")
    beside = "; ".join(parts)
    return f"{advised.text} {beside[0].upper()}{beside[1:]}."
