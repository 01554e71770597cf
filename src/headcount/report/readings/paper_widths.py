"""Table 1's widths in our runs: does the paper's own split pass with us?

The paper lists d_k at D_K*, not the head counts. Where its width differs from ours, the question is whether its split
passes here as well (then the two searches tried other budgets) or fails (then the training differs).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import pandas as pd

from headcount.paper import data as paper
from headcount.report.readings.frames import LEVEL, by_heads_on, curves_on, passing, rows
from headcount.report.words import f1_text
from headcount.reproduction.evidence import Evidence


@dataclass(frozen=True)
class Split:
    """The paper's width with one head count: our mean F1 there, and the smallest budget that passes with it."""

    heads: int
    budget: int  # heads · the paper's width
    mean: float | None  # None where it was not run
    smallest: int | None  # None where nothing passes

    @property
    def passes(self) -> bool:
        """Whether it passes; where it was not run, whether a budget no larger does."""
        if self.mean is None:
            return self.smallest is not None and self.smallest <= self.budget
        return self.mean >= LEVEL

    @property
    def text(self) -> str:
        heads = f"{self.heads} head" + ("" if self.heads == 1 else "s")
        known = "not run" if self.mean is None else f"F1 {f1_text(self.mean)}"
        least = "never passes" if self.smallest is None else f"passes from {self.smallest}"
        return f"{heads}, D_K {self.budget}: {known}; {least}"


@dataclass(frozen=True)
class PaperWidth:
    """One base point: the paper's d_k, our threshold, and the paper's d_k in our runs.

    `nearest` has the head count with which the paper's width comes nearest our D_K*; `passing` is the split with the
    fewest heads that passes at the paper's width. They are None where nothing was run, or where none passes.
    """

    items: int
    d_model: int
    width: int
    key_dim: int
    budget: int
    heads: int
    interval: tuple[float, float] | None  # of d_k*, by the intervals of D_K* and h*
    nearest: Split | None
    passing: Split | None


def paper_widths(evidence: Evidence) -> list[PaperWidth]:
    """Every base point with a threshold, in the order of Table 1."""
    frames = passing(evidence, "base"), by_heads_on(evidence, "base"), curves_on(evidence, "base")
    found = []
    for m, d, width in rows(paper.table_1(), "items", "d_model", "key_dim"):
        ours, by_heads, curves = (
            table.loc[(table["items"] == m) & (table["d_model"] == d)] for table in frames
        )
        if len(ours):
            found.append(_paper_width(width, ours, _splits(by_heads, curves, width)))
    return found


def _paper_width(width: int, ours: pd.DataFrame, splits: list[Split]) -> PaperWidth:
    names = ("items", "d_model", "key_dim", "central", "heads")
    items, d_model, key_dim, budget, heads = next(rows(ours, *names))
    ends = next(rows(ours, "optimistic", "conservative", "heads_low", "heads_high"))
    nearest = min(splits, key=lambda split: abs(log(split.budget / budget)), default=None)
    first = next((split for split in splits if split.passes), None)
    return PaperWidth(
        items, d_model, width, key_dim, budget, heads, _interval(*ends), nearest, first
    )


def _interval(
    optimistic: int | None, conservative: int | None, heads_low: int | None, heads_high: int | None
) -> tuple[float, float] | None:
    """The least and the largest d_k = D_K/h that the two intervals allow; None where an end is missing."""
    if optimistic is None or conservative is None or heads_low is None or heads_high is None:
        return None
    return optimistic / heads_high, conservative / heads_low


def _splits(by_heads: pd.DataFrame, curves: pd.DataFrame, width: int) -> list[Split]:
    """The paper's width with every head count tested at this point, fewest heads first."""
    means = {
        (heads, budget): mean for heads, budget, mean in rows(curves, "heads", "budget", "mean")
    }
    return [
        Split(heads, heads * width, means.get((heads, heads * width)), smallest)
        for heads, smallest in sorted(rows(by_heads, "heads", "central"))
    ]
