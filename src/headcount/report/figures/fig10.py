"""Figure 10: h* against the compression m/d_model."""

from __future__ import annotations

from math import isnan
from typing import Any

import pandas as pd

from headcount.analysis.fits import LineFit
from headcount.analysis.laws import heads_fit
from headcount.paper import data as paper
from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged, near
from headcount.report.figures.comparison_rows import number_row
from headcount.report.figures.fit_rows import fit_rows, law_parts, slope_text
from headcount.report.formatting import counted, interval_text, num, pairs_text, percent
from headcount.report.readings.frames import fitted, law_points, least_seeds, rows
from headcount.report.readings.paper_numbers import paper_value, quoted
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

# R² of "approximately linear"; the paper's own is 0.824
ROUGHLY_LINEAR = rule("C4")["roughly_linear"]


def heads_line(evidence: Evidence, *, base: bool = False) -> LineFit | None:
    """h* against m/d_model (Fig. 10), on the base grid alone if asked."""
    return fitted(heads_fit, law_points(evidence, base))


def draw(evidence: Evidence) -> Any:
    """h* against compression λ = m/d_model, with our line and the paper's."""
    import altair as alt

    from headcount.report.drawing.law_lines import line_layer, our_line, paper_line
    from headcount.report.drawing.style import ScaledAxis, series_looks, styled
    from headcount.report.drawing.threshold_marks import (
        HEADS_BARS,
        HEADS_TITLE,
        SIDE_STEP,
        cross_note,
        heads_layers,
        largest_value,
        threshold_points,
    )

    frame = threshold_points(evidence, "base", "extreme")
    frame = frame.assign(compression=frame["items"] / frame["d_model"])
    same: Any = frame.groupby("compression")["d_model"]
    frame = frame.assign(shift=SIDE_STEP * (same.rank() - (same.transform("count") + 1) / 2))
    table = evidence.law_points()
    lines = [
        *our_line("ours", "λ", [1, 0], lambda: heads_fit(table)),
        paper_line("paper", "λ", [6, 3], "law.heads"),
    ]
    ends = (0.0, 1.06 * largest_value(frame, "compression"))
    axis = alt.Axis(values=sorted(set(frame["compression"])))
    scale = alt.Scale(domain=ends, nice=False)
    x = ScaledAxis("compression λ = m/d_model", scale, axis).x("compression")
    top = 1.1 * largest_value(frame, "heads_high", 4)
    y = ScaledAxis(HEADS_TITLE, alt.Scale(domain=[0, top], nice=False), alt.Axis(tickMinStep=1))
    looks = series_looks("d_model", frame["d_model"], "d_model", first=16)
    layers: list[Any] = [line_layer(lines, ends, y)]
    for shift in sorted(set(frame["shift"])):
        layers += heads_layers(x, y, looks, shift)
    chart = alt.layer(*layers, data=frame).properties(width=560, height=340)
    subtitle = f"{HEADS_BARS}; points with the same λ are side by side{cross_note(frame)}"
    return styled(chart, frame, "Heads h* against compression", subtitle)


def heads_law(evidence: Evidence) -> Claim:
    """C4: judged by the fit of Fig. 10, and by the same without h* at the end of the sweep."""
    fit = heads_line(evidence)
    if fit is None or isnan(fit.r_squared):
        return judged("C4", [Check(None, "")])
    slope, intercept = paper_value("law.heads.slope"), paper_value("law.heads.intercept")
    ends = fit.intercept_interval()
    constant = (
        f"intercept {num(fit.intercept)} (95 %: {interval_text(ends)}; paper {num(intercept)})"
    )
    checks = [
        Check(
            fit.slope_interval()[0] > 0 and fit.r_squared >= ROUGHLY_LINEAR,
            f"R² {num(fit.r_squared)}",
        ),
        Check(near(fit.slope, slope), slope_text(fit, slope)),
        Check(near(fit.intercept, intercept), constant),
        _inner(evidence),
    ]
    points = law_points(evidence)
    measured = {"points": len(points), "seeds": least_seeds(points)}
    brief = f"slope {num(fit.slope)} ({num(slope)}), intercept {num(fit.intercept)} "
    brief += f"({num(intercept)}){_inner_brief(evidence)}"
    return judged("C4", checks, measured, brief)


def _sides(evidence: Evidence) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The points, without and with those whose h* is the largest head count swept.

    Such an h* is only a lower limit: more heads might need less.
    """
    points, most = law_points(evidence), max(paper.grid("base").heads)
    return points.loc[points["heads"] != most], points.loc[points["heads"] == most]


def _inner_line(evidence: Evidence) -> LineFit | None:
    return fitted(heads_fit, _sides(evidence)[0])


def _inner(evidence: Evidence) -> Check:
    """Whether the slope stays without the points at the end of the sweep."""
    _, ends = _sides(evidence)
    if ends.empty:
        return Check(True, "")
    where = pairs_text(rows(ends, "items", "d_model"))
    line, theirs = _inner_line(evidence), paper_value("law.heads.slope")
    text = f"h* at {where} is the largest head count swept"
    if line is None:
        return Check(None, f"{text}, and without that point no line can be fitted")
    return Check(near(line.slope, theirs), f"{text}; without it {slope_text(line, theirs)}")


def _inner_brief(evidence: Evidence) -> str:
    line = _inner_line(evidence)
    if line is None or _sides(evidence)[1].empty:
        return ""
    return f"; slope {num(line.slope)} without h* at the end of the sweep"


def compare(evidence: Evidence) -> list[Comparison]:
    """Slope, intercept and R² of the law of heads."""
    compared = []
    for base, _, text in law_parts((("heads", "all points"),), evidence):
        line = heads_line(evidence, base=base)
        if line is not None:
            what = f"h* against m/d_model, {text}"
            slope, r2 = fit_rows(line, what, "law.heads.slope", "law.heads.r2")
            ends = line.intercept_interval()
            compared += [
                slope,
                number_row("law.heads.intercept", f"{what}: intercept", line.intercept, ends),
                r2,
            ]
    return compared


def meaning(evidence: Evidence) -> str:
    """How fast h* grows with compression."""
    line = heads_line(evidence)
    if line is None:
        return UNMEASURED
    slope = paper_value("law.heads.slope")
    start = (1 - line.intercept) / line.slope if line.slope > 0 else 0.0
    ending = f"By this line one head is enough up to an m/d_model of about {num(start, 2)}."
    if start <= 0:
        ending = "The line does not say up to which compression one head is enough."
    return (
        f"The best head count grows by {num(line.slope)} for each unit of m/d_model (paper: "
        f"{quoted('law.heads.slope')}; {percent(line.slope, slope)}), with R² "
        f"{num(line.r_squared)} over {counted(line.points, 'point')}. {ending}"
    )


FIGURE = Figure(
    id="fig10",
    title="Figure 10. Heads against compression",
    grids=("base", "extreme"),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(heads_law,),
)
