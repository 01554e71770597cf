"""Beyond the paper: what training needs on real relations and real tables."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.palette import COLOURS, INK, SHAPES
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.long_relation_verdicts import (
    common_steps,
    compiled_relations,
    judged_runs,
    long_verdicts,
    longer_hypernyms,
    mean_scores_at,
)
from headcount.reproduction.relation_verdicts import LEVEL, in_words

# Problem: table and graph, as the legend has them. Hubs and shuffled rows are not drawn.
_SHOWN = {
    "gaussian": ("Gaussian, 384 wide", "the relation"),
    "even": ("Gaussian, 384 wide", "even"),
    "minilm": ("MiniLM", "the relation"),
    "minilm-even": ("MiniLM", "even"),
    "smollm2-gaussian": ("Gaussian, 576 wide", "the relation"),
    "smollm2": ("SmolLM2", "the relation"),
    "smollm2-scaled": ("SmolLM2, scaled", "the relation"),
}
_TABLES = tuple(dict.fromkeys(table for table, _ in _SHOWN.values()))
_GRAPHS = ("the relation", "even")
_PANELS = ("antonyms", "meronyms", "common-synonyms", "hypernyms")


def score_rows() -> pd.DataFrame:
    """Mean error by panel, problem and budget; the longer hypernyms are a panel of their own."""
    parts: list[pd.DataFrame] = []
    for runs in (judged_runs(), longer_hypernyms()):
        steps = common_steps(runs)
        rows: Any = mean_scores_at(runs, steps)
        rows = rows[rows["problem"].isin(list(_SHOWN))]
        title = [f"{name.replace('-', ' ')}, {steps[name]:,} steps" for name in rows["relation"]]
        parts.append(rows.assign(panel=title, steps=[steps[name] for name in rows["relation"]]))
    both = pd.concat(parts, ignore_index=True)
    named = [_SHOWN[problem] for problem in both["problem"]]
    return both.assign(
        error=1 - both["f1"],
        table=[table for table, _ in named],
        graph=[graph for _, graph in named],
    )


def draw(evidence: Evidence) -> Any:
    """1 − F1 against D_K, a panel per relation."""
    import altair as alt

    from headcount.report.drawing.style import styled

    evidence.require_shipped()
    rows = score_rows()
    order = sorted(
        zip(rows["relation"], rows["steps"], rows["panel"], strict=True),
        key=lambda row: (_PANELS.index(row[0]), row[1]),
    )
    titles = dict.fromkeys(title for _, _, title in order)
    panels = [_panel(rows[rows["panel"] == title], title) for title in titles]
    chart: Any = alt.vconcat(
        *(alt.hconcat(*panels[first : first + 3]) for first in range(0, len(panels), 3))
    )
    return styled(
        chart,
        rows,
        "Real relations on real and random tables",
        "dashed: F1 of 0.99; triangles at the top: the smallest D_K certified on MiniLM's rows\n"
        "mean of seeds (3, hypernyms 2); 4 heads, hypernyms 8; shuffled and hubs are not drawn",
    )


def _panel(rows: Any, title: str) -> Any:
    import altair as alt

    from headcount.report.drawing.style import log2_axis, tooltips

    budgets = rows["budget"]
    certified = _smallest_certified(rows["relation"].iloc[0])
    ends = 0.9 * min(int(budgets.min()), certified), 1.1 * int(budgets.max())
    powers = [2**n for n in range(12) if ends[0] <= 2**n <= ends[1]]
    x = log2_axis("D_K", values=powers, ends=ends).x("budget")
    y = alt.Y(
        "error:Q",
        scale=alt.Scale(type="log", domain=(0.001, 0.6), nice=False),
        axis=alt.Axis(title="1 − F1", values=[0.001, 0.01, 0.1, 0.5], format="~g"),
    )
    tables = alt.Scale(domain=_TABLES, range=[COLOURS[n] for n in range(len(_TABLES))])
    key = alt.Legend(title="table", orient="top")
    base = alt.Chart(rows).encode(
        x=x,
        y=y,
        color=alt.Color("table:N", scale=tables, legend=key),
    )
    dash = alt.Scale(domain=_GRAPHS, range=[[1, 0], [4, 3]])
    lines = base.mark_line(clip=True).encode(
        strokeDash=alt.StrokeDash(
            "graph:N", scale=dash, legend=alt.Legend(title="graph", orient="top")
        ),
        detail="problem:N",
    )
    points = base.mark_point(filled=True, size=34, clip=True).encode(
        shape=alt.Shape(
            "table:N", scale=alt.Scale(domain=_TABLES, range=SHAPES[: len(_TABLES)]), legend=key
        ),
        tooltip=tooltips(
            relation="relation",
            table="table",
            graph="graph",
            budget="D_K|d",
            f1="mean F1|.4f",
            seeds="seeds|d",
        ),
    )
    level = alt.Chart(pd.DataFrame({"error": [1 - LEVEL]})).mark_rule(color=INK, strokeDash=[5, 3])
    top = pd.DataFrame({"budget": [certified], "error": [0.5]})
    mark = alt.Chart(top).mark_point(shape="triangle-down", filled=True, size=70, color=INK)
    return alt.layer(lines, points, level.encode(y=y), mark.encode(x=x, y=y)).properties(
        width=280, height=230, title=title
    )


def _smallest_certified(relation: str) -> int:
    rows: Any = compiled_relations()
    found = rows[(rows["relation"] == relation) & (rows["problem"] == "minilm") & rows["certified"]]
    return int(found["budget"].min())


def table(evidence: Evidence) -> pd.DataFrame:
    """The verdict on each preregistered hypothesis, with the ratio of each case."""
    evidence.require_shipped()
    return pd.DataFrame(
        [
            {
                "part": found.hypothesis.part,
                "hypothesis": found.hypothesis.text,
                "verdict": found.verdict,
                "q": "; ".join(
                    f"{relation} {pair} {in_words(ratio)}"
                    for (relation, pair), ratio in found.ratios.items()
                ),
            }
            for found in long_verdicts(judged_runs())
        ]
    )


def meaning(evidence: Evidence) -> str:
    """What the runs say of each hypothesis, in a few words."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    return " ".join(
        f"{found.hypothesis.text[0].upper()}{found.hypothesis.text[1:]}: {found.verdict} "
        f"({found.supporting} of {len(found.ratios)} cases support it, {found.refuting} refute it)."
        for found in long_verdicts(judged_runs())
    )


def _command(evidence: Evidence) -> str:
    return "python preregistrations/relations-2/measure.py --out FOLDER --seconds 420"


FIGURE = Figure(
    id="relations",
    title="Beyond the paper: real relations and tables",
    draw=draw,
    table=table,
    meaning=meaning,
    command=_command,
)
