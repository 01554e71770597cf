"""A pass over all pairs on a GPU that never writes a score to memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headcount.attention.sieve import Sieve, TiledPairs, halved, padded, sieve_edges, sieve_runs_on
from headcount.compiler.layout import Layout
from headcount.compiler.tiled_pass import Sifted, TiledPass, Violations
from headcount.compiler.whitened import WhitenedProblem
from headcount.shapes import Float, Int

_WIDEST = 128  # columns of a head that a program can hold
_FEWEST = 1024  # items from which it pays
_ROWS, _COLUMNS, _WARPS, _STAGES = 64, 128, 4, 2


def pass_for(problem: WhitenedProblem, layout: Layout) -> TiledPass | FusedPass:
    """The quickest pass there is for this problem and device."""
    fits = max(layout.widths) <= _WIDEST and problem.items >= _FEWEST
    sizes = problem.items, problem.edges, layout.widths
    if fits and sieve_runs_on(problem.points.device, *sizes):
        return FusedPass(problem, layout)
    return TiledPass(problem, layout)


class FusedPass:
    """`TiledPass` by Triton kernels, equal to it up to the rounding of half precision.

    Scores are computed twice, once by rows for the queries' slopes and once by columns for the
    keys': cheaper than adding up keys' slopes across programs, and always in the same order.
    """

    def __init__(self, problem: WhitenedProblem, layout: Layout) -> None:
        self.problem, self.top = problem, layout.top
        self._edges = self._tiled(problem.sources, problem.targets)
        self._sieve_edges = sieve_edges(problem.sources, problem.targets, problem.items)
        self.press(problem.sources.new_empty(0), problem.points.new_empty(0))

    def violations(
        self,
        queries: Float[Tensor, "heads items key_dim"],
        keys: Float[Tensor, "heads items key_dim"],
        added: Float[Tensor, " items"],
        pull: Float[Tensor, "heads edges"],
    ) -> Violations:
        """Non-edges violate by max(score + added, 0); edges by minus their pull."""
        (query, query_scale), (key, key_scale) = halved(queries), halved(keys)
        heads, items, _ = query.shape
        losses, peaks, sums = added.new_empty(3, heads, items)
        rest = (1 / (query_scale * key_scale), added, pull.contiguous(), losses, peaks, sums)
        width = queries.shape[2]
        query_slopes = self._slopes(0, query, key, *rest)[:, :, :width] / key_scale
        key_slopes = self._slopes(1, key, query, *rest)[:, :, :width] / query_scale
        total = sums.sum(0) if self.top else torch.zeros_like(added)
        loss = losses.sum(dtype=torch.float64).float()
        return Violations(loss, query_slopes, key_slopes, peaks.amax(0), total)

    def sifted(
        self,
        queries: Float[Tensor, "heads items key_dim"],
        keys: Float[Tensor, "heads items key_dim"],
        levels: Float[Tensor, " items"],
    ) -> Sifted:
        """All pairs against their row's level, nearly in full precision."""
        highs, count, above = Sieve(padded(queries), padded(keys), self._sieve_edges).sift(levels)
        return Sifted(highs, count, above)

    def press(self, places: Int[Tensor, " pressed"], weights: Float[Tensor, " pressed"]) -> None:
        """Weigh these non-edges' losses from now on."""
        tiled = self._tiled(places // self.problem.items, places % self.problem.items)
        self._pressed = [(pairs, weights[pairs.order]) for pairs in tiled]

    def _tiled(
        self, sources: Int[Tensor, " pairs"], targets: Int[Tensor, " pairs"]
    ) -> list[TiledPairs]:
        """Pairs by their tiles, and by those of the transposed scores."""
        sizes = (self.problem.items, _ROWS, _COLUMNS)
        return [TiledPairs.of(sources, targets, *sizes), TiledPairs.of(targets, sources, *sizes)]

    def _slopes(
        self,
        side: int,
        mine: Float[Tensor, "heads items width"],
        others: Float[Tensor, "heads items width"],
        unit: Float[Tensor, ""],
        added: Float[Tensor, " items"],
        pull: Float[Tensor, "heads edges"],
        *outputs: Float[Tensor, "heads items"],
    ) -> Float[Tensor, "heads items width"]:
        """Slopes of queries (side 0), which also writes the outputs, or of keys (side 1)."""
        from headcount.compiler import slope_kernel  # needs triton

        kernel: Any = slope_kernel.violations
        heads, items, width = mine.shape
        slopes = torch.empty_like(mine, dtype=torch.float32)
        edges, (pressed, weights) = self._edges[side], self._pressed[side]
        kernel[(-(-items // _ROWS), heads)](
            mine, others, unit, added, pull, edges.begins, edges.rows, edges.columns, edges.order,
            pressed.begins, pressed.rows, pressed.columns, weights, slopes, *outputs, items,
            pull.shape[1], BY_QUERY=side == 0, TOP=self.top, DK=width, ROWS=_ROWS,
            COLUMNS=_COLUMNS, num_warps=_WARPS, num_stages=_STAGES,
        )  # fmt: skip
        return slopes
