"""Charts of benchmarks: ratios by shape and variant, and what changed between two files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from headcount.bench.cases import VARIANTS
from headcount.bench.ratios import TITLES
from headcount.report.drawing.style import Looks, log2_axis, styled, tooltips
from headcount.report.palette import COLOURS, GREY, INK, PALE, SHAPES

_VERDICTS = {"worse": COLOURS[3], "same": GREY, "better": COLOURS[2]}
_PANEL, _HEIGHT = 640, 260
_KEY: dict[str, Any] = {"title": None, "orient": "top", "columns": 7, "symbolStrokeWidth": 0}


def ratio_chart(frame: pd.DataFrame, name: str) -> Any:
    """One ratio of a benchmark's `ratios`: a group per shape, a mark per variant."""
    rows: Any = frame[frame["ratio"] == name]
    own = _with_places(rows)
    goals = sorted({float(goal) for goal in own["target"].dropna()})
    ends = _ends([*own["low"], *own["high"], *goals])
    y = log2_axis("ratio, logarithmic", ends=ends)
    base = alt.Chart().encode(**_places(own), color=_variant_looks(own)["color"])
    layers = [
        base.mark_rule(strokeWidth=1.5).encode(y=y.y("low"), y2="high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            y=y.y("value"),
            shape=_variant_looks(own)["shape"],
            tooltip=tooltips(
                variant="variant",
                place="shape",
                value="median|,.3r",
                low="lowest round|,.3r",
                high="highest round|,.3r",
            ),
        ),
    ]
    chart = alt.layer(*_goal_layers(goals), *layers, data=own)
    subtitle = "points: medians over rounds; bars: lowest and highest round"
    subtitle += "; dashed: target" if goals else ""
    return styled(chart.properties(width=_PANEL, height=_HEIGHT), own, TITLES[name], subtitle)


def change_chart(changes: pd.DataFrame, noise: float) -> Any:
    """After over before, of every ratio and case; the band is the noise."""
    frame = _with_places(changes).assign(quotient=1 + changes["change"])
    low, high = 1 - noise, 1 / (1 - noise)
    y = log2_axis("after / before", ends=_ends([*frame["quotient"], low / 1.1, high * 1.1]))
    band = alt.Chart(pd.DataFrame({"low": [low], "high": [high]})).mark_rect(color=PALE)
    line = alt.Chart(pd.DataFrame({"one": [1.0]})).mark_rule(color=INK)
    looks = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=list(_VERDICTS), range=list(_VERDICTS.values())),
        legend=alt.Legend(**_KEY),
    )
    rows = []
    for name in dict.fromkeys(frame["ratio"]):
        own: Any = frame[frame["ratio"] == name]
        points = (
            alt.Chart(own)
            .mark_point(filled=True, size=60, opacity=1)
            .encode(
                **_places(own),
                y=y.y("quotient"),
                color=looks,
                shape=_variant_looks(own, orient="bottom")["shape"],
                tooltip=tooltips(
                    variant="variant",
                    place="shape",
                    before="before|,.3r",
                    after="after|,.3r",
                    verdict="verdict",
                ),
            )
        )
        layers = [band.encode(y=y.y("low"), y2="high:Q"), line.encode(y=y.y("one")), points]
        rows.append(alt.layer(*layers).properties(width=_PANEL, height=150, title=TITLES[name]))
    chart = alt.vconcat(*rows, spacing=24)
    subtitle = f"above 1: the ratio rose; band: within the noise of {noise:.0%}"
    return styled(chart, frame, "Ratios after the change, over those before", subtitle)


def _with_places(frame: pd.DataFrame) -> pd.DataFrame:
    """With the shape as a text of four lines."""
    sizes = zip(*(frame[name] for name in ("items", "d_model", "heads", "budget")), strict=True)
    places = [
        f"m {items}, d {d_model}, h {heads}, D_K {width}" for items, d_model, heads, width in sizes
    ]
    return frame.assign(place=places)


def _places(frame: pd.DataFrame) -> dict[str, Any]:
    """Shapes side by side, and their variants beside one another."""
    shapes = list(dict.fromkeys(frame["place"]))
    axis = alt.Axis(labelExpr="split(datum.label, ', ')", labelAngle=0, ticks=False)
    x = alt.X("place:N", sort=shapes, axis=axis, title="shape (d: d_model)")
    return {"x": x, "xOffset": alt.XOffset("variant:N", sort=_variants(frame))}


def _variants(frame: pd.DataFrame) -> list[str]:
    return [variant for variant in VARIANTS if variant in set(frame["variant"])]


def _variant_looks(frame: pd.DataFrame, orient: str = "top") -> Looks:
    """Each variant has its colour and shape in every chart."""
    domain = _variants(frame)
    ranks = [VARIANTS.index(variant) for variant in domain]
    return {
        name: channel(
            "variant:N",
            scale=alt.Scale(domain=domain, range=[look[rank] for rank in ranks]),
            legend=alt.Legend(**{**_KEY, "orient": orient}),
        )
        for name, channel, look in (("color", alt.Color, COLOURS), ("shape", alt.Shape, SHAPES))
    }


def _goal_layers(goals: Sequence[float]) -> list[alt.Chart]:
    base = alt.Chart(pd.DataFrame({"goal": goals})).mark_rule(color=INK, strokeDash=[5, 3])
    return [base.encode(y="goal:Q")] if goals else []


def _ends(values: Sequence[float]) -> list[float]:
    """An axis a little longer than the values."""
    return [min(values) / 1.15, max(values) * 1.15]
