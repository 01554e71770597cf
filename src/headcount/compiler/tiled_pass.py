"""A pass over all pairs in plain torch, one block of rows at a time.

A constant column in queries and keys adds a number to every score of a row, so that one product
gives each violation before clamping, and the products that give the slopes sum it up again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.attention.tiles import products_in
from headcount.compiler.layout import Layout
from headcount.compiler.whitened import WhitenedProblem
from headcount.shapes import Float, Int

_TILE = {"cpu": 2**18, "cuda": 2**28}  # scores held at a time
_ROWS = 16  # but no fewer rows at a time than this


@dataclass(frozen=True)
class Violations:
    """What a pass finds: the loss of non-edges, and the slopes of all heads.

    `peaks` says how far a row's worst non-edge exceeds what it may, and `sums` adds up a row's
    violations over heads, less what its edges pull.
    """

    loss: Float[Tensor, ""]
    query_slopes: Float[Tensor, "heads items key_dim"]
    key_slopes: Float[Tensor, "heads items key_dim"]
    peaks: Float[Tensor, " items"]
    sums: Float[Tensor, " items"]


@dataclass(frozen=True)
class Sifted:
    """The rows' highest non-edges, and how many and which lie above their row's level.

    A place is row times items plus column. `above` is empty where they are too many to list.
    """

    highs: Float[Tensor, " items"]
    count: int
    above: Int[Tensor, " places"]


class TiledPass:
    """Scores of some rows and all columns in a buffer, clamped and multiplied in place."""

    def __init__(self, problem: WhitenedProblem, layout: Layout) -> None:
        self.problem = problem
        points, items = problem.points, problem.items
        height = max(_ROWS, _TILE[points.device.type] // (layout.heads * items))
        self.height = min(items, height)
        tops = torch.arange(0, items + self.height, self.height).to(problem.sources)
        bounds = torch.searchsorted(problem.sources, tops).tolist()
        self.blocks = [
            (slice(first, min(first + self.height, items)), slice(bounds[n], bounds[n + 1]))
            for n, first in enumerate(range(0, items, self.height))
        ]
        self._places = [
            (slice(None), problem.sources[few] - rows.start, problem.targets[few])
            for rows, few in self.blocks
        ]
        self._buffer = points.new_empty(layout.heads * self.height * items)
        self._pressed = problem.sources.new_empty(0), points.new_empty(0)  # places, weights
        self._pressed_in = [slice(0, 0)] * len(self.blocks)

    def violations(
        self,
        queries: Float[Tensor, "heads items key_dim"],
        keys: Float[Tensor, "heads items key_dim"],
        added: Float[Tensor, " items"],
        pull: Float[Tensor, "heads edges"],
    ) -> Violations:
        """Non-edges violate by max(score + added, 0); edges by minus their pull."""
        query, key = _extended(queries, keys, added)
        query_slope, key_slope = torch.empty_like(query), torch.zeros_like(key)
        peaks, loss = torch.empty_like(added), added.new_zeros(())
        with products_in("high"):  # a descent needs no more; `sifted` and `verify` do
            for n, (rows, few, scores) in enumerate(self._scores(query, key)):
                excess = scores.relu_()
                peaks[rows] = excess.amax((0, 2))
                flat = excess.view(-1)
                loss += torch.dot(flat, flat)
                if (pressed := self._pressed_in[n]).stop > pressed.start:
                    loss += self._press(excess, rows, pressed)
                excess[self._places[n]] = -pull[:, few]
                torch.bmm(excess, key, out=query_slope[:, rows])
                torch.baddbmm(key_slope, excess.mT, query[:, rows], out=key_slope)
        sums = query_slope[:, :, -1].sum(0)
        return Violations(loss, query_slope[:, :, :-1], key_slope[:, :, :-1], peaks, sums)

    def sifted(
        self,
        queries: Float[Tensor, "heads items key_dim"],
        keys: Float[Tensor, "heads items key_dim"],
        levels: Float[Tensor, " items"],
    ) -> Sifted:
        """All pairs against their row's level, in full precision."""
        query, key = _extended(queries, keys, -levels)
        highs, places = torch.empty_like(levels), []
        for rows, _, scores in self._scores(query, key):
            highs[rows] = scores.amax((0, 2))
            row, column = (scores > 0).any(0).nonzero(as_tuple=True)
            places.append((row + rows.start) * self.problem.items + column)
        above = torch.cat(places)
        return Sifted(highs + levels, len(above), above)

    def press(self, places: Int[Tensor, " pressed"], weights: Float[Tensor, " pressed"]) -> None:
        """Weigh these non-edges' losses from now on; places are in order."""
        self._pressed = places, weights
        ends = torch.tensor([rows.stop for rows, _ in self.blocks]).to(places)
        bounds = [0, *torch.searchsorted(places, ends * self.problem.items).tolist()]
        self._pressed_in = [slice(*pair) for pair in itertools.pairwise(bounds)]

    def _scores(self, query: Tensor, key: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
        """Block by block the scores of non-edges, edges at −∞; the next reuses the buffer."""
        across = key.mT.contiguous()
        heads, items, _ = query.shape
        for (rows, few), places in zip(self.blocks, self._places, strict=True):
            height = rows.stop - rows.start
            scores = self._buffer[: heads * height * items].view(heads, height, items)
            torch.bmm(query[:, rows], across, out=scores)
            scores[places] = -torch.inf
            yield rows, few, scores

    def _press(
        self, excess: Float[Tensor, "heads rows items"], rows: slice, which: slice
    ) -> Tensor:
        """Weigh the pressed pairs of a block in place; what that adds to the loss."""
        places, weights = (part[which] for part in self._pressed)
        row, column = places // self.problem.items - rows.start, places % self.problem.items
        before = excess[:, row, column]
        after = before * weights
        excess[:, row, column] = after
        return (before * (after - before)).sum()


def _extended(
    queries: Float[Tensor, "heads items key_dim"],
    keys: Float[Tensor, "heads items key_dim"],
    added: Float[Tensor, " items"],
) -> tuple[Tensor, Tensor]:
    """Queries and keys with a column more, which adds a number to all scores of a row."""
    heads, items, _ = queries.shape
    query = torch.cat([queries, added.expand(heads, items)[:, :, None]], 2)
    return query, torch.cat([keys, keys.new_ones(heads, items, 1)], 2)
