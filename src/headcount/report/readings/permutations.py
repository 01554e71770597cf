"""What the permutation runs say (Figs. 1–3, 8–10), and how fast F1 rises.

A reading leaves out what was not measured: no list entry, or None. `evidence` may hold fewer points than the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from statistics import median

import pandas as pd

from headcount.analysis.fits import LineFit
from headcount.analysis.laws import budget_fit, heads_fit
from headcount.report.readings.frames import LEVEL, curves_on, fitted, passing, rows
from headcount.report.words import num
from headcount.reproduction.evidence import Evidence

GRID_STEP = 1.1  # budgets are tested in steps of 10 %, so less is not told apart
HIGH, HALF = 0.9, 0.5  # mean F1 at which the rise to 0.99 begins, by two readings
NARROW = 2.0  # a rise is sharp where D_K at most doubles
LEAST_BUDGETS = 4  # of a curve that shows a window


def budget_line(evidence: Evidence, *, wide: bool = False, base: bool = False) -> LineFit | None:
    """D_K* against m log₂ m/d_model (Fig. 3), on the base grid alone if asked."""
    return fitted(budget_fit, _law_points(evidence, base), wide=wide)


def heads_line(evidence: Evidence, *, base: bool = False) -> LineFit | None:
    """h* against m/d_model (Fig. 10), on the base grid alone if asked."""
    return fitted(heads_fit, _law_points(evidence, base))


def _law_points(evidence: Evidence, base: bool) -> pd.DataFrame:
    return passing(evidence, "base") if base else evidence.law_points()


@dataclass(frozen=True)
class FewHeads:
    """A point seen with one head count alone: `alone` is the smallest budget that passes with it.

    Only where it was tested at D_K* or above, so that `alone` None means that it fails where other counts pass.
    """

    items: int
    d_model: int
    degree: int
    heads: int
    alone: int | None
    best: float  # largest mean F1
    scanned: int  # largest budget
    budget: int  # D_K* of the point
    best_heads: int  # h*

    @property
    def fails(self) -> bool:
        return self.alone is None

    @property
    def factor(self) -> float:
        """How much more budget it needs than D_K*; infinite where it fails."""
        return inf if self.alone is None else self.alone / self.budget

    @property
    def worse(self) -> bool:
        """Whether it needs more than D_K* by more than a step of the budgets."""
        return self.factor > GRID_STEP


def with_heads(evidence: Evidence, grid: str, heads: int = 1) -> list[FewHeads]:
    """Every point of a grid with this head count alone, in order."""
    point = ("items", "d_model", "degree")
    tested: dict[tuple[int, int, int], list[tuple[int, float]]] = {}
    for m, d, r, budget, mean in rows(
        curves_on(evidence, grid, heads=heads), *point, "budget", "mean"
    ):
        tested.setdefault((m, d, r), []).append((budget, mean))
    found = []
    for m, d, r, budget, best_heads in rows(passing(evidence, grid), *point, "central", "heads"):
        curve = tested.get((m, d, r), [])
        alone = min((tried for tried, mean in curve if mean >= LEVEL), default=None)
        scanned = max((tried for tried, _ in curve), default=0)
        if scanned >= budget or alone is not None:
            best = max(mean for _, mean in curve)
            found.append(FewHeads(m, d, r, heads, alone, best, scanned, budget, best_heads))
    return found


@dataclass(frozen=True)
class Window:
    """How fast one head count rises to 0.99: the passing budget over the last budget below 0.9 and below 0.5."""

    items: int
    d_model: int
    degree: int
    heads: int
    from_high: float | None
    from_half: float | None  # None where every smaller budget tested is above


def windows(evidence: Evidence, grids: Sequence[str] = ("base", "regular")) -> list[Window]:
    """The windows of these grids, for head counts that pass; permutations count once, on the base grid."""
    curves: dict[tuple[int, int, int, int], list[tuple[int, float]]] = {}
    for grid in grids:
        names = ("items", "d_model", "degree", "heads", "budget", "mean")
        for m, d, r, heads, budget, mean in rows(curves_on(evidence, grid), *names):
            if grid == "base" or r > 1:
                curves.setdefault((m, d, r, heads), []).append((budget, mean))
    return [_window(key, curve) for key, curve in sorted(curves.items()) if _shows_window(curve)]


def _shows_window(curve: list[tuple[int, float]]) -> bool:
    """Whether it passes, with enough budgets to see where."""
    return len(curve) >= LEAST_BUDGETS and any(mean >= LEVEL for _, mean in curve)


def _window(key: tuple[int, int, int, int], curve: list[tuple[int, float]]) -> Window:
    passed = min(budget for budget, mean in curve if mean >= LEVEL)
    below = [(budget, mean) for budget, mean in curve if budget < passed]
    last = [
        max((budget for budget, mean in below if mean < level), default=None)
        for level in (HIGH, HALF)
    ]
    high, half = (None if budget is None else passed / budget for budget in last)
    return Window(*key, high, half)


@dataclass(frozen=True)
class Rise:
    """The windows of all curves together: upper bounds, since they end at tested budgets."""

    curves: int
    top: float  # median factor of D_K from the last F1 below 0.9 to 0.99
    most: float  # the factor that nine in ten curves keep
    whole: float | None  # median factor from the last F1 below 0.5
    whole_curves: int

    @property
    def narrow_top(self) -> bool:
        return self.top <= NARROW

    @property
    def narrow_whole(self) -> bool | None:
        return None if self.whole is None else self.whole <= NARROW

    @property
    def text(self) -> str:
        """What the factors are, with the number of curves."""
        top = f"F1 goes from 0.9 to 0.99 while D_K grows at most × {num(self.top)} (median of {self.curves} curves; "
        top += f"nine in ten at most × {num(self.most)})"
        whole = (
            ""
            if self.whole is None
            else f", and at most × {num(self.whole)} from 0.5 (median of {self.whole_curves})"
        )
        return f"{top}{whole}, counted from the last tested D_K below that F1"


def rise(evidence: Evidence, grids: Sequence[str] = ("base", "regular")) -> Rise | None:
    """How narrow the windows are; None where no curve shows one."""
    found = windows(evidence, grids)
    top = [window.from_high for window in found if window.from_high is not None]
    whole_rise = [window.from_half for window in found if window.from_half is not None]
    if not top:
        return None
    most = float(pd.Series(top).quantile(0.9))
    return Rise(
        len(top), median(top), most, median(whole_rise) if whole_rise else None, len(whole_rise)
    )


@dataclass(frozen=True)
class Steps:
    """Of neighbouring points, how many go up, stay level and go down."""

    up: int
    level: int
    down: int

    @property
    def all(self) -> int:
        return self.up + self.level + self.down


def steps(table: pd.DataFrame, column: str, along: str) -> Steps:
    """Compare neighbours along `items` at the same d_model, or along `d_model` at the same m."""
    across = "d_model" if along == "items" else "items"
    changes = [
        after - before
        for _, line in table.sort_values(along).groupby(across)
        for before, after in pairwise(int(entry) for entry in line[column])
    ]
    return Steps(
        sum(c > 0 for c in changes), sum(c == 0 for c in changes), sum(c < 0 for c in changes)
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation; None where a side does not vary."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return float(pd.Series(first).rank().corr(pd.Series(second).rank()))
