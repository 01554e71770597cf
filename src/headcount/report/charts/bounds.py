"""How far trained channels are from what must be and from what can be built (not in the paper)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from headcount.report.charts.stars import ARROW, CROSS, stars
from headcount.report.charts.style import COLOURS, PALE, SHAPES, finish, log2_ruler, some, tooltips
from headcount.reproduction.evidence import Evidence

_POINT = ["items", "d_model", "degree"]
_GRIDS = ("base", "diagonal", "extreme", "regular")
_COLOURS = {"construction": COLOURS[3], "trained": COLOURS[6], "lower bound": COLOURS[0]}


def bounds(evidence: Evidence) -> alt.TopLevelMixin:
    """For every point: lower bounds, the trained D_K*, and the least D_K at which each construction is exact."""
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
    y = log2_ruler("total key dimension D_K", padding=24, ticks=12)
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
    return finish(chart, frame, "Trained D_K* between lower bounds and constructions", subtitle)


def _compared(evidence: Evidence) -> pd.DataFrame:
    """Bounds, constructions and thresholds of the points that have a bound, a row each; `above`: more than `budget`."""
    ceilings = some(evidence.ceilings, "bounds or constructions")
    some(ceilings.dropna(subset=["budget"]), "bound or construction with a D_K")
    frame = ceilings.loc[:, [*_POINT, "kind", "name", "budget"]].assign(
        above=False, interval="–", split=_split(ceilings)
    )
    if set(evidence.thresholds["grid"]) & set(_GRIDS):
        trained = stars(evidence, *_GRIDS).merge(ceilings[_POINT].drop_duplicates(), on=_POINT)
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
