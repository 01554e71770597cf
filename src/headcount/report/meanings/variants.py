"""Meanings of Figs. 5, 6 and 11–13, of the linear control and of the bounds."""

from __future__ import annotations

from headcount.experiments.evidence import Evidence
from headcount.report.meanings.permutations import UNMEASURED
from headcount.report.readings.frames import passing, rows, said, value, whole
from headcount.report.readings.variants import (
    PROPORTIONAL,
    brackets,
    degree_exponent,
    degree_heads,
    linear_points,
    plateaus,
    regular_line,
    softmax_panels,
    value_panel,
)
from headcount.report.words import counted, listed, num, pairs_text, percent, span_text


def fig5(evidence: Evidence) -> str:
    """Softmax beside max."""
    panels = softmax_panels(evidence)
    if not panels:
        return UNMEASURED
    factors = [panel.budget / panel.under_max for panel in panels if panel.budget is not None]
    size = f"needs {span_text(factors)} the D_K* of max" if factors else "never reaches 0.99 within the scanned D_K"
    helped = [(p.items, p.d_model) for p in panels if p.one_head is not None and p.one_head.worse]
    expected = [(p.items, p.d_model) for p in panels if p.one_head is not None and p.compressed]
    ending = ", as in the paper" if helped == expected else f"; the paper has it in all but {said('softmax.exception')}"
    never = f" ({len(panels) - len(factors)} never pass)" if factors and len(factors) < len(panels) else ""
    right = "to the right" if all(panel.right for panel in panels) else "not always to the right"
    return (
        f"In the {counted(len(panels), 'panel')} measured softmax {size}{never}: its curves lie {right}. Several heads "
        f"beat one at {pairs_text(helped)}{ending}."
    )


def fig6(evidence: Evidence) -> str:
    """The value channel."""
    narrow, wide = (value_panel(evidence, d_model) for d_model in whole("value.d-model"))
    if narrow is None:
        return UNMEASURED
    verdict = (
        "fails where several succeed, as in" if narrow.separated else "is not clearly worse than several, unlike in"
    )
    first = (
        f"At d_model = {narrow.d_model} one head ends at {num(narrow.gap)} times the error of 4 heads or more, so it "
        f"{verdict} the paper."
    )
    if wide is None:
        return f"{first} The less compressed panel was not measured."
    best = "" if wide.best_heads in whole("value.relaxed.best-heads") else ", so here we differ"
    return (
        f"{first} At d_model = {wide.d_model} it ends at {num(wide.gap)} times, and the lowest error comes with "
        f"{counted(wide.best_heads, 'head')} (paper: {said('value.relaxed.best-heads')}{best})."
    )


def fig11(evidence: Evidence) -> str:
    """Which head counts plateau."""
    budgets = dict(rows(passing(evidence, "regular"), "degree", "central"))
    told = []
    for degree in whole("fig-11.degrees"):
        found = plateaus(evidence, degree)
        if found is not None:
            counts = listed([str(heads) for heads in found])
            told.append(f"{counts} at r = {degree} (paper: up to {said(f'fig-11.plateau.{degree}')})")
    if not told:
        return UNMEASURED
    moved = [f"{budgets[degree]} at r = {degree}" for degree in sorted(budgets)[:3]]
    return (
        f"Head counts too small for the graph stay below 0.99 at any tested D_K: {listed(told)}. The threshold moves "
        f"with the density, D_K* is {listed(moved)}."
    )


def fig12(evidence: Evidence) -> str:
    """D_K* by edges."""
    line, power = regular_line(evidence), degree_exponent(evidence)
    if line is None or power is None:
        return UNMEASURED
    gap = percent(line.slope, value("law.regular.slope"))
    rate = "about in proportion"
    if not PROPORTIONAL[0] <= power <= PROPORTIONAL[1]:
        rate = f"{'less' if power < 1 else 'more'} than in proportion"
    degrees = [entry.degree for entry in degree_heads(evidence)]
    last = max(degree for degree in degrees if degree in whole("regular.degrees"))
    return (
        f"From r = {degrees[0]} to {degrees[-1]} at the same m D_K* grows like the number of edges to the power "
        f"{num(power)}, {rate}. The line of the paper's fit, here up to r = {last}, has slope {num(line.slope)} "
        f"(paper: {said('law.regular.slope')}; {gap}) and R² {num(line.r_squared)}."
    )


def fig13(evidence: Evidence) -> str:
    """h* by degree."""
    found = degree_heads(evidence)
    if len(found) < 2:
        return UNMEASURED
    worst = max(found, key=lambda entry: entry.factor)
    close = worst.factor <= value("regular.heads-factor")
    return (
        f"From r = {found[0].degree} to {found[-1].degree} the best head count goes from {found[0].heads} to "
        f"{found[-1].heads}, and m'/d_model from {num(found[0].target)} to {num(found[-1].target)}. They are a factor "
        f"{num(worst.factor)} apart at most, {'within' if close else 'more than'} the paper's "
        f"{said('regular.heads-factor')}."
    )


def linear(evidence: Evidence) -> str:
    """The control."""
    points = [point for point in linear_points(evidence) if point.gap is not None]
    if not points:
        return UNMEASURED
    gap = max(point.gap or 0.0 for point in points)
    told = []
    for point in points:
        least = min((budget for budget in (point.one_head, point.several) if budget is not None), default=None)
        if point.under_max is not None:
            found = "at no tested D_K" if least is None else f"from D_K = {least}"
            told.append(f"({point.items}, {point.d_model}) {found} (max: from {point.under_max})")
    passed = f"Summed scores pass at {listed(told)}." if told else "The same points were not measured under max."
    same = "score like one head" if all(point.equal for point in points) else "do not score like one head"
    return (
        f"Several heads whose scores are summed {same} of the same D_K: the median gap in F1 is {num(gap, 2)} at most "
        f"over {counted(len(points), 'point')}. {passed}"
    )


def bounds(evidence: Evidence) -> str:
    """Thresholds between bounds and constructions."""
    found = brackets(evidence)
    over = [point.budget / point.lower[0] for point in found if point.lower]
    under = [point.upper[0] / point.budget for point in found if point.upper]
    if not over or not under:
        return UNMEASURED
    inside = sum(point.above and point.below for point in found)
    return (
        f"At {inside} of {counted(len(found), 'point')} the trained threshold lies between the largest lower bound and "
        f"the smallest construction. It is {span_text(over)} the bound, and the construction needs {span_text(under)} "
        "the trained budget; but a threshold asks for an F1 of 0.99, and a bound or a construction for every pair."
    )
