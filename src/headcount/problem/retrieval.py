"""Permutation→matching retrieval (Section 7.3): a stored relation π, then the context's pairing.

The paper draws a query q, s = π(q) ≠ q, and 2ℓ − 1 more items distinct from each other, s and q;
the 2ℓ items other than q are paired, and the label y is the partner of s. Here the context comes
first: 2ℓ distinct items, two by two, with (s, y) in slot 0. The slots are exchangeable, because
there are no positions, so it does not matter where (s, y) stands. A run's query is q = π⁻¹(s), and
the example is *valid* for it when q is not in the context (which rejects s = q too). All pairs (q,
S) that the paper allows are equally likely in both, so the valid examples have exactly its
distribution; and runs with different π share the drawn contexts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.problem.distinct import distinct_items
from headcount.problem.streams import halves, stream_key, words
from headcount.shapes import Bool, Float, Int


@dataclass(frozen=True)
class RetrievalSampler:
    """Draws contexts of `length` pairs: columns 2i and 2i + 1 are the pair in slot i, (s, y) first.

    Context n of a stream is a pure function of (items, length, stream, n), the same for every run.

    >>> sampler = RetrievalSampler(items=40, length=4)
    >>> a, b = sampler.draw(3, stream="test"), sampler.draw(1, stream="test", start=2)
    >>> bool((a[2] == b[0]).all())
    True
    """

    items: int
    length: int = 16  # ℓ
    device: str | torch.device = "cpu"

    def __post_init__(self) -> None:
        if not 2 <= 2 * self.length < self.items:
            raise InputError(
                f"{self.length} pairs and a query do not fit {self.items} items; "
                f"choose a length of 1…{(self.items - 1) // 2}"
            )

    def draw(
        self, count: int, *, stream: str, start: int = 0
    ) -> Int[Tensor, "{count} {2*self.length}"]:
        """Contexts `start` … `start + count − 1` of the stream, one per row."""
        key = stream_key(self.items, self.length, "retrieval", stream)
        slot = torch.arange(2 * self.length, device=self.device)[:, None]
        counters = torch.arange(start, start + count, device=self.device) * (2 * self.length) + slot
        return distinct_items(halves(words(key, counters))[0], self.items).T.contiguous()


def queries(
    inverses: Int[Tensor, "runs items"], contexts: Int[Tensor, "count width"]
) -> tuple[Int[Tensor, "runs count"], Bool[Tensor, "runs count"]]:
    """Each run's q = π⁻¹(s), and whether the example is valid for it."""
    q = inverses[:, contexts[:, 0]]
    return q, (contexts != q[:, :, None]).all(-1)


def encode(
    table: Float[Tensor, "rows d_model"],
    contexts: Int[Tensor, "count width"],
    q: Int[Tensor, " count"],
) -> Float[Tensor, "count positions d_model"]:
    """X = [x_1, …, x_ℓ, E[NULL], E[q]] with x_i = E[a_i] + E[b_i]; NULL is the table's last row."""
    slots = table[contexts[:, 0::2]] + table[contexts[:, 1::2]]
    return torch.cat([slots, table[-1].expand(len(q), 1, -1), table[q][:, None]], 1)
