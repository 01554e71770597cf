"""Figure 3: the capacity law, D_K* against m log₂ m/d_model."""

from __future__ import annotations

from typing import Any

from headcount.analysis.fits import LineFit
from headcount.analysis.laws import budget_fit, feature
from headcount.report.figures.base import (
    LINEAR,
    UNMEASURED,
    Check,
    Claim,
    Comparison,
    Figure,
    judged,
    near,
)
from headcount.report.figures.comparison_rows import finding_row
from headcount.report.figures.fit_rows import fit_rows, law_grid, law_parts, slope_text
from headcount.report.formatting import counted, num, percent
from headcount.report.readings.frames import fitted, law_points, least_seeds, passing
from headcount.report.readings.paper_numbers import paper_value, quoted
from headcount.reproduction.evidence import Evidence
from headcount.theory.laws import BUDGET

_PARTS = {"budget": "all points", "wide": "without d_model = 16, m > 64"}


def budget_line(evidence: Evidence, *, wide: bool = False, base: bool = False) -> LineFit | None:
    """D_K* against m log₂ m/d_model (Fig. 3), on the base grid alone if asked."""
    return fitted(budget_fit, law_points(evidence, base), wide=wide)


def draw(evidence: Evidence) -> Any:
    """D_K* against m log₂ m/d_model, with our lines through the origin and the paper's."""
    from headcount.report.drawing.law_lines import against_law, our_line, paper_line
    from headcount.report.drawing.style import series_looks, styled
    from headcount.report.drawing.threshold_marks import BUDGET_BARS, arrow_note, threshold_points

    frame = threshold_points(evidence, "base", "extreme")
    # Points of like x differ in d_model, the smallest leftmost.
    sides = dict(zip(sorted(set(frame["d_model"])), ("left", "below", "right"), strict=False))
    frame = frame.assign(
        x=feature(frame, BUDGET.form),
        label=[
            f"({items}, {d_model})"
            for items, d_model in zip(frame["items"], frame["d_model"], strict=True)
        ],
        side=[sides.get(d_model, "right") for d_model in frame["d_model"]],
    )
    table = evidence.law_points()
    without = _PARTS["wide"]
    lines = [
        *our_line("ours, all points", "x", [1, 0], lambda: budget_fit(table)),
        *our_line(f"ours, {without}", "x", [7, 3], lambda: budget_fit(table, wide=True)),
        paper_line("paper, all points", "x", [3, 3], "law.budget"),
        paper_line(f"paper, {without}", "x", [8, 3, 2, 3], "law.wide"),
    ]
    looks = series_looks("d_model", frame["d_model"], "d_model", first=16, legend=False)
    chart = against_law(frame, lines, looks, "x = m·log₂ m / d_model")
    subtitle = f"labels: (m, d_model); {BUDGET_BARS}{arrow_note(frame)}"
    return styled(chart, frame, "D_K* against the capacity law", subtitle)


def budget_law(evidence: Evidence) -> Claim:
    """C3: judged by the two fits of Fig. 3."""
    fits = {"wide": budget_line(evidence, wide=True), "budget": budget_line(evidence)}
    checks = [] if all(fits.values()) else [Check(None, "")]
    for name, fit in fits.items():
        if fit is not None:
            paper = paper_value(f"law.{name}.slope")
            tight = near(fit.r_squared, paper_value(f"law.{name}.r2"))
            checks.append(Check(fit.r_squared >= LINEAR if name == "wide" else tight, ""))
            part = f"{law_grid(evidence)}, {_PARTS[name]}"
            text = f"{part}: {slope_text(fit, paper)}, R² {num(fit.r_squared)}"
            checks.append(Check(near(fit.slope, paper), text))
    brief = ""
    if all(fits.values()):
        all_points, wide = (
            f"{num(fits[name].slope)} (paper {quoted(f'law.{name}.slope')})"  # pyright: ignore
            for name in ("budget", "wide")
        )
        brief = f"slope {all_points}, {wide} {_PARTS['wide']}"
    points = law_points(evidence)
    measured = {"points": len(points), "seeds": least_seeds(points)}
    return judged("C3", checks, measured, brief)


def compare(evidence: Evidence) -> list[Comparison]:
    """Slopes and R² of the capacity law."""
    compared = []
    for base, part, text in law_parts(tuple(_PARTS.items()), evidence):
        line = budget_line(evidence, wide=part == "wide", base=base)
        if line is not None:
            what = f"D_K* against m log₂ m/d_model, {text}"
            compared += fit_rows(line, what, f"law.{part}.slope", f"law.{part}.r2")
    wide = budget_line(evidence, wide=True)
    table = passing(evidence, "base")
    narrow = table.loc[(table["d_model"] == 16) & (table["items"] > 64)]
    if wide is not None and len(narrow):
        x = feature(narrow, BUDGET.form)
        above = int((narrow["central"].to_numpy(dtype=float) > wide.slope * x).sum())
        text = f"{above} of {len(narrow)} lie above"
        compared.append(finding_row("law.wide.above", above == len(narrow), text))
    return compared


def meaning(evidence: Evidence) -> str:
    """How well D_K* follows the capacity law."""
    line, wide = budget_line(evidence), budget_line(evidence, wide=True)
    if line is None or wide is None:
        return UNMEASURED
    slope, narrow = paper_value("law.budget.slope"), paper_value("law.wide.slope")
    agree = near(line.slope, slope) and near(wide.slope, narrow)
    return (
        f"Over {counted(line.points, 'point')} ({law_grid(evidence)}) D_K* grows along "
        f"m log₂ m/d_model with slope {num(line.slope)} (paper: "
        f"{quoted('law.budget.slope')}) and R² {num(line.r_squared)}; "
        f"without d_model = 16, m > 64 with slope {num(wide.slope)} (paper: "
        f"{quoted('law.wide.slope')}) and R² {num(wide.r_squared)}. The differences in slope, "
        f"{percent(line.slope, slope)} and {percent(wide.slope, narrow)}, are "
        f"{'both' if agree else 'not both'} within 15 %."
    )


FIGURE = Figure(
    id="fig3",
    title="Figure 3. The capacity law",
    grids=("base", "extreme"),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(budget_law,),
)
