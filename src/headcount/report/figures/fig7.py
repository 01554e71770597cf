"""Figure 7: a whole transformer block on frozen token embeddings (Section 7.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd

from headcount.report.figures.base import UNMEASURED, Comparison, Figure
from headcount.report.figures.block_cells import cell_columns
from headcount.report.figures.comparison_rows import finding_row, number_row, runs_row
from headcount.report.figures.fig7_claims import (
    block_advantage,
    block_collapse,
    block_partial,
    block_saturation,
    block_stability,
)
from headcount.report.formatting import (
    MISSING,
    counted,
    interval_text,
    listed,
    num,
    share_text,
    signed,
)
from headcount.report.readings.block_runs import (
    COLLAPSED,
    NEAR,
    Setting,
    block_command,
    collapse_counts,
    judged_panels,
    panels,
    partial_solution,
)
from headcount.report.readings.paper_numbers import paper_integers, paper_value
from headcount.reproduction.evidence import Evidence

_STILL = 0.005  # accuracy gained in the last quarter of training from which a run is not at its end


def draw(evidence: Evidence) -> Any:
    """Accuracy against D_K by head count, one panel per table."""
    from headcount.report.figures.fig7_chart import accuracy_chart

    return accuracy_chart(evidence)


def table(evidence: Evidence) -> pd.DataFrame:
    """Accuracy by table, h and D_K, as it is and with s and q barred at the test."""
    lines = []
    for panel in panels(evidence):
        barred = panel.barred_at_test.cells
        for at, cell in panel.cells.items():
            more = {
                "accuracy with s and q barred": f"{barred[at].mean:.4f}",
                "errors that are s": share_text(cell.errors_s),
                "gain in the last quarter of training": MISSING
                if cell.late_gain is None
                else f"{cell.late_gain:.4f}",
                "steps": panel.steps,
            }
            lines.append(cell_columns(panel, cell) | more)
    return pd.DataFrame(lines)


def compare(evidence: Evidence) -> list[Comparison]:
    """What the paper says of Fig. 7, on every table of compressed token embeddings."""
    compared = []
    for panel in judged_panels(evidence):
        compared += [*_several_rows(panel), *_one_head_rows(panel), *_collapses_rows(panel)]
        compared += [
            replace(row, what=_on(panel, row.what)) for row in runs_row("block.seeds", panel.curve)
        ]
    return compared


def _several_rows(panel: Setting) -> list[Comparison]:
    """Several heads: ahead of one, near 1 at the end, and not too many of them."""
    compared, gaps = [], panel.gaps
    if gaps:
        ahead = [budget for budget in gaps if panel.ahead(budget)]
        text = f"clearly at {len(ahead)} of {len(gaps)} D_K: " + listed(
            [f"{signed(gap)} at {budget}" for budget, gap in gaps.items()]
        )
        compared.append(
            finding_row(
                "block.advantage",
                len(ahead) == len(gaps),
                text,
                _on(panel, "several heads ahead of one"),
            )
        )
    last = panel.several(int(paper_value("block.saturates")))
    if last:
        text = (
            f"{listed([f'{num(cell.mean)} with {cell.heads}' for cell in last])} at D_K = "
            f"{last[0].budget}"
        )
        near = all(cell.near_perfect for cell in last)
        what = _on(panel, f"D_K by which several heads are near 1 ({1 - NEAR:.2f} or more)")
        compared.append(finding_row("block.saturates", near, text, what))
    best = [cell for budget in panel.budgets if (cell := panel.best(budget)) is not None]
    if best:
        allowed = paper_integers("block.best-heads")
        text = listed([f"{cell.heads} at {cell.budget}" for cell in best])
        held = sum(cell.heads in allowed for cell in best)
        compared.append(
            finding_row(
                "block.best-heads", 2 * held > len(best), text, _on(panel, "best head count by D_K")
            )
        )
    return compared + _too_many_rows(panel)


def _too_many_rows(panel: Setting) -> list[Comparison]:
    heads, budget, _ = paper_integers("block.too-many-heads")
    most, best = panel.cells.get((heads, budget)), panel.best(budget)
    if most is None or best is None:
        return []
    text = (
        f"{num(most.mean)} with {heads} heads at D_K = {budget}, {num(best.mean)} with {best.heads}"
    )
    return [
        finding_row(
            "block.too-many-heads",
            most.mean < best.mean,
            text,
            _on(panel, "(h, D_K, d_k) with too many heads"),
        )
    ]


def _one_head_rows(panel: Setting) -> list[Comparison]:
    """One head: it rises to D_K = 128, and what does not collapse stays near 0.81."""
    compared = []
    low, high = (panel.one(budget) for budget in paper_integers("block.single-head.improves"))
    if low is not None and high is not None:
        text = f"{num(low.mean)} at {low.budget}, {num(high.mean)} at {high.budget}"
        what = _on(panel, "D_K between which one head improves")
        compared.append(finding_row("block.single-head.improves", high.mean > low.mean, text, what))
    end = partial_solution(panel)
    if end is not None:
        detail = f"D_K = {end.budget}, {counted(len(end.seeds), 'run')}"
        what = _on(panel, "accuracy of the one-head runs that do not collapse")
        compared.append(
            number_row("block.single-head.partial", what, end.mean, end.interval, detail)
        )
    return compared


def _collapses_rows(panel: Setting) -> list[Comparison]:
    """How many runs end at the NULL baseline, with one head and with several."""
    one = [cell for (heads, _), cell in panel.cells.items() if heads == 1]
    several = [cell for (heads, _), cell in panel.cells.items() if heads > 1]
    compared = []
    if one:
        fallen = [cell for cell in one if cell.collapsed]
        text = listed(
            [f"{cell.collapsed} of {len(cell.seeds)} at {cell.budget}" for cell in fallen]
        )
        same = bool(fallen) and fallen[0].budget == paper_value("block.single-head.bimodal-from")
        what = _on(panel, "D_K from which runs with one head collapse")
        compared.append(finding_row("block.single-head.bimodal-from", same, text, what))
    if several:
        collapsed, runs = collapse_counts(several)
        what = _on(panel, "head count from which no run collapses")
        text = f"{collapsed} of {counted(runs, 'run')} with 2 heads or more"
        compared.append(finding_row("block.no-collapse", collapsed == 0, text, what))
    return compared


def _on(panel: Setting, what: str) -> str:
    return f"{panel.name}: {what}"


def meaning(evidence: Evidence) -> str:
    """What the first table shows of one head, several, and 8; then the other tables in short."""
    found = [panel for panel in panels(evidence) if panel.gaps]
    if not found:
        return UNMEASURED
    first, *others = found
    too_many = _too_many_text(first)
    more = f"; {too_many}" if too_many else ""
    ending = "No other table was measured."
    if others:
        ending = f"Elsewhere, {'; '.join(_other_text(panel) for panel in others)}."
    return f"On {first.title} {_one_head_text(first)}; {_several_text(first)}{more}. {ending}"


def _one_head_text(panel: Setting) -> str:
    """Where the one-head runs that do not collapse end, and how many collapse."""
    cells = [cell for budget in panel.gaps if (cell := panel.one(budget)) is not None]
    learnt = [cell for (heads, _), cell in panel.without_collapsed().cells.items() if heads == 1]
    collapsed, runs = collapse_counts(cells)
    if not learnt:
        return f"all {counted(runs, 'run')} with one head end below {COLLAPSED}"
    last = learnt[-1]
    text = f"one head reaches {num(last.mean)} at D_K = {last.budget}"
    text += f" (95 %: {interval_text(last.interval)})" if last.interval else ""
    if len(learnt) > 1:
        rise = last.mean - learnt[-2].mean
        text += f" after {num(learnt[-2].mean)} at {learnt[-2].budget}, "
        text += (
            "rising with D_K" if rise >= NEAR else "level" if rise > -NEAR else "falling with D_K"
        )
    if last.late_gain is not None:
        text += (
            ", its last quarter of training "
            f"{'still adding' if last.late_gain >= _STILL else 'adding'} "
        )
        text += num(last.late_gain)
    fallen = listed([f"{cell.collapsed} at {cell.budget}" for cell in cells if cell.collapsed])
    apart = (
        f", apart from {collapsed} of {counted(runs, 'run')} that end below {COLLAPSED} ({fallen})"
    )
    return f"{text}{apart if collapsed else ', and none of its runs collapses'}"


def _several_text(panel: Setting) -> str:
    """Where several heads end."""
    budget = max(panel.gaps)
    cells = panel.several(budget)
    each = listed([f"{num(cell.mean)} with {cell.heads}" for cell in cells])
    near = sum(cell.near_perfect for cell in cells)
    how = (
        "all near 1"
        if near == len(cells)
        else "none near 1"
        if near == 0
        else f"{near} of {len(cells)} near 1"
    )
    return f"several reach {each} at {budget}, {how}"


def _too_many_text(panel: Setting) -> str:
    """Whether the paper's example of too many heads is one here."""
    heads, budget, _ = paper_integers("block.too-many-heads")
    most, best = panel.cells.get((heads, budget)), panel.best(budget)
    if most is None or best is None:
        return ""
    if best.heads == heads:
        return (
            f"{heads} heads at D_K = {budget} are the best, {num(best.mean)}, not too many as in "
            "the paper"
        )
    gap = f"{num(most.mean)} against {num(best.mean)} with {best.heads}"
    return f"{heads} heads at D_K = {budget} are too many, as in the paper: {gap}"


def _other_text(panel: Setting) -> str:
    """One head and the best of several at the largest D_K of another table."""
    budget = max(panel.gaps)
    one, best, learnt = panel.one(budget), panel.best(budget), panel.without_collapsed().one(budget)
    assert one is not None
    assert best is not None
    fallen = (
        f" apart from {one.collapsed} of {counted(len(one.seeds), 'run')} below {COLLAPSED}"
        if one.collapsed
        else ""
    )
    alone = f"{num(learnt.mean)}{fallen}" if learnt else f"{len(one.seeds)} runs below {COLLAPSED}"
    return (
        f"on {panel.title} at D_K = {budget} one head has {alone}, and {best.heads} heads have "
        f"{num(best.mean)}"
    )


FIGURE = Figure(
    id="fig7",
    title="Figure 7. A whole transformer block",
    draw=draw,
    table=table,
    compare=compare,
    meaning=meaning,
    claims=(block_advantage, block_saturation, block_partial, block_collapse, block_stability),
    command=block_command,
)
