"""Table 1: the width of a head at D_K*."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from statistics import median

import pandas as pd

from headcount.paper import data as paper
from headcount.report.figures.base import UNMEASURED, Comparison, Figure
from headcount.report.figures.comparison_rows import number_row
from headcount.report.figures.table1_claims import small_widths
from headcount.report.formatting import (
    MISSING,
    allowed_text,
    counted,
    f1_text,
    num,
    signed,
)
from headcount.report.readings.frames import (
    by_heads_on,
    curves_on,
    passing,
    rows,
)
from headcount.report.readings.paper_numbers import LEVEL, paper_integers
from headcount.reproduction.evidence import Evidence


@dataclass(frozen=True)
class Split:
    """The paper's width with one head count: our mean F1, and the smallest passing budget."""

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
        heads = counted(self.heads, "head")
        known = "not run" if self.mean is None else f"F1 {f1_text(self.mean)}"
        least = "never passes" if self.smallest is None else f"passes from {self.smallest}"
        return f"{heads}, D_K {self.budget}: {known}; {least}"


@dataclass(frozen=True)
class PaperWidth:
    """One base point: the paper's d_k, our threshold, and the paper's d_k in our runs.

    `nearest` is the split of the paper's width that comes nearest to our D_K*; `passing` is the one
    with the fewest heads that passes. They are None where nothing was run, or where none passes.
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
    """The least and the largest d_k = D_K/h that the two intervals allow, if both are closed."""
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


def table(evidence: Evidence) -> pd.DataFrame:
    """The paper's d_k* and ours at every base point, and the paper's width in our runs.

    Intervals are in brackets: D_K* from optimistic to conservative, h* with the head counts that
    are indistinguishable from it.
    """
    ours = {(point.items, point.d_model): point for point in paper_widths(evidence)}
    ends = _ends(evidence)
    lines = []
    for m, d, width in rows(paper.table_1(), "items", "d_model", "key_dim"):
        point = ours.get((m, d))
        budget, heads = ends.get((m, d), (MISSING, MISSING))
        split = point and (point.passing or point.nearest)
        lines.append(
            {
                "m": m,
                "d_model": d,
                "d_k* (paper)": width,
                "d_k* (ours)": str(point.key_dim) if point else MISSING,
                "D_K* (ours)": budget,
                "h* (ours)": heads,
                "the paper's d_k in our runs": split.text if split else MISSING,
            }
        )
    return pd.DataFrame(lines)


def _ends(evidence: Evidence) -> dict[tuple[int, int], tuple[str, str]]:
    """D_K* and h* of every base point, with their intervals."""
    names = ("items", "d_model", "central", "optimistic", "conservative")
    names += ("heads", "heads_low", "heads_high")
    return {
        (m, d): (_with_ends(budget, low, high), _with_ends(heads, few, many))
        for m, d, budget, low, high, heads, few, many in rows(passing(evidence, "base"), *names)
    }


def _with_ends(middle: int, low: int | None, high: int | None) -> str:
    """Write "56 [48, 64]"; an end that nothing reached as "–"."""
    return f"{middle} [{MISSING if low is None else low}, {MISSING if high is None else high}]"


def compare(evidence: Evidence) -> list[Comparison]:
    """d_k* of every base point, with what the paper's own width does in our runs."""
    found = paper_widths(evidence)
    if not found:
        return []
    widths = [point.key_dim for point in found]
    points = counted(len(widths), "point")
    low, high = paper_integers("key-dim.range")
    inside = sum(low <= width <= high for width in widths)
    ends = Comparison(
        what="least and largest d_k*",
        paper=f"[{low}, {high}]",
        ours=f"[{min(widths)}, {max(widths)}]; {inside} of {points} in the paper's",
        difference=f"{signed(min(widths) - low)}, {signed(max(widths) - high)}",
        overlap=None,
        place=paper.number("key-dim.range").place,
    )
    own = median(paper.table_1()["key_dim"].tolist())
    middle = f"median d_k* (the entries of Table 1 have {own:g})"
    return [
        *(_width_row(point) for point in found),
        _own_split_row(found),
        ends,
        number_row("key-dim.median", middle, float(median(widths)), detail=points),
    ]


def _width_row(point: PaperWidth) -> Comparison:
    """One entry of Table 1. The paper's width in our runs tells a different search from a
    different training: if it passes here too, the two searches tried other budgets."""
    heads = counted(point.heads, "head")
    tried = [split for split in (point.nearest, point.passing) if split is not None]
    own = (
        f"; the paper's width: {'; '.join(dict.fromkeys(split.text for split in tried))}"
        if tried
        else ""
    )
    return Comparison(
        what=f"d_k* at m = {point.items}, d_model = {point.d_model}",
        paper=str(point.width),
        ours=f"{point.key_dim} ({allowed_text(point.interval)}; D_K* {point.budget}, {heads}){own}",
        difference=signed(point.key_dim - point.width),
        overlap=None,
        place="Table 1",
    )


def _own_split_row(found: list[PaperWidth]) -> Comparison:
    """At how many fully swept points the paper's width passes here too, and at what budget."""
    found = [point for point in found if point.nearest]
    passed = [point.passing.budget / point.budget for point in found if point.passing]
    lower = [point for point in found if point.key_dim < point.width]
    also = sum(point.passing is not None for point in lower)
    at = f", at × {num(min(passed))} to × {num(max(passed))} of our D_K*" if passed else ""
    return Comparison(
        what="points, swept with every head count, where the paper's width passes with one of them",
        paper=str(len(found)),
        ours=f"{len(passed)}{at}; {also} of the {len(lower)} where ours is narrower",
        difference=signed(len(passed) - len(found)),
        overlap=None,
        place="Table 1",
    )


def meaning(evidence: Evidence) -> str:
    """How narrow heads are, and why our widths differ from the paper's."""
    found = paper_widths(evidence)
    if not found:
        return UNMEASURED
    widths = [point.key_dim for point in found]
    other = [point for point in found if point.key_dim != point.width]
    swept = [point for point in other if point.nearest]
    passed = sum(point.passing is not None for point in swept)
    ending = (
        "Where they differ, the paper's width was not tried."
        if other
        else "The two differ nowhere."
    )
    if swept:
        reason = (
            ", which points to the search rather than to the training"
            if passed == len(swept)
            else ""
        )
        ending = (
            f"Of the {len(swept)} that differ and were swept, the paper's width passes in our "
            f"runs at {passed}{reason}."
        )
    low, high = paper_integers("key-dim.range")
    return (
        f"Heads are narrow at the threshold: d_k* is {min(widths)} to {max(widths)} (paper: {low} "
        f"to {high}), the same as the paper's at {len(found) - len(other)} of "
        f"{counted(len(found), 'point')}. {ending}"
    )


FIGURE = Figure(
    id="table1",
    title="Table 1. Width of a head at D_K*",
    grids=("base",),
    table=table,
    compare=compare,
    meaning=meaning,
    claims=(small_widths,),
)
