"""What a construction is asked for, all but its size, and how weights of one size are confirmed."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.recovery import Recovery
from headcount.attention.verification import verify
from headcount.constructions.methods import METHODS
from headcount.constructions.template import Inverse, Signatures
from headcount.problem.contexts import ContextSampler
from headcount.problem.graph import Graph
from headcount.shapes import Float

ThresholdRule = Literal["paper", "midpoint"]
_BEYOND = sys.float_info.max / 4  # a threshold that no score reaches


@dataclass(frozen=True)
class Request:
    """What to build, all but its size."""

    graph: Graph
    table: Float[Tensor, "items d_model"]
    method: str
    inverse: Inverse
    signatures: Signatures
    threshold: ThresholdRule
    context_length: int | None

    def build(self, key_dim: int, heads: int | None) -> KeyQuery:
        """The construction at one size, with its own threshold."""
        return METHODS[self.method](
            self.graph, self.table, key_dim, heads, self.signatures, self.inverse
        )

    def narrowed(self, weights: KeyQuery, key_dim: int) -> KeyQuery:
        """The weights cut to their first `key_dim` columns.

        A narrower draw of signatures is a prefix of a wider one, and every column is de-embedded
        alone: this is what `build(key_dim, …)` would give, without the work.
        """
        softmax = self.method == "softmax"
        tau = weights.threshold if softmax else self.signatures.threshold(key_dim)
        queries, keys = (part[:, :, :key_dim].clone() for part in (weights.queries, weights.keys))
        return replace(weights, queries=queries, keys=keys, threshold=tau, widths=())

    def with_threshold(self, weights: KeyQuery) -> KeyQuery:
        """The weights with the threshold that was asked for; softmax keeps τ = 1/2 (Alg. 2)."""
        if self.threshold == "paper" or self.method == "softmax":
            return weights
        return midpoint(weights, self.graph, self.table)

    def confirmed(self, weights: KeyQuery) -> KeyQuery | None:
        """The weights with the threshold that was asked for; None where verification fails."""
        if self.method == "softmax":
            return self._confirmed_on_contexts(weights)
        weights = self.with_threshold(weights)
        return weights if verify(weights, self.graph, self.table).exact else None

    def _confirmed_on_contexts(self, weights: KeyQuery) -> KeyQuery | None:
        sampler = ContextSampler(self.graph, self._length(weights))
        for samples in (50, 1000):  # most widths that fail do so on the first few contexts
            found = verify(weights, self.graph, self.table, contexts=sampler, samples=samples)
            if not found.correct:
                return None
        return self.with_length(weights)

    def with_length(self, weights: KeyQuery) -> KeyQuery:
        """Softmax weights with a note of the context length that they are made for."""
        if self.method != "softmax":
            return weights
        notes = {**weights.notes, "context_length": str(self._length(weights))}
        return replace(weights, notes=notes)

    def _length(self, weights: KeyQuery) -> int:
        if self.context_length is not None:
            return self.context_length
        return default_context_length(self.graph.items, weights.heads)


def midpoint(weights: KeyQuery, graph: Graph, table: Float[Tensor, "items d_model"]) -> KeyQuery:
    """The weights with τ halfway between the lowest edge and the highest non-edge.

    No other threshold has a larger margin.
    """
    # Above every score, so that the pass counts no false positives and only finds the extremes.
    found = verify(replace(weights, threshold=_BEYOND), graph, table)
    if found.lowest_edge is None or found.highest_non_edge is None:
        return weights
    return replace(weights, threshold=(found.lowest_edge.score + found.highest_non_edge.score) / 2)


def sampler_for(weights: KeyQuery, graph: Graph) -> ContextSampler | None:
    """Draws contexts of the length that softmax weights were built for; None under max and sum."""
    if weights.aggregation != "softmax":
        return None
    length = weights.context_length or default_context_length(graph.items, weights.heads)
    return ContextSampler(graph, length)


def verify_construction(
    weights: KeyQuery, graph: Graph, table: Float[Tensor, "items d_model"], *, seed: int = 0
) -> Recovery:
    """Verify what `construct` built, softmax weights on 1,000 contexts that its search did not see.

    `seed` is that of the construction.
    """
    contexts = sampler_for(weights, graph)
    # The search draws its contexts at seed 0; those would confirm the weights they selected.
    return verify(weights, graph, table, contexts=contexts, samples=1000, seed=seed + 1)


def default_context_length(items: int, heads: int) -> int:
    """ℓ = max(4h, 4 ln m, 2·exp(2√ln m)), at most m/2.

    The first two terms are Theorem 8.1's condition with C_ℓ = 4. The third is ours: when a source's
    target is absent, its owner head still spreads mass 1 over logits that are about standard normal
    as long as leakage is small, and the largest of all m², near 2√ln m, must not hold half of it.
    At ℓ = m no target would ever be absent.
    """
    logarithm = math.log(max(items, 2))
    wanted = math.ceil(max(4 * heads, 4 * logarithm, 2 * math.exp(2 * math.sqrt(logarithm))))
    return max(1, min(items // 2, wanted))
