"""The claim on the width of heads at D_K* (Section 6.1, Table 1): C10."""

from __future__ import annotations

from statistics import median

from headcount.report.figures.base import Check, Claim, judged
from headcount.report.formatting import counted, listed, num
from headcount.report.readings.frames import least_seeds, permutation_points, rows
from headcount.report.readings.paper_numbers import paper_integers, paper_value
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

SHARE = rule("C10")["share"]  # of the d_k* that must be in the paper's range
MEDIAN_FACTOR = rule("C10")["median_factor"]  # by which our median d_k* may differ from the paper's


def small_widths(evidence: Evidence) -> Claim:
    """C10: judged by d_k* of every permutation under max."""
    table = permutation_points(evidence)
    widths, heads = (
        [int(width) for width in table["key_dim"]],
        [int(count) for count in table["heads"]],
    )
    if len(widths) < 2:
        return judged("C10", [Check(None, "")])
    low, high = paper_integers("key-dim.range")
    outside = [
        f"{width} at ({m}, {d})"
        for m, d, width in rows(table, "items", "d_model", "key_dim")
        if not low <= width <= high
    ]
    inside = len(widths) - len(outside)
    text = (
        f"d_k* {min(widths)} to {max(widths)}, {inside} of {counted(len(widths), 'point')} in "
        f"[{low}, {high}]"
    )
    text += f", not {listed(outside)}" if outside else ""
    middle, theirs = float(median(widths)), paper_value("key-dim.median")
    near_median = 1 / MEDIAN_FACTOR <= middle / theirs <= MEDIAN_FACTOR
    spread = max(heads) / min(heads), max(widths) / min(widths)
    checks = [
        Check(inside >= SHARE * len(widths), text),
        Check(not outside, ""),
        Check(near_median, f"median {num(middle)} (paper {num(theirs)})"),
        Check(spread[0] > spread[1], f"h* varies × {num(spread[0])}, d_k* × {num(spread[1])}"),
    ]
    measured = {"points": len(widths), "seeds": least_seeds(table)}
    brief = f"d_k* {min(widths)} to {max(widths)} ({low} to {high}), {inside} of {len(widths)} in "
    brief += f"that range, median {num(middle)} ({num(theirs)})"
    return judged("C10", checks, measured, brief)
