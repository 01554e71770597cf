"""Beyond the paper: two laws of the trained D_K*, against what was measured."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from headcount.analysis.laws import feature
from headcount.analysis.thresholds import thresholds
from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.palette import COLOURS, INK, SHAPES
from headcount.reproduction.adviser_verdicts import steps_runs
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.shipped import measured_runs
from headcount.theory.adviser import advise
from headcount.theory.laws import BUDGET

_LAWS = {"paper": "m' log₂ m/d_model, slope fitted", "steps": "law of steps"}
_POINT = ["items", "degree", "d_model"]


@cache
def laws_table() -> pd.DataFrame:
    """The thresholds D_K* of the shipped runs and both predictions; treat it as read-only.

    The law of steps is asked for the D_K with an even chance in the steps that the runs had; it has
    no answer outside the sizes that it was fitted to.
    """
    found = thresholds(measured_runs(variant="max"))
    runs: Any = steps_runs()
    limits = runs[runs["part"] == "grid"].groupby(_POINT)["limit"].max().rename("limit")
    table = found.merge(limits.reset_index(), on=_POINT)
    line = feature(table, BUDGET.form)
    # The slope with the least squared error in the logarithm, as the errors are measured.
    slope = float(np.exp(np.log(table["central"] / line).mean()))
    return table.assign(paper=slope * line, steps=[_advised(row) for row in table.itertuples()])


def _advised(row: Any) -> float:
    split = advise(
        row.items, row.items * row.degree, row.d_model, steps=int(row.limit), chance=0.5
    ).split
    return float("nan") if split is None else float(split.budget)


def rms_errors() -> dict[str, float]:
    """The root mean square of ln(predicted/measured) by law, where both predict."""
    rows = laws_table().dropna(subset=["steps"])
    return {law: float(np.sqrt((np.log(rows[law] / rows["central"]) ** 2).mean())) for law in _LAWS}


def draw(evidence: Evidence) -> Any:
    """Predicted against measured D_K*, both laws."""
    import altair as alt

    from headcount.report.drawing.style import log2_axis, styled, tooltips

    evidence.require_shipped()
    rows, error = laws_table(), rms_errors()
    names = {law: f"{name}: rms {error[law]:.2f}" for law, name in _LAWS.items()}
    parts = [rows.assign(predicted=rows[law], law=name) for law, name in names.items()]
    columns = [*_POINT, "limit", "central", "predicted", "law"]
    frame: Any = pd.concat(parts, ignore_index=True)[columns].dropna()
    key = alt.Legend(title=None, orient="top", columns=1, labelLimit=400)
    ends = (2, 640)
    x = log2_axis("measured D_K*", ends=ends).x("central")
    y = log2_axis("predicted D_K*", ends=ends).y("predicted")
    order = list(names.values())
    marks = (
        alt.Chart(frame)
        .mark_point(filled=True, size=70, opacity=0.85)
        .encode(
            x=x,
            y=y,
            color=alt.Color("law:N", scale=alt.Scale(domain=order, range=COLOURS[:2]), legend=key),
            shape=alt.Shape("law:N", scale=alt.Scale(domain=order, range=SHAPES[:2]), legend=key),
            tooltip=tooltips(
                items="m|d",
                degree="r|d",
                d_model="d_model|d",
                limit="steps|,d",
                central="measured D_K*|d",
                predicted="predicted|.1f",
                law="law",
            ),
        )
    )
    same = pd.DataFrame({"central": ends, "predicted": ends})
    line = alt.Chart(same).mark_line(color=INK, strokeDash=[5, 3]).encode(x=x, y=y)
    return styled(
        alt.layer(line, marks).properties(width=420, height=420),
        frame,
        "Two laws of the trained D_K*",
        "dashed: as measured; rms of the logarithm, both laws fitted to these runs",
    )


def table(evidence: Evidence) -> pd.DataFrame:
    """Every threshold with both predictions."""
    evidence.require_shipped()
    rows = laws_table()
    return pd.DataFrame(
        {
            "m": rows["items"],
            "d_model": rows["d_model"],
            "r": rows["degree"],
            "steps": rows["limit"],
            "measured D_K*": rows["central"],
            _LAWS["paper"]: rows["paper"].round(1),
            _LAWS["steps"]: rows["steps"],
        }
    )


def meaning(evidence: Evidence) -> str:
    """Which law is closer to the thresholds."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    error, rows = rms_errors(), laws_table().dropna(subset=["steps"])
    return (
        f"At the {len(rows)} points within its range the law of steps has "
        f"an rms error of {error['steps']:.2f} in the logarithm of D_K*, a line in "
        f"m' log₂ m/d_model one of {error['paper']:.2f}. Both were fitted to these thresholds, the "
        "law of steps to other points as well."
    )


def _command(evidence: Evidence) -> str:
    return "headcount report --only laws"


FIGURE = Figure(
    id="laws",
    title="Beyond the paper: two laws of the trained D_K*",
    draw=draw,
    table=table,
    meaning=meaning,
    command=_command,
)
