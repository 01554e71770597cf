"""Comparisons of the transformer block: Fig. 7 (Section 7.3)."""

from __future__ import annotations

from dataclasses import replace

from headcount.report.figure import Comparison
from headcount.report.readings.block import (
    NEAR,
    Setting,
    collapse_counts,
    judged_panels,
    partial_solution,
)
from headcount.report.readings.frames import value, whole
from headcount.report.side_by_side import in_words, measured, runs_row
from headcount.report.words import counted, f1_text, listed, signed
from headcount.reproduction.evidence import Evidence


def fig7(evidence: Evidence) -> list[Comparison]:
    """What the paper says of Fig. 7, on every table of compressed token embeddings."""
    told = []
    for panel in judged_panels(evidence):
        told += [*_several(panel), *_one_head(panel), *_collapses(panel)]
        told += [
            replace(row, what=_on(panel, row.what)) for row in runs_row("block.seeds", panel.curve)
        ]
    return told


def _several(panel: Setting) -> list[Comparison]:
    """Several heads: ahead of one, near 1 at the end, and not too many of them."""
    told, gaps = [], panel.gaps
    if gaps:
        ahead = [budget for budget in gaps if panel.ahead(budget)]
        text = f"clearly at {len(ahead)} of {len(gaps)} D_K: " + listed(
            [f"{signed(gap)} at {budget}" for budget, gap in gaps.items()]
        )
        told.append(
            in_words(
                "block.advantage",
                len(ahead) == len(gaps),
                text,
                _on(panel, "several heads ahead of one"),
            )
        )
    last = panel.several(int(value("block.saturates")))
    if last:
        text = f"{listed([f'{f1_text(cell.mean)} with {cell.heads}' for cell in last])} at D_K = {last[0].budget}"
        near = all(cell.near_perfect for cell in last)
        what = _on(panel, f"D_K by which several heads are near 1 ({1 - NEAR:.2f} or more)")
        told.append(in_words("block.saturates", near, text, what))
    best = [cell for budget in panel.budgets if (cell := panel.best(budget)) is not None]
    if best:
        allowed = whole("block.best-heads")
        text = listed([f"{cell.heads} at {cell.budget}" for cell in best])
        held = sum(cell.heads in allowed for cell in best)
        told.append(
            in_words(
                "block.best-heads", 2 * held > len(best), text, _on(panel, "best head count by D_K")
            )
        )
    return told + _too_many(panel)


def _too_many(panel: Setting) -> list[Comparison]:
    heads, budget, _ = whole("block.too-many-heads")
    most, best = panel.cells.get((heads, budget)), panel.best(budget)
    if most is None or best is None:
        return []
    text = f"{f1_text(most.mean)} with {heads} heads at D_K = {budget}, {f1_text(best.mean)} with {best.heads}"
    return [
        in_words(
            "block.too-many-heads",
            most.mean < best.mean,
            text,
            _on(panel, "(h, D_K, d_k) with too many heads"),
        )
    ]


def _one_head(panel: Setting) -> list[Comparison]:
    """One head: it rises to D_K = 128, and what does not collapse stays near 0.81."""
    told = []
    low, high = (panel.one(budget) for budget in whole("block.single-head.improves"))
    if low is not None and high is not None:
        text = f"{f1_text(low.mean)} at {low.budget}, {f1_text(high.mean)} at {high.budget}"
        what = _on(panel, "D_K between which one head improves")
        told.append(in_words("block.single-head.improves", high.mean > low.mean, text, what))
    end = partial_solution(panel)
    if end is not None:
        detail = f"D_K = {end.budget}, {counted(len(end.seeds), 'run')}"
        what = _on(panel, "accuracy of the one-head runs that do not collapse")
        told.append(measured("block.single-head.partial", what, end.mean, end.interval, detail))
    return told


def _collapses(panel: Setting) -> list[Comparison]:
    """How many runs end at the NULL baseline, with one head and with several."""
    one = [cell for (heads, _), cell in panel.cells.items() if heads == 1]
    several = [cell for (heads, _), cell in panel.cells.items() if heads > 1]
    told = []
    if one:
        fallen = [cell for cell in one if cell.collapsed]
        text = listed(
            [f"{cell.collapsed} of {len(cell.seeds)} at {cell.budget}" for cell in fallen]
        )
        same = bool(fallen) and fallen[0].budget == value("block.single-head.bimodal-from")
        what = _on(panel, "D_K from which runs with one head collapse")
        told.append(in_words("block.single-head.bimodal-from", same, text, what))
    if several:
        collapsed, runs = collapse_counts(several)
        what = _on(panel, "head count from which no run collapses")
        text = f"{collapsed} of {counted(runs, 'run')} with 2 heads or more"
        told.append(in_words("block.no-collapse", collapsed == 0, text, what))
    return told


def _on(panel: Setting, what: str) -> str:
    return f"{panel.name}: {what}"
