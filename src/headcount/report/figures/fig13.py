"""Figure 13: h* of regular graphs against their degree."""

from __future__ import annotations

from typing import Any

from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged
from headcount.report.figures.comparison_rows import finding_row, number_row
from headcount.report.formatting import counted, listed, num
from headcount.report.palette import COLOURS, GREY, PALE
from headcount.report.readings.frames import least_seeds, passing
from headcount.report.readings.paper_numbers import paper_value, quoted
from headcount.report.readings.regular_graphs import degree_heads, degree_power, is_proportional
from headcount.report.readings.trends import rank_correlation
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

RISING = rule("C11")["rising"]  # rank correlation of h* with r


def draw(evidence: Evidence) -> Any:
    """h* against the degree r, with m'/d_model and a band of a factor of two around it."""
    import altair as alt

    from headcount.report.drawing.style import log2_axis, styled
    from headcount.report.drawing.threshold_marks import (
        HEADS_BARS,
        cross_note,
        heads_axis,
        heads_layers,
        sizes_text,
        threshold_points,
    )

    frame = threshold_points(evidence, "regular").sort_values("degree").assign(shift=0)
    ratio = frame["degree"] * frame["items"] / frame["d_model"]
    edges = frame.loc[:, ["degree"]].assign(
        ratio=ratio, half=ratio / 2, double=ratio * 2, label="m'/d_model"
    )
    x = log2_axis("degree r", padding=30, values=sorted(set(frame["degree"]))).x("degree")
    y = heads_axis(frame, min(edges["half"]), max(edges["double"]))
    line = alt.Chart(edges).encode(x=x)
    band = line.mark_area(color=PALE, opacity=0.5).encode(y=y.y("half"), y2="double:Q")
    rule = line.mark_line(color=GREY, strokeDash=[6, 3]).encode(y=y.y("ratio"))
    last = alt.Chart(edges.tail(1)).mark_text(align="right", dx=-8, dy=-10, color=GREY, fontSize=11)
    points = heads_layers(x, y, {"color": alt.value(COLOURS[0]), "shape": alt.value("circle")})
    layers = [band, rule, last.encode(x=x, y=y.y("ratio"), text="label:N"), *points]
    chart = alt.layer(*layers, data=frame).properties(width=560, height=340)
    subtitle = (
        f"{HEADS_BARS}\ngrey: m'/d_model = r·m/d_model, and a factor of 2 around "
        f"it{cross_note(frame)}"
    )
    return styled(chart, frame, f"Heads h* of regular graphs, {sizes_text(frame)}", subtitle)


def heads_by_density(evidence: Evidence) -> Claim:
    """C11: judged by h* beside m'/d_model on regular graphs."""
    found = degree_heads(evidence)
    rank = rank_correlation([entry.degree for entry in found], [entry.heads for entry in found])
    factor = paper_value("regular.heads-factor")
    checks = [Check(None, "")]
    if len(found) > 1:
        steps = listed([f"{entry.heads} (r = {entry.degree})" for entry in found])
        close = sum(entry.nearest <= factor for entry in found)
        text = (
            f"within a factor {num(factor)} of m'/d_model at {close} of "
            f"{counted(len(found), 'degree')}"
        )
        checks = [
            Check(rank is not None and rank >= RISING, f"h* {steps}"),
            Check(close == len(found), text),
        ]
    table = passing(evidence, "regular")
    measured = {"degrees": len(table), "seeds": least_seeds(table)}
    return judged("C11", checks, measured, checks[-1].text)


def compare(evidence: Evidence) -> list[Comparison]:
    """How h* rises with the degree, and how far it is from m'/d_model."""
    found = degree_heads(evidence)
    if not found:
        return []
    worst = max(found, key=lambda entry: entry.factor)
    detail = (
        f"r = {worst.degree}: h* {worst.heads}, m'/d_model {num(worst.target)}; "
        f"{counted(len(found), 'degree')}"
    )
    compared = [
        number_row(
            "regular.heads-factor",
            "largest factor between h* and m'/d_model",
            worst.factor,
            detail=detail,
        )
    ]
    if len(found) > 1:
        power = degree_power(evidence, "heads", all_degrees=True)
        linear_rise = power is not None and is_proportional(power.slope)
        text = (
            f"h* {', '.join(str(entry.heads) for entry in found)} at r = "
            f"{', '.join(str(e.degree) for e in found)}"
        )
        grows = "" if power is None else f", like r to the power {num(power.slope)}"
        compared.append(finding_row("regular.heads-rise", linear_rise, f"{text}{grows}"))
    return compared


def meaning(evidence: Evidence) -> str:
    """How h* follows m'/d_model."""
    found = degree_heads(evidence)
    if len(found) < 2:
        return UNMEASURED
    worst = max(found, key=lambda entry: entry.factor)
    close = worst.factor <= paper_value("regular.heads-factor")
    return (
        f"From r = {found[0].degree} to {found[-1].degree} the best head count goes from "
        f"{found[0].heads} to {found[-1].heads}, and m'/d_model from {num(found[0].target)} to "
        f"{num(found[-1].target)}. They are at most a factor {num(worst.factor)} apart, "
        f"{'within' if close else 'more than'} the paper's {quoted('regular.heads-factor')}."
    )


FIGURE = Figure(
    id="fig13",
    title="Figure 13. Heads against degree",
    grids=("regular",),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(heads_by_density,),
)
