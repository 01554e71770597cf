"""Figure 8: D_K* by m and d_model, as a table."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.report.figures.base import UNMEASURED, Comparison, Figure
from headcount.report.figures.comparison_rows import finding_row
from headcount.report.formatting import counted
from headcount.report.readings.frames import passing, rows
from headcount.report.readings.paper_numbers import LEVEL
from headcount.report.readings.trends import steps
from headcount.reproduction.evidence import Evidence


def draw(evidence: Evidence) -> Any:
    """A table of D_K* over m and d_model, with its conservative and optimistic values."""
    import altair as alt

    from headcount.report.drawing.style import styled
    from headcount.report.drawing.threshold_marks import threshold_points, threshold_tooltips

    frame = threshold_points(evidence, "base", "diagonal", "extreme")
    lower, _, upper = zip(
        *(interval.rpartition(" … ") for interval in frame["interval"]), strict=True
    )
    frame = frame.assign(
        middle=["none" if pd.isna(value) else f"{value:.0f}" for value in frame["central"]],
        upper=[text.replace("none", "") for text in upper],
        lower=lower,
    )
    top = alt.Axis(orient="top", labelAngle=0, domain=False, ticks=False)
    base = alt.Chart().encode(
        x=alt.X("d_model:O", title="d_model", axis=top),
        y=alt.Y("items:O", title="items m", axis=alt.Axis(domain=False, ticks=False)),
    )
    colour = alt.Color(
        "place:Q", scale=alt.Scale(type="log", scheme="blues", nice=False), legend=None
    )
    # Three fifths of the way up the log scale, where black text stops being readable.
    dark = max(frame["place"]) ** 0.6 * min(frame["place"]) ** 0.4
    ink = alt.condition(f"datum.place > {dark}", alt.value("white"), alt.value("black"))
    layers = [
        base.mark_rect(stroke="white", strokeWidth=2).encode(
            color=colour, tooltip=threshold_tooltips()
        ),
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
    return styled(chart, frame, "Smallest passing total key dimension D_K*", subtitle)


def compare(evidence: Evidence) -> list[Comparison]:
    """Whether D_K* rises with m and falls with d_model."""
    table = passing(evidence, "base")
    by_items, by_width = steps(table, "central", "items"), steps(table, "central", "d_model")
    if not by_items.all or not by_width.all:
        return []
    holds = by_items.up == by_items.all and by_width.down == by_width.all
    text = (
        f"up in {by_items.up} of {counted(by_items.all, 'step')} in m, down in {by_width.down} of "
        f"{by_width.all}"
    )
    return [finding_row("thresholds.trend", holds, f"{text} in d_model")]


def meaning(evidence: Evidence) -> str:
    """The range of D_K*, and how it changes with m and d_model."""
    table = passing(evidence, "base")
    found = sorted((budget, m, d) for m, d, budget in rows(table, "items", "d_model", "central"))
    by_items, by_width = steps(table, "central", "items"), steps(table, "central", "d_model")
    if not by_items.all or not by_width.all:
        return UNMEASURED
    (least, m, d), (most, large, narrow) = found[0], found[-1]
    return (
        f"The smallest passing budget ranges from {least} at (m, d_model) = ({m}, {d}) to {most} "
        f"at ({large}, {narrow}). It grows in {by_items.up} of {counted(by_items.all, 'step')} in "
        f"m and falls in {by_width.down} of {by_width.all} in d_model; the paper reports both "
        "trends."
    )


FIGURE = Figure(
    id="fig8",
    title="Figure 8. D_K*, the smallest total key dimension",
    grids=("base", "diagonal", "extreme"),
    draw=draw,
    compare=compare,
    meaning=meaning,
)
