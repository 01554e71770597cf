"""`construct`: weights for a graph and a table by one of the paper's constructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from headcount.attention.key_query import KeyQuery
from headcount.constructions.methods import METHODS, applicable_method
from headcount.constructions.preconditions import warn_unmet
from headcount.constructions.request import Request, ThresholdRule
from headcount.constructions.search import smallest_confirmed
from headcount.constructions.template import Inverse, SignatureKind, Signatures
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.tables import TableLike, table_for

Method = Literal["auto", "one-hot", "compressive", "general-embedding", "general-graph", "softmax"]


def construct(
    graph: Graph,
    table: TableLike,
    method: Method = "auto",
    *,
    key_dim: int | None = None,
    heads: int | None = None,
    inverse: Inverse = "transpose",
    signatures: SignatureKind = "rademacher",
    sparsity: float | None = None,
    threshold: ThresholdRule | None = None,
    context_length: int | None = None,
    budget: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> KeyQuery:
    """Weights that recognise `graph` on `table`; `notes["method"]` names the construction.

    With `key_dim` they are built at that width, unverified, with the paper's number of heads unless
    you give one; a `PreconditionWarning` names what the theorem asks for and does not get.

    Without `key_dim` a small width that `verify` confirms is found by doubling and bisection over
    one set of signatures, and without `heads` over several numbers of heads too. Success need not
    be monotone in d_k, so a smaller width may exist. `budget` is the largest D_K that the search
    tries. Softmax weights are confirmed on drawn contexts of `context_length`, kept in their notes.
    Raises `NoSolution` when no width is confirmed.

    `inverse` de-embeds by Xᵀ ("transpose", the paper's) or by each block's pseudo-inverse ("pinv").
    `threshold` "paper" is the construction's own τ; "midpoint" is halfway between the lowest edge
    and the highest non-edge, which takes a pass over all pairs. The default is "midpoint" in a
    search and "paper" otherwise. `progress` is called with one line of text per width tried.

    >>> import headcount as hc
    >>> graph, table = hc.permutation_graph(32), hc.one_hot_embeddings(32)
    >>> weights = hc.construct(graph, table)
    >>> weights.notes["method"], hc.verify(weights, graph, table).exact
    ('one-hot', True)
    """
    rows = table_for(graph, table)
    chosen = applicable_method(graph, rows) if method == "auto" else method
    _check_options(chosen, key_dim, heads, signatures, sparsity, context_length, budget)
    if sparsity is None:
        sparsity = 0.25 if chosen == "one-hot" else 0.05  # Algs. 3 and 4, line 2 of each
    request = Request(
        graph,
        rows,
        chosen,
        inverse,
        Signatures(signatures, sparsity, seed),
        threshold or ("midpoint" if key_dim is None else "paper"),
        context_length,
    )
    if key_dim is None:
        return smallest_confirmed(request, heads, budget, progress or (lambda line: None))
    weights = request.build(key_dim, heads)
    if inverse == "transpose":  # no theorem covers pseudo-inverses
        warn_unmet(chosen, graph, rows, key_dim, weights.heads, context_length)
    return request.with_length(request.with_threshold(weights))


def _check_options(
    method: str,
    key_dim: int | None,
    heads: int | None,
    signatures: SignatureKind,
    sparsity: float | None,
    context_length: int | None,
    budget: int | None,
) -> None:
    if method not in METHODS:
        raise InputError(f"method {method!r} is unknown; use auto, {', '.join(METHODS)}")
    if heads is not None and heads < 1:
        raise InputError(f"{heads} heads cannot hold weights; choose at least 1")
    if sparsity is not None and signatures != "bernoulli":
        raise InputError(
            "sparsity belongs to Bernoulli signatures; leave it out, or choose signatures bernoulli"
        )
    if context_length is not None and method != "softmax":
        raise InputError(
            "context_length belongs to softmax; other weights are correct in every context or none"
        )
    if budget is not None and key_dim is not None:
        raise InputError(
            "budget limits a search, and with key_dim there is none; leave one of them out"
        )
