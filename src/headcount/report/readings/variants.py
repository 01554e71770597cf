"""What the other runs say: regular graphs, softmax, the value channel, the linear control, bounds, Table 1's widths."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from statistics import median

import pandas as pd

from headcount.analysis.fits import LineFit
from headcount.analysis.laws import regular_fit
from headcount.experiments.evidence import Evidence
from headcount.report.readings.frames import LEVEL, by_point, curves_on, fitted, pairs, passing, rows, value, whole
from headcount.report.readings.permutations import GRID_STEP, FewHeads, with_heads
from headcount.report.words import percent

APART = 1.25  # a quarter more error is a clear separation
LATE_GAIN = 0.1
EQUAL = 0.02  # in F1
PROPORTIONAL = (0.8, 1.2)  # a power that counts as 1
UNDER_MAX = ("base", "diagonal", "extreme", "regular")  # the grids of the max-over-heads model


def regular_line(evidence: Evidence, *, all_degrees: bool = False) -> LineFit | None:
    """D_K* against r·m log₂ m/d_model (Fig. 12), on the degrees of the paper's fit or on all measured."""
    table = passing(evidence, "regular")
    return fitted(regular_fit, table if all_degrees else table.loc[table["degree"].isin(whole("regular.degrees"))])


def degree_exponent(evidence: Evidence, column: str = "central") -> float | None:
    """The power of r with which D_K* (or `heads`, h*) grows from the least to the largest degree measured."""
    found = sorted(rows(passing(evidence, "regular"), "degree", column))
    if len(found) < 2 or found[0][0] == found[-1][0]:
        return None
    return log(found[-1][1] / found[0][1]) / log(found[-1][0] / found[0][0])


@dataclass(frozen=True)
class DegreeHeads:
    """h* of one degree beside m'/d_model."""

    degree: int
    heads: int
    low: int
    high: int
    target: float

    @property
    def factor(self) -> float:
        """How far h* lies from m'/d_model, at least 1."""
        return max(self.heads / self.target, self.target / self.heads)

    @property
    def nearest(self) -> float:
        """The same for the nearest end of h*'s interval; 1 where the interval holds the target."""
        return max(1.0, self.low / self.target, self.target / self.high)


def degree_heads(evidence: Evidence) -> list[DegreeHeads]:
    """h* of every degree measured (Fig. 13)."""
    table = passing(evidence, "regular").sort_values("degree")
    names = ("degree", "heads", "heads_low", "heads_high", "items", "d_model")
    return [
        DegreeHeads(degree, heads, low or heads, high or heads, degree * items / d_model)
        for degree, heads, low, high, items, d_model in rows(table, *names)
    ]


def plateaus(evidence: Evidence, degree: int) -> tuple[int, ...] | None:
    """Head counts below h* that do not pass though tested at D_K* and above; None where the degree was not swept."""
    swept = sorted(set(curves_on(evidence, "regular", degree=degree)["heads"]))
    found = [few for heads in swept for few in with_heads(evidence, "regular", int(heads)) if few.degree == degree]
    below = [few for few in found if few.heads < few.best_heads]
    return tuple(few.heads for few in below if few.fails) if found else None


@dataclass(frozen=True)
class SoftmaxPanel:
    """One point under softmax beside the same under max."""

    items: int
    d_model: int
    budget: int | None  # D_K* under softmax; None where no tested budget passes
    scanned: int
    under_max: int
    one_head: FewHeads | None

    @property
    def right(self) -> bool:
        """Whether softmax needs more than max; a panel that never passes was scanned further than that."""
        return (self.budget or self.scanned) > self.under_max

    @property
    def compressed(self) -> bool:
        """Whether the paper expects a multi-head advantage here."""
        return (self.items, self.d_model) not in pairs("softmax.exception")


def softmax_panels(evidence: Evidence) -> list[SoftmaxPanel]:
    """Every point measured under softmax and under max (Fig. 5)."""
    curves = curves_on(evidence, "softmax")
    under_max = {(m, d): budget for m, d, budget in rows(passing(evidence, "base"), "items", "d_model", "central")}
    passed = {(m, d): budget for m, d, budget in rows(passing(evidence, "softmax"), "items", "d_model", "central")}
    alone = {(few.items, few.d_model): few for few in with_heads(evidence, "softmax")}
    found = []
    for point, curve in by_point(curves):
        if point in under_max:
            largest = max(curve["budget"].tolist())
            found.append(SoftmaxPanel(*point, passed.get(point), largest, under_max[point], alone.get(point)))
    return found


@dataclass(frozen=True)
class ValuePanel:
    """Mean squared error at one d_model: by head count the lowest, with its interval's ends and its budget."""

    d_model: int
    lowest: dict[int, tuple[float, float, float, int]]
    late_gain: float | None  # share by which one head still improves over the upper half of its budgets
    low_budget_loss: int | None  # least budget at which one head beats 16; None where it never does

    @property
    def several(self) -> float:
        """The lowest error with 4 heads or more, the head counts that the paper names."""
        least = value("value.least-heads")
        return min(error for heads, (error, *_) in self.lowest.items() if heads >= least)

    @property
    def gap(self) -> float:
        """One head's lowest error over that of several heads."""
        return self.lowest[1][0] / self.several

    @property
    def separated(self) -> bool:
        """Whether one head's lowest error lies clearly above."""
        return self.gap >= APART

    @property
    def plateaus(self) -> bool | None:
        """Whether one head hardly improves over the upper half of its budgets; None with one budget there."""
        return None if self.late_gain is None else self.late_gain <= LATE_GAIN

    @property
    def least_heads(self) -> int | None:
        """The fewest heads whose lowest error is clearly below that of one head; None where there are none."""
        one = self.lowest[1][0]
        return min((heads for heads, (error, *_) in self.lowest.items() if one >= APART * error), default=None)

    @property
    def late_text(self) -> str:
        """How one head's error changes over the upper half of its budgets."""
        return f"it changes by {percent(1 - (self.late_gain or 0.0), 1)} over the upper half of its D_K"

    @property
    def best_heads(self) -> int:
        return min(self.lowest, key=lambda heads: self.lowest[heads][0])

    @property
    def tied_heads(self) -> tuple[int, ...]:
        """Head counts whose lowest error's interval meets that of the best."""
        _, low, high, _ = self.lowest[self.best_heads]
        return tuple(sorted(heads for heads, entry in self.lowest.items() if entry[1] <= high and entry[2] >= low))


def value_panel(evidence: Evidence, d_model: int) -> ValuePanel | None:
    """One panel of Fig. 6; None where one head or 4 heads and more were not measured."""
    curves = curves_on(evidence, "value", d_model=d_model)
    lowest = {}
    for heads, curve in curves.groupby("heads"):
        error, low, high, budget = next(rows(curve.nsmallest(1, "mean"), "mean", "low", "high", "budget"))
        ends = (error if low is None else low, error if high is None else high)
        lowest[int(heads)] = (error, *ends, budget)  # pyright: ignore[reportArgumentType]
    if 1 not in lowest or max(lowest) < value("value.least-heads"):
        return None
    one = curves.loc[curves["heads"] == 1].sort_values("budget")
    upper = one.loc[2 * one["budget"] >= one["budget"].max(), "mean"].tolist()
    gain = 1 - upper[-1] / upper[0] if len(upper) > 1 else None
    many = curves.loc[curves["heads"] == value("value.relaxed.fragmented"), ["budget", "mean"]]
    beaten = one.merge(many, on="budget", suffixes=("", "_many")).query("mean < mean_many")["budget"].min()
    return ValuePanel(d_model, lowest, gain, None if pd.isna(beaten) else int(beaten))


@dataclass(frozen=True)
class LinearPoint:
    """One point with scores summed over heads."""

    items: int
    d_model: int
    gaps: tuple[float, ...]  # mean F1 with several heads less that with one, at every budget tested with both
    one_head: int | None  # smallest passing budget
    several: int | None
    under_max: int | None

    @property
    def gap(self) -> float | None:
        """The median size of a gap."""
        return median(abs(gap) for gap in self.gaps) if self.gaps else None

    @property
    def equal(self) -> bool | None:
        """Whether several heads score as one does; None where no budget was tested with both."""
        return None if self.gap is None else self.gap <= EQUAL

    @property
    def saves(self) -> bool:
        """Whether several heads pass with less than one head needs, by more than a step of the budgets."""
        return self.several is not None and (self.one_head is None or self.one_head > GRID_STEP * self.several)


def linear_points(evidence: Evidence) -> list[LinearPoint]:
    """Every point of the linear control."""
    under_max = {(m, d): budget for m, d, budget in rows(passing(evidence, "base"), "items", "d_model", "central")}
    found = []
    for point, curve in by_point(curves_on(evidence, "linear")):
        single, many = curve.loc[curve["heads"] == 1], curve.loc[curve["heads"] > 1]
        both = many.merge(single[["budget", "mean"]], on="budget", suffixes=("", "_one"))
        gaps = tuple(float(gap) for gap in both["mean"] - both["mean_one"])
        found.append(LinearPoint(*point, gaps, _smallest(single), _smallest(many), under_max.get(point)))
    return found


@dataclass(frozen=True)
class Bracket:
    """A threshold between what must be paid and what suffices."""

    items: int
    d_model: int
    degree: int
    budget: int
    lower: tuple[int, str] | None  # the largest lower bound
    upper: tuple[int, str] | None  # the smallest construction

    @property
    def above(self) -> bool:
        return self.lower is None or self.lower[0] <= self.budget

    @property
    def below(self) -> bool:
        return self.upper is None or self.budget <= self.upper[0]

    @property
    def text(self) -> str:
        """The three numbers in their order, with the signs that hold."""
        parts = [f"{self.budget:,}"]
        if self.lower:
            parts.insert(0, f"{self.lower[0]:,} ({self.lower[1]}) {'≤' if self.above else '>'}")
        if self.upper:
            parts.append(f"{'≤' if self.below else '>'} {self.upper[0]:,} ({self.upper[1]})")
        return " ".join(parts)


def brackets(evidence: Evidence) -> list[Bracket]:
    """Every threshold under max that has a bound or a construction beside it."""
    if evidence.ceilings.empty:
        return []
    known = evidence.ceilings.dropna(subset=["budget"])
    budgets: dict[tuple[int, int, int], int] = {}
    for grid in UNDER_MAX:
        for *point, budget in rows(passing(evidence, grid), "items", "d_model", "degree", "central"):
            budgets.setdefault((point[0], point[1], point[2]), budget)
    found = []
    for (m, d, r), budget in sorted(budgets.items()):
        here = known.loc[(known["items"] == m) & (known["d_model"] == d) & (known["degree"] == r)]
        lower, upper = (
            [(int(amount), str(name)) for amount, name in rows(here.loc[here["kind"] == kind], "budget", "name")]
            for kind in ("lower bound", "construction")
        )
        if lower or upper:
            found.append(Bracket(m, d, r, budget, max(lower, default=None), min(upper, default=None)))
    return found


def _smallest(curve: pd.DataFrame) -> int | None:
    found = curve.loc[curve["mean"] >= LEVEL, "budget"].min()
    return None if pd.isna(found) else int(found)
