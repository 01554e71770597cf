"""One layer's key–query channel as the model uses it: heads, biases, norms and rotary embedding.

Attention reads n(x) = x̂ ⊙ γ + β, where x̂ is the normalised input. The gain γ and the offset β are
folded into the projections, so that a channel takes x̂:

    q = x̂ W_Q + b_Q,   k = ŷ W_K + b_K,   score = q kᵀ.

Where the norm is a LayerNorm, x̂ has mean 0; the mean of each column of W is removed too, since it
has no effect. Content scores leave out positions: a rotary embedding turns queries and keys of
offset 0 alike, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.shapes import Float


@dataclass(frozen=True)
class Rotary:
    """A rotary embedding: columns turn in pairs, by the offset times a frequency of their own."""

    base: float
    width: int  # columns that turn; those beyond stay
    halves: bool  # column a turns with a + width/2; else neighbours turn together

    def turned(self, keys: Float[Tensor, "*rows key_dim"], offset: float) -> Tensor:
        """Keys that stand `offset` places before the query."""
        half = self.width // 2
        angles = -offset * self.base ** (-torch.arange(half, dtype=torch.float64) * 2 / self.width)
        cosine, sine = angles.cos().to(keys.dtype), angles.sin().to(keys.dtype)
        first, second = (
            (slice(0, half), slice(half, self.width))
            if self.halves
            else (slice(0, self.width, 2), slice(1, self.width, 2))
        )
        out = keys.clone()
        out[..., first] = keys[..., first] * cosine - keys[..., second] * sine
        out[..., second] = keys[..., second] * cosine + keys[..., first] * sine
        return out


@dataclass(frozen=True)
class HeadNorm:
    """The RMS norm of each head's queries and keys, before the rotary embedding."""

    query_gain: Float[Tensor, " key_dim"]
    key_gain: Float[Tensor, " key_dim"]
    epsilon: float


@dataclass(frozen=True)
class Channel:
    """The heads of one layer, gains folded in; query head a reads the keys of head a // (h/g)."""

    queries: Float[Tensor, "heads d_model key_dim"]
    keys: Float[Tensor, "kv_heads d_model key_dim"]
    query_bias: Float[Tensor, "heads key_dim"]
    key_bias: Float[Tensor, "kv_heads key_dim"]
    norm: HeadNorm | None = None
    rotary: Rotary | None = None
    scale: float = 1.0

    @property
    def heads(self) -> int:
        return len(self.queries)

    @property
    def key_dim(self) -> int:
        return self.queries.shape[2]

    @property
    def biased(self) -> bool:
        """Whether the channel has biases that are not zero."""
        return bool(self.query_bias.any() or self.key_bias.any())

    def key_head(self, head: int) -> int:
        """The key head that a query head reads."""
        return head // (len(self.queries) // len(self.keys))

    def form(
        self, head: int
    ) -> tuple[Float[Tensor, "rows key_dim"], Float[Tensor, "rows key_dim"]]:
        """The head as one bilinear form: Q and K with score = [x̂, 1] Q Kᵀ [ŷ, 1]ᵀ.

        The biases are the last row; without any there is none. Of a norm of queries and keys the
        gains are in the form. What it divides by is a positive number per token, left out here.
        """
        parts = []
        for weight, bias, gain in (
            (self.queries[head], self.query_bias[head], "query_gain"),
            (self.keys[self.key_head(head)], self.key_bias[self.key_head(head)], "key_gain"),
        ):
            part = torch.cat([weight, bias[None]]) if self.biased else weight
            parts.append(part if self.norm is None else part * getattr(self.norm, gain))
        return parts[0], parts[1]

    def sides(
        self, inputs: Float[Tensor, "rows d_model"], offset: float = 0.0
    ) -> Iterator[tuple[Float[Tensor, "rows key_dim"], Float[Tensor, "rows key_dim"]]]:
        """Queries and keys of every head for normalised inputs: scores are their products."""
        for head in range(self.heads):
            other = self.key_head(head)
            query = inputs @ self.queries[head] + self.query_bias[head]
            key = inputs @ self.keys[other] + self.key_bias[other]
            if self.norm is not None:
                query = _normed(query, self.norm.query_gain, self.norm.epsilon)
                key = _normed(key, self.norm.key_gain, self.norm.epsilon)
            if offset and self.rotary is not None:
                key = self.rotary.turned(key, offset)
            yield query * self.scale, key


def _normed(rows: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    return rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + epsilon) * gain
