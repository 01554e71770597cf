"""The search for a small heads × width that verification confirms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from headcount.attention.key_query import KeyQuery
from headcount.constructions.request import Request
from headcount.errors import NoSolution

Report = Callable[[str], None]


def smallest_confirmed(
    request: Request, heads: int | None, budget: int | None, report: Report
) -> KeyQuery:
    """The smallest confirmed budget over the candidate splits; `NoSolution` where there is none."""
    best: KeyQuery | None = None
    tried: list[str] = []
    for count in _head_counts(request) if heads is None else [heads]:
        most = budget if best is None else best.budget - 1  # a later split must be smaller
        limit = _widest(request) if most is None else min(_widest(request), most // count)
        tried.append(f"{count} × {limit}")
        best = (_narrowest(request, count, limit, report) if limit else None) or best
    if best is None:
        transpose = request.inverse == "transpose"
        remedy = (
            "use inverse pinv, or more heads" if transpose else "use more heads or another seed"
        )
        raise NoSolution(
            f"no {request.method} weights were confirmed up to {', '.join(tried)} (heads × width); "
            f"{remedy}"
        )
    return best


def _head_counts(request: Request) -> Iterator[int]:
    """The paper's blocks of d_model edges first, then blocks down to a sixteenth of that."""
    if request.method == "one-hot":
        yield 1
        return
    graph, d_model = request.graph, request.table.shape[1]
    seen = set()
    for share in (1, 2, 3, 4, 6, 8, 12, 16):
        count = max(-(-graph.edges * share // d_model), graph.max_degree, 1)
        if count not in seen and count <= max(graph.edges, 1):
            seen.add(count)
            yield count


def _widest(request: Request) -> int:
    """Where a search gives up: leakage outside a block does not shrink with d_k."""
    return max(4 * request.table.shape[1], 32 * math.ceil(math.log(max(request.graph.items, 2))))


def _narrowest(request: Request, heads: int, limit: int, report: Report) -> KeyQuery | None:
    """Doubling, then bisection; every width is a prefix of one set of signatures."""
    low, high = 0, min(limit, 4)
    wide = request.build(min(limit, 16), heads)
    while True:
        if high > wide.key_dim:
            wide = request.build(min(limit, 2 * high), heads)
        report(f"{heads} heads × {high}")
        if found := request.confirmed(request.narrowed(wide, high)):
            break
        if high == limit:
            return None
        low, high = high, min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        report(f"{heads} heads × {middle}")
        if narrower := request.confirmed(request.narrowed(wide, middle)):
            found, high = narrower, middle
        else:
            low = middle
    return found
