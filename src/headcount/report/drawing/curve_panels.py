"""Curves of test F1 (or mean squared error) against D_K, one panel per point."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from headcount.report.drawing.style import log2_axis, require_rows, series_looks, styled, tooltips
from headcount.report.palette import INK
from headcount.report.readings.paper_numbers import LEVEL
from headcount.reproduction.evidence import Evidence

_KEPT = [
    *("items", "d_model", "heads", "key_dim", "budget"),
    *("mean", "low", "high", "interval", "runs", "diverged"),
]
POINT_COLUMNS = ["items", "d_model"]


def grid_curves(evidence: Evidence, grid: str, **at: int) -> pd.DataFrame:
    """The curves of a grid with their panels."""
    where = "".join(f", {name} {value}" for name, value in at.items())
    rows = require_rows(evidence.on(grid, "curves", **at), f"curves of the grid {grid}{where}")
    return rows.assign(panel=point_labels(rows)).sort_values(
        [*POINT_COLUMNS, "degree", "heads", "budget"], ignore_index=True
    )


def curve_panels(
    curves: pd.DataFrame,
    title: str,
    note: str = "",
    *,
    columns: int = 1,
    width: int = 235,
    height: int = 165,
    metric: str = "F1",
    own_x: bool = False,
) -> alt.TopLevelMixin:
    """Curves with 95 % intervals, one line per head count, in panels by the column `panel`.

    Panels keep the order of the rows. A column `star` gives every panel a vertical line there.
    With `own_x` each panel has its own range of D_K.
    """
    frame = _drawn(curves)
    panels = list(dict.fromkeys(frame["panel"]))
    layers = [
        *_curve_layers(frame, metric, 26 if width < 300 else 40, 6 if own_x else 8),
        *_references(frame, metric),
    ]
    layer = alt.layer(*layers, data=frame).properties(width=width, height=height)
    few, many = min(frame["runs"]), max(frame["runs"])
    runs = f"{many}" if few == many else f"{few} to {many}"
    subtitle = f"mean over {runs} runs, bars: 95 % interval"
    subtitle += f"; dashed: F1 = {LEVEL}" if metric == "F1" else ""
    subtitle += f"\n{note}" if note else ""
    if columns == 1 and len(panels) == 1:
        return styled(layer, frame, title, subtitle)
    facet = alt.Facet("panel:N", sort=panels, title=None)
    chart = layer.facet(facet=facet, columns=min(columns, len(panels)), spacing=14)
    chart = chart.resolve_axis(x="independent", y="independent")
    return styled(chart.resolve_scale(x="independent") if own_x else chart, frame, title, subtitle)


def point_labels(rows: pd.DataFrame) -> list[str]:
    """The heads of panels by point."""
    return [
        f"m = {items}, d_model = {d_model}"
        for items, d_model in zip(rows["items"], rows["d_model"], strict=True)
    ]


def _drawn(curves: pd.DataFrame) -> pd.DataFrame:
    """The columns that are drawn or shown."""
    ends = zip(curves["low"], curves["high"], strict=True)
    text = ["–" if pd.isna(low) else f"{low:.4f} … {high:.4f}" for low, high in ends]
    frame = curves.assign(key_dim=curves["budget"] // curves["heads"], interval=text)
    return frame.loc[:, [*_KEPT, "panel", *(["star"] if "star" in frame else [])]]


def _curve_layers(frame: pd.DataFrame, metric: str, size: int, ticks: int) -> list[alt.Chart]:
    """Intervals, lines and points."""
    looks = series_looks("heads", frame["heads"], "heads h")
    x = log2_axis("total key dimension D_K", ticks=ticks).x("budget")
    shown = tooltips(
        mean=f"mean {metric}|.4f",
        interval="95 % interval",
        runs="runs|d",
        diverged="diverged|d",
        heads="h|d",
        key_dim="d_k|d",
        budget="D_K|d",
        items="m|d",
        d_model="d_model|d",
    )
    base = alt.Chart().encode(x=x, color=looks["color"])
    bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1, clip=True)
    lines = base.mark_line(strokeWidth=1.5, clip=True).encode(strokeDash=looks["strokeDash"])
    points = base.mark_point(filled=True, size=size, opacity=1, clip=True).encode(
        shape=looks["shape"], tooltip=shown
    )
    return [
        bars.encode(y=_height("low", metric), y2="high:Q"),
        lines.encode(y=_height("mean", metric)),
        points.encode(y=_height("mean", metric)),
    ]


def _height(field: str, metric: str) -> alt.Y:
    if metric != "MSE":
        scale = alt.Scale(domain=[0, 1.03], nice=False)  # room for the points at 1
        axis = alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1])
        title = "test micro-F1" if metric == "F1" else f"test {metric}"
        return alt.Y(f"{field}:Q", scale=scale, axis=axis, title=title)
    return alt.Y(f"{field}:Q", scale=alt.Scale(zero=False), title="mean test MSE")


def _references(frame: pd.DataFrame, metric: str) -> list[alt.Chart]:
    """The level that D_K* asks for, and the vertical line of a panel."""
    layers = []
    if metric == "F1":
        level: Any = alt.Chart(pd.DataFrame({"level": [LEVEL]}))
        layers.append(
            level.mark_rule(color=INK, strokeDash=[5, 3], strokeWidth=1).encode(
                y=_height("level", metric)
            )
        )
    if "star" in frame:
        # One rule per panel, though every row of its curves has the star.
        star: Any = alt.Chart().transform_filter("isValid(datum.star)")
        star = star.transform_aggregate(star="min(star)")
        layers.append(
            star.mark_rule(color=INK, strokeDash=[1, 3], strokeWidth=1.5).encode(x="star:Q")
        )
    return layers
