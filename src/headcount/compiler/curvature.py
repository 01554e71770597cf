"""Gauss–Newton models of heads, gathered tile by tile: one factorised, one solved iteratively.

With r the violations of a head's active pairs, J their slopes and P their weights, a step solves
(JᵀPJ + λD) step = JᵀPr, where D is the mean diagonal of JᵀPJ. The slopes of s_ij = q_i·k_j, q_i =
x_iᵀW_Q, k_j = x_jᵀW_K, are x_i ⊗ k_j in W_Q and x_j ⊗ q_i in W_K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.shapes import Float, Int

_DIRECT = {"cpu": 400, "cuda": 2000}  # parameters of a head up to which its block is factorised
_OUTER = {"cpu": 2**22, "cuda": 2**27}  # entries of x xᵀ held at a time
# Active non-edges of a head that stand for all in the iterative model.
_SAMPLE = {"cpu": 2**18, "cuda": 2**20}
# Conjugate gradients stop after so many rounds, or at this relative residual. A rough step is
# enough: the next one starts from a new model anyway.
_ROUNDS = 40
_CLOSE = 0.05
# Added to every diagonal, relative and absolute: float32 needs both where pairs hardly constrain a
# direction, or none is active.
_RIDGE, _FLOOR = 1e-6, 1e-9
_TINY = 1e-30  # instead of a division by zero, once a head's residual has vanished


@dataclass(frozen=True)
class Tile:
    """The pairs of some rows with all columns, for c heads.

    `slope` holds P·r of each pair, `active` holds P where r is not 0, `edges` the edges' places.
    """

    rows: slice
    slope: Float[Tensor, "c rows items"]
    active: Float[Tensor, "c rows items"]
    edges: tuple[Int[Tensor, " few"], Int[Tensor, " few"]]


def model_of(points: Tensor, queries: Tensor, keys: Tensor) -> Direct | Iterative:
    """The model that fits the size of a head."""
    parameters = 2 * points.shape[1] * queries.shape[2]
    kind = Direct if parameters <= _DIRECT[points.device.type] else Iterative
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
        return torch.cat(
            [(self.points.T @ part).flatten(1) for part in (self._query_slope, self._key_slope)], 1
        )


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
        diagonal.add_(((damping + _RIDGE) * diagonal.mean(1) + _FLOOR)[:, None])
        factor, failed = torch.linalg.cholesky_ex(matrix)
        step = torch.cholesky_solve(self.slope().unsqueeze(2), factor).squeeze(2)
        return torch.where((failed == 0)[:, None] & step.isfinite(), step, 0.0)

    def _matrix(self) -> Float[Tensor, "c parameters parameters"]:
        count, _, width = self.queries.shape
        rank = self.points.shape[1]
        size = rank * width
        matrix = self.points.new_empty(count, 2 * size, 2 * size)
        # W_Q's entries are numbered (a, b), W_K's (c, e); `_cross` came as [a, e, c, b].
        cross = (
            self._cross.view(count, rank, width, rank, width)
            .permute(0, 1, 4, 3, 2)
            .reshape(count, size, size)
        )
        matrix[:, :size, size:] = cross
        matrix[:, size:, :size] = cross.mT
        for place, sums in (
            (slice(0, size), self._query_sums),
            (slice(size, None), self._key_sums),
        ):
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
    """JᵀPJ applied to vectors, on active pairs alone.

    All active edges take part, and a sample of the active non-edges where there are many.
    """

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
            if len(rows) > share:  # every n-th non-edge, its weight n times as large
                edge = torch.zeros_like(active, dtype=torch.bool)
                edge[tile.edges] = True
                kept = edge[rows, columns]
                others = (~kept).nonzero().flatten()
                every = max(1, -(-len(others) // share))
                weight[others] *= every
                kept[others[::every]] = True
                rows, columns, weight = rows[kept], columns[kept], weight[kept]
            self._found[head].append((rows + tile.rows.start, columns, weight))

    def heads(self) -> list[_Pairs]:
        return [
            _Pairs(query, key, *(torch.cat(parts) for parts in zip(*found, strict=True)))
            for query, key, found in zip(self.queries, self.keys, self._found, strict=True)
        ]


class _Pairs:
    """The active pairs of one head, row by row: JᵀPJ as it acts on changes of queries and keys."""

    def __init__(
        self, query: Tensor, key: Tensor, rows: Tensor, columns: Tensor, weight: Tensor
    ) -> None:
        self.query, self.key = query, key
        self.rows, self.columns, self.weight = rows, columns, weight
        self.near, self.far = query.index_select(0, rows), key.index_select(0, columns)
        # Sums over a row's pairs are segments of the list; for columns it is sorted once more.
        self.by_column = columns.argsort(stable=True)
        self.rows_by_column = rows[self.by_column]
        self.row_starts = _starts(rows, len(query))
        self.column_starts = _starts(columns, len(query))

    def apply(
        self, query: Float[Tensor, "items width"], key: Float[Tensor, "items width"]
    ) -> tuple[Tensor, Tensor]:
        """PJ of changes of all q_i and k_j, and Jᵀ of that, as slopes of q_i and k_j."""
        change = (query.index_select(0, self.rows) * self.far).sum(1)
        change = change.add_((self.near * key.index_select(0, self.columns)).sum(1)).mul_(
            self.weight
        )
        return (
            _weighted_sums(self.key, self.columns, self.row_starts, change),
            _weighted_sums(
                self.query, self.rows_by_column, self.column_starts, change[self.by_column]
            ),
        )

    def squares(self, norms: Float[Tensor, " items"]) -> Float[Tensor, "two width width"]:
        """Σ P‖x_i‖² k_j k_jᵀ and Σ P‖x_j‖² q_i q_iᵀ.

        These are JᵀPJ's diagonal blocks, summed over the table's directions.
        """
        sides = (self.far, norms[self.rows]), (self.near, norms[self.columns])
        return torch.stack(
            [(part * (norm * self.weight)[:, None]).T @ part for part, norm in sides]
        )


def solve_together(
    points: Float[Tensor, "items rank"], models: list[Iterative], damping: Float[Tensor, " c"]
) -> Float[Tensor, "c parameters"]:
    """Conjugate gradients for all heads at once, each preconditioned by its `squares`.

    The whitened rows are nearly isotropic, so JᵀPJ is close to I ⊗ squares/rank: one small inverse
    per matrix takes away most of what makes columns of a head differ in curvature.
    """
    heads = [head for model in models for head in model.heads()]
    slope = torch.cat([model.slope() for model in models])
    count, (rank, width) = len(heads), (points.shape[1], heads[0].query.shape[1])
    norms = points.square().sum(1)
    squares = torch.stack([head.squares(norms) for head in heads]) / rank
    shift = (damping + _RIDGE) * squares.diagonal(dim1=2, dim2=3).mean((1, 2)) + _FLOOR
    inverse = torch.linalg.inv(
        squares + shift[:, None, None, None] * torch.eye(width, device=points.device)
    )

    def apply(vector: Tensor) -> Tensor:
        moved = points @ vector.view(count, 2, rank, width).permute(2, 0, 1, 3).flatten(1)
        moved = moved.view(-1, count, 2, width).permute(1, 2, 0, 3)
        sums = torch.stack(
            [torch.stack(head.apply(*change)) for head, change in zip(heads, moved, strict=True)]
        )
        slopes = points.T @ sums.permute(2, 0, 1, 3).flatten(1)
        slopes = slopes.view(rank, count, 2, width).permute(1, 2, 0, 3).reshape(count, -1)
        return slopes + shift[:, None] * vector

    def precondition(vector: Tensor) -> Tensor:
        return (vector.view(count, 2, rank, width) @ inverse).flatten(1)

    return _conjugate_gradients(apply, precondition, slope)


def _conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    slope: Float[Tensor, "c parameters"],
) -> Float[Tensor, "c parameters"]:
    """Solve apply(x) = slope for every row, until the slowest one is close; zero where it fails."""
    x, residual = torch.zeros_like(slope), slope
    direction = eased = precondition(residual)
    power, enough = (residual * eased).sum(1), _CLOSE * slope.norm(dim=1)
    for _ in range(_ROUNDS):
        if bool((residual.norm(dim=1) <= enough).all()):
            break
        moved = apply(direction)
        length = (power / (direction * moved).sum(1).clamp_min(_TINY))[:, None]
        x, residual = x + length * direction, residual - length * moved
        eased = precondition(residual)
        power, before = (residual * eased).sum(1), power
        direction = eased + (power / before.clamp_min(_TINY))[:, None] * direction
    return torch.where(x.isfinite(), x, 0.0)


def _starts(places: Int[Tensor, " pairs"], items: int) -> Int[Tensor, " items"]:
    """Where each item's pairs begin among sorted pairs."""
    ends = torch.bincount(places, minlength=items).cumsum(0)
    return ends.roll(1).index_fill_(0, places.new_zeros(1), 0)


def _weighted_sums(
    table: Tensor, which: Tensor, starts: Tensor, weight: Tensor
) -> Float[Tensor, "items width"]:
    return torch.nn.functional.embedding_bag(
        which, table, starts, mode="sum", per_sample_weights=weight
    )


def _squares(parts: Float[Tensor, "*c rows width"]) -> Float[Tensor, "*c rows _"]:
    """Each row's outer product with itself."""
    return (parts.unsqueeze(-1) * parts.unsqueeze(-2)).flatten(-2)


def _rows_times(
    points: Float[Tensor, "rows rank"], parts: Float[Tensor, "c rows width"]
) -> Float[Tensor, "c rows _"]:
    """x_i ⊗ k_i for each row."""
    return (points.unsqueeze(2) * parts.unsqueeze(2)).flatten(2)
