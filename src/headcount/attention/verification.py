"""Exact verification: do these weights recognise this graph? (Section 3, Definition 9.1)

Under max and sum a pair's score is the same in every context, so the m² pairs decide every context of every
length ("monotonicity under context restriction", Section 4). They are scored in one tiled pass. No answer
rests on rounding: a score within its error bound of τ is computed again in float64, and if that leaves it
open, in exact rational arithmetic. Under softmax a score depends on the context, so contexts are checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from headcount.attention.context_verification import checked_contexts, verify_contexts
from headcount.attention.exact import ErrorBound, Judge, cuts, tamed, untamed
from headcount.attention.key_query import KeyQuery
from headcount.attention.recovery import Extreme, Recovery, summarise
from headcount.errors import InputError
from headcount.problem.contexts import ContextSampler
from headcount.problem.graph import Graph
from headcount.shapes import Float, Int

_TILE = 1024  # rows and columns scored together on a CPU; four times as many on a GPU
_DOUBLE_WORK = 4e9  # up to this many multiply-adds the whole pass runs in float64
_NEAR = 1000  # how many near-extreme pairs are scored again in float64


def verify(
    weights: KeyQuery,
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    *,
    contexts: Int[Tensor, "count length"] | ContextSampler | None = None,
    samples: int = 2000,
    seed: int = 0,
    precision: Literal["auto", "float32", "float64"] = "auto",
    device: str | torch.device = "auto",
) -> Recovery:
    """Check weights against a graph.

    Max and sum: exact over all m² ordered pairs, diagonal included, hence for every context.
    With `contexts` (rows of item ids): exact on those, under any aggregation. With a `ContextSampler`
    (the default under softmax): on `samples` drawn contexts, with a 95 % Clopper–Pearson bound on the
    share of contexts that fail.

    >>> from headcount.problem.makers import permutation_graph
    >>> graph, table = permutation_graph(8), torch.eye(8)
    >>> target_of = torch.eye(8)[torch.from_numpy(graph.targets.copy())]
    >>> weights = KeyQuery(target_of[None], torch.eye(8)[None], threshold=0.5)
    >>> found = verify(weights, graph, table)
    >>> found.exact, found.margin
    (True, 0.5)
    """
    _check(weights, graph, table, contexts, samples, precision)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    weights, table = weights.to(device), table.to(device)
    if weights.aggregation == "softmax" and contexts is None:
        contexts = ContextSampler(graph, length=min(16, graph.items))
    if contexts is None:
        return _verify_all_pairs(weights, graph, table, precision)
    sampled = isinstance(contexts, ContextSampler)
    rows = (
        contexts.draw(samples, seed=seed, stream="verify")
        if sampled
        else checked_contexts(contexts, graph)
    )
    return verify_contexts(weights, graph, table, rows.to(device), sampled)


def _check(
    weights: KeyQuery,
    graph: Graph,
    table: Tensor,
    contexts: Tensor | ContextSampler | None,
    samples: int,
    precision: str,
) -> None:
    """Refuse what cannot be verified, in words."""
    if table.ndim != 2 or len(table) != graph.items:
        raise InputError(
            f"the graph has {graph.items} items, the table {len(table)} rows; give a table with one row an item"
        )
    weights.require_width(table.shape[1])
    if not table.isfinite().all():
        raise InputError("the table holds a NaN or infinite entry; remove or replace that row")
    if precision not in ("auto", "float32", "float64"):
        raise InputError(f"precision {precision!r} is unknown; use auto, float32 or float64")
    if samples < 1:
        raise InputError(f"{samples} samples check nothing; choose at least 1")
    if isinstance(contexts, ContextSampler) and contexts.graph.items != graph.items:
        raise InputError(
            f"the sampler draws from {contexts.graph.items} items, the graph has {graph.items}"
        )


def _verify_all_pairs(weights: KeyQuery, graph: Graph, table: Tensor, precision: str) -> Recovery:
    original = weights
    weights, table, exponent = tamed(weights, table)
    judge = Judge.of(weights, table)
    dtype = _choose_dtype(precision, graph.items**2 * weights.budget, judge.bound)
    size = _tile_size(table.device)
    edges = _EdgesByTile.of(graph, size, table.device)
    edge_scores = torch.empty(graph.edges, dtype=dtype, device=table.device)
    floor, _ = cuts(weights.threshold, judge.bound.of(dtype), dtype)
    false_positives = 0
    peaks = _Peaks(slack=2 * judge.bound.of(dtype))
    for number, (rows, columns, tile) in enumerate(judge.parts.tiles(dtype, size)):
        flat = tile.view(-1)
        chosen, places = edges.of_tile(number, rows, columns)
        edge_scores[chosen] = flat[places]
        flat[places] = -torch.inf
        peak = float(tile.amax())
        peaks.see(peak, rows, columns, flat)
        if peak > floor:
            suspects = (flat > floor).nonzero().squeeze(1)
            width = columns.stop - columns.start
            sources, targets = rows.start + suspects // width, columns.start + suspects % width
            false_positives += int(judge.predicted(flat[suspects], sources, targets).sum())
    found = judge.predicted(edge_scores, edges.sources, edges.targets)
    error = judge.bound.float64 + (2 * judge.bound.float32 if dtype == torch.float32 else 0.0)
    return summarise(
        original,
        scope="all pairs",
        pairs=graph.items**2,
        hits=int(found.sum()),
        false_positives=false_positives,
        false_negatives=graph.edges - int(found.sum()),
        lowest_edge=_lowest_edge(judge, edge_scores, edges, exponent),
        highest_non_edge=_highest_non_edge(judge, peaks, exponent)
        if graph.edges < graph.items**2
        else None,
        score_error=untamed(error, exponent),
        checked_in="float64" if dtype == torch.float64 else "float32, open pairs in float64",
    )


def tile_count(items: int, device: torch.device) -> int:
    """How many tiles the pass over all pairs has.

    >>> tile_count(1, torch.device("cpu")), tile_count(_TILE + 1, torch.device("cpu"))
    (1, 4)
    """
    return (-(-items // _tile_size(device))) ** 2


def _tile_size(device: torch.device) -> int:
    return _TILE if device.type == "cpu" else 4 * _TILE


@dataclass(frozen=True)
class _EdgesByTile:
    """The edge list in the order in which tiles are visited, and where each tile's edges begin."""

    sources: Int[Tensor, " edges"]
    targets: Int[Tensor, " edges"]
    begins: Int[np.ndarray, " bounds"]

    @classmethod
    def of(cls, graph: Graph, size: int, device: torch.device) -> _EdgesByTile:
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
        """Which edges lie in a tile, and their places in its flattened scores."""
        chosen = slice(int(self.begins[number]), int(self.begins[number + 1]))
        width = columns.stop - columns.start
        return chosen, (self.sources[chosen] - rows.start) * width + self.targets[
            chosen
        ] - columns.start


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


def _choose_dtype(precision: str, work: float, bound: ErrorBound) -> torch.dtype:
    if precision == "float64" or not np.isfinite(bound.float32):
        return torch.float64
    return torch.float32 if precision == "float32" or work > _DOUBLE_WORK else torch.float64


def _lowest_edge(
    judge: Judge, scores: Tensor, edges: _EdgesByTile, exponent: int
) -> Extreme | None:
    if not scores.numel():
        return None
    near = scores.topk(min(_NEAR, scores.numel()), largest=False).indices
    again = judge.parts.at(edges.sources[near], edges.targets[near])
    best = near[again.argmin()]
    return Extreme(
        untamed(float(again.min()), exponent), int(edges.sources[best]), int(edges.targets[best])
    )


def _highest_non_edge(judge: Judge, peaks: _Peaks, exponent: int) -> Extreme:
    near = [(source, target) for _, source, target in sorted(peaks.pairs, reverse=True)[:_NEAR]]
    sources, targets = torch.tensor(near, device=judge.table.device).unbind(1)
    again = judge.parts.at(sources, targets)
    best = int(again.argmax())
    return Extreme(untamed(float(again[best]), exponent), int(sources[best]), int(targets[best]))
