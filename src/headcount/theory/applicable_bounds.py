"""Which of the upper bounds apply to a case, to be set side by side."""

from __future__ import annotations

from headcount.attention.aggregation import Aggregation
from headcount.theory.single_head import single_head, softmax_single_head
from headcount.theory.upper_bounds import (
    UpperBound,
    best_upper_bound,
    binary_embedding,
    gaussian_embedding,
    pseudo_inverse,
)


def applicable_upper_bounds(
    items: int,
    edges: int | None,
    d_model: int,
    *,
    max_degree: int | None = None,
    aggregation: Aggregation = "max",
) -> list[UpperBound]:
    """The construction of `best_upper_bound`, then others that apply, for comparison.

    For permutations these are a single head in the same template and, under max, the tables of
    Corollaries B.6–B.7 where they need another budget. Under max below d_model = m, the
    pseudo-inverse construction is the last one. A sum has only the single head, for permutations.
    The list is empty where the paper has no construction.

    >>> [bound.name for bound in applicable_upper_bounds(256, None, 32, aggregation="softmax")]
    ['softmax', 'single-head']
    >>> applicable_upper_bounds(64, 99, 16, aggregation="sum")
    []
    """
    if aggregation == "sum":
        permutation = edges in (None, items) and max_degree in (None, 1)
        return [single_head(items, d_model)] if permutation else []
    best = best_upper_bound(items, edges, d_model, max_degree=max_degree, aggregation=aggregation)
    found = [] if best is None else [best]
    if best is not None and best.name == "compressive":
        tables = gaussian_embedding(items, d_model), binary_embedding(items, d_model)
        found += [bound for bound in tables if bound.budget != best.budget]
        found.append(single_head(items, d_model))
    if best is not None and best.name == "softmax" and edges in (None, items):
        found.append(softmax_single_head(items, d_model))
    if aggregation == "max" and d_model < items:
        found.append(pseudo_inverse(items, items if edges is None else edges, d_model, max_degree))
    return found
