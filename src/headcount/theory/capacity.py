"""The planner backwards: how many relations a channel of a given size holds, by every law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headcount.errors import InputError
from headcount.theory.counting import log2_graphs
from headcount.theory.footprint import parameters
from headcount.theory.laws import (
    MEASURED,
    MEASURED_WIDE,
    PlannedAggregation,
    TrainedLaw,
    law_reason,
    trained_split,
)
from headcount.theory.lower_bounds import check_bits, warren_bits
from headcount.theory.upper_bounds import UpperBound, best_upper_bound, pseudo_inverse


@dataclass(frozen=True)
class Holding:
    """How many relations a channel holds by one law; `sense` says which way the law binds.

    A construction that is not `sure`, since its condition fails or its constant is a guess, binds
    neither way.
    """

    law: str
    sense: Literal["at most", "about", "at least"]
    items: int
    edges: int
    reason: str
    sure: bool = True


def capacity(
    d_model: int,
    heads: int,
    key_dim: int,
    kv_heads: int | None = None,
    *,
    items: int | None = None,
    variant: PlannedAggregation = "max",
    bits_per_parameter: float = 8,
    law: TrainedLaw | None = None,
) -> list[Holding]:
    """Invert every law: how many relations m' a channel of this size holds.

    With `items` the relations are edges among that many items; without, they are those of a
    permutation, and the number of items is found too. Heads that share keys (`kv_heads` < `heads`)
    count in two ways. The bounds count reals, d_model·d_k·(h + h_kv) + 1. The laws count D_K =
    h_kv·d_k: one query head of each group makes a channel whose heads have keys of their own, and
    the other queries are left out. The trained law is inverted after rounding: `trained_split` of
    what is held fits D_K.

    >>> [(holding.law, holding.sense, holding.edges) for holding in capacity(768, 12, 64)][:3]
    [('bit budget', 'at most', 536492), ('sign patterns', 'at most', 1794449),
     ('measured', 'about', 44289)]
    """
    groups = heads if kv_heads is None else kv_heads
    _check_channel(d_model, heads, key_dim, groups)
    check_bits(bits_per_parameter)
    reals = parameters(d_model, heads * key_dim, groups * key_dim)
    budget = groups * key_dim

    def counts(held: Callable[[int], float]) -> Callable[[int, int], bool]:
        return lambda m, edges: _log2_family(m, edges, items is None) <= held(m)

    most = _largest(counts(lambda m: bits_per_parameter * reals), items)
    reason = f"{reals:,} parameters of {bits_per_parameter:g} bits (Section 9)."
    found = [Holding("bit budget", "at most", *most, reason)]
    if variant == "max":
        most = _largest(counts(lambda m: warren_bits(reals, m * (m - 1), heads)), items)
        found.append(Holding("sign patterns", "at most", *most, "Any real weights (Warren 1968)."))
    law = law or (MEASURED_WIDE if d_model > 16 else MEASURED)
    most = _trained(d_model, budget, items, law)
    found.append(Holding(law.name, "about", *most, f"D_K = {budget:,}; {law_reason(law, variant)}"))
    return [*found, _constructed(d_model, budget, items, variant)]


def _check_channel(d_model: int, heads: int, key_dim: int, groups: int) -> None:
    sizes = {"d_model": d_model, "heads": heads, "key_dim": key_dim, "kv_heads": groups}
    for name, value in sizes.items():
        if value < 1:
            raise InputError(f"{name} = {value}: it must be at least 1; pass a larger number")
    if heads % groups:
        raise InputError(f"kv_heads = {groups}: does not divide {heads} heads; pass a divisor")


def _log2_family(items: int, edges: int, permutations: bool) -> float:
    """The bits of permutations, or of the graphs with `edges` edges.

    The number of graphs falls again past half of all pairs. A channel that holds every graph of the
    middle is taken to hold more edges too, so the count is kept constant from there.
    """
    if permutations:
        return log2_graphs(items)
    return log2_graphs(items, min(edges, items * (items - 1) // 2), "graph")


def _trained(d_model: int, budget: int, items: int | None, law: TrainedLaw) -> tuple[int, int]:
    """The most relations whose rounded split fits into the budget, to 0.1 %.

    Rounding up makes the split uneven and a little larger than the law, so bisection finds where to
    start and a walk downwards the answer.
    """
    most, edges = _largest(lambda m, edges: law(m, edges, d_model) <= budget, items)
    for held in range(edges, 0 if items else 1, -(edges // 1000 + 1)):
        heads, key_dim = trained_split(items or held, held, d_model, law)
        if heads * key_dim <= budget:
            return items or held, held
    return most, 0


def _constructed(
    d_model: int, budget: int, items: int | None, variant: PlannedAggregation
) -> Holding:
    """What the smallest construction holds whose condition is met.

    Where no such construction holds anything, the smallest of all, marked as not sure.
    """

    def choices(m: int, edges: int) -> list[UpperBound]:
        usual = best_upper_bound(m, edges, d_model, aggregation=variant)
        other = pseudo_inverse(m, edges, d_model) if variant == "max" else None
        return [choice for choice in (usual, other) if choice is not None]

    def fitting(m: int, edges: int) -> list[UpperBound]:
        return [choice for choice in choices(m, edges) if choice.budget <= budget]

    m, edges = _largest(lambda m, edges: any(choice.sure for choice in fitting(m, edges)), items)
    if edges:
        found = [choice for choice in fitting(m, edges) if choice.sure]
    else:
        m, edges = _largest(lambda m, edges: bool(fitting(m, edges)), items)
        # Never empty: one edge is a partial permutation, which each variant covers.
        found = choices(m, max(edges, 1))
    upper = min(found, key=lambda choice: choice.budget)
    split = f"{upper.heads:,} × {upper.key_dim:,}"
    reason = (
        f"Split as {split}" if edges else f"One block takes {split}, more than D_K = {budget:,}"
    )
    sense = "at least" if upper.sure else "about"
    return Holding(upper.name, sense, m, edges, f"{reason}; {upper.basis}", upper.sure)


def _largest(fits: Callable[[int, int], bool], items: int | None) -> tuple[int, int]:
    """Find the largest (m, m') that fits: m' = m for permutations, else m' on the given items.

    m' = 0 where nothing fits.

    What fits does so up to a point: laws grow with m', and counts cross a channel's bits once.
    """
    limit = None if items is None else items * (items - 1)
    start = 2 if items is None else 1

    def fit(n: int) -> bool:
        return (limit is None or n <= limit) and fits(n if items is None else items, n)

    if not fit(start):
        return items or start, 0
    high = 2 * start
    while fit(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fit(middle) else (low, middle)
    return items or low, low
