"""The score matrix with its true edges marked, beside the distribution of scores around τ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.tiles import Projections
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.tables import TableLike, table_for
from headcount.shapes import Float

_SHOWN = 64  # rows and columns drawn at most
_BINS = 40
_SIDE = 380  # pixels
# Okabe–Ito colours, which all readers can tell apart, in print too.
_EDGE, _OTHER, _LINE = "#D55E00", "#0072B2", "#222222"


@dataclass(frozen=True)
class ScoreMatrix:
    """What the chart draws: a window of scores, and the histogram of all pairs."""

    cells: pd.DataFrame
    histogram: pd.DataFrame
    threshold: float
    items: int
    shown: int


def score_matrix(
    weights: KeyQuery, graph: Graph, table: Float[Tensor, "items d_model"]
) -> ScoreMatrix:
    """Scores of the first sources, with targets ordered to put edges on the diagonal."""
    if len(table) != graph.items:
        raise InputError(
            f"the graph has {graph.items} items, the table {len(table)} rows; give a table that "
            "fits"
        )
    shown = min(graph.items, _SHOWN)
    sources, targets = np.arange(shown), _diagonal_targets(graph, shown)
    parts = Projections.of(weights, table)
    rows, columns = np.repeat(np.arange(shown), shown), np.tile(np.arange(shown), shown)
    window = parts.at(torch.from_numpy(sources[rows]), torch.from_numpy(targets[columns]))
    cells = pd.DataFrame(
        {
            "row": rows,
            "column": columns,
            "source": sources[rows],
            "target": targets[columns],
            "score": window.numpy(),
            "edge": graph.has_edges(sources[rows], targets[columns]),
        }
    )
    return ScoreMatrix(
        cells,
        _histogram(weights, graph, parts, window.numpy()),
        weights.threshold,
        graph.items,
        shown,
    )


def draw_scores(matrix: ScoreMatrix, title: str) -> alt.HConcatChart:
    """Left: scores as colours, true edges ringed. Right: the distribution of scores around τ."""
    return (
        alt.hconcat(_heat(matrix), _distribution(matrix), spacing=40)
        .resolve_scale(color="independent")
        .properties(title=alt.TitleParams(title, fontSize=16, anchor="start", offset=12))
        .configure_view(stroke="#cccccc")
        .configure(font="DejaVu Sans, Helvetica, Arial, sans-serif")
    )


def plot_scores(weights: KeyQuery, graph: Graph, table: TableLike) -> alt.HConcatChart:
    """Draw the scores of weights under a title that gives the sizes."""
    heads = f"{weights.heads} head{'s' if weights.heads > 1 else ''}, D_K {weights.budget}"
    if weights.kv_heads < weights.heads:
        heads += f", shared keys of {weights.key_budget} columns"
    sizes = f"{graph.items} items, {graph.edges} edges, d_model {weights.d_model}"
    matrix = score_matrix(weights.detached(), graph, table_for(graph, table))
    return draw_scores(matrix, f"{sizes}, {heads}")


def _heat(matrix: ScoreMatrix) -> Any:
    everything = "all" if matrix.shown == matrix.items else f"the first {matrix.shown} of"
    bare = alt.Axis(labels=False, ticks=False)
    base = alt.Chart(matrix.cells).encode(
        x=alt.X("column:O", title="target, ordered so that edges lie on the diagonal", axis=bare),
        y=alt.Y("row:O", title=f"source ({everything} {matrix.items} items)", axis=bare),
    )
    scale = alt.Scale(scheme="blueorange", domainMid=matrix.threshold)
    legend = alt.Legend(title="score", orient="bottom", gradientLength=_SIDE)
    heat = base.mark_rect().encode(color=alt.Color("score:Q", scale=scale, legend=legend))
    rings = (
        base.transform_filter("datum.edge")
        .mark_point(filled=False, size=(_SIDE / matrix.shown) ** 2 * 1.6, strokeWidth=1)
        .encode(color=alt.value(_LINE))
    )
    return (heat + rings).properties(
        width=_SIDE, height=_SIDE, title="scores; rings mark the true edges"
    )


def _distribution(matrix: ScoreMatrix) -> Any:
    colors = alt.Scale(domain=["edges", "non-edges"], range=[_EDGE, _OTHER])
    bars = (
        alt.Chart(matrix.histogram)
        .mark_bar(opacity=0.75)
        .encode(
            x=alt.X("low:Q", bin="binned", title="score"),
            x2="high:Q",
            y=alt.Y("share:Q", title="share of the pairs of that kind (%)", stack=None),
            color=alt.Color("kind:N", scale=colors, legend=alt.Legend(title=None, orient="bottom")),
        )
    )
    limit = alt.Chart(pd.DataFrame({"τ": [matrix.threshold]}))
    rule = limit.mark_rule(color=_LINE, strokeDash=[5, 3], strokeWidth=1.5).encode(x="τ:Q")
    right_half = matrix.threshold > (matrix.histogram.low.min() + matrix.histogram.high.max()) / 2
    side_of_rule = {"align": "right", "dx": -5} if right_half else {"align": "left", "dx": 5}
    label = limit.mark_text(dy=8, baseline="top", color=_LINE, **side_of_rule).encode(
        x="τ:Q", y=alt.value(0), text=alt.value(f"τ = {matrix.threshold:.4g}")
    )
    return (bars + rule + label).properties(
        width=_SIDE, height=_SIDE, title="all pairs against the threshold"
    )


def _diagonal_targets(graph: Graph, shown: int) -> np.ndarray:
    """For each shown source its first unused target; gaps are filled with unused items."""
    order = np.full(shown, -1)
    used = np.zeros(graph.items, dtype=bool)
    for source in range(shown):
        free = [target for target in graph.neighbors(source) if not used[target]]
        if free:
            order[source] = free[0]
            used[free[0]] = True
    gaps = np.flatnonzero(order < 0)
    order[gaps] = np.flatnonzero(~used)[: gaps.size]
    return order


def _histogram(
    weights: KeyQuery, graph: Graph, parts: Projections, sample: np.ndarray
) -> pd.DataFrame:
    """Counts of all m² scores in equal bins, by kind of pair, in two passes over the tiles."""
    # The first pass finds the range, so that the second can fill bins without keeping m² scores.
    low, high = weights.threshold, weights.threshold
    for _, _, tile in parts.tiles(torch.float64, 1024):
        low, high = min(low, float(tile.min())), max(high, float(tile.max()))
    bounds = _bin_bounds(low, high, weights.threshold, sample)
    everything = np.zeros(bounds.size - 1, dtype=np.int64)
    for _, _, tile in parts.tiles(torch.float64, 1024):
        everything += np.histogram(tile.numpy().clip(bounds[0], bounds[-1]), bounds)[0]
    edge_scores = parts.at(
        torch.from_numpy(graph.sources.copy()), torch.from_numpy(graph.targets.copy())
    )
    edges = np.histogram(edge_scores.numpy().clip(bounds[0], bounds[-1]), bounds)[0]
    frames = [
        pd.DataFrame(
            {
                "kind": kind,
                "low": bounds[:-1],
                "high": bounds[1:],
                "pairs": counts,
                "share": 100 * counts / max(counts.sum(), 1),
            }
        )
        for kind, counts in (("non-edges", np.maximum(everything - edges, 0)), ("edges", edges))
    ]
    return pd.concat(frames, ignore_index=True)


def _bin_bounds(low: float, high: float, threshold: float, sample: np.ndarray) -> np.ndarray:
    """About `_BINS` equal bins, one of which begins at τ.

    On a grid, as of integers, each holds equally many grid points instead.
    """
    width = (high - low) / _BINS or 1.0
    values = np.unique(sample)
    step = float(np.diff(values).min()) if 1 < values.size <= 200 else 0.0
    if step > 0:
        width = step * np.ceil(width / step)
        start = low - step / 2
    else:
        start = threshold - width * np.ceil((threshold - low) / width)
    return start + width * np.arange(int(np.ceil((high + step / 2 - start) / width)) + 1)
