"""Points of a grid seen with one head count alone: what it needs, or how far it gets."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from headcount.report.readings.frames import PERMUTATIONS, curves_on, passing, rows
from headcount.report.readings.paper_numbers import LEVEL
from headcount.report.rules import shared_number
from headcount.reproduction.evidence import Evidence

# budgets are tested in steps of 10 %, so smaller differences mean nothing
GRID_STEP = 1 + shared_number("grid_step")


Curves = dict[int, dict[int, tuple[float, int]]]  # by heads and budget: mean F1 and seeds


@dataclass(frozen=True)
class FewHeads:
    """A point seen with one head count alone: `alone` is the smallest budget that passes with it.

    Only where it was tested at D_K* or above, so that an `alone` of None means that it fails where
    other head counts pass.
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
    seeds: int
    behind: tuple[int, ...]  # head counts with a lower F1 at about the D_K of its best F1

    @property
    def fails(self) -> bool:
        return self.alone is None

    @property
    def factor(self) -> float:
        """How much more budget it needs than D_K*; infinite where it fails."""
        return inf if self.alone is None else self.alone / self.budget

    @property
    def lower_limit(self) -> float:
        """The largest tested budget over D_K*: where it fails, `factor` would be more than this."""
        return self.scanned / self.budget

    @property
    def worse(self) -> bool:
        """Whether it needs more than D_K* by more than a step of the budgets."""
        return self.factor > GRID_STEP


def one_head_everywhere(evidence: Evidence) -> list[FewHeads]:
    """One head at every point of the permutations under max, each point once."""
    found = {
        (few.items, few.d_model): few
        for grid in reversed(PERMUTATIONS)
        for few in with_heads(evidence, grid)
    }
    return [found[point] for point in sorted(found)]


def with_heads(evidence: Evidence, grid: str, heads: int = 1) -> list[FewHeads]:
    """Every point of a grid with this head count alone, in order."""
    point = ("items", "d_model", "degree")
    tested: dict[tuple[int, int, int], Curves] = {}
    names = ("heads", "budget", "mean", "runs")
    for m, d, r, count, budget, mean, seeds in rows(curves_on(evidence, grid), *point, *names):
        tested.setdefault((m, d, r), {}).setdefault(count, {})[budget] = (mean, seeds)
    found = []
    for m, d, r, budget, best_heads in rows(passing(evidence, grid), *point, "central", "heads"):
        curves = tested.get((m, d, r), {})
        curve = curves.get(heads, {})
        alone = min((tried for tried, (mean, _) in curve.items() if mean >= LEVEL), default=None)
        scanned = max(curve, default=0)
        if scanned >= budget or alone is not None:
            best, at = max((mean, tried) for tried, (mean, _) in curve.items())
            seeds = min(count for _, count in curve.values())
            few = FewHeads(
                *(m, d, r, heads, alone, best, scanned, budget, best_heads, seeds),
                behind=_behind(curves, best, at, heads),
            )
            found.append(few)
    return found


def _behind(curves: Curves, best: float, at: int, heads: int) -> tuple[int, ...]:
    """The larger head counts whose F1 is lower at the budget nearest to `at`, if within a step."""
    lower = []
    for count, curve in sorted(curves.items()):
        nearest = min(curve, key=lambda tried: abs(tried - at))
        if count > heads and 1 / GRID_STEP <= nearest / at <= GRID_STEP:
            lower += [count] if curve[nearest][0] < best else []
    return tuple(lower)
