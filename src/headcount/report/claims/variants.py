"""Claims on the other runs: C5–C8, C11 and C12 (Section 7, Appendix A.3)."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from headcount.report.claims.judge import LINEAR, Check, judged, near
from headcount.report.figure import Claim
from headcount.report.readings.frames import said, value, whole
from headcount.report.readings.permutations import rank_correlation
from headcount.report.readings.variants import (
    APART,
    EQUAL,
    LATE_GAIN,
    PROPORTIONAL,
    Bracket,
    LinearPoint,
    ValuePanel,
    beyond_line,
    brackets,
    degree_heads,
    degree_power,
    is_proportional,
    linear_points,
    regular_line,
    softmax_panels,
    value_panel,
)
from headcount.report.words import (
    counted,
    interval_text,
    listed,
    num,
    pairs_text,
    percent,
    span_text,
)
from headcount.reproduction.evidence import Evidence

RISING = 0.8  # rank correlation of h* with r


def edges_not_vertices(evidence: Evidence) -> Claim:
    """C5: judged by the fit of Fig. 12 on the paper's degrees."""
    fit, power = regular_line(evidence), degree_power(evidence)
    checks = [Check(None, "")]
    if fit is not None and not isnan(fit.r_squared):
        paper = value("law.regular.slope")
        slope = (
            f"slope {num(fit.slope)} (95 %: {interval_text(fit.slope_interval())}; "
            f"{counted(fit.points, 'degree')}) against {num(paper)}, {percent(fit.slope, paper)}"
        )
        checks = [
            Check(fit.r_squared >= LINEAR, f"R² {num(fit.r_squared)}"),
            Check(near(fit.slope, paper), slope),
            Check(None if power is None else is_proportional(power), _power_text(evidence)),
        ]
    return judged(
        "C5",
        f"Edges, not vertices, set the budget: on r-regular graphs D_K* ≈ {said('law.regular.slope')} (m'/d_model) "
        "log₂ m with m' = r·m, one line for all degrees up to r = 16.",
        f"the fit through the origin up to r = 16, the paper's, has R² ≥ {LINEAR}; confirmed in full if its slope is "
        f"within 15 % and D_K* on these degrees grows like m' to a power of {PROPORTIONAL[0]} to {PROPORTIONAL[1]}, by "
        "least squares of the logarithms.",
        checks,
        ("fig12", "fig11"),
    )


def softmax_right(evidence: Evidence) -> Claim:
    """C6: judged panel by panel against max at the same point."""
    panels = softmax_panels(evidence)
    right = [panel for panel in panels if panel.right]
    tested = [panel for panel in panels if panel.compressed and panel.one_head is not None]
    helped = [panel for panel in tested if panel.one_head is not None and panel.one_head.worse]
    checks = [Check(None, "")]
    if panels:
        factors = [panel.budget / panel.under_max for panel in panels if panel.budget is not None]
        size = f", {span_text(factors)} its D_K*" if factors else ""
        never = len(panels) - len(factors)
        gap = f", {never} of which never pass" if never else ""
        text = f"more than max at {len(right)} of {counted(len(panels), 'panel')}{size}{gap}"
        checks = [Check(2 * len(right) > len(panels), text), Check(len(right) == len(panels), "")]
        text = (
            f"several heads beat one in {len(helped)} of {counted(len(tested), 'compressed panel')}"
        )
        checks.append(Check(len(helped) == len(tested) if tested else None, text))
    return judged(
        "C6",
        "With softmax the transition needs a larger D_K than under max, and several heads still beat one where "
        f"m ≫ d_model: in all panels but {said('softmax.exception')}.",
        "at more than half of the panels D_K* is larger than under max; confirmed in full if at all of them, and if "
        f"one head fails or needs over 10 % more in every panel but {said('softmax.exception')}.",
        checks,
        ("fig5",),
    )


def value_channel(evidence: Evidence) -> Claim:
    """C7: judged by the lowest mean squared error of one head and of 4 or more."""
    narrow, wide = (value_panel(evidence, d_model) for d_model in whole("value.d-model"))
    checks = [Check(None, "")]
    if narrow is not None:
        text = f"d_model = {narrow.d_model}: one head's lowest error is {num(narrow.gap)} times that of several"
        checks = [Check(narrow.separated, text)]
        checks.append(
            Check(narrow.plateaus, narrow.late_text if narrow.late_gain is not None else "")
        )
        checks.append(_relaxed(wide))
    return judged(
        "C7",
        "Retrieval through a value channel mirrors it (m = 64): at d_model = 16 one head plateaus at a high error and "
        "4 heads or more succeed; at d_model = 32 one head is competitive, and several heads still end lowest.",
        f"at d_model = 16 one head's lowest error is at least {APART} times that of 4 heads or more; confirmed in full "
        f"if it improves by {100 * LATE_GAIN:.0f} % at most over the upper half of its D_K, and if at d_model = 32 it "
        f"is less than {APART} times and the lowest error is not that of one head.",
        checks,
        ("fig6",),
    )


def linear_control(evidence: Evidence) -> Claim:
    """C8: judged at equal budgets, and by whether several heads pass with less."""
    points = [point for point in linear_points(evidence) if point.gap is not None]
    checks = [Check(None, "")]
    if points:
        gaps = [point.gap for point in points if point.gap is not None]
        pairs = sum(len(point.gaps) for point in points)
        largest = max(point.largest for point in points)
        text = f"median gap in F1 {num(max(gaps), 2)} at most over {counted(len(points), 'point')} ({pairs} pairs; "
        text += f"largest {num(largest, 2)})"
        checks = [Check(all(point.equal for point in points), text), _no_saving(points)]
    return judged(
        "C8",
        "Without a nonlinear aggregation there is no advantage: if scores are summed over heads, several heads are "
        "equivalent to one of width D_K (Section 3; a control that the paper does not run).",
        f"at equal D_K the median gap in F1 between several heads and one is {EQUAL} at most at every point; confirmed "
        "in full if, where something passes, several heads nowhere pass with over 10 % less.",
        checks,
        ("linear",),
    )


def heads_by_density(evidence: Evidence) -> Claim:
    """C11: judged by h* beside m'/d_model on regular graphs."""
    found = degree_heads(evidence)
    rank = rank_correlation([entry.degree for entry in found], [entry.heads for entry in found])
    factor = value("regular.heads-factor")
    checks = [Check(None, "")]
    if len(found) > 1:
        steps = listed([f"{entry.heads} (r = {entry.degree})" for entry in found])
        close = sum(entry.nearest <= factor for entry in found)
        text = f"within a factor {num(factor)} of m'/d_model at {close} of {counted(len(found), 'degree')}"
        checks = [
            Check(rank is not None and rank >= RISING, f"h* {steps}"),
            Check(close == len(found), text),
        ]
    return judged(
        "C11",
        f"The head count at D_K* grows with density and stays within a factor of about {said('regular.heads-factor')} "
        "of m'/d_model.",
        f"the rank correlation of h* with r is at least {RISING}; confirmed in full if h*, or a head count in its "
        "interval, is within that factor of m'/d_model at every degree.",
        checks,
        ("fig13",),
    )


def between_bounds(evidence: Evidence) -> Claim:
    """C12: judged at every threshold that has a bound or a construction beside it."""
    found = brackets(evidence)
    lower = [point for point in found if point.lower]
    over = [point.budget / point.lower[0] for point in lower if point.lower]
    first = Check(None, "")
    if lower:
        text = f"at or above the lower bound at {sum(point.above for point in lower)} of {counted(len(lower), 'point')}"
        first = Check(
            all(point.above for point in lower),
            f"{text}, × {num(min(over))} to × {num(max(over))} of it",
        )
    checks = [first, _printed(found), _smallest_construction(found)]
    return judged(
        "C12",
        "Trained thresholds lie between the lower bounds and the constructions.",
        "no D_K* lies below the largest lower bound; confirmed in full if at every point the paper's construction as "
        "printed recognises the graph, with no less than D_K*, and none lies above the smallest construction that we "
        "know.",
        checks,
        ("bounds", "fig12"),
    )


def _power_text(evidence: Evidence) -> str:
    """The power of m' on the paper's degrees and on all, and how far the others lie from the line."""
    power, whole_power = degree_power(evidence), degree_power(evidence, all_degrees=True)
    if power is None:
        return "too few degrees for a power of m'"
    text = f"D_K* grows like m' to the power {num(power.slope)} (95 %: {interval_text(power.slope_interval())})"
    if whole_power is None or whole_power.points == power.points:
        return text
    rest = [
        f"r = {degree} lies {side} the line, × {num(factor)} of it"
        for degree, side, factor in beyond_line(evidence)
    ]
    return f"{text}, over all {whole_power.points} degrees {num(whole_power.slope)}: {listed(rest)}"


def _no_saving(points: Sequence[LinearPoint]) -> Check:
    """Whether several heads pass with less than one; the check is empty where nothing passes."""
    passed = [point for point in points if point.passes]
    saving = [(point.items, point.d_model) for point in passed if point.saves]
    empty = pairs_text((point.items, point.d_model) for point in points if not point.passes)
    rest = (
        ""
        if len(passed) == len(points)
        else f"nothing passes at {empty}, so thresholds say nothing there"
    )
    if not passed:
        return Check(None, rest)
    text = f"several heads pass with less at {len(saving)} of {counted(len(passed), 'point')}"
    text += f", {pairs_text(saving)}" if saving else ""
    return Check(not saving, f"{text}; {rest}" if rest else text)


def _printed(found: Sequence[Bracket]) -> Check:
    """Whether the paper's construction is exact at every point where it was tried."""
    tried = [point for point in found if point.tried]
    exact = [
        (point.name, point.printed / point.budget) for point in tried if point.printed is not None
    ]
    if not tried:
        return Check(None, "")
    text = f"the construction as printed is exact, in the d_k searched, at {len(exact)} of {counted(len(tried), 'point')}"
    if exact:
        text += f": {listed([f'{name} with × {num(factor)} of D_K*' for name, factor in exact])}"
    return Check(all(point.as_printed for point in tried), text)


def _smallest_construction(found: Sequence[Bracket]) -> Check:
    """Whether no threshold lies above the smallest construction known, ours or the paper's."""
    upper = [point for point in found if point.upper]
    under = [point.upper[0] / point.budget for point in upper if point.upper]
    if not upper:
        return Check(None, "")
    below, trivial = sum(point.below for point in upper), sum(point.one_each for point in upper)
    text = f"at or below the smallest construction that we know at {below} of {counted(len(upper), 'point')}"
    text += f", × {num(min(under))} to × {num(max(under))} of D_K*"
    text += f", at {trivial} the trivial one, one head an edge" if trivial else ""
    return Check(all(point.below for point in upper), text)


def _relaxed(wide: ValuePanel | None) -> Check:
    """The panel d_model = 32: one head is competitive, and several heads end lowest."""
    if wide is None:
        return Check(None, "d_model = 32 not measured")
    text = f"d_model = {wide.d_model}: {num(wide.gap)} times, lowest with {wide.best_text}"
    return Check(not wide.separated and wide.best_heads > 1, text)
