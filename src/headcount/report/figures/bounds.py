"""Beyond the paper: trained thresholds between lower bounds and constructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged
from headcount.report.formatting import counted, listed, num, span_text
from headcount.report.palette import COLOURS, PALE, SHAPES
from headcount.report.readings.brackets import UNDER_MAX, Bracket, brackets
from headcount.reproduction.evidence import Evidence

_POINT = ["items", "d_model", "degree"]
_COLOURS = {"construction": COLOURS[3], "trained": COLOURS[6], "lower bound": COLOURS[0]}


def draw(evidence: Evidence) -> Any:
    """For every point: lower bounds, the trained D_K*, and the least D_K at which each construction is exact."""
    import altair as alt

    from headcount.report.drawing.style import log2_axis, styled, tooltips
    from headcount.report.drawing.threshold_marks import ARROW, CROSS

    frame = _compared(evidence)
    points, kinds = (
        list(dict.fromkeys(frame["point"])),
        dict(zip(frame["name"], frame["kind"], strict=True)),
    )
    names = sorted(kinds, key=lambda name: list(_COLOURS).index(kinds[name]))
    colours = alt.Scale(domain=names, range=[_COLOURS[kinds[name]] for name in names])
    shapes = alt.Scale(
        domain=names, range=[SHAPES[place % len(SHAPES)] for place in range(len(names))]
    )
    key = alt.Legend(title=None, orient="top", columns=3, labelLimit=300)
    bands = alt.Scale(paddingInner=0.35, paddingOuter=0.2)
    x = alt.X(
        "point:N", sort=points, scale=bands, axis=alt.Axis(labelAngle=-35), title="(m, d_model)"
    )
    y = log2_axis("total key dimension D_K", padding=24, ticks=12)
    base = alt.Chart().encode(
        x=x,
        xOffset=alt.XOffset("name:N", scale=alt.Scale(domain=names)),
        color=alt.Color("name:N", scale=colours, legend=key),
        tooltip=tooltips(
            name="what",
            budget="D_K|d",
            interval="interval",
            split="heads",
            items="m|d",
            d_model="d_model|d",
            degree="r|d",
        ),
    )
    found = base.transform_filter("isValid(datum.budget) && !datum.above").mark_point(
        filled=True, size=70, opacity=1
    )
    layers = [
        alt.Chart().mark_rule(color=PALE).encode(x=x, y="min(budget):Q", y2="max(budget):Q"),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5)
        .encode(y=y.y("low"), y2="high:Q"),
        found.encode(y=y.y("budget"), shape=alt.Shape("name:N", scale=shapes, legend=key)),
        base.transform_filter("datum.above").mark_point(**ARROW).encode(y=y.y("budget")),
        base.transform_filter("!isValid(datum.budget)").mark_point(**CROSS).encode(y=alt.value(8)),
    ]
    chart = alt.layer(*layers, data=frame).properties(width=max(320, 66 * len(points)), height=380)
    more = "\narrow: no trained D_K passed up to the largest tested" if any(frame["above"]) else ""
    more += (
        "\ncross: the construction was exact at no D_K tried" if any(frame["budget"].isna()) else ""
    )
    subtitle = f"constructions: the least D_K found exact; bars: interval of the trained D_K*{more}"
    return styled(chart, frame, "Trained D_K* between lower bounds and constructions", subtitle)


def _compared(evidence: Evidence) -> pd.DataFrame:
    """Bounds, constructions and thresholds of the points that have a bound, a row each; `above`: more than `budget`."""
    from headcount.report.drawing.style import require_rows
    from headcount.report.drawing.threshold_marks import threshold_points

    ceilings = require_rows(evidence.ceilings, "bounds or constructions")
    require_rows(ceilings.dropna(subset=["budget"]), "bound or construction with a D_K")
    frame = ceilings.loc[:, [*_POINT, "kind", "name", "budget"]].assign(
        above=False, interval="–", split=_split(ceilings)
    )
    if set(evidence.thresholds["grid"]) & set(UNDER_MAX):
        trained = threshold_points(evidence, *UNDER_MAX).merge(
            ceilings[_POINT].drop_duplicates(), on=_POINT
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


def between_bounds(evidence: Evidence) -> Claim:
    """C12: judged at every threshold that has a bound or a construction beside it."""
    found = brackets(evidence)
    lower = [point for point in found if point.lower]
    over = [point.budget / point.lower[0] for point in lower if point.lower]
    first = Check(None, "")
    if lower:
        text = f"at or above the lower bound at {sum(point.above for point in lower)} of {counted(len(lower), 'point')}"
        first = Check(
            all(point.above for point in lower),
            f"{text}, × {num(min(over))} to × {num(max(over))} of it",
        )
    checks = [first, _printed(found), _smallest_construction(found)]
    return judged(
        "C12",
        "Trained thresholds lie between the lower bounds and the constructions.",
        "no D_K* lies below the largest lower bound; confirmed in full if at every point the paper's construction as "
        "printed recognises the graph, with no less than D_K*, and none lies above the smallest construction that we "
        "know.",
        checks,
        ("bounds", "fig12"),
    )


def _printed(found: Sequence[Bracket]) -> Check:
    """Whether the paper's construction is exact at every point where it was tried."""
    tried = [point for point in found if point.tried]
    exact = [
        (point.name, point.printed / point.budget) for point in tried if point.printed is not None
    ]
    if not tried:
        return Check(None, "")
    text = f"the construction as printed is exact, in the d_k searched, at {len(exact)} of {counted(len(tried), 'point')}"
    if exact:
        text += f": {listed([f'{name} with × {num(factor)} of D_K*' for name, factor in exact])}"
    return Check(all(point.as_printed for point in tried), text)


def _smallest_construction(found: Sequence[Bracket]) -> Check:
    """Whether no threshold lies above the smallest construction known, ours or the paper's."""
    upper = [point for point in found if point.upper]
    under = [point.upper[0] / point.budget for point in upper if point.upper]
    if not upper:
        return Check(None, "")
    below, trivial = sum(point.below for point in upper), sum(point.one_each for point in upper)
    text = f"at or below the smallest construction that we know at {below} of {counted(len(upper), 'point')}"
    text += f", × {num(min(under))} to × {num(max(under))} of D_K*"
    text += f", at {trivial} the trivial one, one head an edge" if trivial else ""
    return Check(all(point.below for point in upper), text)


def compare(evidence: Evidence) -> list[Comparison]:
    """Every threshold between the largest lower bound and the smallest construction.

    Where the paper's own construction is not exact, there is nothing of the paper's above the threshold: "–".
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
    """Thresholds between bounds and constructions."""
    found = brackets(evidence)
    over = [point.budget / point.lower[0] for point in found if point.lower]
    under = [point.upper[0] / point.budget for point in found if point.upper]
    if not over or not under:
        return UNMEASURED
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
        f"At {inside} of {counted(len(found), 'point')} the trained threshold lies between the largest lower bound (it "
        f"is {span_text(over)} that) and the smallest construction that we know, which needs {span_text(under)} the "
        f"trained budget and is one head an edge at {trivial}{printed}. A threshold asks for an F1 of 0.99, a bound or "
        "a construction for every pair."
    )


FIGURE = Figure(
    id="bounds",
    title="Beyond the paper: bounds, training, constructions",
    grids=("base", "regular", "diagonal", "extreme"),
    ceilings=True,
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(between_bounds,),
)
