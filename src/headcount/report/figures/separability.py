"""Beyond the paper: which graphs one head can label, without training."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.palette import COLOURS, INK, SHAPES
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.law_verdicts import verdict_table
from headcount.reproduction.refined_verdicts import refined_verdicts
from headcount.reproduction.separability import measured_separability

_HUBS = ("no weights exist", "weights exist")


def share_rows() -> pd.DataFrame:
    """The share of separable graphs at each size of parts k and m, degree 1 and 4."""
    table = measured_separability()
    table = table[table["part"].isin(["k", "m"])]
    key = ["part", "d_model", "key_dim", "graph", "degree", "items", "ratio", "width_ratio"]
    rows = table.groupby(key)["separable"].agg(share="mean", graphs="size").reset_index()
    width = [f"{k}/{d}" for k, d in zip(rows["key_dim"], rows["d_model"], strict=True)]
    group = rows["graph"] + rows["degree"].astype(str) + pd.Series(width)
    return rows.assign(width=width, group=group)


def draw(evidence: Evidence) -> Any:
    """Shares against R and against G by width, and random and skewed graphs in R and H."""
    import altair as alt

    from headcount.report.drawing.style import styled

    evidence.require_shipped()
    chart: Any = alt.hconcat(
        _shares("ratio", "R = degrees of freedom / N"),
        _shares("width_ratio", "G = ω² / N"),
        _hubs(),
    ).resolve_scale(color="independent", shape="independent")
    return styled(
        chart,
        pd.DataFrame(),
        "One head without training: narrow heads follow G, hubs need H > 1",
        "left and middle: parts k and m, permutations and random graphs, one line per group\n"
        "right: part l, random and skewed graphs at full width",
    )


def _shares(ratio: str, title: str) -> Any:
    import altair as alt

    from headcount.report.drawing.style import tooltips

    rows = share_rows()
    order = [f"{k}/48" for k in (3, 6, 12, 24)] + [f"{d}/{d}" for d in (16, 24, 32, 48)]
    key = alt.Legend(title="k/d", orient="top", columns=4)
    base = alt.Chart(rows).encode(
        x=alt.X(f"{ratio}:Q", scale=alt.Scale(domain=(0.4, 1.4)), title=title),
        y=alt.Y("share:Q", title="share of graphs with weights"),
        color=alt.Color("width:N", scale=alt.Scale(domain=order, range=COLOURS), legend=key),
        detail="group:N",
    )
    shape = alt.Shape("width:N", scale=alt.Scale(domain=order, range=SHAPES), legend=key)
    text = tooltips(
        width="k/d",
        graph="graph",
        degree="r|d",
        items="m|d",
        ratio="R|.3f",
        width_ratio="G|.3f",
        share="share|.2f",
        graphs="graphs|d",
    )
    marks = base.mark_point(filled=True, size=36).encode(shape=shape, tooltip=text)
    one = alt.Chart(pd.DataFrame({"one": [1.0]})).mark_rule(color=INK, strokeDash=[5, 3])
    lines = base.mark_line(strokeWidth=1, opacity=0.6)
    return alt.layer(lines, marks, one.encode(x="one:Q")).properties(width=290, height=270)


def _hubs() -> Any:
    import altair as alt

    from headcount.report.drawing.style import tooltips

    table = measured_separability()
    rows = table[table["part"] == "l"]
    rows = rows.assign(found=[_HUBS[int(one)] for one in rows["separable"]])
    key = alt.Legend(title=None, orient="top", columns=1)
    look: Any = {"domain": _HUBS}
    marks = (
        alt.Chart(rows.drop(columns="separable"))
        .mark_point(filled=True, size=24, opacity=0.7, clip=True)
        .encode(
            x=alt.X("ratio:Q", scale=alt.Scale(type="log", domain=(0.8, 4), nice=False), title="R"),
            y=alt.Y(
                "hub_ratio:Q",
                scale=alt.Scale(type="log", domain=(0.4, 6), nice=False),
                title="H, of the hubs",
            ),
            color=alt.Color(
                "found:N", scale=alt.Scale(**look, range=[COLOURS[3], COLOURS[0]]), legend=key
            ),
            shape=alt.Shape("found:N", scale=alt.Scale(**look, range=["cross", "circle"])),
            tooltip=tooltips(
                graph="graph",
                degree="r|d",
                items="m|d",
                d_model="d_model|d",
                ratio="R|.3f",
                hub_ratio="H|.3f",
                found="result",
            ),
        )
    )
    one = alt.Chart(pd.DataFrame({"one": [1.0]})).mark_rule(color=INK, strokeDash=[5, 3])
    rules = one.encode(x="one:Q"), one.encode(y="one:Q")
    return alt.layer(marks, *rules).properties(width=290, height=270)


def table(evidence: Evidence) -> pd.DataFrame:
    """The verdict on each preregistered hypothesis."""
    evidence.require_shipped()
    return verdict_table(refined_verdicts())


def meaning(evidence: Evidence) -> str:
    """What the computations say of narrow heads and of hubs."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    return " ".join(
        f"{one.hypothesis[0].upper()}{one.hypothesis[1:]}: {one.verdict}, {one.number}."
        for one in refined_verdicts()
        if one.part in {"k", "l"}
    )


def _command(evidence: Evidence) -> str:
    return "python preregistrations/refined-law/measure.py separability.csv"


FIGURE = Figure(
    id="separability",
    title="Beyond the paper: capacity without training",
    draw=draw,
    table=table,
    meaning=meaning,
    command=_command,
)
