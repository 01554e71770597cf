"""Meanings of Figs. 1–4 and 8–10 and of the two tables."""

from __future__ import annotations

from headcount.paper import data as paper
from headcount.report.claims.judge import near
from headcount.report.claims.permutations import LEVEL_SPREAD
from headcount.report.readings.diagonal import Diagonal, diagonal
from headcount.report.readings.frames import pairs, passing, rows, said, value, whole
from headcount.report.readings.paper_widths import paper_widths
from headcount.report.readings.permutations import (
    budget_line,
    heads_line,
    rank_correlation,
    rise,
    steps,
    with_heads,
)
from headcount.report.tables import unlisted_points
from headcount.report.words import allowed_text, counted, f1_text, listed, num, pairs_text, percent
from headcount.reproduction.evidence import Evidence

UNMEASURED = "These runs are not part of this reproduction. The paper's finding is neither confirmed nor refuted here."


def fig1(evidence: Evidence) -> str:
    """One head at (256, 32)."""
    at = dict(paper.number("fig-1.single-head").at)
    for few in with_heads(evidence, "base"):
        if (few.items, few.d_model) != (at["items"], at["d_model"]):
            continue
        heads = counted(few.best_heads, "head")
        if few.fails:
            return (
                f"With one head F1 stays at {f1_text(few.best)} or below up to D_K = {few.scanned}; with {heads} it is "
                f"0.99 at D_K = {few.budget}. As in the paper, it is the split of the budget over heads, not its size, "
                "that makes this graph learnable."
            )
        return (
            f"One head reaches 0.99 at D_K = {few.alone} and {heads} at D_K = {few.budget}. Unlike in the paper, one "
            "head does not fail here."
        )
    return UNMEASURED


def fig2(evidence: Evidence) -> str:
    """h* by m and d_model."""
    table = passing(evidence, "base")
    heads = [count for (count,) in rows(table, "heads")]
    rank = rank_correlation([m / d for m, d in rows(table, "items", "d_model")], heads)
    if rank is None:
        return UNMEASURED
    ending = "The more items share a dimension, the more heads it takes, as the paper finds."
    if rank <= 0:
        ending = "Unlike in the paper, more items a dimension do not take more heads."
    return (
        f"Over {counted(len(heads), 'point')} the best head count goes from {min(heads)} to {max(heads)}, with a rank "
        f"correlation of {num(rank)} to the compression m/d_model. {ending}"
    )


def fig3(evidence: Evidence) -> str:
    """The capacity law."""
    line, wide = budget_line(evidence), budget_line(evidence, wide=True)
    if line is None or wide is None:
        return UNMEASURED
    slope, narrow = value("law.budget.slope"), value("law.wide.slope")
    agree = near(line.slope, slope) and near(wide.slope, narrow)
    return (
        f"Over {counted(line.points, 'point')} D_K* grows along m log₂ m/d_model with slope {num(line.slope)} (paper: "
        f"{said('law.budget.slope')}) and R² {num(line.r_squared)}; without d_model = 16, m > 64 with slope "
        f"{num(wide.slope)} (paper: {said('law.wide.slope')}) and R² {num(wide.r_squared)}. The differences in slope, "
        f"{percent(line.slope, slope)} and {percent(wide.slope, narrow)}, are {'both' if agree else 'not both'} within "
        "15 %."
    )


def fig4(evidence: Evidence) -> str:
    """The diagonal."""
    found = diagonal(evidence)
    if found.growth is None:
        return UNMEASURED
    ours, logarithm = found.growth
    first, last = found.items[found.large[0]], found.items[-1]
    heads = f"h* lies between {min(found.heads)} and {max(found.heads)} over {counted(len(found.heads), 'point')}"
    level = ", level as the paper expects" if found.level else ", less level than the paper expects"
    training = ""
    if found.step_limits:
        training = (
            f", but Table 2 allows {found.step_limits}, and with equal steps our D_K* grew faster than log m "
            "(docs/deviations.md, 22)"
        )
    return (
        f"From m = {first:,} to {last:,} D_K* grows × {num(ours)} ({allowed_text(found.growth_interval)}), "
        f"{_pace(found)} (× {num(logarithm)}){training}. {heads}{level}."
    )


def _pace(found: Diagonal) -> str:
    """How D_K* grows beside log m, by the range that its intervals allow, or within the claim's factor without one."""
    assert found.growth is not None
    ours, logarithm = found.growth
    low, high = found.growth_interval or (ours / LEVEL_SPREAD, ours * LEVEL_SPREAD)
    if low > logarithm:
        return "faster than log m"
    return "slower than log m" if high < logarithm else "like log m"


def fig8(evidence: Evidence) -> str:
    """D_K* by m and d_model."""
    table = passing(evidence, "base")
    found = sorted((budget, m, d) for m, d, budget in rows(table, "items", "d_model", "central"))
    by_items, by_width = steps(table, "central", "items"), steps(table, "central", "d_model")
    if not by_items.all or not by_width.all:
        return UNMEASURED
    (least, m, d), (most, large, narrow) = found[0], found[-1]
    return (
        f"The smallest passing budget goes from {least} at (m, d_model) = ({m}, {d}) to {most} at ({large}, {narrow}). "
        f"It grows in {by_items.up} of {counted(by_items.all, 'step')} in m and falls in {by_width.down} of "
        f"{by_width.all} in d_model; the paper says that it does both."
    )


def fig9(evidence: Evidence) -> str:
    """How fast F1 rises, and where one head fails."""
    speed, found = rise(evidence, ["base"]), with_heads(evidence, "base")
    if speed is None or not found:
        return UNMEASURED
    failed = [(few.items, few.d_model) for few in found if few.fails]
    named = [point for point in pairs("single-head.fails") if point in failed]
    among = f", among them the paper's {pairs_text(named)}" if named else ""
    rest = (
        ", the whole of it is not shown to be"
        if speed.narrow_top and speed.narrow_whole is False
        else ""
    )
    return (
        f"{speed.text}: the end of the rise is {'narrow' if speed.narrow_top else 'not narrow'}{rest}. One head never "
        f"reaches 0.99 at {len(failed)} of {counted(len(found), 'point')}{among}."
    )


def fig10(evidence: Evidence) -> str:
    """The law of heads."""
    line = heads_line(evidence)
    if line is None:
        return UNMEASURED
    slope = value("law.heads.slope")
    start = (1 - line.intercept) / line.slope if line.slope > 0 else 0.0
    ending = f"By this line one head is enough up to m/d_model of about {num(start, 2)}."
    if start <= 0:
        ending = "The line does not say up to which compression one head is enough."
    return (
        f"The best head count grows by {num(line.slope)} for each unit of m/d_model (paper: {said('law.heads.slope')}; "
        f"{percent(line.slope, slope)}), with R² {num(line.r_squared)} over {counted(line.points, 'point')}. {ending}"
    )


def table1(evidence: Evidence) -> str:
    """d_k* beside the paper's."""
    found = paper_widths(evidence)
    if not found:
        return UNMEASURED
    widths = [point.key_dim for point in found]
    other = [point for point in found if point.key_dim != point.width]
    swept = [point for point in other if point.nearest]
    passed = sum(point.passing is not None for point in swept)
    ending = (
        "Where they differ the paper's width was not tried."
        if other
        else "Nowhere do the two differ."
    )
    if swept:
        reason = (
            ", which points to the search rather than to the training"
            if passed == len(swept)
            else ""
        )
        ending = f"Of {len(swept)} that differ and were swept the paper's width passes in our runs at {passed}{reason}."
    low, high = whole("key-dim.range")
    return (
        f"Heads are narrow at the threshold: d_k* is {min(widths)} to {max(widths)} (paper: {low} to {high}), the same "
        f"as the paper's at {len(found) - len(other)} of {counted(len(found), 'point')}. {ending}"
    )


def table2(evidence: Evidence) -> str:
    """The step cutoffs."""
    listed_points = list(rows(paper.table_2(), "items", "d_model", "steps"))
    same = sum(paper.step_cutoff(m, d) == cutoff for m, d, cutoff in listed_points)
    more = [f"{paper.step_cutoff(m, d):,} steps" for m, d in unlisted_points()]
    return (
        f"The step limits are the paper's at {same} of the {len(listed_points)} points that it lists. It leaves out "
        f"{pairs_text(unlisted_points())}, where we chose {listed(more)}."
    )
