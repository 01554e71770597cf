"""`headcount bounds`: between which budgets the answer lies, and what each bound rests on."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli import common, sizes
from headcount.cli.tables import budget_cell, describe, print_table

if TYPE_CHECKING:
    from headcount.theory.lower_bounds import LowerBound
    from headcount.theory.upper_bounds import UpperBound


class AggregationOption(StrEnum):
    max = "max"
    sum = "sum"
    softmax = "softmax"


def bounds(
    items: sizes.Items = None,
    edges: sizes.Edges = None,
    degree: sizes.Degree = None,
    d_model: sizes.Width = None,
    variant: Annotated[AggregationOption, typer.Option(help="Aggregation over heads.")] = (
        AggregationOption.max
    ),
    max_degree: sizes.MaxDegree = None,
    bits: sizes.Bits = 8,
    margin: sizes.Margin = None,
    heads: Annotated[
        int | None, typer.Option(help="Heads h, where fixed: sharpens the sign patterns.")
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Bound the total key dimension D_K = heads × width from below and from above.

    \b
    Example:
      headcount bounds --items 256 --d-model 32
      headcount bounds --items 512 --d-model 16 --heads 1
      headcount bounds --items 128 --degree 8 --d-model 32 --json
    """
    from headcount.theory.applicable_bounds import applicable_upper_bounds
    from headcount.theory.counting import family_of
    from headcount.theory.lower_bounds import check_heads, heads_bound, lower_bounds
    from headcount.theory.single_head import softmax_advantage

    if heads is not None:
        check_heads(heads)
    items, edges, d_model, max_degree = sizes.resolve(items, edges, degree, d_model, max_degree)
    family = family_of(items, items if edges is None else edges, max_degree)
    lower = lower_bounds(
        items,
        edges,
        d_model,
        family=family,
        max_degree=max_degree,
        heads=heads,
        bits_per_parameter=bits,
        margin=margin,
        aggregation=variant.value,
    )
    upper = applicable_upper_bounds(
        items, edges, d_model, max_degree=max_degree, aggregation=variant.value
    )
    result = {
        "items": items,
        "edges": edges or items,
        "d_model": d_model,
        "variant": variant.value,
        "family": family,
        "max_degree": max_degree,
        "bits": lower[0].bits,
        "heads_at_least": heads_bound(lower[0].bits, items, d_model) if variant == "max" else 1,
        "lower": [asdict(bound) for bound in lower],
        "upper": [asdict(bound) | {"budget": bound.budget, "sure": bound.sure} for bound in upper],
        "softmax_advantage": softmax_advantage(items, d_model)
        if variant == "softmax" and len(upper) > 1
        else None,
    }
    if as_json:
        common.emit(result, True)
    else:
        named = describe(items, edges or items, family, max_degree, lower[0].bits)
        _show(
            f"{named}, d_model = {d_model:,}, {variant}",
            _advice(result, heads, lower, upper),
            lower,
            upper,
        )


def _show(title: str, advice: str, lower: list[LowerBound], upper: list[UpperBound]) -> None:
    rows = [
        (
            bound.name,
            budget_cell("≥", bound.budget),
            "any",
            f"{bound.assumptions} {bound.reference}.",
        )
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
    print_table(title, advice, ("bound", "D_K", "h × d_k", "assumes"), rows)


def _advice(
    result: dict[str, Any], heads: int | None, lower: list[LowerBound], upper: list[UpperBound]
) -> str:
    floor = max(lower, key=lambda bound: bound.budget)
    if floor.budget == inf:
        subject = "One head" if heads == 1 else f"{heads} heads"
        if result["variant"] == "sum":
            subject = "A sum of heads, however many,"
        return f"{subject} cannot do it, however wide: the {floor.name} rule it out."
    needed, saved = result["heads_at_least"], result["softmax_advantage"]
    text = f"D_K ≥ {floor.budget:,} by the {floor.name}"
    if needed > 1:
        text += f", in no fewer than {needed} heads"
    proved = [bound for bound in upper if bound.sure]
    if not upper:
        return f"{text}; the paper has no construction for this case."
    best = min(proved or upper, key=lambda bound: bound.budget)
    doubt = "" if proved else ", which is not certain"
    more = (
        f" One head over many grows as (m/d_model)/ln m, here {saved:.2g} (Eq. (22))."
        if saved
        else ""
    )
    return f"{text}; the {best.name} construction takes {best.budget:,}{doubt}.{more}"
