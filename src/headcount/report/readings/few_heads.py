"""Points of a grid seen with one head count alone: what it needs, or how far it gets."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from headcount.report.readings.frames import curves_on, passing, rows
from headcount.report.readings.paper_numbers import LEVEL
from headcount.reproduction.evidence import Evidence

GRID_STEP = 1.1  # budgets are tested in steps of 10 %, so smaller differences mean nothing


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
