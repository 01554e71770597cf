"""What the other runs say: regular graphs, softmax, the value channel, the linear control, bounds, Table 1's widths."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np
import pandas as pd

from headcount.analysis.fits import LineFit, fit_line
from headcount.analysis.laws import feature, regular_fit
from headcount.report.readings.frames import (
    LEVEL,
    by_point,
    curves_on,
    fitted,
    pairs,
    passing,
    rows,
    value,
    whole,
)
from headcount.report.readings.permutations import GRID_STEP, FewHeads, with_heads
from headcount.report.words import counted, listed, percent
from headcount.reproduction.evidence import Evidence

APART = 1.25  # a quarter more error is a clear separation
LATE_GAIN = 0.1
EQUAL = 0.02  # in F1
PROPORTIONAL = (0.8, 1.2)  # a power that counts as 1
PRINTED = "as printed"  # the name of the paper's own construction
UNDER_MAX = ("base", "diagonal", "extreme", "regular")  # the grids of the max-over-heads model


def regular_line(evidence: Evidence, *, all_degrees: bool = False) -> LineFit | None:
    """D_K* against r·m log₂ m/d_model (Fig. 12), on the degrees of the paper's fit or on all measured."""
    return fitted(regular_fit, _degrees(evidence, all_degrees))


def degree_power(
    evidence: Evidence, column: str = "central", *, all_degrees: bool = False
) -> LineFit | None:
    """The line of log D_K* (or of log h*, `heads`) against log r: its slope is the power of r."""
    return fitted(_log_fit, _degrees(evidence, all_degrees), column=column)


def is_proportional(power: LineFit) -> bool:
    """Whether a power counts as 1."""
    return PROPORTIONAL[0] <= power.slope <= PROPORTIONAL[1]


def beyond_line(evidence: Evidence) -> list[tuple[int, str, float]]:
    """Degrees that the paper's fit leaves out: below or above our fit without them, and D_K* over what it says."""
    line, table = regular_line(evidence), passing(evidence, "regular")
    table = table.loc[~table["degree"].isin(whole("regular.degrees"))]
    if line is None or table.empty:
        return []
    expected = [line(x) for x in feature(table, "edges·log2(items)/d_model")]
    return [
        (degree, "below" if budget < height else "above", budget / height)
        for (degree, budget), height in zip(rows(table, "degree", "central"), expected, strict=True)
    ]


def _degrees(evidence: Evidence, all_degrees: bool) -> pd.DataFrame:
    table = passing(evidence, "regular")
    return table if all_degrees else table.loc[table["degree"].isin(whole("regular.degrees"))]


def _log_fit(table: pd.DataFrame, column: str) -> LineFit:
    degrees, found = (np.log(table[name].to_numpy(dtype=float)) for name in ("degree", column))
    return fit_line(degrees, found)


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
    found = [
        few
        for heads in swept
        for few in with_heads(evidence, "regular", int(heads))
        if few.degree == degree
    ]
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
    under_max = {
        (m, d): budget
        for m, d, budget in rows(passing(evidence, "base"), "items", "d_model", "central")
    }
    passed = {
        (m, d): budget
        for m, d, budget in rows(passing(evidence, "softmax"), "items", "d_model", "central")
    }
    alone = {(few.items, few.d_model): few for few in with_heads(evidence, "softmax")}
    found = []
    for point, curve in by_point(curves):
        if point in under_max:
            largest = max(curve["budget"].tolist())
            found.append(
                SoftmaxPanel(*point, passed.get(point), largest, under_max[point], alone.get(point))
            )
    return found


@dataclass(frozen=True)
class ValuePanel:
    """Mean squared error at one d_model: by head count the lowest, with its interval's ends and its budget."""

    d_model: int
    lowest: dict[int, tuple[float, float, float, int]]
    late_gain: (
        float | None
    )  # share by which one head still improves over the upper half of its budgets
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
        return min(
            (heads for heads, (error, *_) in self.lowest.items() if one >= APART * error),
            default=None,
        )

    @property
    def late_text(self) -> str:
        """How one head's error changes over the upper half of its budgets."""
        return f"it changes by {percent(1 - (self.late_gain or 0.0), 1)} over the upper half of its D_K"

    @property
    def best_heads(self) -> int:
        return min(self.lowest, key=lambda heads: self.lowest[heads][0])

    @property
    def best_text(self) -> str:
        """The best head count and those that tie with it: "2 heads, tied with 4 and 8"."""
        tied = [str(heads) for heads in self.tied_heads if heads != self.best_heads]
        return counted(self.best_heads, "head") + (f", tied with {listed(tied)}" if tied else "")

    @property
    def paper_heads(self) -> tuple[int, ...]:
        """Of the head counts that the paper finds best, those that are best or tied here."""
        return tuple(
            heads for heads in whole("value.relaxed.best-heads") if heads in self.tied_heads
        )

    @property
    def tied_heads(self) -> tuple[int, ...]:
        """Head counts whose lowest error's interval meets that of the best."""
        _, low, high, _ = self.lowest[self.best_heads]
        return tuple(
            sorted(
                heads
                for heads, entry in self.lowest.items()
                if entry[1] <= high and entry[2] >= low
            )
        )


def value_panel(evidence: Evidence, d_model: int) -> ValuePanel | None:
    """One panel of Fig. 6; None where one head or 4 heads and more were not measured."""
    curves = curves_on(evidence, "value", d_model=d_model)
    lowest = {}
    for heads, curve in curves.groupby("heads"):
        error, low, high, budget = next(
            rows(curve.nsmallest(1, "mean"), "mean", "low", "high", "budget")
        )
        ends = (error if low is None else low, error if high is None else high)
        lowest[int(heads)] = (error, *ends, budget)  # pyright: ignore[reportArgumentType]
    if 1 not in lowest or max(lowest) < value("value.least-heads"):
        return None
    one = curves.loc[curves["heads"] == 1].sort_values("budget")
    upper = one.loc[2 * one["budget"] >= one["budget"].max(), "mean"].tolist()
    gain = 1 - upper[-1] / upper[0] if len(upper) > 1 else None
    many = curves.loc[curves["heads"] == value("value.relaxed.fragmented"), ["budget", "mean"]]
    beaten = (
        one.merge(many, on="budget", suffixes=("", "_many"))
        .query("mean < mean_many")["budget"]
        .min()
    )
    return ValuePanel(d_model, lowest, gain, None if pd.isna(beaten) else int(beaten))


@dataclass(frozen=True)
class LinearPoint:
    """One point with scores summed over heads."""

    items: int
    d_model: int
    gaps: tuple[
        float, ...
    ]  # mean F1 with several heads less that with one, at every budget tested with both
    one_head: int | None  # smallest passing budget
    several: int | None
    under_max: int | None

    @property
    def gap(self) -> float | None:
        """The median size of a gap."""
        return median(abs(gap) for gap in self.gaps) if self.gaps else None

    @property
    def largest(self) -> float:
        """The largest size of a gap."""
        return max((abs(gap) for gap in self.gaps), default=0.0)

    @property
    def passes(self) -> bool:
        """Whether some budget passes, so that thresholds can be compared."""
        return self.one_head is not None or self.several is not None

    @property
    def equal(self) -> bool | None:
        """Whether several heads score as one does; None where no budget was tested with both."""
        return None if self.gap is None else self.gap <= EQUAL

    @property
    def saves(self) -> bool:
        """Whether several heads pass with less than one head needs, by more than a step of the budgets."""
        return self.several is not None and (
            self.one_head is None or self.one_head > GRID_STEP * self.several
        )


def linear_points(evidence: Evidence) -> list[LinearPoint]:
    """Every point of the linear control."""
    under_max = {
        (m, d): budget
        for m, d, budget in rows(passing(evidence, "base"), "items", "d_model", "central")
    }
    found = []
    for point, curve in by_point(curves_on(evidence, "linear")):
        single, many = curve.loc[curve["heads"] == 1], curve.loc[curve["heads"] > 1]
        both = many.merge(single[["budget", "mean"]], on="budget", suffixes=("", "_one"))
        gaps = tuple(float(gap) for gap in both["mean"] - both["mean_one"])
        found.append(
            LinearPoint(*point, gaps, _smallest(single), _smallest(many), under_max.get(point))
        )
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
    tried: bool  # whether the construction as printed in the paper was
    printed: int | None  # its D_K; None where it recognises the graph at none that was tried
    one_each: bool  # whether the smallest construction is one head of width 1 an edge, which every graph has

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
            name = f"{self.upper[1]}, one head an edge" if self.one_each else self.upper[1]
            parts.append(f"{'≤' if self.below else '>'} {self.upper[0]:,} ({name})")
        own = (
            f"; as printed: {'not exact' if self.printed is None else f'{self.printed:,}'}"
            if self.tried
            else ""
        )
        return f"{' '.join(parts)}{own}"

    @property
    def as_printed(self) -> bool:
        """Whether the construction as printed recognises the graph, with no less than the trained budget."""
        return self.printed is not None and self.budget <= self.printed

    @property
    def name(self) -> str:
        return f"({self.items}, {self.d_model})" + (
            f", r = {self.degree}" if self.degree > 1 else ""
        )


def brackets(evidence: Evidence) -> list[Bracket]:
    """Every threshold under max that has a bound or a construction beside it."""
    if evidence.ceilings.empty:
        return []
    budgets: dict[tuple[int, int, int], int] = {}
    for grid in UNDER_MAX:
        for *point, budget in rows(
            passing(evidence, grid), "items", "d_model", "degree", "central"
        ):
            budgets.setdefault((point[0], point[1], point[2]), budget)
    found = []
    for (m, d, r), budget in sorted(budgets.items()):
        table = evidence.ceilings
        here = table.loc[(table["items"] == m) & (table["d_model"] == d) & (table["degree"] == r)]
        known = here.dropna(subset=["budget"])
        lower, upper = (
            known.loc[known["kind"] == kind].sort_values(["budget", "name"])
            for kind in ("lower bound", "construction")
        )
        if len(known):
            largest = next(rows(lower.tail(1), "budget", "name"), None)
            smallest = next(rows(upper, "budget", "name"), None)
            trivial = next(rows(upper, "heads", "key_dim"), None) == (m * r, 1)
            printed = next(rows(upper.loc[upper["name"] == PRINTED], "budget"), (None,))[0]
            tried = PRINTED in set(here["name"])
            found.append(Bracket(m, d, r, budget, largest, smallest, tried, printed, trivial))
    return found


def _smallest(curve: pd.DataFrame) -> int | None:
    found = curve.loc[curve["mean"] >= LEVEL, "budget"].min()
    return None if pd.isna(found) else int(found)
