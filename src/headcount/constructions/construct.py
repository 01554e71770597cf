"""The front door: choose a construction, and find the smallest width that verification confirms."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.constructions.compressive import compressive
from headcount.constructions.general_embedding import general_embedding
from headcount.constructions.general_graph import general_graph
from headcount.constructions.one_hot import one_hot
from headcount.constructions.preconditions import warn_unmet
from headcount.constructions.softmax import softmax
from headcount.constructions.template import UNIT_NORM, Inverse, SignatureKind, Signatures
from headcount.errors import InputError, NoSolution
from headcount.problem.contexts import ContextSampler
from headcount.problem.graph import Graph
from headcount.shapes import Float

Threshold = Literal["paper", "midpoint"]
Method = Literal["auto", "one-hot", "compressive", "general-embedding", "general-graph", "softmax"]
_BUILDERS: dict[str, Callable[..., KeyQuery]] = {
    "compressive": compressive,
    "general-embedding": general_embedding,
    "general-graph": general_graph,
    "softmax": softmax,
}
_BEYOND = sys.float_info.max / 4
METHODS = ("one-hot", *_BUILDERS)


@dataclass(frozen=True)
class Request:
    """What to build, all but its size."""

    graph: Graph
    table: Float[Tensor, "items d_model"]
    method: str
    inverse: Inverse
    signatures: Signatures
    threshold: Threshold
    context_length: int | None

    def build(self, key_dim: int, heads: int | None) -> KeyQuery:
        """The construction at one size."""
        if heads is not None and heads < 1:
            raise InputError(f"{heads} heads hold nothing; choose at least 1")
        if self.method == "one-hot":
            if heads not in (None, 1):
                raise InputError(
                    f"the one-hot construction has one head, not {heads}; leave the number out"
                )
            return one_hot(self.graph, self.table, key_dim, self.signatures)
        return _BUILDERS[self.method](
            self.graph, self.table, key_dim, heads, self.signatures, self.inverse
        )

    def narrowed(self, weights: KeyQuery, key_dim: int) -> KeyQuery:
        """The same weights with the first `key_dim` signature columns: what a narrower build would give."""
        threshold = (
            weights.threshold if self.method == "softmax" else self.signatures.threshold(key_dim)
        )
        parts = (weights.queries[:, :, :key_dim].clone(), weights.keys[:, :, :key_dim].clone())
        return replace(weights, queries=parts[0], keys=parts[1], threshold=threshold, widths=())

    def settled(self, weights: KeyQuery) -> KeyQuery | None:
        """The weights, their threshold moved to the midpoint if that was asked for; None if they fail."""
        if self.method == "softmax":
            return self._held_on_contexts(weights)
        if self.threshold == "midpoint":
            weights = midpoint(weights, self.graph, self.table)
        return weights if verify(weights, self.graph, self.table).exact else None

    def _held_on_contexts(self, weights: KeyQuery) -> KeyQuery | None:
        length = self.context_length
        if length is None:
            length = default_context_length(self.graph.items, weights.heads)
        sampler = ContextSampler(self.graph, length)
        for samples in (50, 1000):  # most widths that fail do so on the first few contexts
            if not verify(weights, self.graph, self.table, contexts=sampler, samples=samples).exact:
                return None
        return replace(weights, notes={**weights.notes, "context_length": str(length)})


def construct(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    method: Method = "auto",
    *,
    key_dim: int | None = None,
    heads: int | None = None,
    inverse: Inverse = "transpose",
    signatures: SignatureKind = "rademacher",
    sparsity: float | None = None,
    threshold: Threshold | None = None,
    context_length: int | None = None,
    budget: int | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> KeyQuery:
    """Weights that recognise `graph` on `table`, by one of the paper's constructions; `notes["method"]` says which.

    With `key_dim` they are built at that width, unverified, with the paper's number of heads unless you give one;
    preconditions that fail are warned about. Without, a small width that `verify` confirms is found by doubling and
    bisection over one set of signatures (success need not be monotone in d_k, so a smaller one may exist), and without
    `heads` over splits too; `budget` is the largest D_K that it tries. Softmax weights are confirmed on drawn contexts
    of `context_length`, kept in their notes. Raises `NoSolution` when no width is confirmed.

    `threshold`: "paper" is the construction's own τ, "midpoint" lies halfway between the lowest edge and the highest
    non-edge, which takes a pass over all pairs. The default is "midpoint" in a search and "paper" otherwise.

    >>> from headcount.problem.makers import permutation_graph
    >>> weights = construct(permutation_graph(32), torch.eye(32))
    >>> weights.notes["method"], verify(weights, permutation_graph(32), torch.eye(32)).exact
    ('one-hot', True)
    """
    if len(table) != graph.items:
        raise InputError(
            f"the graph has {graph.items} items, the table {len(table)} rows; give a table that fits"
        )
    chosen = _choose(graph, table) if method == "auto" else method
    if chosen not in METHODS:
        raise InputError(f"method {method!r} is unknown; use auto, {', '.join(METHODS)}")
    if sparsity is not None and signatures != "bernoulli":
        raise InputError(
            "sparsity belongs to Bernoulli signatures; leave it out, or choose signatures bernoulli"
        )
    if context_length is not None and chosen != "softmax":
        raise InputError(
            "context_length belongs to softmax; other weights are right in every context or in none"
        )
    if budget is not None and key_dim is not None:
        raise InputError(
            "budget ends a search, and with key_dim there is none; leave one of them out"
        )
    sparsity = sparsity if sparsity is not None else (0.25 if chosen == "one-hot" else 0.05)
    threshold = threshold or ("midpoint" if key_dim is None else "paper")
    drawn = Signatures(signatures, sparsity, seed)
    request = Request(graph, table, chosen, inverse, drawn, threshold, context_length)
    if key_dim is None:
        return _smallest(request, heads, budget, progress or (lambda line: None))
    weights = request.build(key_dim, heads)
    if inverse == "transpose":
        warn_unmet(chosen, graph, table, key_dim, weights.heads, context_length)
    return (
        midpoint(weights, graph, table)
        if threshold == "midpoint" and chosen != "softmax"
        else weights
    )


def midpoint(weights: KeyQuery, graph: Graph, table: Float[Tensor, "items d_model"]) -> KeyQuery:
    """The same weights with τ halfway between the lowest edge and the highest non-edge: the largest margin there is."""
    found = verify(
        replace(weights, threshold=_BEYOND), graph, table
    )  # no pair is above it: only the extremes count
    if found.lowest_edge is None or found.highest_non_edge is None:
        return weights
    return replace(weights, threshold=(found.lowest_edge.score + found.highest_non_edge.score) / 2)


def _choose(graph: Graph, table: Float[Tensor, "items d_model"]) -> str:
    """The first construction whose assumptions hold: I, II, III for permutations, IV for other graphs."""
    if not graph.is_permutation:
        return "general-graph"
    if table.shape[0] == table.shape[1] and torch.equal(
        table, torch.eye(len(table), dtype=table.dtype)
    ):
        return "one-hot"
    unit = (table.double().norm(dim=1) - 1).abs().max() < UNIT_NORM
    return "compressive" if unit else "general-embedding"


def _smallest(
    request: Request, heads: int | None, budget: int | None, report: Callable[[str], None]
) -> KeyQuery:
    """The smallest confirmed budget over the splits that come into question."""
    best: KeyQuery | None = None
    tried: list[str] = []
    for count in _splits(request) if heads is None else [heads]:
        most = budget if best is None else best.budget - 1
        limit = _widest(request) if most is None else min(_widest(request), most // count)
        tried.append(f"{count} × {limit}")
        best = (_narrowest(request, count, limit, report) if limit else None) or best
    if best is None:
        remedy = (
            "use inverse pinv, or more heads"
            if request.inverse == "transpose"
            else "use more heads or another seed"
        )
        raise NoSolution(
            f"no {request.method} weights were confirmed up to {', '.join(tried)} (heads × width); {remedy}"
        )
    return best


def _splits(request: Request) -> Iterator[int]:
    """Head counts: the paper's block of d_model edges first, then blocks down to a sixteenth of that."""
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
    """Where a search gives up: leakage outside a block does not shrink with d_k, so width alone stops helping."""
    return max(4 * request.table.shape[1], 32 * math.ceil(math.log(max(request.graph.items, 2))))


def _narrowest(
    request: Request, heads: int, limit: int, report: Callable[[str], None]
) -> KeyQuery | None:
    """Doubling, then bisection; every width is a prefix of one set of signatures."""
    low, high = 0, min(limit, 4)
    wide = request.build(min(limit, 16), heads)
    while True:
        if high > wide.key_dim:
            wide = request.build(min(limit, 2 * high), heads)
        report(f"{heads} heads × {high}")
        if found := request.settled(request.narrowed(wide, high)):
            break
        if high == limit:
            return None
        low, high = high, min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        report(f"{heads} heads × {middle}")
        if narrower := request.settled(request.narrowed(wide, middle)):
            found, high = narrower, middle
        else:
            low = middle
    return found


def default_context_length(items: int, heads: int) -> int:
    """ℓ = max(4h, 4 ln m, 2·exp(2√ln m)), at most m/2.

    The first two terms are Theorem 8.1's condition with C_ℓ = 4. The third is ours: when a source's target is absent,
    its owner head still spreads mass 1 over logits that are about standard normal as long as leakage is small, and the
    largest of all m², near 2√ln m, must not hold half of it. At ℓ = m no target would ever be absent.
    """
    logarithm = math.log(max(items, 2))
    wanted = math.ceil(max(4 * heads, 4 * logarithm, 2 * math.exp(2 * math.sqrt(logarithm))))
    return max(1, min(items // 2, wanted))
