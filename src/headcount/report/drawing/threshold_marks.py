"""D_K* and h* as charts draw them: intervals, points, arrows and crosses where none passed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headcount.analysis.curves import POINT
from headcount.errors import InputError
from headcount.report.drawing.style import Looks, ScaledAxis, log2_axis, require_rows, tooltips
from headcount.report.palette import INK
from headcount.reproduction.evidence import Evidence

ARROW: dict[str, Any] = {"shape": "arrow", "size": 260, "yOffset": -5, "filled": True, "opacity": 1}
CROSS: dict[str, Any] = {
    "shape": "M-1,-1L1,1M1,-1L-1,1",
    "size": 60,
    "strokeWidth": 2,
    "filled": False,
    "opacity": 1,
}
HEADS_TITLE = "heads h* at D_K*"
HEADS_BARS = "bars: head counts indistinguishable from h* (App. A.2)"
BUDGET_BARS = "bars: optimistic … conservative (App. A.2)"
SIDE_STEP = 9  # pixels between points that share a place
_BUDGETS = ["central", "optimistic", "conservative"]
_WHOLE = [*_BUDGETS, "heads", "heads_low", "heads_high", "key_dim"]
_KEPT = [
    *("items", "d_model", "degree", "heads", "heads_low", "heads_high"),
    *("key_dim", "central", "mean", "runs"),
]
_SIDES = {  # of a label: align, baseline, dx, dy
    "left": ("right", "middle", -9, 0),
    "below": ("center", "top", 0, 9),
    "right": ("left", "middle", 9, 0),
    "corner": ("left", "top", 7, 5),
}


def threshold_points(evidence: Evidence, *grids: str) -> pd.DataFrame:
    """D_K* and h*, one row per point of the grids; of a point in two grids the first is kept.

    `low` … `high` is the interval of D_K*. Where no budget passed for certain, it ends at the
    largest tested one and `open` is true; `central` and `heads` are missing where none passed on
    average. `place` is where the point is drawn: at D_K*, or at the largest tested budget.
    """
    rows = pd.concat([evidence.on(grid, "thresholds") for grid in grids])
    rows = rows.drop_duplicates(POINT, ignore_index=True)
    require_rows(rows, f"thresholds of the grid {' or '.join(grids)}")
    frame = rows.astype(dict.fromkeys(_WHOLE, float))
    tested = _largest_tested(evidence, frame)
    place = tested.fillna(pd.Series(frame[_BUDGETS].to_numpy().ravel()).max())
    if place.hasnans:
        raise InputError(
            "there is nothing to draw, since no budget passed and no curve says which were tested"
        )
    kept = frame.loc[:, _KEPT].assign(
        low=frame["optimistic"].fillna(place), high=frame["conservative"].fillna(place)
    )
    ends = [
        f"> {most:.0f}" if np.isnan(end) else f"{end:.0f}"
        for end, most in zip(frame["conservative"], tested, strict=True)
    ]
    return kept.assign(
        open=frame["conservative"].isna(),
        place=frame["central"].fillna(place),
        interval=_written(frame["optimistic"].tolist(), ends),
        heads_interval=_written(
            frame["heads_low"].tolist(), [f"{end:.0f}" for end in frame["heads_high"]]
        ),
    )


def _largest_tested(evidence: Evidence, frame: pd.DataFrame) -> pd.Series:
    """The largest budget of each point's curves; of its thresholds where it has no curves."""
    largest: dict[Any, float] = {
        key: max(rows["budget"]) for key, rows in evidence.curves.groupby(POINT)
    }
    known = [largest.get(key, np.nan) for key in frame[POINT].itertuples(index=False, name=None)]
    return pd.Series(known, dtype=float).fillna(frame[_BUDGETS].max(axis=1))


def _written(lows: Iterable[float], ends: Iterable[str]) -> list[str]:
    """Intervals as text: "16 … 18", or "16 … > 40" where nothing passed for certain.

    "> 40" stands for a point where nothing passed.
    """
    texts = [
        end if np.isnan(low) else f"{low:.0f} … {end}" for low, end in zip(lows, ends, strict=True)
    ]
    return [text.replace("> nan", "none").replace("nan", "none") for text in texts]


def sizes_text(frame: pd.DataFrame) -> str:
    """Name the (m, d_model) of a frame."""
    pairs = sorted(set(zip(frame["items"], frame["d_model"], strict=True)))
    return "; ".join(f"m = {items}, d_model = {d_model}" for items, d_model in pairs)


def largest_value(frame: pd.DataFrame, column: str, least: float = 0) -> float:
    """The largest value of a column that may have gaps, or `least`."""
    return max([least, *frame[column].dropna().tolist()])


def threshold_tooltips() -> list[alt.Tooltip]:
    """Tooltips of a threshold."""
    return tooltips(
        central="D_K*|d",
        interval="interval of D_K*",
        heads="h*|d",
        heads_interval="interval of h*",
        key_dim="d_k*|d",
        mean="mean F1 there|.4f",
        runs="runs|d",
        items="m|d",
        d_model="d_model|d",
        degree="r|d",
    )


def budget_layers(x: alt.X, y: ScaledAxis, looks: Looks) -> list[alt.Chart]:
    """D_K* with its interval; an arrow at the largest tested budget if none passed for certain."""
    base = alt.Chart().encode(x=x, color=looks["color"])
    rule = base.mark_rule(strokeWidth=1.5)
    arrow = base.transform_filter("datum.open").mark_point(**ARROW)
    point = base.transform_filter("isValid(datum.central)").mark_point(
        filled=True, size=75, opacity=1
    )
    return [
        rule.encode(y=y.y("low"), y2="high:Q"),
        arrow.encode(y=y.y("high"), tooltip=threshold_tooltips()),
        point.encode(y=y.y("central"), shape=looks["shape"], tooltip=threshold_tooltips()),
    ]


def heads_layers(x: alt.X, y: ScaledAxis, looks: Looks, shift: float = 0) -> list[alt.Chart]:
    """h* with its interval; a cross at the top where no budget passed, so that there is no h*.

    Draws only the points with this `shift`, so many pixels to the side: none hides another.
    """
    base = alt.Chart().transform_filter(f"datum.shift == {shift}").encode(x=x, color=looks["color"])
    passed, none = (
        base.transform_filter("isValid(datum.heads)"),
        base.transform_filter("!isValid(datum.heads)"),
    )
    rule = passed.mark_rule(strokeWidth=1.5, xOffset=shift)
    point = passed.mark_point(filled=True, size=75, opacity=1, xOffset=shift)
    cross = none.mark_point(**CROSS, xOffset=shift)
    return [
        rule.encode(y=y.y("heads_low"), y2="heads_high:Q"),
        point.encode(y=y.y("heads"), shape=looks["shape"], tooltip=threshold_tooltips()),
        cross.encode(y=alt.value(8), tooltip=threshold_tooltips()),
    ]


def heads_axis(frame: pd.DataFrame, *more: float) -> ScaledAxis:
    """A logarithmic axis of head counts with a tick at every power of two."""
    values = [*frame["heads_low"].dropna(), *frame["heads_high"].dropna(), *more, 1.0]
    powers = [2**power for power in range(int(max(values)).bit_length())]
    return log2_axis(HEADS_TITLE, values=powers, ends=[0.85 * min(values), 1.5 * max(values)])


def labels(x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The `label` of a point on its `side`, with a white edge so that lines do not cross it."""
    layers = []
    for side, (align, baseline, dx, dy) in _SIDES.items():
        base = (
            alt.Chart().transform_filter(f"datum.side == '{side}'").encode(x=x, y=y, text="label:N")
        )
        place: dict[str, Any] = {
            "align": align,
            "baseline": baseline,
            "dx": dx,
            "dy": dy,
            "fontSize": 10,
        }
        layers.append(base.mark_text(**place, stroke="white", strokeWidth=5, strokeJoin="round"))
        layers.append(base.mark_text(**place, color=INK))
    return layers


def arrow_note(frame: pd.DataFrame) -> str:
    """What arrows mean, where there are some."""
    return (
        "\narrow: no D_K up to the largest tested passed for certain" if any(frame["open"]) else ""
    )


def cross_note(frame: pd.DataFrame) -> str:
    """What crosses mean, where there are some."""
    return "\ncross: no tested D_K passed" if any(frame["heads"].isna()) else ""
