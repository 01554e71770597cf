"""Claims on the transformer block (Section 7.3): C13 and C14."""

from __future__ import annotations

from headcount.report.figures.base import Check, Claim, judged
from headcount.report.formatting import counted, interval_text, listed, num, signed
from headcount.report.readings.block_runs import (
    COLLAPSED,
    COMPRESSED,
    NEAR,
    Setting,
    collapse_counts,
    judged_panels,
    panels,
    partial_solution,
)
from headcount.report.readings.paper_numbers import paper_integers, paper_value, quoted
from headcount.reproduction.evidence import Evidence

_WHERE = f"on each table of token embeddings with m/d_model ≥ {COMPRESSED}"


def block_advantage(evidence: Evidence) -> Claim:
    """C13: judged by the best of several heads less one head, at every D_K tested with both."""
    found = [panel for panel in judged_panels(evidence) if panel.gaps]
    checks = [Check(None, _unmeasured(evidence))]
    if found:
        ahead = [[budget for budget in panel.gaps if panel.ahead(budget)] for panel in found]
        text = [
            f"{panel.name}: clearly ahead at {len(where)} of {len(panel.gaps)} D_K, by "
            f"{signed(min(panel.gaps.values()))} to {signed(max(panel.gaps.values()))}"
            for panel, where in zip(found, ahead, strict=True)
        ]
        checks = [
            Check(
                all(2 * len(w) > len(p.gaps) for p, w in zip(found, ahead, strict=True)),
                "; ".join(text),
            ),
            Check(all(len(w) == len(p.gaps) for p, w in zip(found, ahead, strict=True)), ""),
            Check(all(gap >= NEAR for panel in found for gap in panel.gaps.values()), ""),
            *(_every_count(panel) for panel in found),
        ]
    return judged(
        "C13",
        "Several heads beat one at the same D_K in a whole transformer block on frozen token "
        "embeddings, at every D_K, although one slot of the context holds everything that a "
        "query needs.",
        f"{_WHERE}, at more than half of the D_K tested the best of several heads is clearly "
        "ahead of one head (the 95 % intervals are disjoint, or every seed is above every seed "
        f"of one head, with fewer than four seeds by {NEAR}); fully confirmed if it is at every "
        f"D_K, if the gap is {NEAR} or more at every D_K, and if every head count from 2 up is "
        "more accurate than one head at every D_K, except for the 8 heads at D_K = 64 that the "
        "paper calls too many.",
        checks,
        ("fig7", "block"),
    )


def block_saturation(evidence: Evidence) -> Claim:
    """C14: judged at D_K = 512, and by the one-head runs from D_K = 256 on."""
    budget = int(paper_value("block.saturates"))
    found = [
        panel for panel in judged_panels(evidence) if panel.several(budget) and panel.one(budget)
    ]
    checks = [Check(None, _unmeasured(evidence, f" at D_K = {budget}"))]
    if found:
        checks = [
            Check(
                all(
                    _near_perfect(panel, budget) and not _one_near_perfect(panel, budget)
                    for panel in found
                ),
                "; ".join(_ends_text(panel, budget) for panel in found),
            ),
            *(_partial(panel) for panel in found),
            *(_collapses(panel) for panel in found),
        ]
    return judged(
        "C14",
        f"With several heads the block is near-perfect by D_K ≈ {quoted('block.saturates')}; with "
        f"one head, runs collapse to 0 from D_K = {quoted('block.single-head.bimodal-from')} up "
        f"or stay near {quoted('block.single-head.partial')}, and no run with several heads "
        "collapses.",
        f"{_WHERE}, at D_K = {budget} every head count from 2 up has an accuracy of "
        f"{1 - NEAR:.2f} or more and one head does not; fully confirmed if one-head runs that do "
        f"not collapse are within {NEAR} of {quoted('block.single-head.partial')} there, and runs "
        f"collapse (below {COLLAPSED}) with one head from D_K = "
        f"{quoted('block.single-head.bimodal-from')} up and with no other head count.",
        checks,
        ("fig7",),
    )


def _every_count(panel: Setting) -> Check:
    """Whether each head count beats one head at each D_K, except where the paper does not."""
    too_many = paper_integers("block.too-many-heads")[:2]
    lost = [
        f"{cell.heads} heads at {budget}"
        for budget in panel.gaps
        for cell in panel.several(budget)
        if (one := panel.one(budget)) is not None
        and cell.mean <= one.mean
        and (cell.heads, budget) != too_many
    ]
    return Check(not lost, f"on {panel.name} not with {listed(lost)}" if lost else "")


def _near_perfect(panel: Setting, budget: int) -> bool:
    return all(cell.near_perfect for cell in panel.several(budget))


def _one_near_perfect(panel: Setting, budget: int) -> bool:
    one = panel.one(budget)
    return one is not None and one.near_perfect


def _ends_text(panel: Setting, budget: int) -> str:
    cells = [cell for cell in (panel.one(budget), *panel.several(budget)) if cell is not None]
    each = listed([f"{num(cell.mean)} with {cell.heads}" for cell in cells])
    return f"{panel.name} at D_K = {budget}: {each}"


def _partial(panel: Setting) -> Check:
    """Whether the one-head runs that do not collapse end where the paper's do."""
    end, paper = partial_solution(panel), paper_value("block.single-head.partial")
    if end is None:
        return Check(False, f"{panel.name}: every run with one head collapses")
    ends = "" if end.interval is None else f" (95 %: {interval_text(end.interval)})"
    text = (
        f"{panel.name}: {num(end.mean)}{ends} in the {counted(len(end.seeds), 'one-head run')} "
        "that did not collapse"
    )
    return Check(abs(end.mean - paper) <= NEAR, text)


def _collapses(panel: Setting) -> Check:
    """Whether runs collapse with one head only, from the paper's D_K up."""
    first = paper_value("block.single-head.bimodal-from")
    one = collapse_counts(
        cell for (heads, budget), cell in panel.cells.items() if heads == 1 and budget >= first
    )
    several = collapse_counts(cell for (heads, _), cell in panel.cells.items() if heads > 1)
    text = (
        f"{panel.name}: {one[0]} of {counted(one[1], 'one-head run')} from D_K = {num(first)} up "
        f"collapsed, and {several[0]} of {several[1]} with several heads"
    )
    return Check(one[0] > 0 and several[0] == 0, text)


def _unmeasured(evidence: Evidence, where: str = "") -> str:
    """What there is instead, where the claim cannot be judged."""
    titles = [panel.title for panel in panels(evidence)]
    if not titles:
        return ""
    return (
        f"not measured{where} with one head and several at m/d_model ≥ {COMPRESSED}, but on "
        f"{listed(titles)}"
    )
