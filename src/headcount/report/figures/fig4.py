"""Figure 4: the diagonal m/d_model = 8, along which D_K* should grow like log m."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import log2
from statistics import fmean
from typing import Any

import pandas as pd

from headcount.paper import data as paper
from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged
from headcount.report.figures.comparison_rows import finding_row
from headcount.report.formatting import allowed_text, counted, listed, num, percent
from headcount.report.palette import INK
from headcount.report.readings.frames import least_seeds, passing, rows
from headcount.report.readings.paper_numbers import paper_value
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

LEVEL_SPREAD = rule("C9")["spread"]  # of D_K*/log m
HEADS_SPREAD = rule("C9")["heads_spread"]  # of h*: one step of the head counts
_BLUE = "#3a7ca5"


@dataclass(frozen=True)
class Diagonal:
    """The points with m/d_model = 8 in order of m."""

    items: tuple[int, ...]
    budgets: tuple[int, ...]
    heads: tuple[int, ...]
    ends: tuple[tuple[int | None, int | None], ...]  # optimistic and conservative D_K*

    @property
    def large(self) -> tuple[int, ...]:
        """Indices of the points from which the paper sees logarithmic growth, m ≥ 512."""
        return tuple(
            i for i, m in enumerate(self.items) if m >= paper_value("diagonal.logarithmic-from")
        )

    @property
    def coefficients(self) -> tuple[float, ...]:
        """D_K*/(λ log₂ m), which is level where D_K* grows like log m."""
        rate = paper_value("diagonal.compression")
        return tuple(
            budget / (rate * log2(m)) for m, budget in zip(self.items, self.budgets, strict=True)
        )

    @property
    def spread(self) -> float | None:
        """Largest coefficient over smallest for m ≥ 512; None with fewer than two points."""
        found = [self.coefficients[i] for i in self.large]
        return max(found) / min(found) if len(found) > 1 else None

    @property
    def growth(self) -> tuple[float, float] | None:
        """D_K* at the largest m over that at the smallest m ≥ 512, and the same of log m."""
        if len(self.large) < 2:
            return None
        first, last = self.large[0], self.large[-1]
        logarithm = log2(self.items[last]) / log2(self.items[first])
        return self.budgets[last] / self.budgets[first], logarithm

    @property
    def growth_interval(self) -> tuple[float, float] | None:
        """The least and the largest growth that the intervals of the two D_K* allow."""
        if len(self.large) < 2:
            return None
        low_first, high_first = self.ends[self.large[0]]
        low_last, high_last = self.ends[self.large[-1]]
        if low_first is None or high_first is None or low_last is None or high_last is None:
            return None
        return low_last / high_first, high_last / low_first

    @property
    def step_limits(self) -> str:
        """The training steps that Table 2 allows here; empty if all points have the same."""
        limits = [
            (paper.step_cutoff(m, m // int(paper_value("diagonal.compression"))), m)
            for m in self.items
        ]
        groups = [
            (steps, [m for _, m in group])
            for steps, group in groupby(limits, key=lambda limit: limit[0])
        ]
        if len(groups) < 2:
            return ""
        (first, small), *rest = groups
        later = [f"{steps:,} at {listed([f'{m:,}' for m in sizes])}" for steps, sizes in rest]
        return f"{first:,} steps up to m = {small[-1]:,}, {', '.join(later)}"

    @property
    def level(self) -> bool | None:
        """Whether h* stays within one step of the head counts, a factor 2; None with one point."""
        return max(self.heads) <= HEADS_SPREAD * min(self.heads) if len(self.heads) > 1 else None

    @property
    def above(self) -> tuple[int, int] | None:
        """How many points with m < 512 lie above the mean of the rest, and of how many."""
        small = [c for i, c in enumerate(self.coefficients) if i not in self.large]
        if not small or not self.large:
            return None
        trend = fmean(self.coefficients[i] for i in self.large)
        return sum(c > trend for c in small), len(small)


def diagonal(evidence: Evidence) -> Diagonal:
    """The diagonal's thresholds (Fig. 4)."""
    table = passing(evidence, "diagonal").sort_values("items")
    table = table.loc[table["items"] == paper_value("diagonal.compression") * table["d_model"]]
    names = ("items", "central", "heads", "optimistic", "conservative")
    found = list(rows(table, *names))
    columns = [tuple(row[i] for row in found) for i in range(3)]
    return Diagonal(columns[0], columns[1], columns[2], tuple((row[3], row[4]) for row in found))


def draw(evidence: Evidence) -> Any:
    """D_K* as a line (left axis) and h* as bars (right axis), along m/d_model = 8."""
    import altair as alt

    from headcount.report.drawing.style import ScaledAxis, log2_axis, require_rows, styled
    from headcount.report.drawing.threshold_marks import (
        arrow_note,
        budget_layers,
        largest_value,
        threshold_points,
    )

    compression: Any = paper.number("diagonal.compression").value
    frame = threshold_points(evidence, "diagonal", "base")
    frame = require_rows(
        frame.loc[frame["items"] == compression * frame["d_model"]], "thresholds of the diagonal"
    )
    items = sorted(set(frame["items"]))
    x = log2_axis(f"items m (d_model = m/{compression})", padding=40, values=items).x("items")
    y = ScaledAxis(
        "D_K* (line)",
        alt.Scale(domain=[0, 1.1 * largest_value(frame, "high")]),
        alt.Axis(orient="left"),
    )
    line = (
        alt.Chart().transform_filter("isValid(datum.central)").mark_line(strokeWidth=2, color=INK)
    )
    points = budget_layers(x, y, {"color": alt.value(INK), "shape": alt.value("circle")})
    over = alt.layer(line.encode(x=x, y=y.y("central")), *points)
    chart = alt.layer(_bars(frame, x), over, data=frame).resolve_scale(y="independent")
    subtitle = (
        "vertical lines: D_K* optimistic … conservative, and head counts indistinguishable from "
        "h* (App. A.2)"
    )
    title = f"The diagonal of compression λ = m/d_model = {compression}"
    return styled(
        chart.properties(width=560, height=340), frame, title, f"{subtitle}{arrow_note(frame)}"
    )


def _bars(frame: pd.DataFrame, x: Any) -> Any:
    """h* as bars with its interval, low enough to stay out of the way of a line."""
    import altair as alt

    from headcount.report.drawing.style import ScaledAxis
    from headcount.report.drawing.threshold_marks import largest_value, threshold_tooltips

    axis = alt.Axis(
        orient="right", grid=False, titleColor=_BLUE, labelColor=_BLUE, tickCount=6, tickMinStep=1
    )
    y = ScaledAxis(
        "heads h* (bars)", alt.Scale(domain=[0, 2 * largest_value(frame, "heads_high", 1)]), axis
    )
    base = alt.Chart().transform_filter("isValid(datum.heads)").encode(x=x)
    bars = base.mark_bar(size=36, color="#a9d3ef").encode(
        y=y.y("heads"), tooltip=threshold_tooltips()
    )
    ranges = base.mark_rule(strokeWidth=1.5, color=_BLUE)
    return alt.layer(bars, ranges.encode(y=y.y("heads_low"), y2="heads_high:Q"))


def log_growth(evidence: Evidence) -> Claim:
    """C9: judged by D_K*/log m for m ≥ 512 and by h* on the whole diagonal."""
    found = diagonal(evidence)
    checks = [Check(None, "")]
    if found.spread is not None and found.growth is not None:
        ours, logarithm = found.growth
        text = (
            f"from m = {found.items[found.large[0]]:,} to {found.items[-1]:,} D_K* grows × "
            f"{num(ours)} ({allowed_text(found.growth_interval)}), log m × {num(logarithm)} "
            f"({counted(len(found.large), 'point')}; D_K*/log m varies × {num(found.spread)})"
        )
        pace = 1 / LEVEL_SPREAD <= ours / logarithm <= LEVEL_SPREAD
        checks = [Check(ours > 1 and pace, text), Check(found.spread <= LEVEL_SPREAD, "")]
    heads = (
        f"h* {min(found.heads)} to {max(found.heads)} over {counted(len(found.heads), 'point')}"
        if found.heads
        else ""
    )
    if found.heads and found.step_limits:
        heads += (
            f"; Table 2 allows {found.step_limits}, so the points differ in training too, and "
            "with equal steps our D_K* grew faster than log m (docs/deviations.md, 22)"
        )
    checks.append(Check(found.level, heads))
    measured = {"points": len(found.large), "seeds": least_seeds(passing(evidence, "diagonal"))}
    brief = ""
    if found.growth is not None:
        ours, logarithm = found.growth
        brief = f"× {num(ours)} against × {num(logarithm)} for log m; h* {min(found.heads)} to "
        brief += f"{max(found.heads)}"
    return judged("C9", checks, measured, brief)


def compare(evidence: Evidence) -> list[Comparison]:
    """The growth of D_K* along the diagonal, and whether h* stays level."""
    found, compared = diagonal(evidence), []
    if found.growth is not None:
        ours, logarithm = found.growth
        first, last = found.items[found.large[0]], found.items[found.large[-1]]
        points = counted(len(found.large), "point")
        steps_allowed = f"; Table 2: {found.step_limits}" if found.step_limits else ""
        compared.append(
            Comparison(
                what=f"growth of D_K* from m = {first:,} to {last:,}; the paper's is that of log m",
                paper=f"× {num(logarithm)}",
                ours=(
                    f"× {num(ours)} ({allowed_text(found.growth_interval)}; "
                    f"{points}{steps_allowed})"
                ),
                difference=percent(ours, logarithm),
                overlap=None,
                place=paper.number("diagonal.logarithmic-from").place,
            )
        )
    if found.above is not None:
        above, small = found.above
        compared.append(
            finding_row("diagonal.first-two", above == small, f"{above} of {small} lie above")
        )
    if found.level is not None:
        text = (
            f"h* {', '.join(str(h) for h in found.heads)} at m = "
            f"{', '.join(str(m) for m in found.items)}"
        )
        compared.append(finding_row("diagonal.heads", found.level, text))
    return compared


def meaning(evidence: Evidence) -> str:
    """Whether D_K* grows like log m."""
    found = diagonal(evidence)
    if found.growth is None:
        return UNMEASURED
    ours, logarithm = found.growth
    first, last = found.items[found.large[0]], found.items[-1]
    heads = (
        f"h* lies between {min(found.heads)} and {max(found.heads)} over "
        f"{counted(len(found.heads), 'point')}"
    )
    level = ", level as the paper expects" if found.level else ", less level than the paper expects"
    training = ""
    if found.step_limits:
        training = (
            f", but Table 2 allows {found.step_limits}, and with equal steps our D_K* grew faster "
            "than log m (docs/deviations.md, 22)"
        )
    return (
        f"From m = {first:,} to {last:,} D_K* grows × {num(ours)} "
        f"({allowed_text(found.growth_interval)}), {_pace(found)} (× {num(logarithm)}){training}. "
        f"{heads}{level}."
    )


def _pace(found: Diagonal) -> str:
    """How D_K* grows compared with log m, by the range that its intervals allow.

    Without such a range, by the factor of the claim.
    """
    assert found.growth is not None
    ours, logarithm = found.growth
    low, high = found.growth_interval or (ours / LEVEL_SPREAD, ours * LEVEL_SPREAD)
    if low > logarithm:
        return "faster than log m"
    return "slower than log m" if high < logarithm else "like log m"


FIGURE = Figure(
    id="fig4",
    title="Figure 4. The diagonal m/d_model = 8",
    grids=("diagonal",),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(log_growth,),
)
