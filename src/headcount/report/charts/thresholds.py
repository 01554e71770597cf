"""D_K* against the capacity law, and as a table: Figs. 3, 8 and 12."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from headcount.analysis.laws import budget_fit, feature, regular_fit
from headcount.analysis.thresholds import LEVEL
from headcount.paper import data as paper
from headcount.report.charts.lines import Line, line_layer, our_line, paper_line
from headcount.report.charts.stars import arrows_mean, budget_layers, labels, shown, sizes, stars
from headcount.report.charts.style import Layers, Looks, finish, log2_ruler, told_apart
from headcount.reproduction.evidence import Evidence

_FEATURE = "edges·log2(items)/d_model"
_MEANING = "bars: optimistic … conservative (App. A.2)"


def fig3(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 3: D_K* against m log₂ m/d_model, with our lines through the origin and the paper's."""
    frame = stars(evidence, "base", "extreme")
    # Points of like x differ in d_model, the smallest leftmost.
    sides = dict(zip(sorted(set(frame["d_model"])), ("left", "below", "right"), strict=False))
    frame = frame.assign(
        x=feature(frame, _FEATURE),
        label=[
            f"({items}, {d_model})"
            for items, d_model in zip(frame["items"], frame["d_model"], strict=True)
        ],
        side=[sides.get(d_model, "right") for d_model in frame["d_model"]],
    )
    table = evidence.law_points()
    without = "without d_model = 16, m > 64"
    lines = [
        *our_line("ours, all points", "x", [1, 0], lambda: budget_fit(table)),
        *our_line(f"ours, {without}", "x", [7, 3], lambda: budget_fit(table, wide=True)),
        paper_line("paper, all points", "x", [3, 3], "law.budget"),
        paper_line(f"paper, {without}", "x", [8, 3, 2, 3], "law.wide"),
    ]
    looks = told_apart("d_model", frame["d_model"], "d_model", first=16, legend=False)
    chart = _against_law(frame, lines, looks, "x = m·log₂ m / d_model")
    subtitle = f"labels: (m, d_model); {_MEANING}{arrows_mean(frame)}"
    return finish(chart, frame, "D_K* against the capacity law", subtitle)


def fig12(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 12: D_K* of regular graphs against (r m/d_model) log₂ m."""
    frame = stars(evidence, "regular")
    names = [f"r = {degree}" for degree in frame["degree"]]
    frame = frame.assign(x=feature(frame, _FEATURE), label=names, side="corner")
    degrees: Any = paper.number("regular.degrees").value
    table = evidence.on("regular", "thresholds")
    table = table.loc[table["degree"].isin(degrees)]
    lines = [
        *our_line(f"ours, r ≤ {degrees[-1]}", "x", [1, 0], lambda: regular_fit(table)),
        paper_line("paper", "x", [6, 3], "law.regular"),
    ]
    looks = told_apart("degree", frame["degree"], "degree r", legend=False)
    chart = _against_law(frame, lines, looks, "x = (r·m / d_model)·log₂ m")
    return finish(
        chart, frame, f"D_K* of regular graphs, {sizes(frame)}", f"{_MEANING}{arrows_mean(frame)}"
    )


def _against_law(frame: pd.DataFrame, lines: list[Line], looks: Looks, title: str) -> Layers:
    """Points with intervals and labels on logarithmic axes, where lines through the origin are parallel."""
    x = log2_ruler(title, padding=30).x("x")
    y = log2_ruler("smallest passing total key dimension D_K*", padding=20)
    ends = (0.8 * min(frame["x"]), 1.25 * max(frame["x"]))
    layers = [line_layer(lines, ends, y), *labels(x, y.y("place")), *budget_layers(x, y, looks)]
    return alt.layer(*layers, data=frame).properties(width=560, height=400)


def fig8(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 8: a table of D_K* over m and d_model; upper right conservative, lower left optimistic."""
    frame = stars(evidence, "base", "diagonal", "extreme")
    lower, _, upper = zip(
        *(interval.rpartition(" … ") for interval in frame["interval"]), strict=True
    )
    frame = frame.assign(
        middle=["none" if pd.isna(value) else f"{value:.0f}" for value in frame["central"]],
        upper=[text.replace("none", "") for text in upper],
        lower=lower,
    )
    base = alt.Chart().encode(
        x=alt.X(
            "d_model:O",
            title="d_model",
            axis=alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False),
        ),
        y=alt.Y("items:O", title="items m", axis=alt.Axis(domain=False, ticks=False)),
    )
    colour = alt.Color(
        "place:Q", scale=alt.Scale(type="log", scheme="blues", nice=False), legend=None
    )
    dark = max(frame["place"]) ** 0.6 * min(frame["place"]) ** 0.4
    ink = alt.condition(f"datum.place > {dark}", alt.value("white"), alt.value("black"))
    layers = [
        base.mark_rect(stroke="white", strokeWidth=2).encode(color=colour, tooltip=shown()),
        base.mark_text(fontSize=14, dy=1).encode(text="middle:N", color=ink),
        base.mark_text(fontSize=9.5, dx=29, dy=-15, align="right").encode(
            text="upper:N", color=ink
        ),
        base.mark_text(fontSize=9.5, dx=-29, dy=16, align="left").encode(text="lower:N", color=ink),
    ]
    chart = alt.layer(*layers, data=frame, view=alt.ViewBackground(stroke=None))
    more = f"\nnone: no tested D_K reached F1 = {LEVEL}" if "none" in set(frame["middle"]) else ""
    subtitle = f"lower left: optimistic, upper right: conservative{more}"
    chart = chart.properties(width=alt.Step(66), height=alt.Step(48))
    return finish(chart, frame, "Smallest passing total key dimension D_K*", subtitle)
