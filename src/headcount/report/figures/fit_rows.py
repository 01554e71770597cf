"""A fitted line beside the paper's: rows of a comparison, and the text of a claim."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.analysis.fits import LineFit
from headcount.report.figures.base import Comparison
from headcount.report.figures.comparison_rows import number_row
from headcount.report.formatting import counted, interval_text, listed, num, percent
from headcount.report.readings.frames import passing
from headcount.reproduction.evidence import Evidence

BASE_GRID = "base grid"


def fit_rows(line: LineFit, what: str, slope: str, r2: str) -> list[Comparison]:
    """Slope and R² of a fit."""
    points = counted(line.points, "point")
    return [
        number_row(slope, f"{what}: slope", line.slope, line.slope_interval(), points),
        number_row(r2, f"{what}: R²", line.r_squared, detail=points, relative=False),
    ]


def law_parts(parts: Sequence[tuple[str, str]], evidence: Evidence) -> list[tuple[bool, str, str]]:
    """Each part over all points of the law, then over the base grid alone where that has fewer."""
    whole = law_grid(evidence)
    found = [(False, name, f"{whole}, {text}") for name, text in parts]
    if whole != BASE_GRID:
        found += [(True, name, f"{BASE_GRID}, {text}") for name, text in parts]
    return found


def law_grid(evidence: Evidence) -> str:
    """Which points the laws of Section 6.1 are fitted to: the planner's own law has more."""
    extreme, base = (
        set(table[["items", "d_model"]].itertuples(index=False, name=None))
        for table in (passing(evidence, "extreme"), evidence.on("base", "thresholds"))
    )
    return listed([BASE_GRID, *(f"({items}, {width})" for items, width in sorted(extreme - base))])


def slope_text(fit: LineFit, paper: float, noun: str = "point") -> str:
    """A slope beside the paper's; `noun` names what was fitted."""
    ends = interval_text(fit.slope_interval())
    points = counted(fit.points, noun)
    ours = f"slope {num(fit.slope)} (95 %: {ends}; {points})"
    return f"{ours} against {num(paper)}, {percent(fit.slope, paper)}"
