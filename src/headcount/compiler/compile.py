"""`compile`: the smallest weights that a search finds and verification certifies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from headcount.compiler.max_search import MaxSearch
from headcount.compiler.quantized_search import QuantizedSearch
from headcount.compiler.request import CompileRequest, require_possible
from headcount.compiler.search import Compiled, WeightSearch
from headcount.compiler.softmax_search import SoftmaxSearch
from headcount.problem.graph import Graph
from headcount.problem.tables import TableLike, table_for


def compile(
    graph: Graph,
    table: TableLike,
    *,
    budget: int | None = None,
    heads: int | None = None,
    margin: float | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[str], None] | None = None,
    bits: int | None = None,
    variant: str = "max",
    context_length: int | None = None,
    decide: str = "threshold",
    improved: Callable[[Compiled], None] | None = None,
    kv_heads: int | None = None,
    last_resort: bool = True,
) -> Compiled:
    """Weights that decide every ordered pair of `graph` on `table` correctly, with a certificate.

    With `budget`: weights of at most that D_K. Without: the smallest D_K that the search reaches.
    It begins with an ample budget, so the first weights come soon, and goes on with smaller ones
    while there is time; `improved` is called with all that are found on the way. `margin` is the
    least γ/|τ| to accept, `time_limit` is in seconds. Ctrl-C ends a search with the best weights so
    far. Raises `NoSolution`, which says how far it got, when nothing was certified.

    With `bits` the weights are on a grid of that many bits, and are certified after rounding. With
    `variant="softmax"` they are read by softmax over contexts of `context_length` items, and
    certified for all of these.

    With `decide="top"` no threshold takes part: every target scores above every other item of its
    row, hence is the top of the row in every context that holds it. A target is not compared with
    another target, and items without targets are not judged. With `kv_heads` g the heads share g
    keys; their number is a multiple of g.

    A search that finds nothing in half of its time turns to its last resort, one head per edge,
    whose certificate is not bound by the time limit. `last_resort=False` leaves that out.

    >>> from headcount.problem.makers import permutation_graph
    >>> from headcount.problem.embeddings import gaussian_embeddings
    >>> found = compile(permutation_graph(16), gaussian_embeddings(16, 8), budget=6)
    >>> found.weights.budget, found.certificate.margin > 0
    (6, True)
    """
    given = {"progress": progress, "improved": improved}
    options: dict[str, Any] = {name: call for name, call in given.items() if call is not None}
    request = CompileRequest(
        graph=graph,
        table=table_for(graph, table),
        budget=budget,
        heads=heads,
        margin=0.0 if margin is None else margin,
        time_limit=math.inf if time_limit is None else time_limit,
        seed=seed,
        device=device,
        bits=bits,
        variant=variant,
        context_length=context_length,
        decide=decide,
        kv_heads=kv_heads,
        last_resort=last_resort,
        **options,
    )
    require_possible(request.graph, request.table, request.top)
    return _search_for(request).run()


def _search_for(request: CompileRequest) -> WeightSearch:
    if request.variant == "softmax":
        return SoftmaxSearch(request)
    return MaxSearch(request) if request.bits is None else QuantizedSearch(request)
