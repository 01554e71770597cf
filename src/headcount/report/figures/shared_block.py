"""Beyond the paper: a whole transformer block whose heads share keys."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.formatting import MISSING, listed
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
    """The thresholds of these runs, a row for each size, control, level and g.

    q is the sum over that with keys of their own, as measured and as R and G predict it.
    """
    found = _with_keys(thresholds(runs)).sort_values("key_heads", ascending=False)
    found = found.sort_values(["control", "items", "level"], kind="stable")
    by_law = {
        f"q by {law}": found[name] / found["sum"] * found["q"]
        for law, name in (("R", "by_freedom"), ("G", "by_width"))
    }
    numbers = {"D_Q + D_KV": found["sum"], "D_KV": found["keys"], "q": found["q"]} | by_law
    columns = {
        "control": found["control"].map(_CONTROLS),
        "m": found["items"],
        "d_model": found["d_model"],
        "accuracy": found["level"],
        "g": found["key_heads"],
    } | {
        name: [MISSING if pd.isna(one) else f"{one:.{2 if 'q' in name else 1}f}" for one in column]
        for name, column in numbers.items()
    }
    return pd.DataFrame(columns).reset_index(drop=True)


def _with_keys(found: Any) -> Any:
    """Thresholds with the key columns D_KV of their sum."""
    share = found["key_heads"] / (found["heads"] + found["key_heads"])
    return found.assign(keys=found["sum"] * share)


def meaning(evidence: Evidence) -> str:
    """What sharing costs at equal accuracy, and the verdicts on the preregistered hypotheses."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    runs = shared_block_runs()
    said = "; ".join(f"{one.hypothesis}: {one.verdict}" for one in shared_block_verdicts(runs))
    return f"{costs_text(runs)} Preregistered: {said}."


def costs_text(runs: pd.DataFrame) -> str:
    """The sum and the key columns at equal accuracy, over those with keys of their own."""
    found = _with_keys(thresholds(runs)).dropna(subset=["q"])
    shared = found[found["key_heads"] < found["heads"]]
    # q compares sums; key columns are g/(h + g) of a sum, and a half of one with keys of their own.
    keys = shared["q"] * 2 * shared["keys"] / shared["sum"]
    parts = [
        f"{_span(shared.loc[at, 'q'])} times for g = {g} (keys alone: {_span(keys[at])})"
        for g in sorted(set(shared["key_heads"]), reverse=True)
        if (at := shared["key_heads"] == g).any()
    ]
    return (
        "For the same accuracy, 8 heads with g key heads need more or fewer columns of queries and "
        f"keys than with keys of their own: {listed(parts)}."
    )


def _span(values: pd.Series) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"


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
