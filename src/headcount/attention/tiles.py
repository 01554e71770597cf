"""Scores of all m² pairs in tiles: the one pass that verification, charts and `all_pairs` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError
from headcount.shapes import Float, Int

_CHUNK = {"cpu": 2**22, "cuda": 2**27}  # numbers of chosen pairs' projections held at once


@dataclass(frozen=True)
class Projections:
    """x_i W_Q⁽ᵏ⁾ and x_j W_K⁽ᵏ⁾ of every item in float64: [items, d_k] matrices, a pair per head.

    Heads that share a key have the same matrix in `keys`, not a copy of it.

    Sum aggregation is one head of width D_K (Section 3's remark), and is treated as such.
    """

    queries: list[Float[Tensor, "items _"]]
    keys: list[Float[Tensor, "items _"]]
    temperature: float | None = None  # of logsumexp; without it the largest score counts

    @classmethod
    def of(cls, weights: KeyQuery, table: Float[Tensor, "items d_model"]) -> Projections:
        weights.require_width(table.shape[1])
        if weights.aggregation == "softmax":
            raise InputError(
                "under softmax a score depends on the context; "
                "give contexts, or weights with max, sum or logsumexp"
            )
        rows = table.double()
        used = {weights.key_head(k): width for k, width in enumerate(weights.widths)}
        shared = [rows @ weights.keys[n, :, :width].double() for n, width in used.items()]
        keys = [shared[weights.key_head(k)] for k in range(weights.heads)]
        queries = [
            rows @ weights.queries[k, :, :width].double() for k, width in enumerate(weights.widths)
        ]
        if weights.aggregation == "sum":
            queries, keys = [torch.cat(queries, 1)], [torch.cat(keys, 1)]
        if weights.aggregation != "logsumexp" or weights.heads == 1:
            return cls(queries, keys)
        return cls(queries, keys, weights.temperature)

    def tiles(
        self, dtype: torch.dtype, size: int
    ) -> Iterator[tuple[slice, slice, Float[Tensor, "a b"]]]:
        """(source rows, target rows, joined scores) of each tile; the next one reuses the buffer.

        Heads are joined as they are computed, so a tile needs two buffers however many heads there
        are. Keys are transposed once, which makes every product read contiguous memory.
        """
        scale = self.temperature or 1.0
        queries = [(part / scale).to(dtype) for part in self.queries]
        join = torch.logaddexp if self.temperature else torch.maximum
        turned = {id(part): part.to(dtype).T.contiguous() for part in self.keys}
        keys = [turned[id(part)] for part in self.keys]
        items, device = len(queries[0]), queries[0].device
        best, part = (
            torch.empty(min(size, items) ** 2, dtype=dtype, device=device) for _ in range(2)
        )
        for top in range(0, items, size):
            rows = slice(top, min(top + size, items))
            for left in range(0, items, size):
                columns = slice(left, min(left + size, items))
                shape = (rows.stop - rows.start, columns.stop - columns.start)
                tile = best[: shape[0] * shape[1]].view(shape)
                head = part[: shape[0] * shape[1]].view(shape)
                with products_in("highest"):  # the error bounds assume it
                    torch.mm(queries[0][rows], keys[0][:, columns], out=tile)
                    for query, key in zip(queries[1:], keys[1:], strict=True):
                        torch.mm(query[rows], key[:, columns], out=head)
                        join(tile, head, out=tile)
                    if self.temperature:
                        tile.mul_(scale)
                yield rows, columns, tile

    def at(
        self, sources: Int[Tensor, " pairs"], targets: Int[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """Scores of chosen pairs in float64."""
        if not sources.numel():
            return torch.empty(0, dtype=torch.float64, device=sources.device)
        chunk = max(1, _CHUNK[sources.device.type] // sum(part.shape[1] for part in self.queries))
        heads = list(zip(self.queries, self.keys, strict=True))
        parts = [
            self._joined(torch.stack([(query[i] * key[j]).sum(1) for query, key in heads]))
            for i, j in zip(sources.split(chunk), targets.split(chunk), strict=True)
        ]
        return torch.cat(parts)

    def _joined(self, scores: Float[Tensor, "heads pairs"]) -> Float[Tensor, " pairs"]:
        if self.temperature is None:
            return scores.amax(0)
        return self.temperature * (scores / self.temperature).logsumexp(0)


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Multiply float32 matrices so on a GPU: "highest" is float32 itself, "high" may be TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
