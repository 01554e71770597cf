"""Beyond the paper: trained thresholds between lower bounds and constructions."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.report.figures.base import BEYOND, Comparison, Figure
from headcount.report.figures.bounds_claims import (
    below_constructions,
    between_bounds,
    gap_by_degree,
)
from headcount.report.figures.cost_claims import construction_cost, split_cost
from headcount.report.formatting import counted, listed, span_text
from headcount.report.palette import COLOURS, PALE, SHAPES
from headcount.report.readings.brackets import UNDER_MAX, Bracket, brackets
from headcount.reproduction.evidence import Evidence

_POINT = ["items", "d_model", "degree"]
_COLOURS = {"construction": COLOURS[3], "trained": COLOURS[6], "lower bound": COLOURS[0]}
_TOOLTIPS = {
    "name": "what",
    "budget": "D_K|d",
    "interval": "interval",
    "split": "heads",
    "items": "m|d",
    "d_model": "d_model|d",
    "degree": "r|d",
}


def draw(evidence: Evidence) -> Any:
    """Lower bounds, the trained D_K*, and the least D_K at which each construction is exact."""
    import altair as alt

    from headcount.report.drawing.style import styled

    frame = _compared(evidence)
    width = max(320, 66 * frame["point"].nunique())
    chart = alt.layer(*_layers(frame), data=frame).properties(width=width, height=380)
    subtitle = "constructions: the least D_K found exact; bars: interval of the trained D_K*"
    if any(frame["above"]):
        subtitle += "\narrow: no trained D_K up to the largest tested passed"
    if any(frame["budget"].isna()):
        subtitle += "\ncross: the construction was exact at no D_K tried"
    return styled(chart, frame, "Trained D_K* between lower bounds and constructions", subtitle)


def _layers(frame: pd.DataFrame) -> list[Any]:
    """Points by kind, intervals, and arrows and crosses where no D_K is known."""
    import altair as alt

    from headcount.report.drawing.style import log2_axis, tooltips
    from headcount.report.drawing.threshold_marks import ARROW, CROSS

    kinds = dict(zip(frame["name"], frame["kind"], strict=True))
    names = sorted(kinds, key=lambda name: list(_COLOURS).index(kinds[name]))
    colours = alt.Scale(domain=names, range=[_COLOURS[kinds[name]] for name in names])
    looks = [SHAPES[place % len(SHAPES)] for place in range(len(names))]
    shapes = alt.Scale(domain=names, range=looks)
    key = alt.Legend(title=None, orient="top", columns=3, labelLimit=300)
    x = alt.X(
        "point:N",
        sort=list(dict.fromkeys(frame["point"])),
        scale=alt.Scale(paddingInner=0.35, paddingOuter=0.2),
        axis=alt.Axis(labelAngle=-35),
        title="(m, d_model)",
    )
    y = log2_axis("total key dimension D_K", padding=24, ticks=12)
    base = alt.Chart().encode(
        x=x,
        xOffset=alt.XOffset("name:N", scale=alt.Scale(domain=names)),
        color=alt.Color("name:N", scale=colours, legend=key),
        tooltip=tooltips(**_TOOLTIPS),
    )
    intervals = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.5)
    found = base.transform_filter("isValid(datum.budget) && !datum.above")
    points = found.mark_point(filled=True, size=70, opacity=1)
    return [
        alt.Chart().mark_rule(color=PALE).encode(x=x, y="min(budget):Q", y2="max(budget):Q"),
        intervals.encode(y=y.y("low"), y2="high:Q"),
        points.encode(y=y.y("budget"), shape=alt.Shape("name:N", scale=shapes, legend=key)),
        base.transform_filter("datum.above").mark_point(**ARROW).encode(y=y.y("budget")),
        base.transform_filter("!isValid(datum.budget)").mark_point(**CROSS).encode(y=alt.value(8)),
    ]


def _compared(evidence: Evidence) -> pd.DataFrame:
    """Bounds, constructions and thresholds, one per row, of the points that have a bound.

    `above` marks rows whose D_K is known only to exceed `budget`.
    """
    from headcount.report.drawing.style import require_rows
    from headcount.report.drawing.threshold_marks import threshold_points

    bounds = require_rows(evidence.bounds, "bounds or constructions")
    require_rows(bounds.dropna(subset=["budget"]), "bound or construction with a D_K")
    frame = bounds.loc[:, [*_POINT, "kind", "name", "budget"]].assign(
        above=False, interval="–", split=_split(bounds)
    )
    if set(evidence.thresholds["grid"]) & set(UNDER_MAX):
        trained = threshold_points(evidence, *UNDER_MAX).merge(
            bounds[_POINT].drop_duplicates(), on=_POINT
        )
        trained = trained.assign(
            kind="trained",
            name="trained D_K*",
            budget=trained["place"],
            above=trained["central"].isna(),
            split=_split(trained),
        )
        frame = pd.concat(
            [frame, trained.loc[:, [*frame.columns, "low", "high"]]], ignore_index=True
        )
    frame = frame.astype({"budget": float})
    frame["point"] = [
        f"({items}, {d_model})" + (f", r = {degree}" if degree > 1 else "")
        for items, d_model, degree in frame[_POINT].itertuples(index=False, name=None)
    ]
    return frame.sort_values(["degree", "items", "d_model"], ignore_index=True)


def _split(frame: pd.DataFrame) -> list[str]:
    """Heads and widths in words, where they are known."""
    if not {"heads", "key_dim"} <= set(frame.columns):
        return ["–"] * len(frame)
    pairs = zip(frame["heads"].tolist(), frame["key_dim"].tolist(), strict=True)
    return [
        "–" if pd.isna(heads) else f"{heads:.0f} of d_k = {key_dim:.0f}" for heads, key_dim in pairs
    ]


def compare(evidence: Evidence) -> list[Comparison]:
    """Every threshold between the largest lower bound and the smallest construction.

    Where the paper's own construction is not exact, the paper has nothing above it: "–".
    """
    return [
        Comparison(
            what=f"D_K* at m = {point.items:,}, d_model = {point.d_model:,}, r = {point.degree}",
            paper="lower bound ≤ D_K* ≤ construction",
            ours=point.text,
            difference=_between(point),
            overlap=None,
            place="Section 1; Appendix A.3",
        )
        for point in brackets(evidence)
    ]


def _between(point: Bracket) -> str:
    """Whether a threshold lies where the paper has it, by its own construction."""
    if not (point.above and point.below):
        return "differs"
    return "same" if point.as_printed else "–"


def meaning(evidence: Evidence) -> str:
    """Where trained thresholds are between bounds and constructions."""
    found = brackets(evidence)
    over = [point.budget / point.lower[0] for point in found if point.lower]
    under = [point.upper[0] / point.budget for point in found if point.upper]
    if not over or not under:
        return BEYOND
    inside = sum(point.above and point.below for point in found)
    tried, trivial = (
        [point for point in found if point.tried],
        sum(point.one_each for point in found),
    )
    exact = [
        f"{point.name} with D_K = {point.printed:,}" for point in tried if point.printed is not None
    ]
    own = f"exact at {len(exact)} of {counted(len(tried), 'point')}" + (
        f", {listed(exact)}" if exact else ""
    )
    printed = f"; the paper's construction as printed is {own}" if tried else ""
    return (
        f"At {inside} of {counted(len(found), 'point')} the trained threshold lies between the "
        f"largest lower bound (it is {span_text(over)} that) and the smallest construction that "
        f"we know, which needs {span_text(under)} the trained budget and is one head per edge at "
        f"{trivial}{printed}. A threshold requires an F1 of 0.99, a bound or a construction that "
        "every pair is correct."
    )


FIGURE = Figure(
    id="bounds",
    title="Beyond the paper: bounds, training, constructions",
    grids=("base", "regular", "diagonal", "extreme"),
    shows_bounds=True,
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(between_bounds, below_constructions, gap_by_degree, construction_cost, split_cost),
)
