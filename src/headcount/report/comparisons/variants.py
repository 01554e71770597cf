"""Comparisons of the other runs: Figs. 5, 6, 11–13, the linear control and the bounds."""

from __future__ import annotations

from headcount.paper import data as paper
from headcount.report.figure import Comparison
from headcount.report.readings.frames import curves_on, pairs, value, whole
from headcount.report.readings.permutations import with_heads
from headcount.report.readings.variants import (
    Bracket,
    ValuePanel,
    brackets,
    degree_heads,
    degree_power,
    is_proportional,
    linear_points,
    plateaus,
    regular_line,
    softmax_panels,
    value_panel,
)
from headcount.report.side_by_side import in_words, measured, runs_row
from headcount.report.words import counted, listed, num, pairs_text
from headcount.reproduction.evidence import Evidence

SLIGHTLY = 2.0


def fig5(evidence: Evidence) -> list[Comparison]:
    """Softmax beside max, and where several heads help."""
    panels, told = softmax_panels(evidence), []
    if panels:
        factors = [
            f"({panel.items}, {panel.d_model}) {panel.under_max} → {panel.budget or f'over {panel.scanned}'}"
            for panel in panels
        ]
        told.append(
            in_words("softmax.right", all(panel.right for panel in panels), ", ".join(factors))
        )
    seen = [panel for panel in panels if panel.one_head is not None]
    helped = [
        (panel.items, panel.d_model) for panel in seen if panel.one_head and panel.one_head.worse
    ]
    if seen:
        expected = [(panel.items, panel.d_model) for panel in seen if panel.compressed]
        text = f"{len(helped)} of {counted(len(seen), 'panel')}: {pairs_text(helped)}"
        told.append(in_words("softmax.advantage", helped == expected, text))
        if set(pairs("softmax.exception")) <= {(panel.items, panel.d_model) for panel in seen}:
            without = [
                (panel.items, panel.d_model)
                for panel in seen
                if (panel.items, panel.d_model) not in helped
            ]
            told.append(
                in_words(
                    "softmax.exception",
                    set(without) == set(pairs("softmax.exception")),
                    pairs_text(without),
                )
            )
    return told + runs_row("softmax.runs", curves_on(evidence, "softmax"))


def fig6(evidence: Evidence) -> list[Comparison]:
    """The value channel."""
    narrow, wide = whole("value.d-model")
    told = []
    panel = value_panel(evidence, narrow)
    if panel is not None:
        told += _compressed(panel)
    relaxed = value_panel(evidence, wide)
    if relaxed is not None:
        told += _relaxed(relaxed)
    return told + runs_row("value.runs", curves_on(evidence, "value"))


def fig11(evidence: Evidence) -> list[Comparison]:
    """Which head counts plateau at r = 2 and r = 4."""
    told = []
    for degree in whole("fig-11.degrees"):
        found = plateaus(evidence, degree)
        if found is None:
            continue
        name = f"fig-11.plateau.{degree}"
        largest = max(found, default=0)
        what = f"head counts up to which F1 plateaus, r = {degree}"
        text = listed([str(heads) for heads in found])
        told.append(in_words(name, largest == value(name), text, what))
        swept = {heads: with_heads(evidence, "regular", heads) for heads in whole("fig-11.jump")}
        jumps = [
            few.heads
            for points in swept.values()
            for few in points
            if few.degree == degree and not few.fails
        ]
        text = listed([str(heads) for heads in jumps])
        what = f"head counts of 4 and 8 that reach F1 0.99, r = {degree}"
        told.append(in_words("fig-11.jump", tuple(jumps) == whole("fig-11.jump"), text, what))
    return told


def fig12(evidence: Evidence) -> list[Comparison]:
    """D_K* by edges."""
    told = []
    fits = {
        "degrees of the paper's fit": regular_line(evidence),
        "all degrees": regular_line(evidence, all_degrees=True),
    }
    for text, line in fits.items():
        if line is None or (text == "all degrees" and fits["degrees of the paper's fit"] == line):
            continue
        detail = f"R² {num(line.r_squared)}, {counted(line.points, 'degree')}"
        what = f"D_K* against r·m log₂ m/d_model, {text}: slope"
        told.append(measured("law.regular.slope", what, line.slope, line.slope_interval(), detail))
    degree = int(value("regular.below-construction"))
    for point in brackets(evidence):
        if point.degree == degree and point.upper:
            factor = point.upper[0] / point.budget
            text = f"D_K* {point.budget:,}, {point.upper[1]} {point.upper[0]:,}: × {num(factor)}"
            what = f"degree at which D_K* lies slightly below the constructions (× {SLIGHTLY:g} at most)"
            told.append(in_words("regular.below-construction", 1 <= factor <= SLIGHTLY, text, what))
    return told


def fig13(evidence: Evidence) -> list[Comparison]:
    """h* by degree."""
    found = degree_heads(evidence)
    if not found:
        return []
    worst = max(found, key=lambda entry: entry.factor)
    detail = f"r = {worst.degree}: h* {worst.heads}, m'/d_model {num(worst.target)}; {counted(len(found), 'degree')}"
    told = [
        measured(
            "regular.heads-factor",
            "largest factor between h* and m'/d_model",
            worst.factor,
            detail=detail,
        )
    ]
    if len(found) > 1:
        power = degree_power(evidence, "heads", all_degrees=True)
        linear_rise = power is not None and is_proportional(power)
        text = f"h* {', '.join(str(entry.heads) for entry in found)} at r = {', '.join(str(e.degree) for e in found)}"
        grows = "" if power is None else f", like r to the power {num(power.slope)}"
        told.append(in_words("regular.heads-rise", linear_rise, f"{text}{grows}"))
    return told


def linear(evidence: Evidence) -> list[Comparison]:
    """Several heads whose scores are summed, beside one of the same budget."""
    grid = paper.grid("linear")
    return [
        Comparison(
            what=f"F1 of several heads less that of one at ({point.items}, {point.d_model}), median size",
            paper="0: equivalent to one head",
            ours=f"{num(point.gap, 2)} ({counted(len(point.gaps), 'pair')} at equal D_K; largest "
            f"{num(point.largest, 2)}{'' if point.passes else '; none passes'})",
            difference="same" if point.equal else "differs",
            overlap=None,
            place=grid.place,
        )
        for point in linear_points(evidence)
        if point.gap is not None
    ]


def bounds(evidence: Evidence) -> list[Comparison]:
    """Every threshold between the largest lower bound and the smallest construction.

    Where the paper's own construction is not exact, there is nothing of the paper's above the threshold: "–".
    """
    return [
        Comparison(
            what=f"D_K* at m = {point.items:,}, d_model = {point.d_model:,}, r = {point.degree}",
            paper="lower bound ≤ D_K* ≤ construction",
            ours=point.text,
            difference=_between(point),
            overlap=None,
            place="Section 1; Appendix A.3",
        )
        for point in brackets(evidence)
    ]


def _between(point: Bracket) -> str:
    """Whether a threshold lies where the paper has it, by its own construction."""
    if not (point.above and point.below):
        return "differs"
    return "same" if point.as_printed else "–"


def _compressed(panel: ValuePanel) -> list[Comparison]:
    """d_model = 16: one head plateaus, several fall."""
    text = f"lowest error {num(panel.gap)} times that of several heads"
    gain = "" if panel.late_gain is None else f"; {panel.late_text}"
    least, tested = panel.least_heads, listed([str(heads) for heads in panel.lowest])
    falls = f"{'none' if least is None else least} of {tested}"
    return [
        in_words("value.single-head", panel.separated and panel.plateaus is not False, text + gain),
        in_words("value.least-heads", least == value("value.least-heads"), falls),
    ]


def _relaxed(panel: ValuePanel) -> list[Comparison]:
    """d_model = 32: one head is competitive."""
    beaten = panel.low_budget_loss
    low = "never lower" if beaten is None else f"one head lower at D_K {beaten}"
    text = f"lowest error {num(panel.gap)} times that of several heads"
    return [
        in_words("value.relaxed.single-head", not panel.separated, text),
        in_words(
            "value.relaxed.fragmented",
            beaten is not None,
            low,
            "a head count that one head beats at some D_K: 16",
        ),
        in_words("value.relaxed.best-heads", bool(panel.paper_heads), panel.best_text),
    ]
