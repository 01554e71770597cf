"""Figure 1: one head against several at (m, d_model) = (256, 32)."""

from __future__ import annotations

from typing import Any

from headcount.paper import data as paper
from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged
from headcount.report.figures.comparison_rows import finding_row, runs_row
from headcount.report.formatting import counted, f1_text, pairs_text
from headcount.report.readings.few_heads import with_heads
from headcount.report.readings.frames import curves_on
from headcount.report.readings.paper_numbers import paper_pairs, quoted
from headcount.reproduction.evidence import Evidence

COMPRESSED = 8  # m/d_model from which one head should need more


def draw(evidence: Evidence) -> Any:
    """Curves of F1 against D_K at (256, 32), one line per head count."""
    from headcount.report.drawing.curve_panels import curve_panels, grid_curves

    curves = grid_curves(evidence, "base", items=256, d_model=32)
    return curve_panels(curves, "F1–D_K curves at m = 256, d_model = 32", width=560, height=340)


def multi_head_advantage(evidence: Evidence) -> Claim:
    """C2: judged by what one head needs at m/d_model ≥ 8, and at the two points that are named."""
    found = with_heads(evidence, "base")
    packed = [few for few in found if few.items >= COMPRESSED * few.d_model]
    worse = [few for few in packed if few.worse]
    named = [few for few in found if (few.items, few.d_model) in paper_pairs("single-head.fails")]
    failed = [(few.items, few.d_model) for few in named if few.fails]
    checks = [Check(None, "")]
    if packed:
        fails = sum(few.fails for few in packed)
        text = (
            f"one head needs over 10 % more than D_K* or fails at {len(worse)} of "
            f"{counted(len(packed), 'point')} with m/d_model ≥ {COMPRESSED} (fails at {fails})"
        )
        checks = [Check(2 * len(worse) > len(packed), text), Check(len(worse) == len(packed), "")]
        text = (
            f"of the named points {pairs_text((few.items, few.d_model) for few in named)} it "
            f"fails at {pairs_text(failed)}"
        )
        checks.append(
            Check(
                len(failed) == len(named) if named else None,
                text if named else "no named point measured",
            )
        )
    return judged(
        "C2",
        "Several heads beat one on permutation graphs, though each query has one target; a "
        "single head fails to reach 0.99 within the scanned D_K, for example at "
        f"{quoted('single-head.fails')}.",
        f"at more than half of the points with m/d_model ≥ {COMPRESSED} one head fails or needs "
        "over 10 % more than D_K*; fully confirmed if at all of them, and if it fails at those "
        "named points that were measured.",
        checks,
        ("fig1", "fig2", "fig9"),
    )


def compare(evidence: Evidence) -> list[Comparison]:
    """One head at (256, 32) beside the paper's."""
    at = dict(paper.number("fig-1.single-head").at)
    compared = [
        finding_row(
            "fig-1.single-head",
            few.worse,
            f"one head reaches F1 {f1_text(few.best)} up to D_K {few.scanned}; "
            f"{counted(few.best_heads, 'head')} pass from D_K {few.budget}",
        )
        for few in with_heads(evidence, "base")
        if (few.items, few.d_model) == (at["items"], at["d_model"])
    ]
    return compared + runs_row("fig-1.runs", curves_on(evidence, "base", **at))


def meaning(evidence: Evidence) -> str:
    """Whether one head fails at (256, 32)."""
    at = dict(paper.number("fig-1.single-head").at)
    for few in with_heads(evidence, "base"):
        if (few.items, few.d_model) != (at["items"], at["d_model"]):
            continue
        heads = counted(few.best_heads, "head")
        if few.fails:
            return (
                f"With one head F1 stays at {f1_text(few.best)} or below up to D_K = "
                f"{few.scanned}; with {heads} it reaches 0.99 at D_K = {few.budget}. As in the "
                "paper, it is the split of the budget over heads, not its size, that makes this "
                "graph learnable."
            )
        return (
            f"One head reaches 0.99 at D_K = {few.alone} and {heads} at D_K = {few.budget}. "
            "Unlike in the paper, one head does not fail here."
        )
    return UNMEASURED


FIGURE = Figure(
    id="fig1",
    title="Figure 1. F1 against D_K at (256, 32)",
    grids=("base",),
    points=((256, 32),),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(multi_head_advantage,),
)
