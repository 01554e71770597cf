"""Thresholds against a capacity law, with the lines of our fits and the paper's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import altair as alt
import pandas as pd

from headcount.analysis.fits import LineFit
from headcount.errors import InputError
from headcount.paper import data as paper
from headcount.report.drawing.style import Layers, Looks, ScaledAxis, log2_axis
from headcount.report.drawing.threshold_marks import budget_layers, labels
from headcount.report.palette import GREY, INK


class Line(NamedTuple):
    """A line: what the legend says, its parameters, its look."""

    name: str
    slope: float
    intercept: float
    colour: str
    dash: list[int]


def our_line(name: str, variable: str, dash: list[int], fit: Callable[[], LineFit]) -> list[Line]:
    """The line of our fit; none where the points are too few for one."""
    try:
        found = fit()
    except InputError:
        return []
    text = (
        f"{name}: {_formula(found.slope, found.intercept, variable)} (R² = {found.r_squared:.3f})"
    )
    return [Line(text, found.slope, found.intercept, INK, dash)]


def paper_line(name: str, variable: str, dash: list[int], law: str) -> Line:
    """A law of the paper by the name of its numbers, `law.budget`."""
    known = {
        item.id: float(str(item.value))
        for item in paper.numbers()
        if item.id.startswith(f"{law}.") and item.kind == "result"
    }
    slope, intercept = known[f"{law}.slope"], known.get(f"{law}.intercept", 0.0)
    text = f"{name}: {_formula(slope, intercept, variable)}"
    if fit := known.get(f"{law}.r2"):
        text += f" (R² = {fit})"
    return Line(text, slope, intercept, GREY, dash)


def line_layer(lines: Sequence[Line], ends: tuple[float, float], y: ScaledAxis) -> alt.Chart:
    """The lines between two x, with one legend."""
    frame = pd.DataFrame(
        [
            {"law": line.name, "end": x, "height": line.slope * x + line.intercept}
            for line in lines
            for x in ends
        ]
    )
    domain = [line.name for line in lines]
    key = alt.Legend(
        title=None, orient="bottom", direction="vertical", labelLimit=480, symbolSize=400
    )
    colours = alt.Scale(domain=domain, range=[line.colour for line in lines])
    dashes = alt.Scale(domain=domain, range=[line.dash for line in lines])
    return (
        alt.Chart(frame)
        .mark_line(strokeWidth=1.5, clip=True)
        .encode(
            x="end:Q",
            y=y.y("height"),
            stroke=alt.Stroke("law:N", scale=colours, legend=key),
            strokeDash=alt.StrokeDash("law:N", scale=dashes, legend=key),
        )
    )


def against_law(frame: pd.DataFrame, lines: list[Line], looks: Looks, title: str) -> Layers:
    """Points with intervals and labels on log axes, where lines through the origin are parallel."""
    x = log2_axis(title, padding=30).x("x")
    y = log2_axis("smallest passing total key dimension D_K*", padding=20)
    ends = (0.8 * min(frame["x"]), 1.25 * max(frame["x"]))
    layers = [line_layer(lines, ends, y), *labels(x, y.y("place")), *budget_layers(x, y, looks)]
    return alt.layer(*layers, data=frame).properties(width=560, height=400)


def _formula(slope: float, intercept: float, variable: str) -> str:
    """Write a line: 1.65λ − 6.64."""
    constant = f" {'−' if intercept < 0 else '+'} {abs(intercept):.3g}" if intercept else ""
    return f"{slope:.3g}{variable}{constant}"
