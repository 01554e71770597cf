"""Claims on the transformer block (Section 7.3): C13 to C17."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headcount.report.figures.base import Check, Claim, judged
from headcount.report.formatting import counted, interval_text, listed, num, signed
from headcount.report.readings.block_runs import (
    COMPRESSED,
    NEAR,
    Cell,
    Setting,
    collapse_counts,
    judged_panels,
    panels,
    partial_solution,
)
from headcount.report.readings.paper_numbers import paper_value
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

FRACTION = rule("C16")["fraction"]  # of the one-head runs: a substantial one


def block_advantage(evidence: Evidence) -> Claim:
    """C13: judged by the best of several heads less one head, at every D_K tested with both."""
    found = [panel for panel in judged_panels(evidence) if panel.gaps]
    if not found:
        return judged("C13", [Check(None, _unmeasured(evidence))])
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
    ]
    gaps = [
        f"by {num(min(panel.gaps.values()))} to {num(max(panel.gaps.values()))} on {panel.name}"
        for panel in found
    ]
    clearly = sum(len(where) for where in ahead)
    brief = f"clearly at every D_K, {listed(gaps)}"
    if clearly < sum(len(panel.gaps) for panel in found):
        brief = f"not clearly at every D_K; {listed(gaps)}"
    return judged("C13", checks, _measured(found), brief)


def block_saturation(evidence: Evidence) -> Claim:
    """C14: judged at D_K = 512."""
    budget = int(paper_value("block.saturates"))
    found = [
        panel for panel in judged_panels(evidence) if panel.several(budget) and panel.one(budget)
    ]
    if not found:
        return judged("C14", [Check(None, _unmeasured(evidence, f" at D_K = {budget}"))])
    holds = all(
        _near_perfect(panel, budget) and not _one_near_perfect(panel, budget) for panel in found
    )
    text = "; ".join(_ends_text(panel, budget) for panel in found)
    several = [cell.mean for panel in found for cell in panel.several(budget)]
    ones = [num(cell.mean) for panel in found if (cell := panel.one(budget)) is not None]
    brief = f"{num(min(several))} to {num(max(several))} with several, {listed(ones)} with one"
    return judged("C14", [Check(holds, text)], _measured(found), brief)


def block_partial(evidence: Evidence) -> Claim:
    """C15: judged by the one-head runs that do not collapse, from D_K = 256 to the largest."""
    first, theirs = paper_value("block.single-head.bimodal-from"), "block.single-head.partial"
    found = [panel for panel in judged_panels(evidence) if partial_solution(panel) is not None]
    if not found:
        return judged("C15", [Check(None, _unmeasured(evidence, " with one head"))])
    gains, parts, ends = [], [], []
    for panel in found:
        end = partial_solution(panel)
        assert end is not None
        start = panel.without_collapsed().one(int(first))
        gains.append(None if start is None else end.mean - start.mean)
        ends.append(end)
        parts.append(_partial_text(panel, start, end))
    level = None if None in gains else all(gain < NEAR for gain in gains if gain is not None)
    near = all(abs(end.mean - paper_value(theirs)) <= NEAR for end in ends)
    brief = f"{listed([num(end.mean) for end in ends])} at D_K = {ends[0].budget}"
    return judged("C15", [Check(level, "; ".join(parts)), Check(near, "")], _measured(found), brief)


def _partial_text(panel: Setting, start: Cell | None, end: Cell) -> str:
    """Where the one-head runs that do not collapse end, and from where they came."""
    interval = "" if end.interval is None else f" (95 %: {interval_text(end.interval)})"
    text = (
        f"{panel.name}: {num(end.mean)}{interval} at D_K = {end.budget} in the "
        f"{counted(len(end.seeds), 'one-head run')} that did not collapse"
    )
    if start is not None and start.budget != end.budget:
        text += f", {num(start.mean)} at {start.budget}"
    late = end.late_gain
    return text if late is None else f"{text}; the last quarter of training added {num(late)}"


def block_collapse(evidence: Evidence) -> Claim:
    """C16: judged by the one-head runs from D_K = 256 up."""
    first = paper_value("block.single-head.bimodal-from")
    found, counts = _counts(evidence, lambda heads, budget: heads == 1 and budget >= first)
    if not found:
        return judged("C16", [Check(None, _unmeasured(evidence, " with one head"))])
    shares = [collapsed / runs for collapsed, runs in counts]
    text = [
        f"{panel.name}: {collapsed} of {counted(runs, 'one-head run')} from D_K = {num(first)} up "
        f"collapsed"
        for panel, (collapsed, runs) in zip(found, counts, strict=True)
    ]
    checks = [
        Check(min(shares) > 0, "; ".join(text)),
        Check(min(shares) >= FRACTION, ""),
    ]
    fallen, runs = (sum(part) for part in zip(*counts, strict=True))
    total = f"{fallen} of {counted(runs, 'one-head run')} from D_K = {num(first)} up"
    checks.append(Check(True, f"together {total}"))
    return judged("C16", checks, _measured(found), total)


def block_stability(evidence: Evidence) -> Claim:
    """C17: judged by the runs with several heads."""
    found, counts = _counts(evidence, lambda heads, budget: heads > 1)
    if not found:
        return judged("C17", [Check(None, _unmeasured(evidence, " with several heads"))])
    text = [
        f"{panel.name}: {collapsed} of {counted(runs, 'run')} with several heads collapsed"
        for panel, (collapsed, runs) in zip(found, counts, strict=True)
    ]
    fallen, runs = (sum(part) for part in zip(*counts, strict=True))
    total = f"{fallen} of {counted(runs, 'run')}"
    checks = [Check(fallen == 0, f"{'; '.join(text)}; together {total}")]
    return judged("C17", checks, _measured(found), total)


def _counts(
    evidence: Evidence, counts: Callable[[int, int], bool]
) -> tuple[list[Setting], list[tuple[int, int]]]:
    """On each table how many of the runs that count collapsed, and of how many."""
    found = {
        panel.place: (panel, cells)
        for panel in judged_panels(evidence)
        if (cells := [cell for key, cell in panel.cells.items() if counts(*key)])
    }
    return (
        [panel for panel, _ in found.values()],
        [collapse_counts(cells) for _, cells in found.values()],
    )


def _measured(found: Sequence[Setting]) -> dict[str, int]:
    """How many tables there are, and the seeds of the (h, D_K) with the fewest."""
    seeds = [len(cell.seeds) for panel in found for cell in panel.cells.values()]
    return {"tables": len(found), "seeds": min(seeds)}


def _near_perfect(panel: Setting, budget: int) -> bool:
    return all(cell.near_perfect for cell in panel.several(budget))


def _one_near_perfect(panel: Setting, budget: int) -> bool:
    one = panel.one(budget)
    return one is not None and one.near_perfect


def _ends_text(panel: Setting, budget: int) -> str:
    cells = [cell for cell in (panel.one(budget), *panel.several(budget)) if cell is not None]
    each = listed([f"{num(cell.mean)} with {cell.heads}" for cell in cells])
    return f"{panel.name} at D_K = {budget}: {each}"


def _unmeasured(evidence: Evidence, where: str = "") -> str:
    """What there is instead, where the claim cannot be judged."""
    titles = [panel.title for panel in panels(evidence)]
    if not titles:
        return ""
    return (
        f"not measured{where} with one head and several at m/d_model ≥ {COMPRESSED}, but on "
        f"{listed(titles)}"
    )
