"""Meanings of Figs. 5, 6 and 11–13, of the linear control and of the bounds."""

from __future__ import annotations

from headcount.report.meanings.permutations import UNMEASURED
from headcount.report.readings.frames import passing, rows, said, value, whole
from headcount.report.readings.variants import (
    ValuePanel,
    beyond_line,
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
from headcount.report.words import counted, listed, num, pairs_text, percent, span_text
from headcount.reproduction.evidence import Evidence


def fig5(evidence: Evidence) -> str:
    """Softmax beside max."""
    panels = softmax_panels(evidence)
    if not panels:
        return UNMEASURED
    factors = [panel.budget / panel.under_max for panel in panels if panel.budget is not None]
    size = (
        f"needs {span_text(factors)} the D_K* of max"
        if factors
        else "never reaches 0.99 within the scanned D_K"
    )
    helped = [(p.items, p.d_model) for p in panels if p.one_head is not None and p.one_head.worse]
    expected = [(p.items, p.d_model) for p in panels if p.one_head is not None and p.compressed]
    ending = (
        ", as in the paper"
        if helped == expected
        else f"; the paper has it in all but {said('softmax.exception')}"
    )
    never = (
        f" ({len(panels) - len(factors)} never pass)"
        if factors and len(factors) < len(panels)
        else ""
    )
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
        "fails where several succeed, as in"
        if narrow.separated
        else "is not clearly worse than several, unlike in"
    )
    first = (
        f"At d_model = {narrow.d_model} one head ends at {num(narrow.gap)} times the error of 4 heads or more, so it "
        f"{verdict} the paper."
    )
    if wide is None:
        return f"{first} The less compressed panel was not measured."
    return (
        f"{first} At d_model = {wide.d_model} the lowest error comes with {wide.best_text} (paper: "
        f"{said('value.relaxed.best-heads')}), and one head ends at {num(wide.gap)} times that of 4 or more: "
        f"{_relaxed(wide)}."
    )


def _relaxed(wide: ValuePanel) -> str:
    """What of the paper's two findings at d_model = 32 differs."""
    if wide.separated:
        return (
            'only that one head is "competitive" differs'
            if wide.paper_heads
            else "both differ from the paper"
        )
    return "both as in the paper" if wide.paper_heads else "only the best head counts differ"


def fig11(evidence: Evidence) -> str:
    """Which head counts plateau."""
    budgets = dict(rows(passing(evidence, "regular"), "degree", "central"))
    told = []
    for degree in whole("fig-11.degrees"):
        found = plateaus(evidence, degree)
        if found is not None:
            counts = listed([str(heads) for heads in found])
            told.append(
                f"{counts} at r = {degree} (paper: up to {said(f'fig-11.plateau.{degree}')})"
            )
    if not told:
        return UNMEASURED
    moved = [f"{budgets[degree]} at r = {degree}" for degree in sorted(budgets)[:3]]
    return (
        f"Head counts too small for the graph stay below 0.99 at any tested D_K: {listed(told)}. The threshold moves "
        f"with the density, D_K* is {listed(moved)}."
    )


def fig12(evidence: Evidence) -> str:
    """D_K* by edges."""
    line, power = regular_line(evidence), degree_power(evidence)
    if line is None or power is None:
        return UNMEASURED
    gap = percent(line.slope, value("law.regular.slope"))
    rate = "about in proportion"
    if not is_proportional(power):
        rate = f"{'less' if power.slope < 1 else 'more'} than in proportion"
    degrees = [
        entry.degree for entry in degree_heads(evidence) if entry.degree in whole("regular.degrees")
    ]
    more = [
        f"r = {degree} lies {side} it, × {num(factor)}"
        for degree, side, factor in beyond_line(evidence)
    ]
    whole_power = degree_power(evidence, all_degrees=True)
    every = (
        f" ({num(whole_power.slope)} with all {whole_power.points})" if whole_power and more else ""
    )
    return (
        f"From r = {degrees[0]} to {degrees[-1]}, the paper's degrees, at the same m D_K* grows like the number of "
        f"edges to the power {num(power.slope)}{every}, {rate}. The line through the origin on them has slope "
        f"{num(line.slope)} (paper: {said('law.regular.slope')}; {gap}) and R² {num(line.r_squared)}"
        f"{'; ' if more else ''}{listed(more) if more else ''}."
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
    gap, largest = max(point.gap or 0.0 for point in points), max(point.largest for point in points)
    told = []
    for point in points:
        least = min(
            (budget for budget in (point.one_head, point.several) if budget is not None),
            default=None,
        )
        if point.under_max is not None:
            found = "at no tested D_K" if least is None else f"from D_K = {least}"
            told.append(f"({point.items}, {point.d_model}) {found} (max: from {point.under_max})")
    passed = (
        f"Summed scores pass at {listed(told)}."
        if told
        else "The same points were not measured under max."
    )
    same = (
        "score like one head"
        if all(point.equal for point in points)
        else "do not score like one head"
    )
    return (
        f"Several heads whose scores are summed {same} of the same D_K: the median gap in F1 is {num(gap, 2)} at most "
        f"over {counted(len(points), 'point')}, the largest {num(largest, 2)}. {passed}"
    )


def bounds(evidence: Evidence) -> str:
    """Thresholds between bounds and constructions."""
    found = brackets(evidence)
    over = [point.budget / point.lower[0] for point in found if point.lower]
    under = [point.upper[0] / point.budget for point in found if point.upper]
    if not over or not under:
        return UNMEASURED
    inside = sum(point.above and point.below for point in found)
    tried, trivial = (
        [point for point in found if point.tried],
        sum(point.one_each for point in found),
    )
    exact = [
        f"{point.name} with D_K = {point.printed:,}" for point in tried if point.printed is not None
    ]
    own = f"exact at {len(exact)} of {counted(len(tried), 'point')}" + (
        f", {listed(exact)}" if exact else ""
    )
    printed = f"; the paper's construction as printed is {own}" if tried else ""
    return (
        f"At {inside} of {counted(len(found), 'point')} the trained threshold lies between the largest lower bound (it "
        f"is {span_text(over)} that) and the smallest construction that we know, which needs {span_text(under)} the "
        f"trained budget and is one head an edge at {trivial}{printed}. A threshold asks for an F1 of 0.99, a bound or "
        "a construction for every pair."
    )
