"""`verify`: do these weights recognise this graph? (Section 3, Definition 9.1)

Under max and sum a pair's score is the same in every context, so the m² pairs decide every context
of every length ("monotonicity under context restriction", Section 4). Under softmax a score depends
on the context, so contexts are checked: given ones, drawn ones, or all of one length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from headcount.attention.context_verification import checked_contexts, verify_contexts
from headcount.attention.key_query import Decide, KeyQuery
from headcount.attention.pair_verification import verify_pairs
from headcount.attention.recovery import Recovery, SoftmaxCertificate
from headcount.attention.row_verification import verify_rows
from headcount.attention.softmax_certificate import softmax_certificate
from headcount.errors import InputError
from headcount.problem.contexts import ContextSampler
from headcount.problem.graph import Graph
from headcount.problem.real_numbers import real_array
from headcount.problem.tables import TableLike, table_for
from headcount.shapes import Int

_LENGTH = 16  # of drawn contexts, where the weights do not say what they were made for


def verify(
    weights: KeyQuery,
    graph: Graph,
    table: TableLike,
    *,
    contexts: Int[Tensor, "count length"] | np.ndarray | ContextSampler | None = None,
    context_length: int | None = None,
    search: int = 20_000,
    samples: int = 2000,
    seed: int = 0,
    precision: Literal["auto", "float32", "float64"] = "auto",
    device: str | torch.device = "auto",
    decide: str | None = None,
) -> Recovery:
    """Check weights against a graph. `table` has one row per item.

    Max and sum: exact over all m² ordered pairs, diagonal included, hence for every context.
    With `contexts` (rows of item ids): exact on those, under any aggregation. With a
    `ContextSampler`: on `samples` drawn contexts, with a 95 % Clopper–Pearson bound on the share of
    contexts that fail. This is what softmax weights get by default, at the length they were made
    for (16 if unknown). A sample without an error proves nothing about the contexts outside it:
    `correct` is true and `exact` is None then.

    With `context_length` ℓ softmax weights are decided for every context of ℓ items: the answer's
    `certificate` says certified, refuted or open, `exact` says whether it is certified, and the
    counts are of the context that refutes, or of drawn ones. `search` is how many cases are looked
    into before the verdict is open (see `softmax_certificate`). Max and sum need no length.

    With `decide="top"` no threshold takes part: every target must score above every other item of
    its row, hence be the top of the row in every context that holds it. Items without targets are
    not judged. By default the weights' note `decide` says which holds.

    >>> from headcount.problem.makers import permutation_graph
    >>> graph, table = permutation_graph(8), torch.eye(8)
    >>> target_of = torch.eye(8)[torch.from_numpy(graph.targets.copy())]
    >>> weights = KeyQuery(target_of[None], torch.eye(8)[None], threshold=0.5)
    >>> found = verify(weights, graph, table)
    >>> found.exact, found.margin
    (True, 0.5)
    >>> sharp = KeyQuery(target_of[None] * 10, torch.eye(8)[None], 0.4, aggregation="softmax")
    >>> verify(sharp, graph, table, context_length=4).verdict
    'certified'
    """
    if not isinstance(weights, KeyQuery):
        raise InputError(
            f"the weights are a {type(weights).__name__}; give a KeyQuery, as in "
            "headcount.KeyQuery(queries, keys, threshold)"
        )
    rows, weights = table_for(graph, table), weights.detached()
    if contexts is not None and not isinstance(contexts, Tensor | ContextSampler):
        contexts = torch.from_numpy(real_array(np.asarray(contexts), "contexts").copy())
    _check(weights, graph, rows, contexts, samples, precision)
    decide = decide or weights.decided_by
    if decide not in get_args(Decide):
        raise InputError(f"decide {decide!r} is unknown; use threshold or top")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if decide == "top":
        if contexts is not None or context_length is not None:
            raise InputError(
                "the top of a row is decided over all items, for every context; leave out contexts "
                "and context_length, or use decide='threshold'"
            )
        return verify_rows(weights.to(device), graph, rows.to(device), precision)
    if context_length is not None and contexts is not None:
        raise InputError("contexts and a context length exclude each other; give one of them")
    certificate = None
    if weights.aggregation == "softmax" and context_length is not None:
        certificate = softmax_certificate(weights, graph, rows, context_length, search=search)
    if weights.aggregation == "softmax" and contexts is None:
        contexts = _contexts_to_count(weights, graph, certificate)
    weights, rows = weights.to(device), rows.to(device)
    if contexts is None:
        return verify_pairs(weights, graph, rows, precision)
    sampled = isinstance(contexts, ContextSampler)
    chosen = (
        contexts.draw(samples, seed=seed, stream="verify")
        if sampled
        else checked_contexts(contexts, graph)
    )
    found = verify_contexts(weights, graph, rows, chosen.to(device), sampled)
    if certificate is None:
        return found
    return replace(found, certificate=certificate, exact=certificate.verdict == "certified")


def _contexts_to_count(
    weights: KeyQuery, graph: Graph, certificate: SoftmaxCertificate | None
) -> Tensor | ContextSampler:
    """Where the errors of softmax weights are counted: the context that refutes, or drawn ones."""
    if certificate is None:
        return ContextSampler(graph, min(weights.context_length or _LENGTH, graph.items))
    if certificate.counterexample:
        return torch.tensor([certificate.counterexample])
    return ContextSampler(graph, certificate.context_length)


def _check(
    weights: KeyQuery,
    graph: Graph,
    table: Tensor,
    contexts: Tensor | ContextSampler | None,
    samples: int,
    precision: str,
) -> None:
    """Refuse what cannot be verified, in words."""
    weights.require_width(table.shape[1])
    if not table.isfinite().all():
        raise InputError("the table holds a NaN or infinite entry; remove or replace that row")
    if precision not in ("auto", "float32", "float64"):
        raise InputError(f"precision {precision!r} is unknown; use auto, float32 or float64")
    if samples < 1:
        raise InputError(f"{samples} samples check nothing; choose at least 1")
    if isinstance(contexts, ContextSampler) and contexts.graph.items != graph.items:
        raise InputError(
            f"the sampler draws from {contexts.graph.items} items, the graph has {graph.items}"
        )
