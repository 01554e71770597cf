"""Lower bounds on the total key dimension D_K (Section 9), and Warren's, which needs no assumption.

Every bound counts. A channel of a given size tells apart at most 2^held graphs; a family of more
graphs has a member that it cannot recognise. The table of embeddings is the same for every graph: a
table that may depend on the graph can carry the graph itself, and then none of these bounds holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from headcount.attention.aggregation import Aggregation
from headcount.errors import InputError
from headcount.theory.counting import Family, check_sizes, log2_graphs
from headcount.theory.footprint import parameters
from headcount.theory.margins import default_margin, margin_assumption, margin_bits

_ROUNDING = 1e-12  # bits are reduced by this share, so that rounding never excludes a budget


@dataclass(frozen=True)
class LowerBound:
    """No budget below `budget` recognises every graph of the family (inf: no width does)."""

    name: str
    budget: float  # the smallest integer D_K that is not excluded
    bits: float  # log2 of the number of graphs, or a lower bound on it
    assumptions: str
    reference: str


def check_heads(heads: int) -> None:
    """Refuse a number of heads that no channel has."""
    if heads < 1:
        raise InputError(f"heads = {heads}: a channel has at least 1 head; pass a larger number")


def check_bits(bits_per_parameter: float) -> None:
    """Refuse a number of bits that no parameter has."""
    if not 1e-6 <= bits_per_parameter <= 1e6:
        raise InputError(
            f"bits = {bits_per_parameter}: a parameter carries 1e-6 to 1e6 bits; pass 8 or 16"
        )


def bit_budget_bound(bits: float, d_model: int, bits_per_parameter: float = 8) -> int:
    """Find the smallest D_K with b·(2·d_model·D_K + 1) ≥ log2 |family| (Section 9, bit budget).

    >>> bit_budget_bound(log2_graphs(256), d_model=32)  # 1,684 bits; 8·(64·4 + 1) = 2,056
    4
    """
    check_bits(bits_per_parameter)
    return _smallest(lambda budget: bits_per_parameter * parameters(d_model, budget), bits)


def margin_bound(bits: float, d_model: int, margin: float, aggregation: Aggregation = "max") -> int:
    """Find the smallest D_K that weights with margin γ need (Theorem 9.2).

    γ is over N(U)·N(V), N(U) = max ‖x_v U_k‖; see `margins`.

    >>> margin_bound(log2_graphs(256), d_model=32, margin=0.25)  # 64·log2(9) = 202.9 bits
    9
    """
    return _smallest(lambda budget: margin_bits(d_model, budget, margin, aggregation), bits)


def warren_bits(reals: int, pairs: int, heads: int, degree: int = 2) -> float:
    """The bits that sign patterns hold: log2 of the number of decision tables, max over heads.

    A decision table is a function of the signs of the s = h·pairs polynomials s_k(u, v) − τ, of
    degree q in P reals. They have at most (4e·q·s/P)^P patterns of + and − when s ≥ P (Warren 1968,
    Theorem 3). Ties do no harm: take one point for each of the finitely many tables and raise τ
    there by less than the least positive value; every "> τ" stays and every "= τ" becomes "< τ".
    There are never more than 2^pairs tables.
    """
    polynomials = heads * pairs
    if reals > polynomials:
        return float(pairs)
    return min(float(pairs), reals * math.log2(4 * math.e * degree * polynomials / reals))


def warren_bound(
    bits: float,
    items: int,
    d_model: int,
    *,
    heads: int | None = None,
    aggregation: Aggregation = "max",
) -> float:
    """Find the smallest D_K that sign patterns do not exclude, at any margin and precision.

    Scores have degree 2 in the 2·d_model·D_K + 1 reals (U, V, τ), and degree 1 in the h·d_model² +
    1 reals (A_1 … A_h, τ). The second count does not grow with D_K: where it is too small no width
    helps, and the bound is inf. Unknown heads count as h = D_K, the most there can be; sum is one
    bilinear form, h = 1. The m(m−1) pairs off the diagonal determine a permutation, so they serve
    every family. The counts grow with D_K, and a channel contains every smaller one: bisection is
    sound.

    >>> warren_bound(log2_graphs(256), 256, 32)
    2
    >>> warren_bound(log2_graphs(512), 512, 16, heads=1)  # one head cannot hold them all
    inf
    """
    if aggregation == "softmax":
        raise InputError(
            "aggregation = 'softmax': its scores are not polynomials; use the other bounds"
        )
    if heads is not None:
        check_heads(heads)
    pairs = items * (items - 1)
    known = 1 if aggregation == "sum" else heads
    if known is None:
        return _smallest(
            lambda budget: warren_bits(parameters(d_model, budget), pairs, budget), bits
        )
    if warren_bits(known * d_model**2 + 1, pairs, known, degree=1) < bits * (1 - _ROUNDING):
        return math.inf
    return max(
        known,
        _smallest(lambda budget: warren_bits(parameters(d_model, budget), pairs, known), bits),
    )


def heads_bound(bits: float, items: int, d_model: int) -> int:
    """Find the smallest number of heads that sign patterns do not exclude, however wide they are.

    >>> heads_bound(log2_graphs(512), 512, 16), heads_bound(log2_graphs(4096), 4096, 16)
    (2, 9)
    """
    pairs = items * (items - 1)
    return _smallest(
        lambda heads: warren_bits(heads * d_model**2 + 1, pairs, heads, degree=1), bits
    )


def _smallest(held: Callable[[int], float], bits: float) -> int:
    """Find the smallest positive integer at which `held`, which grows, reaches `bits`."""
    needed = bits * (1 - _ROUNDING)
    high = 1
    while held(high) < needed:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if held(middle) >= needed else (middle, high)
    return high


def lower_bounds(
    items: int,
    edges: int | None,
    d_model: int,
    *,
    family: Family = "permutation",
    max_degree: int | None = None,
    heads: int | None = None,
    bits_per_parameter: float = 8,
    margin: float | None = None,
    aggregation: Aggregation = "max",
) -> list[LowerBound]:
    """List the lower bounds on D_K for a family: bit budget, margin and sign patterns.

    Softmax scores are not polynomials, so it has no bound by sign patterns. `heads` sharpens that
    bound where their number is fixed. `margin` is γ over N(U)·N(V), by default what the paper's
    constructions keep (`margins.default_margin`).

    >>> [(bound.name, bound.budget) for bound in lower_bounds(256, None, 32)]
    [('bit budget', 4), ('margin', 6), ('sign patterns', 2)]
    """
    if aggregation not in get_args(Aggregation):
        raise InputError(f"aggregation = {aggregation!r}: not known; choose max, sum or softmax")
    if heads is not None:
        check_heads(heads)
    bits = log2_graphs(items, check_sizes(items, edges, d_model), family, max_degree)
    gamma = default_margin(items, d_model, aggregation) if margin is None else margin
    found: list[tuple[str, float, str, str]] = [
        (
            "bit budget",
            bit_budget_bound(bits, d_model, bits_per_parameter),
            f"A parameter carries at most {bits_per_parameter:g} bits.",
            "Section 9, bit budget",
        ),
        (
            "margin",
            margin_bound(bits, d_model, gamma, aggregation),
            margin_assumption(gamma, aggregation),
            "Theorem 9.2",
        ),
    ]
    if aggregation != "softmax":
        least = warren_bound(bits, items, d_model, heads=heads, aggregation=aggregation)
        found.append(
            ("sign patterns", least, "Nothing: any real weights, any margin.", "Warren 1968")
        )
    return [LowerBound(name, budget, bits, text, place) for name, budget, text, place in found]
