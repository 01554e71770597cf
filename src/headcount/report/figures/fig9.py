"""Figure 9: how sharply F1 rises with D_K at every base point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged
from headcount.report.figures.comparison_rows import finding_row, runs_row
from headcount.report.formatting import counted, num, pairs_text
from headcount.report.readings.block_runs import judged_panels
from headcount.report.readings.few_heads import with_heads
from headcount.report.readings.frames import PERMUTATIONS, curves_on, rows
from headcount.report.readings.paper_numbers import LEVEL, paper_pairs
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

_RULE = rule("C1")
NINE_IN_TEN = _RULE["nine_in_ten"]  # nine in ten rises take at most this factor of D_K
HIGH, HALF = _RULE["high"], _RULE["half"]  # mean F1 at which the rise begins, by two readings
NARROW = _RULE["top"]  # a rise is sharp where D_K at most doubles
LEAST_BUDGETS = 4  # a curve with fewer does not show how fast it rises
GRIDS = (*PERMUTATIONS, "regular", "softmax")


@dataclass(frozen=True)
class Window:
    """How fast one head count rises to 0.99: the passing budget over the last one below an F1.

    `from_high` counts from the last budget below 0.9, `from_half` from the last below 0.5.
    """

    variant: str
    items: int
    d_model: int
    degree: int
    heads: int
    from_high: float | None
    from_half: float | None  # None where every smaller budget tested is above
    seeds: int


Key = tuple[str, int, int, int, int]
Curve = dict[int, tuple[float, int]]  # by budget the mean F1, and how many seeds it has


def windows(evidence: Evidence, grids: Sequence[str] = GRIDS) -> list[Window]:
    """The windows of head counts that pass; a point in two grids counts once."""
    curves: dict[Key, Curve] = {}
    for grid in grids:
        names = ("variant", "items", "d_model", "degree", "heads", "budget", "mean", "runs")
        for *key, budget, mean, seeds in rows(curves_on(evidence, grid), *names):
            variant, m, d, r, heads = key
            curves.setdefault((variant, m, d, r, heads), {}).setdefault(budget, (mean, seeds))
    return [_window(key, curve) for key, curve in sorted(curves.items()) if _shows_window(curve)]


def block_windows(evidence: Evidence) -> list[Window]:
    """The windows of the transformer block, by accuracy instead of F1."""
    curves: dict[Key, Curve] = {}
    for panel in judged_panels(evidence):
        for (heads, budget), cell in panel.cells.items():
            key = (panel.table, panel.items, panel.d_model, 1, heads)
            curves.setdefault(key, {})[budget] = (cell.mean, len(cell.seeds))
    return [_window(key, curve) for key, curve in sorted(curves.items()) if _shows_window(curve)]


def _shows_window(curve: Curve) -> bool:
    """Whether it passes, with enough budgets to see where."""
    return len(curve) >= LEAST_BUDGETS and any(mean >= LEVEL for mean, _ in curve.values())


def _window(key: Key, curve: Curve) -> Window:
    passed = min(budget for budget, (mean, _) in curve.items() if mean >= LEVEL)
    below = [(budget, mean) for budget, (mean, _) in curve.items() if budget < passed]
    last = [
        max((budget for budget, mean in below if mean < level), default=None)
        for level in (HIGH, HALF)
    ]
    high, half = (None if budget is None else passed / budget for budget in last)
    return Window(*key, high, half, min(seeds for _, seeds in curve.values()))


@dataclass(frozen=True)
class Rise:
    """The windows of all curves together: upper bounds, since they end at tested budgets."""

    curves: int
    top: float  # median factor of D_K from the last F1 below 0.9 to 0.99
    most: float  # the factor that nine in ten curves keep
    whole: float | None  # median factor from the last F1 below 0.5
    whole_curves: int
    seeds: int  # of the curve with the fewest

    @property
    def narrow_top(self) -> bool:
        return self.top <= NARROW

    @property
    def narrow_whole(self) -> bool | None:
        return None if self.whole is None else self.whole <= NARROW

    @property
    def text(self) -> str:
        """What the factors are, with the number of curves."""
        text = (
            f"F1 rises from 0.9 to 0.99 while D_K grows at most × {num(self.top)} "
            f"(median of {self.curves} curves; nine in ten at most × {num(self.most)})"
        )
        if self.whole is not None:
            text += f", and at most × {num(self.whole)} from 0.5 (median of {self.whole_curves})"
        return f"{text}, counted from the last tested D_K below that F1"


def rise(found: Sequence[Window]) -> Rise | None:
    """How narrow the windows are; None where no curve shows one."""
    top = [window.from_high for window in found if window.from_high is not None]
    whole_rise = [window.from_half for window in found if window.from_half is not None]
    if not top:
        return None
    most = float(pd.Series(top).quantile(0.9))
    whole = median(whole_rise) if whole_rise else None
    seeds = min(window.seeds for window in found)
    return Rise(len(top), median(top), most, whole, len(whole_rise), seeds)


def draw(evidence: Evidence) -> Any:
    """The curves of every base point."""
    from headcount.report.drawing.curve_panels import curve_panels, grid_curves

    return curve_panels(
        grid_curves(evidence, "base"), "F1–D_K curves of the base grid", columns=3, own_x=True
    )


def sharp_transition(evidence: Evidence) -> Claim:
    """C1: judged by the factor of D_K between a low F1 and 0.99, over (m, d_model, r, h)."""
    found, block = rise(windows(evidence)), rise(block_windows(evidence))
    if found is None:
        return judged("C1", [Check(None, "")])
    checks = [
        Check(found.narrow_top, found.text),
        Check(found.most <= NINE_IN_TEN, ""),
        Check(found.narrow_whole, ""),
        Check(None, "the block was not measured"),
    ]
    if block is not None:
        text = f"the block's accuracy does while D_K grows × {num(block.top)} "
        text += f"(median of {counted(block.curves, 'curve')})"
        checks[-1] = Check(block.narrow_top, text)
    brief = f"0.9 to 0.99 while D_K grows at most × {num(found.top)} (median)"
    brief += "" if found.whole is None else f", and at most × {num(found.whole)} from 0.5"
    brief += "" if block is None else f"; in the block × {num(block.top)} from 0.9"
    return judged("C1", checks, {"curves": found.curves, "seeds": found.seeds}, brief)


def compare(evidence: Evidence) -> list[Comparison]:
    """One head at the points that the paper names, and how fast F1 rises."""
    named = paper_pairs("single-head.fails")
    found = {(few.items, few.d_model): few for few in with_heads(evidence, "base")}
    seen = [point for point in named if point in found]
    compared = []
    if seen:
        failed = [point for point in seen if found[point].fails]
        missing = "" if len(seen) == len(named) else f"; measured: {pairs_text(seen)}"
        compared.append(
            finding_row("single-head.fails", failed == seen, f"{pairs_text(failed)}{missing}")
        )
    speed = rise(windows(evidence, ["base"]))
    if speed is not None:
        compared.append(
            finding_row(
                "transition.sharp", speed.narrow_top and speed.narrow_whole is True, speed.text
            )
        )
    return compared + runs_row("fig-9.runs", curves_on(evidence, "base"))


def meaning(evidence: Evidence) -> str:
    """How fast F1 rises, and where one head fails."""
    speed, found = rise(windows(evidence, ["base"])), with_heads(evidence, "base")
    if speed is None or not found:
        return UNMEASURED
    failed = [(few.items, few.d_model) for few in found if few.fails]
    named = [point for point in paper_pairs("single-head.fails") if point in failed]
    among = f", among them the paper's {pairs_text(named)}" if named else ""
    rest = (
        ", but the whole of it is not shown to be"
        if speed.narrow_top and speed.narrow_whole is False
        else ""
    )
    return (
        f"{speed.text}: the end of the rise is "
        f"{'narrow' if speed.narrow_top else 'not narrow'}{rest}. One head never reaches 0.99 at "
        f"{len(failed)} of {counted(len(found), 'point')}{among}."
    )


FIGURE = Figure(
    id="fig9",
    title="Figure 9. F1 against D_K",
    grids=("base",),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(sharp_transition,),
)
