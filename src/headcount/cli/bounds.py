"""`headcount bounds`: between which budgets the answer lies, and what each bound rests on."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from headcount.cli import common
from headcount.cli.plan import (
    Bits,
    Degree,
    Edges,
    Items,
    Margin,
    MaxDegree,
    Width,
    budget_cell,
    describe,
    one_of,
    print_table,
    resolve_sizes,
)

if TYPE_CHECKING:
    from headcount.theory.bounds import LowerBound
    from headcount.theory.upper import UpperBound


def bounds(
    items: Items = None,
    edges: Edges = None,
    degree: Degree = None,
    d_model: Width = None,
    variant: Annotated[str, typer.Option(help="Aggregation over heads: max, sum or softmax.")] = "max",
    max_degree: MaxDegree = None,
    bits: Bits = 8,
    margin: Margin = None,
    heads: Annotated[int | None, typer.Option(help="Heads h, where fixed: sharpens the sign patterns.")] = None,
    as_json: common.Json = False,
) -> None:
    """Bound the total key dimension D_K = heads × width from below and from above.

    \b
    Example:
      headcount bounds --items 256 --d-model 32
      headcount bounds --items 512 --d-model 16 --heads 1
      headcount bounds --items 128 --degree 8 --d-model 32 --json
    """
    from headcount.theory.bounds import Aggregation, heads_bound, lower_bounds
    from headcount.theory.plan import family_of

    items, edges, d_model, max_degree = resolve_sizes(items, edges, degree, d_model, max_degree)
    family = family_of(items, items if edges is None else edges, max_degree)
    lower = lower_bounds(
        items,
        edges,
        d_model,
        family=family,
        heads=heads,
        bits_per_parameter=bits,
        margin=margin,
        aggregation=cast(Aggregation, one_of("--variant", variant, get_args(Aggregation))),
    )
    upper = _upper_bounds(items, edges, d_model, max_degree, variant)
    result = {
        "items": items,
        "edges": edges or items,
        "d_model": d_model,
        "variant": variant,
        "family": family,
        "bits": lower[0].bits,
        "heads_at_least": heads_bound(lower[0].bits, items, d_model) if variant == "max" else 1,
        "lower": [asdict(bound) for bound in lower],
        "upper": [asdict(bound) | {"budget": bound.budget} for bound in upper],
    }
    if as_json:
        common.emit(result, True)
    else:
        title = f"{describe(items, edges or items, family, lower[0].bits)}, d_model = {d_model:,}, {variant}"
        _show(title, result["heads_at_least"], heads, lower, upper)


def _upper_bounds(
    items: int, edges: int | None, d_model: int, max_degree: int | None, variant: str
) -> list[UpperBound]:
    """The construction that applies, and one head in the same template beside it; sum has no construction."""
    from headcount.theory.upper import best_upper_bound, single_head

    if variant == "sum":
        return [single_head(items, d_model)] if edges in (None, items) else []
    best = best_upper_bound(items, edges, d_model, max_degree=max_degree, aggregation=variant)
    if best is None:
        return []
    return [best, single_head(items, d_model)] if best.name == "compressive" else [best]


def _show(title: str, needed: int, heads: int | None, lower: list[LowerBound], upper: list[UpperBound]) -> None:
    rows = [
        (bound.name, budget_cell("≥", bound.budget), "any", f"{bound.assumptions} {bound.reference}.")
        for bound in lower
    ] + [
        (
            bound.name,
            budget_cell("≤", bound.budget, bound.sure),
            f"{bound.heads:,} × {bound.key_dim:,}",
            bound.basis,
        )
        for bound in upper
    ]
    advice = _advice(needed, heads, lower, upper)
    print_table(title, advice, ("bound", "D_K", "h × d_k", "rests on"), rows)


def _advice(needed: int, heads: int | None, lower: list[LowerBound], upper: list[UpperBound]) -> str:
    floor = max(lower, key=lambda bound: bound.budget)
    if floor.budget == inf:
        subject = "One head" if heads in (None, 1) else f"{heads} heads"
        return f"{subject} cannot do it, however wide: the {floor.name} rule it out."
    text = f"D_K ≥ {floor.budget:,} by the {floor.name}"
    if needed > 1:
        text += f", in no fewer than {needed} heads"
    proved = [bound for bound in upper if bound.sure]
    if not upper:
        return f"{text}; the paper has no construction for this case."
    best = min(proved or upper, key=lambda bound: bound.budget)
    doubt = "" if proved else ", which is not certain"
    return f"{text}; the {best.name} construction takes {best.budget:,}{doubt}."
