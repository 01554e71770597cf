"""Trained thresholds between the largest lower bound and the smallest construction."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from headcount.report.readings.frames import passing, rows
from headcount.reproduction.evidence import Evidence

PRINTED = "as printed"  # the name of the paper's own construction
_POINT = ("items", "d_model", "degree")
UNDER_MAX = ("base", "diagonal", "extreme", "regular")  # the grids of the max-over-heads model


@dataclass(frozen=True)
class Bracket:
    """A trained threshold between the D_K that is necessary and the D_K that suffices."""

    items: int
    d_model: int
    degree: int
    budget: int
    lower: tuple[int, str] | None  # the largest lower bound
    upper: tuple[int, str] | None  # the smallest construction
    tried: bool  # whether the construction as printed in the paper was
    printed: int | None  # its D_K; None where no D_K tried recognises the graph
    one_each: bool  # whether the smallest construction is the trivial one: a head per edge

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
            name = f"{self.upper[1]}, one head per edge" if self.one_each else self.upper[1]
            parts.append(f"{'≤' if self.below else '>'} {self.upper[0]:,} ({name})")
        text = " ".join(parts)
        if not self.tried:
            return text
        return f"{text}; as printed: {'not exact' if self.printed is None else f'{self.printed:,}'}"

    @property
    def as_printed(self) -> bool:
        """Whether the construction as printed recognises the graph, with at least D_K*."""
        return self.printed is not None and self.budget <= self.printed

    @property
    def name(self) -> str:
        degree = f", r = {self.degree}" if self.degree > 1 else ""
        return f"({self.items}, {self.d_model}){degree}"


def brackets(evidence: Evidence) -> list[Bracket]:
    """Every threshold under max that has a bound or a construction beside it."""
    if evidence.bounds.empty:
        return []
    budgets: dict[tuple[int, int, int], int] = {}
    for grid in UNDER_MAX:  # of a point in two grids the first threshold counts
        for m, d, r, budget in rows(passing(evidence, grid), *_POINT, "central"):
            budgets.setdefault((m, d, r), budget)
    found = []
    for (m, d, r), budget in sorted(budgets.items()):
        table = evidence.bounds
        here = table.loc[(table["items"] == m) & (table["d_model"] == d) & (table["degree"] == r)]
        if here["budget"].notna().any():
            found.append(_bracket((m, d, r), budget, here))
    return found


def _bracket(point: tuple[int, int, int], budget: int, here: pd.DataFrame) -> Bracket:
    """One threshold and the bounds and constructions at its point."""
    items, d_model, degree = point
    known = here.dropna(subset=["budget"]).sort_values(["budget", "name"])
    lower = known.loc[known["kind"] == "lower bound"]
    upper = known.loc[known["kind"] == "construction"]
    return Bracket(
        items,
        d_model,
        degree,
        budget,
        lower=next(rows(lower.tail(1), "budget", "name"), None),
        upper=next(rows(upper, "budget", "name"), None),
        tried=PRINTED in set(here["name"]),
        printed=next(rows(upper.loc[upper["name"] == PRINTED], "budget"), (None,))[0],
        one_each=next(rows(upper, "heads", "key_dim"), None) == (items * degree, 1),
    )
