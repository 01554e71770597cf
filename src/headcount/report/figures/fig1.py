"""Figure 1: one head against several at (m, d_model) = (256, 32)."""

from __future__ import annotations

from typing import Any

from headcount.paper import data as paper
from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged
from headcount.report.figures.comparison_rows import finding_row, runs_row
from headcount.report.formatting import counted, f1_text, listed, num, pairs_text, span_text
from headcount.report.readings.few_heads import (
    GRID_STEP,
    FewHeads,
    one_head_everywhere,
    with_heads,
)
from headcount.report.readings.frames import curves_on
from headcount.report.readings.paper_numbers import paper_pairs
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

COMPRESSED = int(rule("C2")["compressed"])  # m/d_model from which one head should need more
ALMOST = 0.9  # F1 from which a head that fails is worth a word
FACTOR = rule("C19")["factor"]  # by which the size of one head's penalty may be off


def draw(evidence: Evidence) -> Any:
    """Curves of F1 against D_K at (256, 32), one line per head count."""
    from headcount.report.drawing.curve_panels import curve_panels, grid_curves

    curves = grid_curves(evidence, "base", items=256, d_model=32)
    return curve_panels(curves, "F1–D_K curves at m = 256, d_model = 32", width=560, height=340)


def multi_head_advantage(evidence: Evidence) -> Claim:
    """C2: judged by what one head needs at m/d_model ≥ 8, and at the two points that are named."""
    found = one_head_everywhere(evidence)
    packed = [few for few in found if few.items >= COMPRESSED * few.d_model]
    if not packed:
        return judged("C2", [Check(None, "")])
    worse = [few for few in packed if few.worse]
    fails = sum(few.fails for few in packed)
    where = f"{counted(len(packed), 'point')} with m/d_model ≥ {COMPRESSED}"
    text = f"one head needs over 10 % more than D_K* or fails at {len(worse)} of {where}"
    checks = [
        Check(2 * len(worse) > len(packed), f"{text} (fails at {fails})"),
        Check(len(worse) == len(packed), _ratios_text(packed)),
        _named(found),
    ]
    measured = {"points": len(packed), "seeds": min(few.seeds for few in packed)}
    passed = [few.factor for few in packed if not few.fails]
    brief = f"one head fails at {fails} of {where}"
    brief += f", and needs {span_text(passed)} D_K* at the others" if passed else ""
    return judged("C2", checks, measured, brief)


def _ratios_text(packed: list[FewHeads]) -> str:
    """Where one head passes and at what price, and where several do no better at its D_K."""
    parts = [
        f"it passes at ({few.items}, {few.d_model}) with {num(few.factor)} times D_K*"
        for few in packed
        if not few.fails
    ]
    parts += [
        f"at ({few.items}, {few.d_model}) its best is {f1_text(few.best)}, above "
        f"{listed([str(heads) for heads in few.behind])} heads at equal D_K"
        for few in packed
        if few.fails and few.best >= ALMOST and few.behind
    ]
    return "; ".join(parts)


def _named(found: list[FewHeads]) -> Check:
    """Whether one head fails at the points that the paper names."""
    named = [few for few in found if (few.items, few.d_model) in paper_pairs("single-head.fails")]
    if not named:
        return Check(None, "no named point measured")
    failed = [(few.items, few.d_model) for few in named if few.fails]
    points = pairs_text((few.items, few.d_model) for few in named)
    text = f"of the named points {points} it fails at {pairs_text(failed)}"
    return Check(len(failed) == len(named), text)


def one_head_penalty(evidence: Evidence) -> Claim:
    """C19: judged by one head's D_K over D_K*, beside m/d_model."""
    found = [few for few in one_head_everywhere(evidence) if few.items > few.d_model]
    passed = [few for few in found if not few.fails]
    failed = [few for few in found if few.fails]
    decided = [few for few in failed if few.lower_limit >= _compression(few) / FACTOR]
    decided = [few for few in decided if few.lower_limit > GRID_STEP]
    if not passed and not decided:
        return judged("C19", [Check(None, "")])
    near = [few for few in passed if few.worse and _is_near(few)] + decided
    counting = passed + decided
    each = [
        f"{num(few.factor)} at ({few.items}, {few.d_model}), m/d_model = {few.items // few.d_model}"
        for few in passed
    ]
    text = f"one head's D_K over D_K* is {listed(each)}: " if each else "one head's D_K over D_K* "
    text += f"is within a factor {num(FACTOR)} of m/d_model, and more than 1, at {len(near)} of "
    text += counted(len(counting), "point")
    limit = _censored_text(len(found), failed, decided)
    checks = [
        Check(2 * len(near) > len(counting), text),
        Check(len(near) == len(counting), limit),
    ]
    measured = {"points": len(counting), "seeds": min(few.seeds for few in counting)}
    ratios = [_compression(few) for few in passed]
    parts = []
    if passed:
        span = span_text([few.factor for few in passed])
        parts = [
            f"{span} D_K* at {counted(len(passed), 'point')} with m/d_model of "
            f"{num(min(ratios))} to {num(max(ratios))}"
        ]
    return judged("C19", checks, measured, "; ".join([*parts, limit] if limit else parts))


def _compression(few: FewHeads) -> float:
    return few.items / few.d_model


def _is_near(few: FewHeads) -> bool:
    """Whether one head's D_K over D_K* is within the rule's factor of m/d_model."""
    return 1 / FACTOR <= few.factor / _compression(few) <= FACTOR


def _censored_text(points: int, failed: list[FewHeads], decided: list[FewHeads]) -> str:
    """Where one head fails, so that its ratio has only a lower limit."""
    if not failed:
        return ""
    limits = span_text([few.lower_limit for few in failed])
    text = f"{len(failed)} of {counted(points, 'point')} are censored (it fails, tested up to "
    return f"{text}{limits} D_K*), of which {len(decided)} count"


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
    claims=(multi_head_advantage, one_head_penalty),
)
