"""Figure 12: on regular graphs D_K* grows with the number of edges."""

from __future__ import annotations

from math import isnan
from typing import Any

from headcount.analysis.laws import feature, regular_fit
from headcount.paper import data as paper
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
from headcount.report.figures.comparison_rows import finding_row, number_row
from headcount.report.figures.fit_rows import slope_text
from headcount.report.formatting import counted, interval_text, listed, num, percent
from headcount.report.readings.brackets import brackets
from headcount.report.readings.frames import least_seeds, passing
from headcount.report.readings.paper_numbers import paper_integers, paper_value, quoted
from headcount.report.readings.regular_graphs import (
    beyond_line,
    degree_heads,
    degree_power,
    end_power,
    is_proportional,
    regular_line,
)
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence
from headcount.theory.laws import BUDGET

SLIGHTLY = rule("C24")["slightly"]  # a construction within this factor of D_K* is slightly above it


def draw(evidence: Evidence) -> Any:
    """D_K* of regular graphs against (r m/d_model) log₂ m."""
    from headcount.report.drawing.law_lines import against_law, our_line, paper_line
    from headcount.report.drawing.style import series_looks, styled
    from headcount.report.drawing.threshold_marks import (
        BUDGET_BARS,
        arrow_note,
        sizes_text,
        threshold_points,
    )

    frame = threshold_points(evidence, "regular")
    names = [f"r = {degree}" for degree in frame["degree"]]
    frame = frame.assign(x=feature(frame, BUDGET.form), label=names, side="corner")
    degrees: Any = paper.number("regular.degrees").value
    table = evidence.on("regular", "thresholds")
    table = table.loc[table["degree"].isin(degrees)]
    lines = [
        *our_line(f"ours, r ≤ {degrees[-1]}", "x", [1, 0], lambda: regular_fit(table)),
        paper_line("paper", "x", [6, 3], "law.regular"),
    ]
    looks = series_looks("degree", frame["degree"], "degree r", legend=False)
    chart = against_law(frame, lines, looks, "x = (r·m / d_model)·log₂ m")
    return styled(
        chart,
        frame,
        f"D_K* of regular graphs, {sizes_text(frame)}",
        f"{BUDGET_BARS}{arrow_note(frame)}",
    )


def edges_not_vertices(evidence: Evidence) -> Claim:
    """C5: judged by the fit of Fig. 12 on the paper's degrees, and by the power over all."""
    fit, power = regular_line(evidence), end_power(evidence)
    if fit is None or isnan(fit.r_squared):
        return judged("C5", [Check(None, "")])
    theirs = paper_value("law.regular.slope")
    checks = [
        Check(fit.r_squared >= LINEAR, f"R² {num(fit.r_squared)}"),
        Check(near(fit.slope, theirs), slope_text(fit, theirs, "degree")),
        Check(None if power is None else is_proportional(power), _power_text(evidence)),
    ]
    table = passing(evidence, "regular")
    brief = f"slope {num(fit.slope)} ({num(theirs)})"
    if power is not None:
        brief += f", D_K* grows like m' to the power {num(power)}"
    return judged("C5", checks, {"degrees": len(table), "seeds": least_seeds(table)}, brief)


def _power_text(evidence: Evidence) -> str:
    """The power of m' over all degrees and up to r = 16, and how far off the others are."""
    ends, power = end_power(evidence), degree_power(evidence)
    if ends is None:
        return "too few degrees for a power of m'"
    degrees = passing(evidence, "regular")["degree"]
    span = f"from r = {degrees.min()} to {degrees.max()}"
    text = f"{span} D_K* grows like m' to the power {num(ends)}"
    rest = [
        f"r = {degree} lies {side} the line, at {num(factor)} times its value"
        for degree, side, factor in beyond_line(evidence)
    ]
    if power is None or not rest:
        return text
    inner = f"up to r = 16 {num(power.slope)} (95 %: {interval_text(power.slope_interval())})"
    return f"{text}, {inner}: {listed(rest)}"


def compare(evidence: Evidence) -> list[Comparison]:
    """The slope of D_K* by edges, and how far the constructions are above it."""
    compared = []
    fits = {
        "degrees of the paper's fit": regular_line(evidence),
        "all degrees": regular_line(evidence, all_degrees=True),
    }
    for text, line in fits.items():
        if line is None or (text == "all degrees" and fits["degrees of the paper's fit"] == line):
            continue
        detail = f"R² {num(line.r_squared)}, {counted(line.points, 'degree')}"
        what = f"D_K* against r·m log₂ m/d_model, {text}: slope"
        compared.append(
            number_row("law.regular.slope", what, line.slope, line.slope_interval(), detail)
        )
    degree = int(paper_value("regular.below-construction"))
    for point in brackets(evidence):
        if point.degree == degree and point.upper:
            factor = point.upper[0] / point.budget
            text = f"D_K* {point.budget:,}, {point.upper[1]} {point.upper[0]:,}: × {num(factor)}"
            what = "degree at which D_K* lies slightly below the constructions "
            what += f"(× {SLIGHTLY:g} at most)"
            compared.append(
                finding_row("regular.below-construction", 1 <= factor <= SLIGHTLY, text, what)
            )
    return compared


def meaning(evidence: Evidence) -> str:
    """How D_K* grows with the number of edges."""
    line, power = regular_line(evidence), degree_power(evidence)
    if line is None or power is None:
        return UNMEASURED
    gap = percent(line.slope, paper_value("law.regular.slope"))
    rate = "about in proportion"
    if not is_proportional(power.slope):
        rate = f"{'less' if power.slope < 1 else 'more'} than in proportion"
    degrees = [
        entry.degree
        for entry in degree_heads(evidence)
        if entry.degree in paper_integers("regular.degrees")
    ]
    more = [
        f"r = {degree} lies {side} it, at {num(factor)} times its value"
        for degree, side, factor in beyond_line(evidence)
    ]
    whole_power = degree_power(evidence, all_degrees=True)
    every = (
        f" ({num(whole_power.slope)} with all {whole_power.points})" if whole_power and more else ""
    )
    return (
        f"From r = {degrees[0]} to {degrees[-1]}, the paper's degrees, D_K* at fixed m grows like "
        f"the number of edges to the power {num(power.slope)}{every}, {rate}. The line through "
        f"the origin fitted to them has slope {num(line.slope)} (paper: "
        f"{quoted('law.regular.slope')}; {gap}) and R² "
        f"{num(line.r_squared)}{'; ' if more else ''}{listed(more) if more else ''}."
    )


FIGURE = Figure(
    id="fig12",
    title="Figure 12. Capacity scales with the edges",
    grids=("regular",),
    shows_bounds=True,
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(edges_not_vertices,),
)
