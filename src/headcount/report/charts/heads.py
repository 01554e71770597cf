"""h*, the head count at D_K*: Figs. 2, 4, 10 and 13."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from headcount.analysis.laws import heads_fit
from headcount.paper import data as paper
from headcount.report.charts.lines import line_layer, our_line, paper_line
from headcount.report.charts.stars import (
    arrows_mean,
    budget_layers,
    crosses_mean,
    heads_layers,
    largest,
    shown,
    sizes,
    stars,
)
from headcount.report.charts.style import (
    COLOURS,
    GREY,
    INK,
    PALE,
    Layers,
    Ruler,
    finish,
    log2_ruler,
    some,
    told_apart,
)
from headcount.reproduction.evidence import Evidence

_MEANING = "bars: head counts not told from h* (App. A.2)"
_HEADS = "heads h* at D_K*"
_BLUE = "#3a7ca5"
_SHIFT = 9  # pixels between points that share a place


def fig2(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 2: h* against m, a line for each d_model."""
    frame = stars(evidence, "base")
    ranks = frame["d_model"].rank(method="dense")
    frame = frame.assign(shift=_SHIFT * (ranks - (ranks.min() + ranks.max()) / 2))
    looks = told_apart("d_model", frame["d_model"], "d_model", first=16)
    x = log2_ruler("items m", padding=30, values=sorted(set(frame["items"]))).x("items")
    y = _powers(frame)
    layers = []
    for shift in sorted(set(frame["shift"])):
        line = alt.Chart().transform_filter(f"datum.shift == {shift} && isValid(datum.heads)")
        line = line.mark_line(strokeWidth=1.5, xOffset=shift).encode(x=x, y=y.y("heads"))
        layers.append(line.encode(color=looks["color"], strokeDash=looks["strokeDash"]))
        layers += heads_layers(x, y, looks, shift)
    chart = alt.layer(*layers, data=frame).properties(width=560, height=340)
    subtitle = f"{_MEANING}; points of one m side by side{crosses_mean(frame)}"
    return finish(chart, frame, "Heads h* that minimise D_K", subtitle)


def fig4(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 4: along the diagonal m/d_model = 8, D_K* as a line (left axis) and h* as bars (right axis)."""
    compression: Any = paper.number("diagonal.compression").value
    frame = stars(evidence, "diagonal", "base")
    frame = some(
        frame.loc[frame["items"] == compression * frame["d_model"]], "thresholds of the diagonal"
    )
    items = sorted(set(frame["items"]))
    x = log2_ruler(f"items m (d_model = m/{compression})", padding=40, values=items).x("items")
    y = Ruler(
        "D_K* (line)", alt.Scale(domain=[0, 1.1 * largest(frame, "high")]), alt.Axis(orient="left")
    )
    line = (
        alt.Chart().transform_filter("isValid(datum.central)").mark_line(strokeWidth=2, color=INK)
    )
    points = budget_layers(x, y, {"color": alt.value(INK), "shape": alt.value("circle")})
    over = alt.layer(line.encode(x=x, y=y.y("central")), *points)
    chart = alt.layer(_bars(frame, x), over, data=frame).resolve_scale(y="independent")
    subtitle = (
        "upright lines: D_K* optimistic … conservative, and head counts not told from h* (App. A.2)"
    )
    title = f"The diagonal of compression λ = m/d_model = {compression}"
    return finish(
        chart.properties(width=560, height=340), frame, title, f"{subtitle}{arrows_mean(frame)}"
    )


def _bars(frame: pd.DataFrame, x: alt.X) -> Layers:
    """h* as bars with its interval, low enough to stay out of the way of a line."""
    axis = alt.Axis(
        orient="right", grid=False, titleColor=_BLUE, labelColor=_BLUE, tickCount=6, tickMinStep=1
    )
    y = Ruler("heads h* (bars)", alt.Scale(domain=[0, 2 * largest(frame, "heads_high", 1)]), axis)
    base = alt.Chart().transform_filter("isValid(datum.heads)").encode(x=x)
    bars = base.mark_bar(size=36, color="#a9d3ef").encode(y=y.y("heads"), tooltip=shown())
    ranges = base.mark_rule(strokeWidth=1.5, color=_BLUE)
    return alt.layer(bars, ranges.encode(y=y.y("heads_low"), y2="heads_high:Q"))


def fig10(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 10: h* against compression λ = m/d_model, with our line and the paper's."""
    frame = stars(evidence, "base", "extreme")
    frame = frame.assign(compression=frame["items"] / frame["d_model"])
    same: Any = frame.groupby("compression")["d_model"]
    frame = frame.assign(shift=_SHIFT * (same.rank() - (same.transform("count") + 1) / 2))
    table = evidence.law_points()
    lines = [
        *our_line("ours", "λ", [1, 0], lambda: heads_fit(table)),
        paper_line("paper", "λ", [6, 3], "law.heads"),
    ]
    ends = (0.0, 1.06 * largest(frame, "compression"))
    axis = alt.Axis(values=sorted(set(frame["compression"])))
    x = Ruler("compression λ = m/d_model", alt.Scale(domain=ends, nice=False), axis).x(
        "compression"
    )
    top = 1.1 * largest(frame, "heads_high", 4)
    y = Ruler(_HEADS, alt.Scale(domain=[0, top], nice=False), alt.Axis(tickMinStep=1))
    looks = told_apart("d_model", frame["d_model"], "d_model", first=16)
    points = [
        mark for shift in sorted(set(frame["shift"])) for mark in heads_layers(x, y, looks, shift)
    ]
    chart = alt.layer(line_layer(lines, ends, y), *points, data=frame).properties(
        width=560, height=340
    )
    subtitle = f"{_MEANING}; points of one λ side by side{crosses_mean(frame)}"
    return finish(chart, frame, "Heads h* against compression", subtitle)


def fig13(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 13: h* of regular graphs against the degree r, with m'/d_model and a factor of two about it."""
    frame = stars(evidence, "regular").sort_values("degree").assign(shift=0)
    ratio = frame["degree"] * frame["items"] / frame["d_model"]
    edges = frame.loc[:, ["degree"]].assign(
        ratio=ratio, half=ratio / 2, double=ratio * 2, label="m'/d_model"
    )
    x = log2_ruler("degree r", padding=30, values=sorted(set(frame["degree"]))).x("degree")
    y = _powers(frame, min(edges["half"]), max(edges["double"]))
    line = alt.Chart(edges).encode(x=x)
    band = line.mark_area(color=PALE, opacity=0.5).encode(y=y.y("half"), y2="double:Q")
    rule = line.mark_line(color=GREY, strokeDash=[6, 3]).encode(y=y.y("ratio"))
    last = alt.Chart(edges.tail(1)).mark_text(align="right", dx=-8, dy=-10, color=GREY, fontSize=11)
    points = heads_layers(x, y, {"color": alt.value(COLOURS[0]), "shape": alt.value("circle")})
    layers = [band, rule, last.encode(x=x, y=y.y("ratio"), text="label:N"), *points]
    chart = alt.layer(*layers, data=frame).properties(width=560, height=340)
    subtitle = f"{_MEANING}\ngrey: m'/d_model = r·m/d_model, and a factor of 2 about it{crosses_mean(frame)}"
    return finish(chart, frame, f"Heads h* of regular graphs, {sizes(frame)}", subtitle)


def _powers(frame: pd.DataFrame, *more: float) -> Ruler:
    """A logarithmic axis of head counts with a tick at every power of two."""
    values = [*frame["heads_low"].dropna(), *frame["heads_high"].dropna(), *more, 1.0]
    powers = [2**power for power in range(int(max(values)).bit_length())]
    return log2_ruler(_HEADS, values=powers, ends=[0.85 * min(values), 1.5 * max(values)])
