"""The chart of the block's controls: one head under each control beside plain heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from headcount.report.drawing.style import require_rows, styled, tooltips
from headcount.report.figures.block_cells import CELL_TOOLTIPS, cell_marks
from headcount.report.formatting import counted
from headcount.report.palette import COLOURS
from headcount.report.readings.block_controls import AT_TEST, Control, controls
from headcount.report.readings.block_runs import Cell, Setting
from headcount.reproduction.evidence import Evidence

_ENDS = [-0.04, 1.04]
_ONE, _SEVERAL, _CONTROL = "one head", "several heads", "one head under a control"


def controls_chart(evidence: Evidence) -> alt.TopLevelMixin:
    """One head under the controls beside plain heads, one panel per table and D_K."""
    found = _with_trained_controls(controls(evidence))
    plain = list({control.plain.title: control.plain for control in found}.values())
    frame = pd.DataFrame([*_plain_lines(plain), *_control_lines(found)])
    require_rows(frame, "runs of the transformer block with one head")
    order = [f"D_K = {budget}" for budget in sorted(set(frame["budget"]))]
    chart = alt.layer(*_layers(frame), data=frame).properties(width=185, height={"step": 24})
    facet = chart.facet(
        row=alt.Row("panel:N", sort=[panel.short_title for panel in plain], title=None),
        column=alt.Column("column:N", sort=order, title=None),
        spacing={"row": 16, "column": 12},
    ).resolve_axis(x="independent")
    title = (
        "What the second head does: one head where s may not be the answer, and with a second "
        "value path"
    )
    subtitle = (
        "large: means with 95 % intervals; small circles: runs; q: the query, s = π(q); in "
        "brackets: d_model"
    )
    return styled(facet, frame, title, subtitle)


def _layers(frame: pd.DataFrame) -> list[Any]:
    """Intervals, runs and means, one line per head count or control."""
    # Several heads on top, one head below, and scaled rows last.
    names = sorted(
        dict.fromkeys(frame["name"]), key=lambda name: (name.startswith(_ONE), "rows ×" in name)
    )
    kinds = [_SEVERAL, _ONE, _CONTROL]
    colours = alt.Scale(domain=kinds, range=[COLOURS[2], COLOURS[0], COLOURS[3]])
    shapes = alt.Scale(domain=kinds, range=["square", "circle", "triangle-up"])
    x = alt.X(
        "value:Q",
        scale=alt.Scale(domain=_ENDS, nice=False),
        axis=alt.Axis(values=[0, 0.5, 1], format=".1f"),
    )
    axis = alt.Axis(labelLimit=260, grid=True, ticks=False)
    base: Any = alt.Chart().encode(
        x=x.title("accuracy"),
        y=alt.Y("name:N", sort=names, title=None, axis=axis),
        color=alt.Color("what:N", scale=colours, legend=None),
        tooltip=tooltips(name="what", **CELL_TOOLTIPS),
    )
    means = base.transform_filter("datum.kind == 'mean'")
    runs = base.transform_filter("datum.kind == 'seed'")
    intervals = means.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.4, clip=True)
    shape = alt.Shape("what:N", scale=shapes, legend=None)
    return [
        intervals.encode(x="low:Q", x2="high"),
        runs.mark_point(size=14, strokeWidth=0.9, opacity=1, yOffset=7),
        means.mark_point(filled=True, size=55, opacity=1).encode(shape=shape),
    ]


def _with_trained_controls(found: list[Control]) -> list[Control]:
    """The tables with controls beyond barring at the test, which Fig. 7 shows; all if none has."""
    tables = [control.plain for control in found if control.name != AT_TEST]
    return [control for control in found if control.plain in tables] if tables else found


def _plain_lines(plain: list[Setting]) -> Iterator[dict[str, object]]:
    for panel in plain:
        for (heads, budget), cell in panel.cells.items():
            name = _ONE if heads == 1 else counted(heads, "head")
            yield from _named(panel, budget, cell, name, _ONE if heads == 1 else _SEVERAL)


def _control_lines(found: list[Control]) -> Iterator[dict[str, object]]:
    for control in found:
        for cell in control.cells:
            yield from _named(control.plain, cell.budget, cell, f"{_ONE}, {control.name}", _CONTROL)


def _named(
    panel: Setting, budget: int, cell: Cell, name: str, what: str
) -> Iterator[dict[str, object]]:
    place = {
        "panel": panel.short_title,
        "column": f"D_K = {budget}",
        "items": panel.items,
        "d_model": panel.d_model,
    }
    yield from (place | {"name": name, "what": what} | line for line in cell_marks(cell))
