"""Where a search looks: head counts, the first budget, signs of τ (docs/compiler.md)."""

from __future__ import annotations

import math

from torch import Tensor

from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.graph import Graph
from headcount.shapes import Float

_LOAD = 2.0  # edges a head holds best, in units of the table's rank
_BITS = 1.7  # bits per key–query parameter that a search begins with
_AMPLE = 4  # a budget that is quickly reached as a rule, in units of the estimate


def widths_of(budget: int, heads: int, rank: int, kv_heads: int | None = None) -> tuple[int, ...]:
    """The budget shared as evenly as possible; more width than the table's rank gains nothing.

    Heads that share a key have one width, so that some of the budget may be left.

    >>> widths_of(10, 3, rank=16), widths_of(11, 4, rank=16, kv_heads=2)
    ((4, 3, 3), (3, 3, 2, 2))
    """
    groups = kv_heads or heads
    sharing = heads // groups
    share, rest = divmod(budget // sharing, groups)
    return tuple(
        min(rank, share + (group < rest)) for group in range(groups) for _ in range(sharing)
    )


def head_counts(
    problem: WhitenedProblem, budget: int, heads: int | None, kv_heads: int | None = None
) -> list[int]:
    """Head counts worth a try, best first: about 2·rank edges per head, a multiple of the keys."""
    if heads is not None:
        return [heads]
    if problem.level < 0:  # a non-edge must then be pushed below τ by every head
        wanted = [1, 2, 4]
    else:
        ideal = _ideal_heads(problem)
        wanted = [round(ideal), math.ceil(1.4 * ideal), math.floor(0.7 * ideal)]
    # Fewer heads than this could not use the budget: none is wider than the rank.
    least = -(-budget // problem.rank) if problem.level > 0 else 1
    counts = (min(budget, max(1, least, count)) for count in wanted)
    if kv_heads is not None:
        most = budget // kv_heads
        counts = (kv_heads * min(most, max(1, round(count / kv_heads))) for count in counts)
    return list(dict.fromkeys(counts))


def first_budget(items: int, edges: int, rank: int) -> int:
    """D_K at which 2·rank·D_K parameters hold log₂ C(m², m') bits, at a density often reached."""
    pairs = items * items
    bits = log2_choices(pairs, min(edges, pairs - edges))
    return max(1, math.ceil(bits / (2 * rank * _BITS)))


def ample_budget(problem: WhitenedProblem, guess: int) -> int:
    """A budget at which a descent takes little: columns to spare, but no heads to spare.

    More columns save hardly any steps. Beyond the rank of the table they need further heads, each
    of which adds m² scores to a step.
    """
    held = max(1, round(_ideal_heads(problem))) * problem.rank
    most = _AMPLE * guess
    return min(most, held) if problem.level > 0 and held >= 2 * guess else most


def _ideal_heads(problem: WhitenedProblem) -> float:
    return problem.edges / (_LOAD * problem.rank)


def log2_choices(pairs: int, edges: int) -> float:
    """log₂ C(m², m'): the bits that name a graph, loops allowed.

    >>> round(log2_choices(4, 2), 3)  # of 6 graphs
    2.585
    """
    ways = math.lgamma(pairs + 1) - math.lgamma(edges + 1) - math.lgamma(pairs - edges + 1)
    return ways / math.log(2)


def levels_of(graph: Graph, table: Float[Tensor, "items d_model"]) -> tuple[float, ...]:
    """Signs of τ, the likelier first; the scores of a zero row are 0, so its pairs fix the sign."""
    zero = (~table.any(1)).nonzero().flatten().tolist()
    if zero:
        return (-1.0,) if graph.has_edges(zero[:1], zero[:1])[0] else (1.0,)
    return (-1.0, 1.0) if 2 * graph.edges > graph.items**2 else (1.0, -1.0)
