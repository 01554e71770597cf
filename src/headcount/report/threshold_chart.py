"""Thresholds of a sweep against m' log₂ m/d_model, the size in the paper's law."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from headcount.errors import InputError

_POINT = ["variant", "degree", "items", "d_model"]


def draw_thresholds(table: pd.DataFrame) -> Any:
    """D_K* of every point with its optimistic to conservative range."""
    found = table.dropna(subset=["central"])
    if found.empty:
        raise InputError("no point has a threshold, so there is nothing to draw; test more budgets")
    edges = found["degree"] * found["items"]
    size = edges * np.log2(found["items"].astype(float)) / found["d_model"]
    ranges = ["optimistic", "central", "conservative"]
    rows = found[[*_POINT, *ranges, "heads", "key_dim"]].astype(object).assign(size=size)
    base = alt.Chart(rows.where(rows.notna(), None)).encode(
        x=alt.X("size:Q", title="m' log₂ m / d_model"), color=alt.Color("variant:N", title=None)
    )
    line = base.mark_rule().encode(y="optimistic:Q", y2="conservative:Q")
    point = base.mark_point(filled=True, size=60).encode(
        y=alt.Y("central:Q", title="D_K*"), tooltip=[*_POINT, *ranges, "heads", "key_dim"]
    )
    return alt.layer(line, point)
