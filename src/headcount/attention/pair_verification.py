"""Verification of all m² pairs: one tiled pass that no rounding can mislead (Section 3).

The pass runs in float64, or in float32 where there is much to do, on a GPU in half precision. A
score within its error bound of τ is computed again in float64 and, if that leaves it open, in exact
rational arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from headcount.attention.exact import ErrorBound, PairDecider, cuts, rounded_down
from headcount.attention.key_query import KeyQuery
from headcount.attention.recovery import Extreme, Recovery, summarise
from headcount.attention.rescaling import rescaled, scaled_back, scaled_back_bound
from headcount.attention.sieve import Sieve, sieve_runs_on
from headcount.problem.graph import Graph
from headcount.shapes import Float, Int

_TILE = 1024  # rows and columns scored together on a CPU; four times as many on a GPU
_DOUBLE_WORK = 4e9  # up to this many multiply-adds the whole pass runs in float64
_NEAR = 1000  # how many near-extreme pairs are scored again in float64


def verify_pairs(weights: KeyQuery, graph: Graph, table: Tensor, precision: str) -> Recovery:
    """Decide all m² ordered pairs, a tile at a time, without ever holding an [m, m] matrix."""
    original = weights
    weights, table, exponent = rescaled(weights, table)
    decider = PairDecider.of(weights, table)
    dtype = choose_dtype(precision, graph.items**2 * weights.budget, decider.bound)
    quick = dtype == torch.float32 and precision == "auto" and decider.parts.temperature is None
    if quick and sieve_runs_on(table.device, graph.items, graph.edges, weights.widths):
        sieved = _sieved(original, decider, graph, exponent)
        if sieved is not None:
            return sieved
    size = tile_size(table.device)
    edges = EdgesByTile.of(graph, size, table.device)
    edge_scores = torch.empty(graph.edges, dtype=dtype, device=table.device)
    # Most tiles hold no score near τ: one maximum per tile rules them out.
    floor, _ = cuts(weights.threshold, decider.bound.of(dtype), dtype)
    false_positives = 0
    # Two scores may swap places when each is off by the bound, so the highest needs twice that.
    peaks = _Peaks(slack=2 * decider.bound.of(dtype))
    for number, (rows, columns, tile) in enumerate(decider.parts.tiles(dtype, size)):
        flat = tile.view(-1)
        chosen, places = edges.of_tile(number, rows, columns)
        edge_scores[chosen] = flat[places]
        flat[places] = -torch.inf  # edges are judged after the pass, all at once
        peak = float(tile.amax())
        peaks.see(peak, rows, columns, flat)
        if peak > floor:
            suspects = (flat > floor).nonzero().squeeze(1)
            width = columns.stop - columns.start
            sources, targets = rows.start + suspects // width, columns.start + suspects % width
            false_positives += int(decider.predicted(flat[suspects], sources, targets).sum())
    found = decider.predicted(edge_scores, edges.sources, edges.targets)
    error = decider.bound.float64 + (2 * decider.bound.float32 if dtype == torch.float32 else 0.0)
    return summarise(
        original,
        scope="all pairs",
        pairs=graph.items**2,
        hits=int(found.sum()),
        false_positives=false_positives,
        false_negatives=graph.edges - int(found.sum()),
        lowest_edge=_lowest_edge(decider, edge_scores, edges, exponent),
        highest_non_edge=_highest_non_edge(decider, peaks, exponent),
        score_error=scaled_back_bound(error, exponent),
        checked_in="float64" if dtype == torch.float64 else "float32, open pairs in float64",
    )


def _sieved(
    original: KeyQuery, decider: PairDecider, graph: Graph, exponent: int
) -> Recovery | None:
    """All pairs in half precision, and again in float64 those that this leaves open.

    None where they are too many: weights that are far from exact.
    """
    sieve, threshold = Sieve.of(decider.parts, graph), decider.weights.threshold
    if not sieve.usable:
        return None
    no_level = torch.full((graph.items,), torch.inf, device=decider.table.device)
    peaks, _, _ = sieve.sift(no_level, listed=False)
    low, _ = cuts(threshold, sieve.error + decider.bound.float64, torch.float32)
    # The highest two may swap places when each is off by the bound.
    low = min(low, rounded_down(float(peaks.max()) - 2 * sieve.error, torch.float32))
    _, count, places = sieve.sift(torch.full_like(no_level, low))
    if count > len(places):
        return None
    others = places // graph.items, places % graph.items
    sources, targets = (
        torch.from_numpy(part.copy()).to(places) for part in (graph.sources, graph.targets)
    )
    scores, edge_scores = decider.parts.at(*others), decider.parts.at(sources, targets)
    false_positives = decider.predicted(scores, *others).sum()
    hits = int(decider.predicted(edge_scores, sources, targets).sum())
    return summarise(
        original,
        scope="all pairs",
        pairs=graph.items**2,
        hits=hits,
        false_positives=int(false_positives),
        false_negatives=graph.edges - hits,
        lowest_edge=_extreme(edge_scores, sources, targets, torch.argmin, exponent),
        highest_non_edge=_extreme(scores, *others, torch.argmax, exponent),
        score_error=scaled_back_bound(decider.bound.float64, exponent),
        checked_in="half precision, open pairs in float64",
    )


def tile_count(items: int, device: torch.device) -> int:
    """How many tiles the pass over all pairs has.

    >>> tile_count(1, torch.device("cpu")), tile_count(_TILE + 1, torch.device("cpu"))
    (1, 4)
    """
    return (-(-items // tile_size(device))) ** 2


def tile_size(device: torch.device) -> int:
    """Rows and columns of a tile."""
    return _TILE if device.type == "cpu" else 4 * _TILE


@dataclass(frozen=True)
class EdgesByTile:
    """The edge list in the order in which tiles are visited, and where each tile's edges begin."""

    sources: Int[Tensor, " edges"]
    targets: Int[Tensor, " edges"]
    begins: Int[np.ndarray, " bounds"]

    @classmethod
    def of(cls, graph: Graph, size: int, device: torch.device) -> EdgesByTile:
        across = -(-graph.items // size)
        tile = graph.sources // size * across + graph.targets // size
        order = np.argsort(tile, kind="stable")
        sources, targets = (
            torch.from_numpy(part[order]).to(device) for part in (graph.sources, graph.targets)
        )
        return cls(sources, targets, np.searchsorted(tile[order], np.arange(across**2 + 1)))

    def of_tile(
        self, number: int, rows: slice, columns: slice
    ) -> tuple[slice, Int[Tensor, " some"]]:
        """Which edges a tile holds, and their places in its flattened scores."""
        chosen = slice(int(self.begins[number]), int(self.begins[number + 1]))
        row, column = self.sources[chosen] - rows.start, self.targets[chosen] - columns.start
        return chosen, row * (columns.stop - columns.start) + column


@dataclass
class _Peaks:
    """The highest non-edge of each tile that comes within `slack` of the highest so far."""

    slack: float
    highest: float = float("-inf")
    pairs: list[tuple[float, int, int]] = field(default_factory=list)

    def see(self, peak: float, rows: slice, columns: slice, flat: Float[Tensor, " tile"]) -> None:
        if peak > self.highest - self.slack:
            row, column = divmod(int(flat.argmax()), columns.stop - columns.start)
            self.pairs.append((peak, rows.start + row, columns.start + column))
            self.highest = max(self.highest, peak)


def choose_dtype(precision: str, work: float, bound: ErrorBound) -> torch.dtype:
    """The dtype of a pass of `work` multiply-adds."""
    if precision == "float64" or not np.isfinite(bound.float32):
        return torch.float64
    return torch.float32 if precision == "float32" or work > _DOUBLE_WORK else torch.float64


def _lowest_edge(
    decider: PairDecider, scores: Tensor, edges: EdgesByTile, exponent: int
) -> Extreme | None:
    if not scores.numel():
        return None
    near = scores.topk(min(_NEAR, scores.numel()), largest=False).indices
    pairs = edges.sources[near], edges.targets[near]
    return _extreme(decider.parts.at(*pairs), *pairs, torch.argmin, exponent)


def _highest_non_edge(decider: PairDecider, peaks: _Peaks, exponent: int) -> Extreme | None:
    if not peaks.pairs:  # all pairs are edges
        return None
    near = [(source, target) for _, source, target in sorted(peaks.pairs, reverse=True)[:_NEAR]]
    sources, targets = torch.tensor(near, device=decider.table.device).unbind(1)
    scores = decider.parts.at(sources, targets)
    return _extreme(scores, sources, targets, torch.argmax, exponent)


def _extreme(
    scores: Float[Tensor, " pairs"],
    sources: Int[Tensor, " pairs"],
    targets: Int[Tensor, " pairs"],
    choose: Callable[[Tensor], Tensor],
    exponent: int,
) -> Extreme | None:
    """The lowest or highest of these pairs."""
    if not scores.numel():
        return None
    best = int(choose(scores))
    score = scaled_back(float(scores[best]), exponent)
    return Extreme(score, int(sources[best]), int(targets[best]))
