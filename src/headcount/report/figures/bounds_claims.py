"""Claims on lower bounds and constructions beside trained thresholds: C12, C21 and C24."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log2

from headcount.analysis.fits import fit_line
from headcount.report.figures.base import Check, Claim, judged
from headcount.report.formatting import counted, listed, num, span_text
from headcount.report.readings.brackets import UNDER_MAX, Bracket, brackets
from headcount.report.readings.frames import least_seeds, passing, rows
from headcount.report.readings.paper_numbers import paper_value
from headcount.report.readings.regular_graphs import degree_power
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence
from headcount.theory.counting import log2_graphs

SLIGHTLY = rule("C24")["slightly"]  # a construction within this factor of D_K* is slightly above


def between_bounds(evidence: Evidence) -> Claim:
    """C12: judged at every threshold that has a bound or a construction beside it."""
    found = brackets(evidence)
    lower = [point for point in found if point.lower]
    if not lower:
        return judged("C12", [Check(None, "")])
    over = [point.budget / point.lower[0] for point in lower if point.lower]
    above = sum(point.above for point in lower)
    text = f"at or above the lower bound at {above} of {counted(len(lower), 'point')}"
    exact = [point for point in found if point.upper and not point.one_each]
    checks = [
        Check(
            all(point.above for point in lower),
            f"{text}, by a factor of {num(min(over))} to {num(max(over))}",
        ),
        _below(exact),
        Check(True, _left_out(found)),
    ]
    # Our own construction says nothing about the paper's, so it cannot make the claim "confirmed".
    printed = [point for point in exact if point.printed is not None]
    measured = {"points": len(printed), "seeds": _seeds(evidence)}
    below = sum(point.below for point in exact)
    brief = f"above the bounds at {above} of {counted(len(lower), 'point')}, below a construction "
    brief += f"at {below} of the {len(exact)} where one is exact: as printed at {len(printed)}, "
    brief += "with our pseudo-inverse alone at the others"
    return judged("C12", checks, measured, brief)


def _below(exact: Sequence[Bracket]) -> Check:
    """Whether no threshold lies above the smallest construction that is not the trivial one."""
    under = [point.upper[0] / point.budget for point in exact if point.upper]
    if not under:
        return Check(None, "no construction other than one head per edge is exact")
    below = sum(point.below for point in exact)
    text = f"at or below the smallest construction at {below} of the "
    text += f"{counted(len(exact), 'point')} where one other than a head per edge is exact, "
    return Check(below == len(exact), f"{text}which needs {span_text(under)} D_K*")


def _left_out(found: Sequence[Bracket]) -> str:
    """The points that do not count, and where the construction as printed is exact."""
    trivial = sum(point.one_each for point in found)
    tried = [point for point in found if point.tried]
    printed = [point.name for point in tried if point.printed is not None]
    parts = [f"at {trivial} only a head per edge is exact"] if trivial else []
    if tried:
        where = f", {listed(printed)}" if printed else ""
        text = f"as printed it is exact at {len(printed)} of {counted(len(tried), 'point')}{where}"
        parts.append(f"{text} (in the d_k searched)")
    return "; ".join(parts)


def _seeds(evidence: Evidence) -> int:
    return min(least_seeds(table) for grid in UNDER_MAX if len(table := passing(evidence, grid)))


def below_constructions(evidence: Evidence) -> Claim:
    """C24: judged at the degree that the paper names."""
    degree = int(paper_value("regular.below-construction"))
    found = [point for point in brackets(evidence) if point.degree == degree]
    exact = [point for point in found if point.upper and not point.one_each]
    if not found or not exact:
        none = f"no construction other than a head per edge is exact at r = {degree}"
        needs = [
            f"{none}; that one needs {num(point.upper[0] / point.budget)} times D_K*"
            for point in found
            if point.upper
        ]
        text = needs[0] if needs else none if found else ""
        return judged("C24", [Check(None, text)], brief=none if found else "")
    factor = max(point.upper[0] / point.budget for point in exact if point.upper)
    text = f"the smallest construction needs {num(factor)} times D_K* at r = {degree}"
    checks = [Check(factor >= 1, text), Check(factor <= SLIGHTLY, "")]
    seeds = least_seeds(evidence.on("regular", "thresholds", degree=degree))
    return judged("C24", checks, {"seeds": seeds}, text)


def gap_by_degree(evidence: Evidence) -> Claim:
    """C21: judged by the forms of both bounds at the degrees that were trained."""
    table = passing(evidence, "regular").sort_values("degree")
    power = degree_power(evidence, all_degrees=True)
    if power is None or len(table) < 2:
        return judged("C21", [Check(None, "")])
    sizes = list(rows(table, "degree", "items"))
    upper = [degree * items * log2(items) for degree, items in sizes]
    lower = [log2_graphs(items, degree * items, family="graph") for degree, items in sizes]
    ratios = [high / low for high, low in zip(upper, lower, strict=True)]
    degrees = [log2(degree) for degree, _ in sizes]
    above, below = (
        fit_line(degrees, [log2(value) for value in form]).slope for form in (upper, lower)
    )
    gap = f"the ratio of the two forms grows × {num(ratios[-1] / ratios[0])} from r = "
    gap += f"{sizes[0][0]} to {sizes[-1][0]}"
    grows = f"D_K* grows like r to the power {num(power.slope)}, the lower bound {num(below)}, "
    checks = [
        Check(all(after > before for before, after in pairwise(ratios)), gap),
        Check(
            abs(power.slope - below) < abs(power.slope - above),
            f"{grows}the construction {num(above)}",
        ),
    ]
    measured = {"degrees": len(table), "seeds": least_seeds(table)}
    brief = f"{gap}; {grows}the construction {num(above)}"
    return judged("C21", checks, measured, brief)
