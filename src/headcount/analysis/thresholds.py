"""Thresholds: D_K* with its interval, h* with its interval (Appendix A.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from headcount.analysis.curves import POINT, checked_runs, curves_of, point_columns
from headcount.errors import InputError
from headcount.notebook import chart

LEVEL = 0.99
POOL_PERCENT = 10
SIGNIFICANCE = 0.05
_BUDGETS = ["central", "optimistic", "conservative"]
WHOLE_NUMBERS = [*_BUDGETS, "heads", "key_dim", "heads_low", "heads_high"]


@dataclass(frozen=True)
class Threshold:
    """The smallest passing budget of one point; None where no tested budget passes.

    `central` is D_K*: the smallest budget whose mean F1 reaches the level for some head count.
    `conservative` asks it of the interval's low end, `optimistic` of its high end. `heads`,
    `key_dim` and `mean` are h*, d_k* and the mean F1 there; `heads_low` … `heads_high` are the head
    counts indistinguishable from h* (A.2).
    """

    variant: str
    degree: int
    items: int
    d_model: int
    central: int | None
    optimistic: int | None
    conservative: int | None
    heads: int | None
    key_dim: int | None
    mean: float | None
    heads_low: int | None
    heads_high: int | None


@dataclass(frozen=True)
class _Entry:
    """One point of a curve."""

    heads: int
    budget: int
    mean: float
    low: float
    high: float


class Thresholds(pd.DataFrame):
    """Thresholds, one row per point: a frame that can draw itself."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:  # rows and columns of it are plain frames
        return pd.DataFrame

    def plot(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Draw D_K* and its range at every point, as an Altair chart."""
        return chart("threshold_chart", "draw_thresholds", pd.DataFrame(self))


def thresholds(frame: pd.DataFrame, level: float = LEVEL) -> Thresholds:
    """D_K* and h* with their intervals for every point (variant, degree, items, d_model).

    Graphs, tables or shared keys of several kinds are points of their own, with columns `graph`,
    `table` or `kv_heads`.

    `frame` has one row per run, as for `curves`; the result has one row per point and the columns
    of `Threshold`. `level` is the mean test F1 that a budget must reach. The variant "value" is
    judged by mean squared error: its rows are left out beside those of other variants.

    >>> point = {"variant": "max", "degree": 1, "items": 64, "d_model": 16, "heads": 4}
    >>> scores = {16: [0.97, 0.98], 20: [0.995, 0.993], 24: [1.0, 1.0]}
    >>> runs = pd.DataFrame(
    ...     [
    ...         point | {"key_dim": budget // 4, "budget": budget, "diverged": None}
    ...         | {"seed": seed, "value": value}
    ...         for budget, values in scores.items()
    ...         for seed, value in enumerate(values)
    ...     ]
    ... )
    >>> thresholds(runs)[["central", "heads", "key_dim"]].to_dict("records")
    [{'central': 20, 'heads': 4, 'key_dim': 5}]

    The runs that are shipped with headcount:

    >>> import headcount as hc
    >>> runs = hc.measured_runs(variant="max")
    >>> found = hc.thresholds(runs[runs["items"] == 64])
    >>> found[["items", "d_model", "central", "heads"]].to_dict("split")["data"]
    [[64, 16, 20, 4], [64, 32, 6, 1], [64, 64, 4, 1]]
    """
    table = _f1_runs(frame)
    point = point_columns(table)
    by_point = dict(iter(curves_of(table).groupby(point, sort=True)))
    found = [
        vars(_threshold(runs, by_point[at], level)) | _point(runs, point)
        for at, runs in table.groupby(point, sort=True)
    ]
    columns = dict.fromkeys([*point, *(item.name for item in fields(Threshold))])
    return Thresholds(_as_frame(found, list(columns)))


def thresholds_by_heads(frame: pd.DataFrame, level: float = LEVEL) -> pd.DataFrame:
    """The three budgets of every head count: the threshold if only that count had been tried."""
    rows, table = [], _f1_runs(frame)
    point = point_columns(table)
    for _, curve in curves_of(table).groupby([*point, "heads"], sort=True):
        entries = _entries(curve)
        best = _best(entries, level)
        split = {"key_dim": best and best.budget // best.heads, "mean": best and best.mean}
        known = _point(curve, [*point, "heads"])
        rows.append(known | _three_budgets(entries, level) | split)
    return _as_frame(rows, [*point, "heads", *_BUDGETS, "key_dim", "mean"])


def threshold(frame: pd.DataFrame, level: float = LEVEL) -> Threshold:
    """The threshold of the one point that a frame of runs holds."""
    table = _f1_runs(frame)
    points = len(table[point_columns(table)].drop_duplicates())
    if points != 1:
        raise InputError(f"the frame of runs holds {points} points; select one, or use thresholds")
    return _threshold(table, curves_of(table), level)


def heads_interval(frame: pd.DataFrame, budget: int, heads: int) -> tuple[int, int]:
    """The lowest and highest head count indistinguishable from h* = `heads` at D_K* = `budget`.

    `frame` holds the runs of one point. The pool is made of the head counts with a tested budget
    within 10 % of D_K*. The paper does not say which entry represents a head count that has
    several; here it is the one nearest D_K* (of two equally near, the one with the larger mean F1),
    so that like budgets are compared and no count is dropped because a larger budget of its own is
    better. Each is compared to h* by a paired two-sided t-test on the F1 of the common seeds and is
    kept where p > 0.05. One with fewer than two common seeds cannot be tested and is not kept.
    """
    return _heads_interval(_f1_runs(frame), budget, heads)


def _heads_interval(runs: pd.DataFrame, budget: int, heads: int) -> tuple[int, int]:
    """The interval of `heads_interval`, from checked runs."""
    scores: dict[tuple[int, int], dict[int, float]] = {}
    for count, tried, seed, score in _rows(runs, "heads", "budget", "seed", "score"):
        scores.setdefault((count, tried), {})[seed] = score
    if (heads, budget) not in scores:
        raise InputError(f"no run has {heads} heads and budget {budget}; pass a tested pair")
    near: dict[int, tuple[float, float, int]] = {}
    for (count, tried), by_seed in scores.items():
        if 100 * abs(tried - budget) <= POOL_PERCENT * budget:
            entry = (abs(tried - budget), -fmean(by_seed.values()), tried)
            near[count] = min(near.get(count, entry), entry)
    best = scores[heads, budget]
    kept = [
        count
        for count, entry in near.items()
        if paired_p(best, scores[count, entry[2]]) > SIGNIFICANCE
    ]
    return min([heads, *kept]), max([heads, *kept])


def paired_p(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """p of the paired two-sided t-test on F1 by seed; NaN with fewer than two common seeds.

    Differences without spread have no t: p is 1 where they are zero and 0 where they are not.
    """
    seeds = sorted(set(first) & set(second))
    if len(seeds) < 2:
        return float("nan")
    one, other = (np.array([scores[seed] for seed in seeds]) for scores in (first, second))
    gaps = one - other
    # Equal gaps differ by the rounding of their subtraction, which is about 1e-16 of an F1.
    if np.ptp(gaps) <= 1e-13:
        return 1.0 if abs(gaps).max() <= 1e-13 else 0.0
    return float(stats.ttest_rel(one, other).pvalue)


def _f1_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """The checked runs that have an F1."""
    table = checked_runs(frame)
    judged = table.loc[table["variant"] != "value"]
    if len(table) and not len(judged):
        raise InputError(
            "variant value is judged by mean squared error and has no F1 threshold; "
            "give runs of another variant"
        )
    return judged


def _threshold(runs: pd.DataFrame, curve: pd.DataFrame, level: float) -> Threshold:
    """The threshold of one point, from its checked runs and their curves."""
    entries = _entries(curve)
    known = _point(runs, POINT) | _three_budgets(entries, level)
    best = _best(entries, level)
    if best is None:
        return Threshold(
            **known, heads=None, key_dim=None, mean=None, heads_low=None, heads_high=None
        )
    low, high = _heads_interval(runs, best.budget, best.heads)
    split = {"heads": best.heads, "key_dim": best.budget // best.heads, "mean": best.mean}
    return Threshold(**known, **split, heads_low=low, heads_high=high)


def _three_budgets(entries: list[_Entry], level: float) -> dict[str, Any]:
    """The smallest budgets that pass by mean, by high end and by low end.

    The high end is never below the mean, so an entry of one seed, whose ends are unknown, is
    plausible if its mean passes: optimistic ≤ central ≤ conservative, whatever the numbers of
    seeds.
    """
    return {
        "central": _smallest(entry for entry in entries if entry.mean >= level),
        "optimistic": _smallest(
            entry for entry in entries if entry.mean >= level or entry.high >= level
        ),
        "conservative": _smallest(entry for entry in entries if entry.low >= level),
    }


def _smallest(entries: Iterable[_Entry]) -> int | None:
    return min((entry.budget for entry in entries), default=None)


def _best(entries: list[_Entry], level: float) -> _Entry | None:
    """The passing entry with the smallest budget; of equals the larger mean, then fewer heads."""
    passing = [entry for entry in entries if entry.mean >= level]
    return min(passing, key=lambda entry: (entry.budget, -entry.mean, entry.heads), default=None)


def _entries(curve: pd.DataFrame) -> list[_Entry]:
    return [_Entry(*row) for row in _rows(curve, "heads", "budget", "mean", "low", "high")]


def _rows(table: pd.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """Columns as rows of plain values."""
    return zip(*(table[name].tolist() for name in names), strict=True)


def _point(runs: pd.DataFrame, point: list[str]) -> dict[str, Any]:
    return {name: runs[name].tolist()[0] for name in point}


def _as_frame(rows: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    """A frame whose whole numbers may be missing."""
    table = pd.DataFrame(rows, columns=pd.Index(columns))
    return table.astype(
        {name: "Int64" for name in WHOLE_NUMBERS if name in columns} | {"mean": "float64"}
    )
