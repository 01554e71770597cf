"""The problem as the compiler sees it: a whitened table, an edge list, a threshold of +1 or −1.

Scores xᵀ W_Q W_Kᵀ y do not change when the table is multiplied by an invertible matrix and the
weights by its inverse, and their scale is free. So the table's rows become the rows of U in X = U Σ
Vᵀ, which removes anisotropy, and the threshold is fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headcount.problem.graph import Graph
from headcount.shapes import Float, Int

# Directions below this share of the largest singular value are left out, or below the resolution
# of the table's dtype where that is finer: whitening would blow up what is only rounding there.
_RANK = 1e-6
_TALL = 2  # rows per column from which the table counts as tall


@dataclass(frozen=True)
class WhitenedProblem:
    """Whitened rows, the matrix that undoes whitening in weights, the edges and the threshold.

    Weights W for the rows of `points` become `fold @ W` for the rows of the table.
    """

    points: Float[Tensor, "items rank"]
    fold: Float[Tensor, "d_model rank"]
    sources: Int[Tensor, " edges"]
    targets: Int[Tensor, " edges"]
    level: float

    @classmethod
    def of(
        cls, graph: Graph, table: Float[Tensor, "items d_model"], level: float, device: torch.device
    ) -> WhitenedProblem:
        """Whiten a table: its rows become those of U, scaled to a mean squared norm of 1."""
        rows = table.detach().to(device, torch.float64)
        values, right = _singular_values(rows, table.dtype)
        cut = min(_RANK, max(table.shape) * torch.finfo(table.dtype).eps)
        rank = max(1, int((values > cut * values[0]).sum()))
        scale = math.sqrt(len(table) / rank)
        fold = rows.new_zeros(table.shape[1], rank)
        if values[0] > 0:
            fold = right[:, :rank] / values[:rank] * scale
        points = (rows @ fold).float()
        sources, targets = (
            torch.from_numpy(part.copy()).to(device) for part in (graph.sources, graph.targets)
        )
        return cls(points, fold.cpu(), sources, targets, level)

    def at(self, level: float) -> WhitenedProblem:
        """The same problem with another threshold."""
        return replace(self, level=level)

    @property
    def items(self) -> int:
        return self.points.shape[0]

    @property
    def rank(self) -> int:
        """The width of the whitened table: d_model, or less where the table's rows span less."""
        return self.points.shape[1]

    @property
    def edges(self) -> int:
        return self.sources.numel()


def _singular_values(
    rows: Float[Tensor, "items d_model"], dtype: torch.dtype
) -> tuple[Float[Tensor, " _"], Float[Tensor, "d_model _"]]:
    """Σ and V of X = U Σ Vᵀ, largest first.

    Tall tables of float32 entries or less take them from XᵀX, which is much quicker: squares of
    singular values down to 1e-6 of the largest are well above float64's rounding.
    """
    if len(rows) < _TALL * rows.shape[1] or dtype == torch.float64:
        _, values, right = torch.linalg.svd(rows, full_matrices=False)
        return values, right.T
    peak = float(rows.abs().max()) or 1.0
    squares, right = torch.linalg.eigh((rows / peak).T @ (rows / peak))
    return squares.flip(0).clamp_min(0).sqrt() * peak, right.flip(1)
