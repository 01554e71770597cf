"""Figure 2: h*, the head count that needs the least D_K, by m and d_model."""

from __future__ import annotations

from typing import Any

from headcount.report.figures.base import UNMEASURED, Comparison, Figure
from headcount.report.figures.comparison_rows import finding_row
from headcount.report.formatting import counted, num
from headcount.report.readings.frames import passing, rows
from headcount.report.readings.trends import rank_correlation, steps
from headcount.reproduction.evidence import Evidence


def draw(evidence: Evidence) -> Any:
    """h* against m, one line per d_model."""
    import altair as alt

    from headcount.report.drawing.style import log2_axis, series_looks, styled
    from headcount.report.drawing.threshold_marks import (
        HEADS_BARS,
        SIDE_STEP,
        cross_note,
        heads_axis,
        heads_layers,
        threshold_points,
    )

    frame = threshold_points(evidence, "base")
    ranks = frame["d_model"].rank(method="dense")
    frame = frame.assign(shift=SIDE_STEP * (ranks - (ranks.min() + ranks.max()) / 2))
    looks = series_looks("d_model", frame["d_model"], "d_model", first=16)
    x = log2_axis("items m", padding=30, values=sorted(set(frame["items"]))).x("items")
    y = heads_axis(frame)
    layers = []
    for shift in sorted(set(frame["shift"])):
        line = alt.Chart().transform_filter(f"datum.shift == {shift} && isValid(datum.heads)")
        line = line.mark_line(strokeWidth=1.5, xOffset=shift).encode(x=x, y=y.y("heads"))
        layers.append(line.encode(color=looks["color"], strokeDash=looks["strokeDash"]))
        layers += heads_layers(x, y, looks, shift)
    chart = alt.layer(*layers, data=frame).properties(width=560, height=340)
    subtitle = f"{HEADS_BARS}; points with the same m are side by side{cross_note(frame)}"
    return styled(chart, frame, "Heads h* that minimise D_K", subtitle)


def compare(evidence: Evidence) -> list[Comparison]:
    """Whether h* rises with m and falls with d_model."""
    table = passing(evidence, "base")
    by_items, by_width = steps(table, "heads", "items"), steps(table, "heads", "d_model")
    compared = []
    if by_items.all and by_width.all:
        holds = not by_items.down and not by_width.up and by_items.up > 0 and by_width.down > 0
        text = (
            f"with m, up in {by_items.up} and level in {by_items.level} of "
            f"{counted(by_items.all, 'step')}; with d_model, down in {by_width.down} and level in "
            f"{by_width.level} of {by_width.all}"
        )
        compared.append(finding_row("fig-2.heads-rise", holds, text))
    rank = rank_correlation(
        [m / d for m, d in rows(table, "items", "d_model")], [h for (h,) in rows(table, "heads")]
    )
    if rank is not None:
        text = f"rank correlation of h* with λ {num(rank)}, {counted(len(table), 'point')}"
        compared.append(finding_row("fig-2.compression", rank > 0, text))
    return compared


def meaning(evidence: Evidence) -> str:
    """How h* follows the compression."""
    table = passing(evidence, "base")
    heads = [count for (count,) in rows(table, "heads")]
    rank = rank_correlation([m / d for m, d in rows(table, "items", "d_model")], heads)
    if rank is None:
        return UNMEASURED
    ending = "The more items share a dimension, the more heads it takes, as the paper finds."
    if rank <= 0:
        ending = "Unlike in the paper, more items per dimension do not take more heads."
    return (
        f"Over {counted(len(heads), 'point')} the best head count ranges from {min(heads)} to "
        f"{max(heads)}, with a rank correlation of {num(rank)} with the compression m/d_model. "
        f"{ending}"
    )


FIGURE = Figure(
    id="fig2",
    title="Figure 2. The head count h* that needs the least D_K",
    grids=("base",),
    draw=draw,
    compare=compare,
    meaning=meaning,
)
