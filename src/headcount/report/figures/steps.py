"""Beyond the paper: how many steps training takes, against R and against the law of steps."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from headcount.analysis.steps_fit import configurations
from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.palette import COLOURS, INK, SHAPES
from headcount.reproduction.adviser_verdicts import steps_runs
from headcount.reproduction.evidence import Evidence
from headcount.theory.steps_law import STEPS_LAW

_SOURCES = {  # part, graph: name
    ("points", "regular"): "among the law's data",
    ("first", "regular"): "among the law's data",
    ("first", "random"): "among the law's data",
    ("second", "regular"): "not seen by the law, regular",
    ("second", "random"): "not seen by the law, random",
}
_PANELS = ("against the capacity ratio R", "against the law of steps")
_TOOLTIPS = {
    "items": "m|d",
    "d_model": "d_model|d",
    "degree": "r|d",
    "heads": "h|d",
    "key_dim": "d_k|d",
    "ratio": "R|.2f",
    "steps": "steps to F1 0.99|,d",
    "predicted": "steps predicted|,d",
    "source": "runs",
}


@cache
def steps_table() -> pd.DataFrame:
    """A row per split all of whose seeds reached an F1 of 0.99, at the points that were drawn.

    Treat it as read-only.
    """
    runs: Any = steps_runs()
    parts = []
    for (part, graph), name in _SOURCES.items():
        chosen = (runs["part"] == part) & (runs["graph"] == graph) & (runs["variant"] == "max")
        table = configurations(runs[chosen])
        # Where some seeds did not get there, the steps are only known to exceed the limit.
        known = table["log_steps"] < np.log(table["limit"]) - 1e-9
        parts.append(table[known].assign(part=part, graph=graph, source=name))
    rows = pd.concat(parts, ignore_index=True)
    sizes = [rows[name].to_numpy() for name in ("items", "degree", "d_model", "heads", "key_dim")]
    items, degree, *channel = sizes
    return rows.assign(
        steps=np.exp(rows["log_steps"]), predicted=STEPS_LAW.steps(items, items * degree, *channel)
    )


def errors() -> pd.DataFrame:
    """ln(steps/predicted) of the second draw, the median of each point with its graph."""
    rows = steps_table()
    rows = rows[rows["part"] == "second"]
    error: Any = np.log(rows["steps"] / rows["predicted"])
    by = ["graph", "items", "degree", "d_model"]
    return error.groupby([rows[name] for name in by]).median().rename("error").reset_index()


def draw(evidence: Evidence) -> Any:
    """Steps to an F1 of 0.99 against R, and against what the law of steps predicts."""
    import altair as alt

    from headcount.report.drawing.style import styled, tooltips

    evidence.require_shipped()
    columns = [*_TOOLTIPS]
    rows = steps_table()[columns]
    frame = pd.concat(
        [
            rows.assign(panel=_PANELS[0], x=rows["ratio"]),
            rows.assign(panel=_PANELS[1], x=rows["predicted"]),
        ],
        ignore_index=True,
    )
    frame = frame.assign(x=frame["x"].round(4), predicted=frame["predicted"].round())
    names = list(dict.fromkeys(_SOURCES.values()))
    key = alt.Legend(title=None, orient="top", columns=0, labelLimit=300)
    y = alt.Y(
        "steps:Q",
        scale=alt.Scale(type="log", domain=(2_000, 100_000)),
        title="steps to a mean F1 of 0.99",
        axis=alt.Axis(format="~s"),
    )
    base = alt.Chart().encode(
        y=y,
        color=alt.Color("source:N", scale=alt.Scale(domain=names, range=COLOURS[:3]), legend=key),
        shape=alt.Shape("source:N", scale=alt.Scale(domain=names, range=SHAPES[:3]), legend=key),
        tooltip=tooltips(**_TOOLTIPS),
    )
    # One layer per panel: their horizontal axes differ.
    scales = (
        ("capacity ratio R", alt.Scale(type="log", domain=(0.5, 8), clamp=True), "~g"),
        ("steps predicted", alt.Scale(type="log", domain=(2_000, 100_000), clamp=True), "~s"),
    )
    charts = []
    for panel, (title, scale, form) in zip(_PANELS, scales, strict=True):
        x = alt.X("x:Q", scale=scale, title=title, axis=alt.Axis(format=form))
        marks = base.mark_point(filled=True, size=18, opacity=0.55, clip=True).encode(x=x)
        line = alt.Chart().mark_line(color=INK, strokeDash=[5, 3])
        ends = [1.0, 1.0] if panel == _PANELS[0] else [2_000, 100_000]
        law = pd.DataFrame({"x": ends, "steps": [2_000, 100_000]})
        rule = line.properties(data=law).encode(x=x, y=y)
        layer = alt.layer(marks.transform_filter(alt.datum.panel == panel), rule)
        charts.append(layer.properties(width=380, height=320, title=panel))
    chart: Any = alt.hconcat(*charts, data=frame)
    return styled(
        chart,
        frame,
        "Steps that training takes",
        "dashed: R = 1, and steps as predicted; one mark per split all of whose seeds got there",
    )


def table(evidence: Evidence) -> pd.DataFrame:
    """The error of the law of steps at every point of the second draw."""
    evidence.require_shipped()
    rows = errors()
    return pd.DataFrame(
        {
            "m": rows["items"],
            "d_model": rows["d_model"],
            "r": rows["degree"],
            "graph": rows["graph"],
            "steps measured / predicted": np.exp(rows["error"]).round(2),
        }
    )


def meaning(evidence: Evidence) -> str:
    """How well the law of steps predicts points that it has not seen."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    rows = errors()
    typical = float(np.exp(rows["error"].abs().median()) - 1)
    single = rows[rows["degree"] == 1].groupby("graph")["error"].median()
    factor = float(np.exp(single["random"] - single["regular"]))
    return (
        f"At the points of the second draw, which the law of steps has not seen, it is off by "
        f"{typical:.0%} (median). ".replace("%", " %")
        + f"Random graphs of degree 1 take {factor:.1f} times the steps of permutations, which the "
        "law does not tell apart."
    )


def _command(evidence: Evidence) -> str:
    return "headcount report --only steps"


FIGURE = Figure(
    id="steps",
    title="Beyond the paper: the law of steps",
    draw=draw,
    table=table,
    meaning=meaning,
    command=_command,
)
