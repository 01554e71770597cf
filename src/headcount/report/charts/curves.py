"""Curves of test F1 (or mean squared error) against D_K: Figs. 1, 5, 6, 9, 11 and our control without a maximum."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from headcount.analysis.thresholds import LEVEL
from headcount.report.charts.stars import sizes
from headcount.report.charts.style import INK, finish, log2_ruler, some, told_apart, tooltips
from headcount.reproduction.evidence import Evidence

_KEPT = [
    "items",
    "d_model",
    "heads",
    "key_dim",
    "budget",
    "mean",
    "low",
    "high",
    "interval",
    "runs",
    "diverged",
]
_POINT = ["items", "d_model"]


def fig1(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 1: F1–D_K curves at (m, d_model) = (256, 32), a line for each head count."""
    curves = _curves(evidence, "base", items=256, d_model=32)
    return curve_panels(curves, "F1–D_K curves at m = 256, d_model = 32", width=560, height=340)


def fig5(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 5: the curves under softmax, a panel for each (m, d_model), with the D_K* of max where it is known."""
    curves = _curves(evidence, "softmax")
    known = (
        evidence.on("base", "thresholds")
        .loc[:, [*_POINT, "central"]]
        .rename(columns={"central": "star"})
    )
    curves = curves.merge(known.astype({"star": float}), on=_POINT, how="left")
    note = (
        "dotted upright line: D_K* of max over heads at the same point"
        if any(curves["star"].notna())
        else ""
    )
    return curve_panels(curves, "F1–D_K curves with softmax over the context", note, columns=3)


def fig6(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 6: mean squared error of value retrieval, a panel for each d_model."""
    curves = _curves(evidence, "value")
    return curve_panels(
        curves,
        "Value retrieval: mean squared error against D_K",
        columns=2,
        width=330,
        height=260,
        metric="MSE",
    )


def fig9(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 9: the curves of every base point."""
    return curve_panels(
        _curves(evidence, "base"), "F1–D_K curves of the base grid", columns=3, own_x=True
    )


def fig11(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 11: the curves of regular graphs with r = 2 and 4."""
    curves = _curves(evidence, "regular")
    curves = some(
        curves.loc[curves["degree"].isin([2, 4])], "curves of regular graphs with r = 2 or 4"
    )
    curves = curves.assign(panel=[f"r = {degree}" for degree in curves["degree"]])
    return curve_panels(
        curves,
        f"F1–D_K curves of regular graphs, {sizes(curves)}",
        columns=2,
        width=330,
        height=260,
    )


def linear(evidence: Evidence) -> alt.TopLevelMixin:
    """Our control: scores summed over heads (left) beside the maximum over heads at the same points (right)."""
    control = _curves(evidence, "linear")
    core = evidence.on("base").merge(control[_POINT].drop_duplicates(), on=_POINT)
    core = core.assign(panel=_label(core)) if len(core) else core
    both = pd.concat(
        [control.assign(way="sum over heads"), core.assign(way="max over heads")], ignore_index=True
    )
    both = both.assign(
        panel=both["panel"] + ": " + both["way"], order=both["way"] != "sum over heads"
    )
    both = both.sort_values([*_POINT, "order", "heads", "budget"], ignore_index=True)
    note = "left: a sum over heads is one bilinear form of rank D_K whatever h, so the lines should coincide"
    return curve_panels(
        both,
        "Control: sum over heads beside max over heads",
        note,
        columns=2,
        width=330,
        height=190,
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
    """Curves with 95 % intervals, a line for each head count, in panels by `panel` in the order of the rows.

    A column `star` gives every panel an upright line there. With `own_x` each panel has its own range of D_K.
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
        return finish(layer, frame, title, subtitle)
    facet = alt.Facet("panel:N", sort=panels, title=None)
    chart = layer.facet(facet=facet, columns=min(columns, len(panels)), spacing=14)
    chart = chart.resolve_axis(x="independent", y="independent")
    return finish(chart.resolve_scale(x="independent") if own_x else chart, frame, title, subtitle)


def _curves(evidence: Evidence, grid: str, **at: int) -> pd.DataFrame:
    """The curves of a grid with their panels."""
    where = "".join(f", {name} {value}" for name, value in at.items())
    rows = some(evidence.on(grid, "curves", **at), f"curves of the grid {grid}{where}")
    return rows.assign(panel=_label(rows)).sort_values(
        [*_POINT, "degree", "heads", "budget"], ignore_index=True
    )


def _label(rows: pd.DataFrame) -> list[str]:
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
    looks = told_apart("heads", frame["heads"], "heads h")
    x = log2_ruler("total key dimension D_K", ticks=ticks).x("budget")
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
    if metric == "F1":
        scale = alt.Scale(domain=[0, 1.03], nice=False)
        return alt.Y(
            f"{field}:Q",
            scale=scale,
            axis=alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1]),
            title="test micro-F1",
        )
    return alt.Y(f"{field}:Q", scale=alt.Scale(zero=False), title="mean test MSE")


def _references(frame: pd.DataFrame, metric: str) -> list[alt.Chart]:
    """The level that D_K* asks for, and the upright line of a panel."""
    layers = []
    if metric == "F1":
        level: Any = alt.Chart(pd.DataFrame({"level": [LEVEL]}))
        layers.append(
            level.mark_rule(color=INK, strokeDash=[5, 3], strokeWidth=1).encode(
                y=_height("level", metric)
            )
        )
    if "star" in frame:
        star: Any = (
            alt.Chart()
            .transform_filter("isValid(datum.star)")
            .transform_aggregate(star="min(star)")
        )
        layers.append(
            star.mark_rule(color=INK, strokeDash=[1, 3], strokeWidth=1.5).encode(x="star:Q")
        )
    return layers
