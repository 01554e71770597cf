"""Bounds on softmax scores over every context of ℓ items, with rounding included (Eqs. 5–6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headcount.attention.exact import ErrorBound
from headcount.attention.key_query import KeyQuery
from headcount.attention.tiles import Projections
from headcount.errors import InputError
from headcount.shapes import Float, Int

TINY = 2.0**-900  # more than what underflow takes from a sum of probabilities


@dataclass(frozen=True)
class Logits:
    """L⁽ᵏ⁾_ij = S⁽ᵏ⁾_ij/√d_k in float64, and ε: a computed A_ij is within e^±ε of the true one.

    With u = 2⁻⁵³, logits off by e move a probability by a factor within e^±2e. A sum of ℓ
    exponentials in logarithms takes at most ℓ + 16 steps, each off by less than u·(|L| + ln ℓ + 8);
    h heads are h more roundings.
    """

    queries: list[Float[Tensor, "items _"]]
    keys: list[Float[Tensor, "items _"]]
    scales: list[float]
    error: float

    @classmethod
    def of(cls, weights: KeyQuery, table: Float[Tensor, "items d_model"], length: int) -> Logits:
        """The logits of softmax weights, in contexts of ℓ items."""
        heads = replace(weights, aggregation="max")
        parts = Projections.of(heads, table)
        scales = [width**-0.5 for width in weights.widths]
        largest = max(
            float(query.norm(dim=1).max() * key.norm(dim=1).max()) * scale
            for query, key, scale in zip(parts.queries, parts.keys, scales, strict=True)
        )
        score_error = ErrorBound.of_scores(heads, table, parts).float64
        rounding = (length + 16) * (largest + math.log(length) + 8) + weights.heads
        error = 2 * score_error * max(scales) + 2.0**-51 * rounding
        if not error < 1:
            raise InputError(
                f"the logits reach {largest:.1g}, too much for float64; "
                "scale the weights or the table down"
            )
        return cls(parts.queries, parts.keys, scales, error)

    @property
    def heads(self) -> int:
        return len(self.queries)

    @property
    def items(self) -> int:
        return len(self.queries[0])

    def rows(self, head: int, sources: Int[Tensor, " sources"]) -> Float[Tensor, "sources items"]:
        """L⁽ᵏ⁾_ij of the given sources i and every item j."""
        return (self.queries[head][sources] @ self.keys[head].T).mul_(self.scales[head])

    def bound(self, scores: Float[Tensor, "*n"], lower: bool) -> Float[Tensor, "*n"]:
        """Bounds on true A_ij from bounds on computed ones."""
        sign = -1 if lower else 1
        return scores * math.exp(sign * self.error) + sign * TINY

    def above(self, score: float) -> float:
        """A computed A_ij above this is truly above `score`; τ may be negative, A_ij never is."""
        return (score + TINY) * math.exp(math.copysign(self.error, score))

    def below(self, score: float) -> float:
        """A computed A_ij of at most this is truly at most `score`."""
        return (score - TINY) * math.exp(math.copysign(self.error, -score))


def bound_scores(
    logits: Logits, sources: Int[Tensor, " sources"], length: int
) -> tuple[Float[Tensor, "sources items"], Float[Tensor, "sources items"]]:
    """Bound A_ij from below and above over every context of ℓ items with i and j.

    The bounds are sums over heads of each head's worst case. Heads may need different contexts for
    theirs, so the bounds are valid but not always attained.
    """
    low, high = (
        torch.zeros(len(sources), logits.items, dtype=torch.float64, device=sources.device)
        for _ in range(2)
    )
    for head in range(logits.heads):
        row = logits.rows(head, sources)
        low += extreme_masses(row, sources, length, largest=True)
        high += extreme_masses(row, sources, length, largest=False)
    return logits.bound(low, lower=True), logits.bound(high, lower=False)


def extreme_masses(
    logits: Float[Tensor, "*heads sources items"],
    sources: Int[Tensor, " sources"],
    length: int,
    largest: bool,
) -> Float[Tensor, "*heads sources items"]:
    """p_ij of each head when the free items of the context have the largest, or smallest, logits.

    With the largest rivals p_ij is least, with the smallest it is greatest. Besides i and j, ℓ − 2
    items are free; on the diagonal ℓ − 1 are. Differentiable, so that a descent can use it too.

    The ℓ − 1 most extreme items other than i are the rivals on the diagonal. For j among them the
    rivals are the others, for any other j all but the last: no pair needs a sum of its own. Sums
    that leave one entry out join a prefix and a suffix, since subtracting it would cancel digits.
    """
    itself = sources[:, None] == torch.arange(logits.shape[-1], device=logits.device)
    own = logits.gather(-1, sources[:, None].expand(*logits.shape[:-1], 1))
    others = logits.masked_fill(itself, -torch.inf if largest else torch.inf)
    top = others.topk(length - 1, largest=largest)
    empty = torch.full_like(own, -torch.inf)
    before = torch.cat([empty, top.values.logcumsumexp(-1)], -1)
    after = torch.cat([top.values.flip(-1).logcumsumexp(-1).flip(-1), empty], -1)
    without = torch.logaddexp(before[..., :-1], after[..., 1:])  # ln Σ e^L, less one entry each
    all_but_last = without[..., -1:] if length > 1 else empty
    rivals = all_but_last.expand_as(logits).scatter(-1, top.indices, without)
    total = torch.where(itself, before[..., -1:], torch.logaddexp(own, rivals))
    return torch.sigmoid(logits - total)
