"""Where to look: how many heads for a budget, and which budget to begin with. Measured rules (docs/compiler.md)."""

from __future__ import annotations

import math

from headcount.compiler.whitened import WhitenedProblem

_LOAD = 2.0  # edges a head holds best, in units of the table's rank
_BITS = 1.7  # bits per key–query parameter that a search begins with


def widths_of(budget: int, heads: int, rank: int) -> tuple[int, ...]:
    """The budget shared as evenly as can be; a head wider than the table's rank would gain nothing.

    >>> widths_of(10, 3, rank=16)
    (4, 3, 3)
    """
    share, rest = divmod(budget, heads)
    return tuple(min(rank, share + (head < rest)) for head in range(heads))


def head_counts(problem: WhitenedProblem, budget: int, heads: int | None) -> list[int]:
    """Head counts worth a try, best first: about 2·rank edges a head."""
    if heads is not None:
        return [heads]
    if problem.level < 0:  # a non-edge must then be pushed below τ by every head
        wanted = [1, 2, 4]
    else:
        ideal = problem.edges / (_LOAD * problem.rank)
        wanted = [round(ideal), math.ceil(1.4 * ideal), math.floor(0.7 * ideal)]
    least = -(-budget // problem.rank)
    return list(
        dict.fromkeys(
            min(budget, max(1, least if problem.level > 0 else 1, count)) for count in wanted
        )
    )


def first_budget(items: int, edges: int, rank: int) -> int:
    """D_K at which 2·rank·D_K parameters hold log₂ C(m², m') bits, at the density that is usually reached."""
    pairs = items * items
    few = min(edges, pairs - edges)
    bits = (
        math.lgamma(pairs + 1) - math.lgamma(few + 1) - math.lgamma(pairs - few + 1)
    ) / math.log(2)
    return max(1, math.ceil(bits / (2 * rank * _BITS)))
