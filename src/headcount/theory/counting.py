"""How many graphs a family holds, which every lower bound counts (Section 9)."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.special import gammaln

from headcount.errors import InputError

Family = Literal["permutation", "graph", "regular", "bounded"]


def check_sizes(items: int, edges: int | None = None, d_model: int = 1) -> int:
    """Refuse impossible sizes; return the number of edges, which is `items` when not given.

    >>> check_sizes(4, 13)
    Traceback (most recent call last):
    headcount.errors.InputError: edges = 13: 4 items have only 12 ordered pairs; pass fewer edges
    """
    if items < 2:
        raise InputError(f"items = {items}: a graph needs at least 2 items; pass a larger number")
    if d_model < 1:
        raise InputError(
            f"d_model = {d_model}: the model width is at least 1; pass a larger number"
        )
    edges = items if edges is None else edges
    pairs = items * (items - 1)
    if edges < 1:
        raise InputError(f"edges = {edges}: a graph needs at least 1 edge; pass a larger number")
    if edges > pairs:
        raise InputError(
            f"edges = {edges}: {items} items have only {pairs} ordered pairs; pass fewer edges"
        )
    return edges


def check_degree(items: int, edges: int, max_degree: int) -> None:
    """Refuse a maximum degree that no graph of these sizes has."""
    if not edges <= items * max_degree or max_degree > min(items, edges):
        raise InputError(
            f"max_degree = {max_degree}: with {edges} edges on {items} items it must be between "
            f"{math.ceil(edges / items)} and {min(items, edges)}; "
            "pass the largest in- or out-degree"
        )


def family_of(items: int, edges: int, max_degree: int | None = None) -> Family:
    """Name the family whose graphs are counted: m' edges, and degrees up to Δ where it is given.

    >>> family_of(64, 64), family_of(64, 128, max_degree=2)
    ('permutation', 'regular')
    >>> family_of(64, 128), family_of(64, 128, max_degree=3)
    ('graph', 'bounded')
    """
    if edges == items and max_degree in (None, 1):
        return "permutation"
    if max_degree is None or max_degree >= min(items - 1, edges):
        return "graph"  # Δ excludes no graph
    return "regular" if max_degree * items == edges else "bounded"


def log2_graphs(
    items: int,
    edges: int | None = None,
    family: Family = "permutation",
    max_degree: int | None = None,
) -> float:
    """Give log2 of the number of graphs in a family, or (`regular`, `bounded`) a lower bound on it.

    permutation: log2 m!, fixed points allowed. graph: log2 C(m(m−1), m'), no loops (Section 9).

    regular: digraphs with all in- and out-degrees r = m'/m, no loops. Take r disjoint perfect
    matchings out of K_{m,m} minus its diagonal, one by one. With j−1 of them gone an (m−j)-regular
    graph is left, and it has at least (m−j)^m · m!/m^m perfect matchings (van der Waerden's bound;
    Egorychev, Falikman 1981). One r-regular graph arises in at most Π_j (j!)^(m/j) orders (Brégman
    1973). Hence

        log2 (number) ≥ Σ_{j=1}^{r} m·log2(1 − j/m) + log2 m! − (m/j)·log2 j!.

    The complement is (m−1−r)-regular, and serves r > (m−1)/2.

    bounded: digraphs with m' edges and all in- and out-degrees at most Δ = `max_degree`, no loops.
    Take m' edges of an r-regular graph, for any r from m'/m to Δ. Of one graph there are C(rm, m')
    such choices. Of all R(r) graphs there are R(r)·C(rm, m'), and each choice arises from no more
    graphs than there are ways to add the N = rm − m' missing edges: N!/(Π a_i!·Π b_i!) pairings of
    the a_i and b_i ends that its vertices lack. Each product is least, L, where its numbers differ
    by at most one. At r = 1 this gives C(m, m')²·m'!, less the loops. Hence

        ln (number) ≥ max_r ln C(rm, m') + max(0, ln R(r) − ln N! + 2·ln L).

    >>> round(2 ** log2_graphs(4)), round(2 ** log2_graphs(4, 3, "graph"))
    (24, 220)
    >>> round(log2_graphs(1000, 999, "bounded", max_degree=1))  # 8,539 with loops
    8538
    >>> log2_graphs(7, 14, "regular") < math.log2(357_435)  # there are 357,435 of them
    True
    """
    edges = check_sizes(items, edges)
    match family:
        case "permutation":
            if edges != items:
                raise InputError(
                    f"edges = {edges}: a permutation of {items} items has {items}; leave edges out"
                )
            return math.lgamma(items + 1) / math.log(2)
        case "graph":
            return _log_binomial(items * (items - 1), edges) / math.log(2)
        case "regular":
            if edges % items:
                raise InputError(
                    f"edges = {edges}: not a multiple of {items} items; pass degree × items"
                )
            return _log_regular(items, edges // items) / math.log(2)
        case "bounded":
            if max_degree is None:
                raise InputError(
                    "family = 'bounded': its largest degree is missing; pass max_degree"
                )
            check_degree(items, edges, max_degree)
            return _log_bounded(items, edges, min(max_degree, items - 1)) / math.log(2)
        case _:
            raise InputError(
                f"family = {family!r}: not known; choose permutation, graph, regular or bounded"
            )


def _log_regular(items: int, degree: int) -> float:
    """The sum of `log2_graphs`, in natural logarithms; of the complement where that is thinner."""
    order = np.arange(1.0, min(degree, items - 1 - degree) + 1)
    matchings = items * np.log1p(-order / items) + math.lgamma(items + 1)
    return max(0.0, float(np.sum(matchings - items / order * gammaln(order + 1))))


def _log_bounded(items: int, edges: int, max_degree: int) -> float:
    """The best of a few r; every r gives a valid bound, so not all need be tried."""
    least = -(-edges // items)
    degrees = {
        least,
        max_degree,
        *(2**power for power in range(least.bit_length(), max_degree.bit_length())),
    }
    return max(_log_parts_of_regular(items, edges, degree) for degree in degrees)


def _log_parts_of_regular(items: int, edges: int, degree: int) -> float:
    """ln C(rm, m') + max(0, ln R(r) − ln N! + 2·ln L) of `log2_graphs`."""
    missing = degree * items - edges
    most = math.lgamma(missing + 1)
    each, rest = divmod(missing, items)
    even = (items - rest) * math.lgamma(each + 1) + rest * math.lgamma(each + 2)
    graphs = _log_regular(items, degree) - most + 2 * even
    # ln N! is by far the largest term: 1e-14 of it covers the rounding of the difference, so that
    # the count stays a lower bound.
    return _log_binomial(degree * items, edges) + max(0.0, graphs - 1e-14 * most)


def _log_binomial(total: int, chosen: int) -> float:
    """ln C(N, k) in Stirling's form.

    Its large terms are positive, so that nothing cancels at N = 10^14, where the difference of
    three lgamma values would lose all digits.
    """
    small = min(chosen, total - chosen)
    if small == 0:
        return 0.0
    rest = total - small
    entropy = small * math.log(total / small) - rest * math.log1p(-small / total)
    scale = 0.5 * math.log(total / (2 * math.pi * small * rest))
    return entropy + scale + _stirling_rest(total) - _stirling_rest(small) - _stirling_rest(rest)


def _stirling_rest(n: int) -> float:
    """ln n! less Stirling's n·ln n − n + ½·ln 2πn."""
    if n < 16:
        return math.lgamma(n + 1) - (n * math.log(n) - n + 0.5 * math.log(2 * math.pi * n))
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / n**2) / n**2) / n**2) / n
