"""Figure 11: which head counts plateau on regular graphs with r = 2 and 4."""

from __future__ import annotations

from typing import Any

from headcount.report.figures.base import UNMEASURED, Comparison, Figure
from headcount.report.figures.comparison_rows import finding_row
from headcount.report.formatting import listed
from headcount.report.readings.few_heads import with_heads
from headcount.report.readings.frames import curves_on, passing, rows
from headcount.report.readings.paper_numbers import paper_integers, paper_value, quoted
from headcount.reproduction.evidence import Evidence


def plateaus(evidence: Evidence, degree: int) -> tuple[int, ...] | None:
    """Head counts below h* that do not pass, though they were tested at D_K* and above.

    None where the degree was not swept.
    """
    swept = sorted(set(curves_on(evidence, "regular", degree=degree)["heads"]))
    found = [
        few
        for heads in swept
        for few in with_heads(evidence, "regular", int(heads))
        if few.degree == degree
    ]
    below = [few for few in found if few.heads < few.best_heads]
    return tuple(few.heads for few in below if few.fails) if found else None


def draw(evidence: Evidence) -> Any:
    """The curves of regular graphs with r = 2 and 4."""
    from headcount.report.drawing.curve_panels import curve_panels, grid_curves
    from headcount.report.drawing.style import require_rows
    from headcount.report.drawing.threshold_marks import sizes_text

    curves = grid_curves(evidence, "regular")
    curves = require_rows(
        curves.loc[curves["degree"].isin([2, 4])], "curves of regular graphs with r = 2 or 4"
    )
    curves = curves.assign(panel=[f"r = {degree}" for degree in curves["degree"]])
    return curve_panels(
        curves,
        f"F1–D_K curves of regular graphs, {sizes_text(curves)}",
        columns=2,
        width=330,
        height=260,
    )


def compare(evidence: Evidence) -> list[Comparison]:
    """Which head counts plateau at r = 2 and r = 4."""
    compared = []
    for degree in paper_integers("fig-11.degrees"):
        found = plateaus(evidence, degree)
        if found is None:
            continue
        name = f"fig-11.plateau.{degree}"
        largest = max(found, default=0)
        what = f"head counts up to which F1 plateaus, r = {degree}"
        text = listed([str(heads) for heads in found])
        compared.append(finding_row(name, largest == paper_value(name), text, what))
        expected = paper_integers("fig-11.jump")
        swept = [few for heads in expected for few in with_heads(evidence, "regular", heads)]
        jumps = tuple(few.heads for few in swept if few.degree == degree and not few.fails)
        text = listed([str(heads) for heads in jumps])
        what = f"head counts of 4 and 8 that reach F1 0.99, r = {degree}"
        compared.append(finding_row("fig-11.jump", jumps == expected, text, what))
    return compared


def meaning(evidence: Evidence) -> str:
    """Which head counts plateau."""
    budgets = dict(rows(passing(evidence, "regular"), "degree", "central"))
    parts = []
    for degree in paper_integers("fig-11.degrees"):
        found = plateaus(evidence, degree)
        if found is not None:
            counts = listed([str(heads) for heads in found])
            parts.append(
                f"{counts} at r = {degree} (paper: up to {quoted(f'fig-11.plateau.{degree}')})"
            )
    if not parts:
        return UNMEASURED
    moved = [f"{budgets[degree]} at r = {degree}" for degree in sorted(budgets)[:3]]
    return (
        f"Head counts too small for the graph stay below 0.99 at any tested D_K: {listed(parts)}. "
        f"The threshold moves with the density: D_K* is {listed(moved)}."
    )


FIGURE = Figure(
    id="fig11",
    title="Figure 11. F1 against D_K, regular graphs",
    grids=("regular",),
    curves=True,
    draw=draw,
    compare=compare,
    meaning=meaning,
)
