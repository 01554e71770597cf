"""What the diagonal m/d_model = 8 says (Fig. 4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import log2
from statistics import fmean

from headcount.paper import data as paper
from headcount.report.readings.frames import passing, rows, value
from headcount.report.words import listed
from headcount.reproduction.evidence import Evidence


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
        return tuple(i for i, m in enumerate(self.items) if m >= value("diagonal.logarithmic-from"))

    @property
    def coefficients(self) -> tuple[float, ...]:
        """D_K*/(λ log₂ m), which is level where D_K* grows like log m."""
        rate = value("diagonal.compression")
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
        return self.budgets[last] / self.budgets[first], log2(self.items[last]) / log2(
            self.items[first]
        )

    @property
    def growth_interval(self) -> tuple[float, float] | None:
        """The least and the largest growth that the intervals of the two D_K* allow."""
        if len(self.large) < 2:
            return None
        (low_first, high_first), (low_last, high_last) = (
            self.ends[self.large[0]],
            self.ends[self.large[-1]],
        )
        if low_first is None or high_first is None or low_last is None or high_last is None:
            return None
        return low_last / high_first, high_last / low_first

    @property
    def step_limits(self) -> str:
        """The training steps that Table 2 allows at these points; empty where all are allowed the same."""
        limits = [
            (paper.step_cutoff(m, m // int(value("diagonal.compression"))), m) for m in self.items
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
        """Whether h* stays within one step of the swept head counts, which double; None with one point."""
        return max(self.heads) <= 2 * min(self.heads) if len(self.heads) > 1 else None

    @property
    def above(self) -> tuple[int, int] | None:
        """Of the points with m < 512, how many lie above the mean coefficient of the rest; and how many there are."""
        small = [c for i, c in enumerate(self.coefficients) if i not in self.large]
        if not small or not self.large:
            return None
        trend = fmean(self.coefficients[i] for i in self.large)
        return sum(c > trend for c in small), len(small)


def diagonal(evidence: Evidence) -> Diagonal:
    """The diagonal's thresholds (Fig. 4)."""
    table = passing(evidence, "diagonal").sort_values("items")
    table = table.loc[table["items"] == value("diagonal.compression") * table["d_model"]]
    names = ("items", "central", "heads", "optimistic", "conservative")
    found = list(rows(table, *names))
    columns = [tuple(row[i] for row in found) for i in range(3)]
    return Diagonal(columns[0], columns[1], columns[2], tuple((row[3], row[4]) for row in found))
