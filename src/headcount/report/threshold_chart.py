"""Thresholds of a sweep against m' log₂ m/d_model, the size in the paper's law."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headcount.errors import InputError
from headcount.report.drawing.style import log2_axis
from headcount.report.palette import COLOURS, FONT, SHAPES

_POINT = ["variant", "degree", "items", "d_model"]
_RANGE = ["optimistic", "central", "conservative"]


def draw_thresholds(table: pd.DataFrame) -> Any:
    """D_K* of every point with its optimistic to conservative range, on logarithmic axes."""
    found = table.dropna(subset=["central"])
    if found.empty:
        raise InputError("no point has a threshold, so there is nothing to draw; test more budgets")
    size = found["degree"] * found["items"] / found["d_model"]
    size *= np.log2(found["items"].astype(float))
    # Where no tested budget is certain to pass, the range ends at D_K*.
    high = found["conservative"].fillna(found["central"])
    point = [*_POINT, *(name for name in ("graph", "table") if name in found)]
    rows = found[[*point, *_RANGE, "heads", "key_dim"]].astype(object).assign(size=size, high=high)
    base = alt.Chart(rows.where(rows.notna(), None)).encode(
        x=log2_axis("m' log₂ m / d_model").x("size"),
        color=_by("variant", found["variant"].tolist(), alt.Color, COLOURS, None),
    )
    line = base.mark_rule().encode(y=log2_axis("D_K*").y("optimistic"), y2="high:Q")
    point = base.mark_point(filled=True, size=60, opacity=1).encode(
        y=log2_axis("D_K*").y("central"),
        shape=_by("degree", found["degree"].tolist(), alt.Shape, SHAPES, "r"),
        tooltip=[*point, *_RANGE, "heads", "key_dim"],
    )
    return alt.layer(line, point).properties(width=420, height=320).configure(font=FONT)


def _by(field: str, values: list[Any], channel: Any, looks: Any, title: str | None) -> Any:
    """One look per value of a column, in order."""
    domain = sorted(set(values))
    scale = alt.Scale(domain=domain, range=list(islice(cycle(looks), len(domain))))
    return channel(f"{field}:N", scale=scale, title=title)
