"""Beyond the paper: a whole transformer block whose heads share keys."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.palette import PALE
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.shared_block_verdicts import (
    LEVELS,
    mean_accuracies,
    shared_block_runs,
    shared_block_verdicts,
    thresholds,
)

_TICKS = (48, 96, 192, 384)
_CONTROLS = {"barred": "s barred", "none": "no control"}


def draw(evidence: Evidence) -> Any:
    """Accuracy against D_Q + D_KV, a line for each number of key heads."""
    evidence.require_shipped()
    return accuracy_chart(shared_block_runs())


def accuracy_chart(runs: pd.DataFrame) -> Any:
    """The chart of these runs: a panel for each size and control."""
    import altair as alt

    from headcount.report.drawing.style import log2_axis, series_looks, styled, tooltips

    means: Any = mean_accuracies(runs)
    panel = [
        f"m = {items:,}, d_model = {d}, {_CONTROLS[control]}"
        for items, d, control in zip(
            means["items"], means["d_model"], means["control"], strict=True
        )
    ]
    means = means.assign(panel=panel)
    order = list(dict.fromkeys(means.sort_values(["control", "items"])["panel"]))
    looks = series_looks("key_heads", means["key_heads"], "key heads g")
    scale = alt.Scale(domain=[-0.02, 1.02], nice=False)
    y = alt.Y("accuracy:Q", scale=scale, title="test accuracy")
    base: Any = alt.Chart().encode(
        x=log2_axis("columns of queries and keys, D_Q + D_KV", values=_TICKS).x("sum"),
        color=looks["color"],
    )
    shown = tooltips(
        accuracy="mean accuracy|.4f", low="least|.4f", high="greatest|.4f", seeds="seeds|d",
        key_heads="key heads g|d", key_dim="width k|d", budget="D_Q|d", key_budget="D_KV|d",
        sum="sum|d", items="m|d", d_model="d_model|d",
    )  # fmt: skip
    levels = [
        alt.Chart().mark_rule(color=PALE, strokeDash=[2, 3]).encode(y=alt.datum(level))
        for level in LEVELS
    ]
    layers = [
        *levels,
        base.mark_rule(strokeWidth=1.2).encode(y=alt.Y("low:Q"), y2="high"),
        base.mark_line(strokeWidth=1.5).encode(y=y, strokeDash=looks["strokeDash"]),
        base.mark_point(filled=True, size=42, opacity=1).encode(
            y=y, shape=looks["shape"], tooltip=shown
        ),
    ]
    chart = alt.layer(*layers, data=means).properties(width=300, height=210)
    facet = chart.facet(
        facet=alt.Facet("panel:N", sort=order, title=None), columns=2, spacing=14
    ).resolve_axis(x="independent", y="independent")
    return styled(
        facet,
        means,
        "A whole block with 8 heads that share keys",
        "means of seeds, bars from the least to the greatest; dotted: the levels of the thresholds",
    )


def table(evidence: Evidence) -> pd.DataFrame:
    """The sum at which each level is crossed, by g, and what of it is key cache."""
    evidence.require_shipped()
    return threshold_table(shared_block_runs())


def threshold_table(runs: pd.DataFrame) -> pd.DataFrame:
    """The thresholds of these runs, a row for each size, control, level and g."""
    found: Any = thresholds(runs)
    found = found.sort_values(
        ["control", "items", "level", "key_heads"], ascending=[True] * 3 + [False]
    )
    keys = found["sum"] * found["key_heads"] / (found["heads"] + found["key_heads"])
    columns = {
        "control": found["control"].map(_CONTROLS),
        "m": found["items"],
        "d_model": found["d_model"],
        "accuracy": found["level"],
        "g": found["key_heads"],
        "D_Q + D_KV": found["sum"].round(1),
        "D_KV": keys.round(1),
        "over that with own keys": found["q"].round(2),
        "R predicts": (found["by_freedom"] / found["sum"] * found["q"]).round(2),
        "G predicts": (found["by_width"] / found["sum"] * found["q"]).round(2),
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def meaning(evidence: Evidence) -> str:
    """The verdicts on the preregistered hypotheses."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    return " ".join(
        f"{one.hypothesis[0].upper()}{one.hypothesis[1:]}: {one.verdict}, {one.number}."
        for one in shared_block_verdicts(shared_block_runs())
    )


def _command(evidence: Evidence) -> str:
    return "python preregistrations/shared-keys-block/measure.py OUT"


FIGURE = Figure(
    id="shared-block",
    title="Beyond the paper: shared keys in a whole block",
    draw=draw,
    table=table,
    meaning=meaning,
    command=_command,
)
