"""Beyond the paper: the capacity law, F1 against R for every preregistered run under max."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.formatting import counted
from headcount.report.palette import COLOURS, INK, SHAPES
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.law_verdicts import brackets, law_runs, verdict_table, verdicts

_PARTS = {
    "d": "denser graphs, one head of full width",
    "a": "permutations, one head of full width",
    "b": "permutations, one head of width k < d_model",
    "c": "permutations, several heads",
    "h": "random and skewed graphs, one head of full width",
    "i": "binary tables, one head of full width",
    "j": "permutations, one head of full width",
}
_RANGE = (0.7, 1.85)  # of R that is drawn
_TOOLTIPS = {
    "group": "channel",
    "items": "m|d",
    "degree": "r|d",
    "ratio": "R|.3f",
    "mean": "mean F1|.4f",
    "succeeded": "share of runs that succeeded|.2f",
    "runs": "runs|d",
    "limit": "steps at most|d",
}


def law_table() -> pd.DataFrame:
    """A row per preregistered configuration under max: its R and the mean F1 of its seeds."""
    runs = law_runs()
    shown = runs[(runs["variant"] == "max") & runs["part"].isin(list(_PARTS))]
    key = ["part", "group", "items", "degree", "d_model", "heads", "key_dim", "limit", "ratio"]
    rows = [
        {name: part[name].tolist()[0] for name in key}
        | {"mean": part["value"].mean(), "succeeded": part["succeeded"].mean(), "runs": len(part)}
        for _, part in shown.groupby(key, sort=False)
    ]
    return pd.DataFrame(rows)


def draw(evidence: Evidence) -> Any:
    """A panel per part: mean F1 against R, one line per group, and the law's R = 1."""
    from headcount.report.drawing.style import styled

    evidence.require_shipped()
    frame = _chart_rows()
    return styled(
        _panels(frame),
        frame,
        "The capacity law: F1 against R",
        "dashed: where the law expects the transition, no constant fitted\n"
        "1 to 5 million steps at most; the preregistered verdicts are in docs/law.md",
    )


def _chart_rows() -> pd.DataFrame:
    """The rows of `law_table` in the range that is drawn, each with its panel and head width."""
    frame = law_table().assign(panel=lambda rows: rows["part"].map(_PARTS), one=1.0)
    frame = frame.loc[frame["ratio"].between(*_RANGE)]
    return frame.assign(width=[_width(share) for share in _shares(frame)])


def _shares(frame: pd.DataFrame) -> list[float]:
    """The width of each row's heads as a share of the full width."""
    return [k / d for k, d in zip(frame["key_dim"], frame["d_model"], strict=True)]


def _width(share: float) -> str:
    return f"k = {share:.3g} d_model"


def _panels(frame: pd.DataFrame) -> Any:
    """The chart without its title, three panels to a row."""
    import altair as alt

    from headcount.report.drawing.style import tooltips

    # Narrow heads and wide ones differ most: colour by the share of the full width.
    order = [_width(share) for share in sorted(set(_shares(frame)))]
    key = alt.Legend(title=None, orient="top", columns=0)
    colours = alt.Scale(domain=order, range=COLOURS[: len(order)])
    shapes = alt.Scale(domain=order, range=SHAPES[: len(order)])
    base = alt.Chart().encode(
        x=alt.X("ratio:Q", scale=alt.Scale(domain=_RANGE), title="R = degrees of freedom / N"),
        y=alt.Y("mean:Q", scale=alt.Scale(domain=(0.5, 1.0)), title="mean test F1"),
        detail=["group:N", "limit:Q"],
        color=alt.Color("width:N", scale=colours, legend=key),
    )
    lines = base.mark_line(strokeWidth=1, opacity=0.5, clip=True)
    points = base.mark_point(filled=True, size=34, clip=True).encode(
        shape=alt.Shape("width:N", scale=shapes, legend=key), tooltip=tooltips(**_TOOLTIPS)
    )
    law = alt.Chart().mark_rule(color=INK, strokeDash=[5, 3]).encode(x="one:Q")
    panel = alt.layer(lines, points, law).properties(width=290, height=200)
    facet = alt.Facet("panel:N", title=None, sort=list(dict.fromkeys(_PARTS.values())))
    return panel.facet(data=frame, facet=facet, columns=3)


def table(evidence: Evidence) -> pd.DataFrame:
    """The verdict on each preregistered hypothesis."""
    evidence.require_shipped()
    return verdict_table(verdicts())


def meaning(evidence: Evidence) -> str:
    """Where the law holds and where it does not."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    dense = brackets("d")
    ends = [end for one in dense.values() for end in (one.fails_at, one.passes_from) if end]
    narrow = [one.passes_from for one in brackets("b").values() if one.passes_from]
    return (
        "For graphs denser than a permutation, one head of full width stops failing completely "
        f"and starts to pass throughout between R = {min(ends):.2f} and {max(ends):.2f} in all "
        f"{counted(len(dense), 'group')}. Narrow heads do better than the law: they pass from "
        f"R = {min(narrow):.2f} on, and many heads or wide tables need a larger R in "
        "these steps."
    )


def _command(evidence: Evidence) -> str:
    return "headcount sweep preregistrations/capacity-law/a-one-head.toml --engine triton"


FIGURE = Figure(
    id="law",
    title="Beyond the paper: the capacity law",
    draw=draw,
    table=table,
    meaning=meaning,
    command=_command,
)
