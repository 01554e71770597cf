"""Gauss–Newton models of some heads, gathered tile by tile: one factorised, one for blocks too large for that.

With r the violations of a head's active pairs, J their slopes and P their weights, a step solves
(JᵀPJ + λD) step = JᵀPr, where D is the mean diagonal of JᵀPJ. The slopes of s_ij = q_i·k_j, q_i = x_iᵀW_Q,
k_j = x_jᵀW_K, are x_i ⊗ k_j in W_Q and x_j ⊗ q_i in W_K.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.shapes import Float

_DIRECT = {"cpu": 3000, "cuda": 16000}  # parameters of a head up to which its block is factorised
_OUTER = {"cpu": 2**22, "cuda": 2**27}  # entries of x xᵀ held at a time
_SAMPLE = {"cpu": 2**18, "cuda": 2**23}  # active pairs of a head that stand for all in the iterative model
_ROUNDS = 40  # of conjugate gradients
_CLOSE = 0.05  # relative residual at which they stop


@dataclass(frozen=True)
class Tile:
    """The pairs of some rows with all columns, for c heads: P·r of each pair, and P where r is not 0."""

    rows: slice
    slope: Float[Tensor, "c rows items"]
    active: Float[Tensor, "c rows items"]


def model_of(points: Tensor, queries: Tensor, keys: Tensor) -> Direct | Iterative:
    """The model that fits the size of a head."""
    kind = Direct if 2 * points.shape[1] * queries.shape[2] <= _DIRECT[points.device.type] else Iterative
    return kind(points, queries, keys)


class _Slopes:
    """JᵀPr, which both models need in full."""

    def __init__(self, points: Tensor, queries: Tensor, keys: Tensor) -> None:
        self.points, self.queries, self.keys = points, queries, keys
        self._query_slope, self._key_slope = torch.empty_like(queries), torch.zeros_like(keys)

    def add(self, tile: Tile) -> None:
        self._query_slope[:, tile.rows] = tile.slope @ self.keys
        self._key_slope += tile.slope.mT @ self.queries[:, tile.rows]

    def slope(self) -> Float[Tensor, "c parameters"]:
        return torch.cat([(self.points.T @ part).flatten(1) for part in (self._query_slope, self._key_slope)], 1)


class Direct(_Slopes):
    """JᵀPJ as matrices, from products of [m, m] and [m, rank·d_k] matrices; Cholesky."""

    def __init__(self, points: Tensor, queries: Tensor, keys: Tensor) -> None:
        super().__init__(points, queries, keys)
        count, items, width = queries.shape
        self._squares = _squares(keys)
        self._by_key = _rows_times(points, keys)
        self._query_sums = queries.new_empty(count, items, width * width)
        self._key_sums = queries.new_zeros(count, items, width * width)
        size = points.shape[1] * width
        self._cross = queries.new_zeros(count, size, size)

    def add(self, tile: Tile) -> None:
        super().add(tile)
        query = self.queries[:, tile.rows]
        self._query_sums[:, tile.rows] = tile.active @ self._squares
        self._key_sums += tile.active.mT @ _squares(query)
        self._cross += _rows_times(self.points[tile.rows], query).mT @ (tile.active @ self._by_key)

    def step(self, damping: Float[Tensor, " c"]) -> Float[Tensor, "c parameters"]:
        """Zero where the factorisation fails."""
        matrix = self._matrix()
        diagonal = matrix.diagonal(dim1=1, dim2=2)
        diagonal.add_(((damping + 1e-6) * diagonal.mean(1) + 1e-9)[:, None])
        factor, failed = torch.linalg.cholesky_ex(matrix)
        step = torch.cholesky_solve(self.slope().unsqueeze(2), factor).squeeze(2)
        return torch.where((failed == 0)[:, None] & step.isfinite(), step, 0.0)

    def _matrix(self) -> Float[Tensor, "c parameters parameters"]:
        count, _, width = self.queries.shape
        rank = self.points.shape[1]
        size = rank * width
        matrix = self.points.new_empty(count, 2 * size, 2 * size)
        # W_Q's entries are numbered (a, b), W_K's (c, e); `_cross` came as [a, e, c, b].
        cross = self._cross.view(count, rank, width, rank, width).permute(0, 1, 4, 3, 2).reshape(count, size, size)
        matrix[:, :size, size:] = cross
        matrix[:, size:, :size] = cross.mT
        for place, sums in ((slice(0, size), self._query_sums), (slice(size, None), self._key_sums)):
            total = self.points.new_zeros(count, rank * rank, width * width)
            for rows, outer in self._outer_products():  # Σ_i x_i x_iᵀ ⊗ (Σ_j P_ij k_j k_jᵀ)
                total += outer.T @ sums[:, rows]
            blocks = total.view(count, rank, rank, width, width)
            matrix[:, place, place] = blocks.permute(0, 1, 3, 2, 4).reshape(count, size, size)
        return matrix

    def _outer_products(self) -> Iterator[tuple[slice, Float[Tensor, "rows _"]]]:
        height = max(1, _OUTER[self.points.device.type] // self.points.shape[1] ** 2)
        for top in range(0, len(self.points), height):
            part = self.points[top : top + height]
            yield slice(top, top + len(part)), _squares(part)


class Iterative(_Slopes):
    """JᵀPJ applied to vectors, on active pairs alone (a sample of them where there are many); conjugate gradients."""

    def __init__(self, points: Tensor, queries: Tensor, keys: Tensor) -> None:
        super().__init__(points, queries, keys)
        self._found: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in queries]
        self._most = _SAMPLE[points.device.type]

    def add(self, tile: Tile) -> None:
        super().add(tile)
        share = self._most * (tile.rows.stop - tile.rows.start) // len(self.points) + 1
        for head, active in enumerate(tile.active):
            rows, columns = active.nonzero(as_tuple=True)
            weight = active[rows, columns]
            if len(rows) > share:  # every n-th pair, its weight n times as large
                every = -(-len(rows) // share)
                rows, columns, weight = rows[::every], columns[::every], weight[::every] * every
            self._found[head].append((rows + tile.rows.start, columns, weight))

    def step(self, damping: Float[Tensor, " c"]) -> Float[Tensor, "c parameters"]:
        slope = self.slope()
        return torch.stack([self._solve(head, slope[head], float(damping[head])) for head in range(len(slope))])

    def _solve(self, head: int, slope: Float[Tensor, " parameters"], damping: float) -> Float[Tensor, " parameters"]:
        pairs = [torch.cat(parts) for parts in zip(*self._found[head], strict=True)]
        query, key = self.queries[head], self.keys[head]
        near, far = query[pairs[0]], key[pairs[1]]
        trace = pairs[2] @ (
            self.points.square().sum(1)[pairs[0]] * far.square().sum(1)
            + self.points.square().sum(1)[pairs[1]] * near.square().sum(1)
        )
        shift = (damping + 1e-6) * float(trace) / len(slope) + 1e-9
        x, residual = torch.zeros_like(slope), slope.clone()
        direction, power = residual.clone(), float(residual @ residual)
        enough = _CLOSE**2 * power
        for _ in range(_ROUNDS):
            moved = self._apply(direction, pairs, near, far) + shift * direction
            curved = float(direction @ moved)
            if power <= enough or curved <= 0:
                break
            length = power / curved
            x, residual = x + length * direction, residual - length * moved
            power, before = float(residual @ residual), power
            direction = residual + power / before * direction
        return x

    def _apply(self, vector: Tensor, pairs: list[Tensor], near: Tensor, far: Tensor) -> Tensor:
        """JᵀPJ·vector, with pairs as (rows, columns, weights)."""
        rows, columns, weight = pairs
        query, key = (self.points @ part for part in vector.view(2, self.points.shape[1], -1))
        change = ((query[rows] * far + near * key[columns]).sum(1) * weight).unsqueeze(1)
        sums = torch.zeros_like(query).index_add_(0, rows, change * far)
        others = torch.zeros_like(key).index_add_(0, columns, change * near)
        return torch.cat([(self.points.T @ part).flatten() for part in (sums, others)])


def _squares(parts: Float[Tensor, "*c rows width"]) -> Float[Tensor, "*c rows _"]:
    """Each row's outer product with itself."""
    return (parts.unsqueeze(-1) * parts.unsqueeze(-2)).flatten(-2)


def _rows_times(points: Float[Tensor, "rows rank"], parts: Float[Tensor, "c rows width"]) -> Float[Tensor, "c rows _"]:
    """x_i ⊗ k_i for each row."""
    return (points.unsqueeze(2) * parts.unsqueeze(2)).flatten(2)
