"""The planner backwards: how many relations a channel of a given size holds, by every law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from headcount.errors import InputError
from headcount.theory.capacity_law import (
    TRAINED_RATIOS,
    degrees_of_freedom,
    edges_at_ratio,
    items_with_freedom,
)
from headcount.theory.counting import log2_graphs
from headcount.theory.footprint import parameters
from headcount.theory.laws import PlannedAggregation, TrainedLaw, law_reason
from headcount.theory.lower_bounds import check_bits, warren_bits
from headcount.theory.upper_bounds import UpperBound, best_upper_bound, pseudo_inverse


@dataclass(frozen=True)
class Holding:
    """How many relations a channel holds by one law; `sense` says which way the law binds.

    A construction that is not `sure`, since its condition fails or its constant is a guess, binds
    neither way. `interval` is where a trained law's number of edges may be.
    """

    law: str
    sense: Literal["at most", "about", "at least"]
    items: int
    edges: int
    reason: str
    sure: bool = True
    interval: tuple[int, int] | None = None


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
    count in three ways. The bounds count reals, d_model·d_k·(h + h_kv) + 1. The capacity law counts
    degrees of freedom, d_model·d_k·(h + h_kv) − h_kv·d_k². Constructions and a `law` count D_K =
    h_kv·d_k: one query head of each group makes a channel whose heads have keys of their own, and
    the other queries are left out. The capacity law's interval is that of the ratios R at which
    training began to succeed in our runs, which reach d_model 256 and 2,048 items.

    >>> [(holding.law, holding.sense, holding.edges) for holding in capacity(32, 2, 20)][2:3]
    [('capacity law', 'about', 214)]
    """
    groups = heads if kv_heads is None else kv_heads
    _check_channel(d_model, heads, key_dim, groups)
    reals = parameters(d_model, heads * key_dim, groups * key_dim)
    freedom = degrees_of_freedom(d_model, heads, key_dim, groups)
    counted = Counted(d_model, heads, reals, freedom, groups * key_dim)
    return holdings(
        counted, items=items, variant=variant, bits_per_parameter=bits_per_parameter, law=law
    )


@dataclass(frozen=True)
class Counted:
    """What the laws count of a channel."""

    d_model: int
    heads: int
    reals: int  # parameters, the threshold included
    freedom: int  # degrees of freedom
    budget: int  # D_K of heads with keys of their own that it contains


def holdings(
    channel: Counted,
    *,
    items: int | None,
    variant: PlannedAggregation,
    bits_per_parameter: float,
    law: TrainedLaw | None,
) -> list[Holding]:
    """`capacity` of a channel that has been counted."""
    check_bits(bits_per_parameter)
    d_model, reals, budget = channel.d_model, channel.reals, channel.budget

    def counts(held: Callable[[int], float]) -> Callable[[int, int], bool]:
        return lambda m, edges: _log2_family(m, edges, items is None) <= held(m)

    most = _largest(counts(lambda m: bits_per_parameter * reals), items)
    reason = f"{reals:,} parameters of {bits_per_parameter:g} bits (Section 9)."
    found = [Holding("bit budget", "at most", *most, reason)]
    if variant == "max":
        most = _largest(counts(lambda m: warren_bits(reals, m * (m - 1), channel.heads)), items)
        found.append(Holding("sign patterns", "at most", *most, "Any real weights (Warren 1968)."))
    if law is None:
        found.append(_trained(channel.freedom, items, variant))
    else:
        own = law
        most = _largest(lambda m, edges: own(m, edges, d_model) <= budget, items)
        reason = f"D_K = {budget:,}; {law_reason(own, variant)}"
        found.append(Holding(own.name, "about", *most, reason))
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


def _trained(freedom: int, items: int | None, variant: PlannedAggregation) -> Holding:
    """What the capacity law gives, between the ratios at which training began to succeed."""
    low, usual, high = TRAINED_RATIOS[variant]

    def edges(ratio: float) -> int:
        if items is None:
            return int(items_with_freedom(freedom / ratio))
        return edges_at_ratio(freedom, items, ratio)

    held = edges(usual)
    reason = (
        f"{freedom:,} degrees of freedom; training began to succeed at R = {low} … {high} in our "
        f"runs under {variant} (docs/law.md)."
    )
    ends = edges(high), edges(low)
    return Holding("capacity law", "about", items or held, held, reason, interval=ends)


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
