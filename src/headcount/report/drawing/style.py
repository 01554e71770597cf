"""What all charts share: axes, looks of series, tooltips, titles and the page's filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from headcount.errors import InputError
from headcount.report.palette import COLOURS, DASHES, FONT, GREY, SHAPES

FILTERS = {"m": "items", "d_model_": "d_model", "h": "heads"}  # the page's signals, by column
Layers = alt.LayerChart | alt.FacetChart | alt.HConcatChart | alt.VConcatChart
Looks = dict[str, Any]  # channels by name: color, shape, strokeDash


@dataclass(frozen=True)
class ScaledAxis:
    """A scale with its axis and title, for either side of a chart."""

    title: str
    scale: alt.Scale
    axis: alt.Axis

    def x(self, field: str) -> alt.X:
        return alt.X(f"{field}:Q", scale=self.scale, axis=self.axis, title=self.title)

    def y(self, field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", scale=self.scale, axis=self.axis, title=self.title)


def log2_axis(
    title: str,
    padding: int = 10,
    values: Sequence[int] = (),
    ends: Sequence[float] = (),
    ticks: int = 8,
) -> ScaledAxis:
    """A logarithmic axis over the data and `padding` pixels, or between `ends`.

    Its ticks are at powers of two, or at `values`.
    """
    place: Any = {"domain": list(ends)} if ends else {"padding": padding}
    marks: Any = {"tickCount": len(values) or ticks}
    if values:
        marks["values"] = list(values)
    scale = alt.Scale(type="log", base=2, nice=False, **place)
    return ScaledAxis(title, scale, alt.Axis(format="~r", **marks))


def require_rows(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """Give the frame back, or say in one sentence that there is nothing to draw."""
    if frame.empty:
        raise InputError(
            f"there is nothing to draw, since the evidence has no {what}; reproduce its grid first"
        )
    return frame


def series_looks(
    field: str, values: Iterable[int], title: str, first: int = 1, legend: bool = True
) -> Looks:
    """Colour, shape and dash of each value, with one legend for the three.

    Powers of two from `first` up have the same look in every chart; with other values among them
    each has the look of its rank. They are encoded as names, since shapes have no order.
    """
    domain = sorted({int(value) for value in values})
    powers = [value.bit_length() - first.bit_length() for value in domain]
    ranks = range(len(domain)) if len(set(powers)) < len(domain) else powers
    places = [rank % len(COLOURS) for rank in ranks]
    # Symbols without a stroke: the dashes of the lines would break it.
    place = {"orient": "top", "columns": 0, "titleOrient": "left", "titleAnchor": "middle"}
    key = alt.Legend(title=title, symbolStrokeWidth=0, **place) if legend else None
    looks = {
        "color": (alt.Color, COLOURS),
        "shape": (alt.Shape, SHAPES),
        "strokeDash": (alt.StrokeDash, DASHES),
    }
    return {
        name: channel(
            f"{field}:N",
            scale=alt.Scale(domain=domain, range=[look[n] for n in places]),
            legend=key,
        )
        for name, (channel, look) in looks.items()
    }


def tooltips(**shown: str) -> list[alt.Tooltip]:
    """Tooltips by column: `mean="mean F1|.4f"` names it and gives its format."""
    pairs = [(column, *text.partition("|")[::2]) for column, text in shown.items()]
    return [
        alt.Tooltip(f"{column}:Q", title=title, format=form)
        if form
        else alt.Tooltip(f"{column}:N", title=title)
        for column, title, form in pairs
    ]


def styled(chart: Layers, frame: pd.DataFrame, title: str, subtitle: str = "") -> Layers:
    """Add the title, the look, and the filters for the columns that the frame has.

    All in one call, since Altair copies the whole chart at each.
    """
    names = [name for name, column in FILTERS.items() if column in frame]
    text = alt.TitleParams(
        title,
        subtitle=subtitle.split("\n"),
        anchor="start",
        fontSize=14,
        subtitleFontSize=11,
        subtitleColor=GREY,
        offset=10,
    )
    look = alt.Config(
        font=FONT,
        view=alt.ViewConfig(stroke="#bbbbbb"),
        axis=alt.AxisConfig(
            gridColor="#ececec", labelFontSize=11, titleFontSize=11.5, titleFontWeight="normal"
        ),
        header=alt.HeaderConfig(labelFontSize=12, labelFontWeight="bold", labelPadding=4),
        legend=alt.LegendConfig(
            labelFontSize=11, titleFontSize=11.5, titleFontWeight="normal", symbolSize=70
        ),
    )
    added: dict[str, Any] = {"title": text, "config": look}
    if names:
        filters = [f"{name} == null || datum.{FILTERS[name]} == {name}" for name in names]
        before = [] if chart.transform is alt.Undefined else chart.transform
        added["transform"] = [*before, *map(alt.FilterTransform, filters)]
        added["params"] = [alt.VariableParameter(name=name, value=None) for name in names]
    return chart.properties(**added)
