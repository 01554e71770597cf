"""Thresholds of heads that share keys, as preregistrations/shared-keys/README.md reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headcount.shapes import Float
from headcount.theory.key_cache import predicted_threshold
from headcount.theory.shared_keys import Measure, shared_width

PASSING, _LEAST_ERROR = 0.99, 1e-4
_POINT = ["part", "items", "d_model", "heads"]
_RESAMPLES = 500
_PREDICTIONS: dict[str, Measure] = {"by_freedom": "R", "by_width": "G"}


def threshold(
    widths: Float[np.ndarray, " widths"], scores: Float[np.ndarray, "*resamples widths"]
) -> Float[np.ndarray, "*resamples"]:
    """The width at which mean F1 crosses 0.99; nan where the smallest width passes, or none does.

    Between the smallest width that passes and the next smaller one, ln k is linear in ln(1 − F1).

    >>> widths, scores = np.array([4.0, 6.0, 8.0]), np.array([0.9, 0.98, 0.995])
    >>> round(float(threshold(widths, scores)), 2)
    6.93
    """
    if len(widths) < 2:
        return np.full(scores.shape[:-1], np.nan)
    passes = scores >= PASSING
    first = passes.argmax(-1)
    known = passes.any(-1) & (first > 0)
    after = np.where(known, first, 1)[..., None]
    errors = np.log(np.maximum(1 - scores, _LEAST_ERROR))
    logs = np.log(widths)
    above, below = (np.take_along_axis(errors, at, -1)[..., 0] for at in (after - 1, after))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = (above - np.log(1 - PASSING)) / (above - below)
    high, low = logs[after[..., 0]], logs[after[..., 0] - 1]
    return np.asarray(np.exp(np.where(known, low + part * (high - low), np.nan)))


def split_thresholds(runs: pd.DataFrame, resamples: int = _RESAMPLES) -> pd.DataFrame:
    """One row per part, point and split: its threshold k*, the columns there, and 95 % of k*.

    Without `resamples` the interval is nan. `least` is the smallest width tested that passes (0 if
    none does) and `runs` how many there are.
    """
    rows = []
    groups: Any = runs.groupby([*_POINT, "kv_heads"], sort=False)
    for key, group in groups:
        widths, scores = _scores(group)
        means = scores.mean(1)
        value = float(threshold(widths, means))
        low, high = _interval(widths, scores, resamples)
        passing = widths[means >= PASSING]
        rows.append(
            dict(zip([*_POINT, "kv_heads"], key, strict=True))
            | {"threshold": value, "low": low, "high": high, "runs": len(group)}
            | {"least": int(passing.min()) if passing.size else 0}
        )
    found = pd.DataFrame(rows)
    return found.assign(
        query_columns=found["heads"] * found["threshold"],
        key_columns=found["kv_heads"] * found["threshold"],
        columns=(found["heads"] + found["kv_heads"]) * found["threshold"],
    )


def _scores(
    group: pd.DataFrame,
) -> tuple[Float[np.ndarray, " widths"], Float[np.ndarray, "widths seeds"]]:
    """F1 by width and seed; a run that diverged counts as 0.

    Widths at which a seed is missing are left out: where time ran out, runs that stop early, the
    successful ones, would be all that there is.
    """
    value = group["value"].where(group["diverged"] == 0, 0.0)
    first: Any = group.assign(value=value).drop_duplicates(["key_dim", "seed"])
    table = first.pivot(index="key_dim", columns="seed", values="value").dropna()
    return table.index.to_numpy(float), table.to_numpy(float)


def _interval(
    widths: Float[np.ndarray, " widths"],
    scores: Float[np.ndarray, "widths seeds"],
    resamples: int,
) -> tuple[float, float]:
    """95 % of the thresholds of resampled seeds; nan where more than 5 % of them have none."""
    if not resamples:
        return float("nan"), float("nan")
    seeds = scores.shape[1]
    drawn = np.random.default_rng(0).integers(seeds, size=(resamples, seeds))
    found = threshold(widths, scores[:, drawn].mean(-1).T)
    if np.isnan(found).mean() > 0.05:
        return float("nan"), float("nan")
    low, high = np.nanquantile(found, [0.025, 0.975])
    return float(low), float(high)


def beside_own(thresholds: pd.DataFrame) -> pd.DataFrame:
    """The splits with g < h beside the one with keys of their own, at the same part, point and h.

    `sum_ratio` is q, the sum of columns over that with keys of their own. `by_freedom` and
    `by_width` are k_R and k_G. A split whose own threshold, or the other, is unknown has nan.
    """
    own: Any = thresholds[thresholds["heads"] == thresholds["kv_heads"]]
    shared: Any = thresholds[thresholds["heads"] > thresholds["kv_heads"]]
    own = own.set_index(_POINT)["threshold"].rename("own")
    found = shared.join(own, on=_POINT).reset_index(drop=True)
    predicted = {
        name: [
            np.nan
            if np.isnan(row.own)
            else shared_width(row.own, row.d_model, row.heads, row.kv_heads, measure)
            for row in found.itertuples()
        ]
        for name, measure in _PREDICTIONS.items()
    }
    ratio = found["columns"] / (2 * found["heads"] * found["own"])
    return found.assign(sum_ratio=ratio, **predicted)


def planned_errors(thresholds: pd.DataFrame, runs: pd.DataFrame) -> pd.Series:
    """ln(k*/k predicted) of splits with g < h, where k is predicted by the law of steps alone."""
    sizes: Any = ["part", "items", "d_model", "heads", "kv_heads"]
    known: Any = runs.groupby(sizes, sort=False)[["degree", "limit"]].first()
    shared: Any = thresholds[thresholds["heads"] > thresholds["kv_heads"]]
    rows = shared.dropna(subset=["threshold"]).join(known, on=sizes)
    predicted = [
        predicted_threshold(
            row.m, row.m * row.degree, row.d_model, row.heads, row.kv_heads, row.limit
        )
        for row in rows.rename(columns={"items": "m"}).itertuples()
    ]
    return np.log(rows["threshold"] / predicted)
