"""The fit of the law of steps to runs, and its predictions for points that it has not seen."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares, minimize

from headcount.theory.capacity_law import capacity_ratio, freedom_needed
from headcount.theory.steps_law import WIDE_TABLE, Power, StepsLaw

POINT = ["items", "degree", "d_model"]
_SPLIT = ["heads", "key_dim", "limit"]
_PASSED = 0.99  # mean F1
_HOPELESS = 0.6  # capacity ratios below which a failure says nothing about steps
# From the end of a run back to its first F1 of 0.99, where only the end is known: the median of
# ln(end/first) over the runs whose history is known.
_PATIENCE = 0.29
_START = np.array([4.0, 0, 0, 0, 0, 1.8, 0, 0, 0, 0, 0.5, 0.5, 0, 0, 0, 0])
_RIDGE = 0.05  # holds the exponents that the points do not determine


def configurations(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per split of each point: its mean F1, and ln(steps) to an F1 of 0.99.

    Where not all seeds got there and the mean stayed below 0.99, `failed` is true, and `log_steps`
    is the limit: more steps than that are needed.
    """
    known = runs["reached"].where(runs["reached"] >= 0)
    ended = runs["steps"].where(runs["steps"] < runs["limit"]) * np.exp(-_PATIENCE)
    reached = known.fillna(ended).where(runs["reached"] != 0)
    rows = runs.assign(log_reached=np.log(reached.astype(float)))
    table = (
        rows.groupby([*POINT, *_SPLIT])
        .agg(
            f1=("value", "mean"),
            log_steps=("log_reached", "mean"),
            seeds=("value", "size"),
            reached=("log_reached", "count"),
        )
        .reset_index()
    )
    everyone = table["reached"] == table["seeds"]
    limit = np.log(table["limit"].astype(float))
    table["failed"] = ~everyone & (table["f1"] < _PASSED)
    table["log_steps"] = table["log_steps"].where(everyone, limit)
    table["needed"] = [_needed(*point) for point in _values(table, "items", "degree")]
    table["ratio"] = [
        capacity_ratio(items, items * degree, d_model, heads, key_dim)
        for items, degree, d_model, heads, key_dim in _values(table, *POINT, "heads", "key_dim")
    ]
    return table.loc[~(table["failed"] & (table["ratio"] < _HOPELESS))].reset_index(drop=True)


def fit_steps(table: pd.DataFrame, start: StepsLaw | None = None) -> StepsLaw:
    """The law that fits these configurations, without its odds (`fit_odds` gives them).

    Least squares in ln(steps) with a robust loss. A failure counts only where the law promises
    success within its limit.
    """
    columns, wanted = _columns(table), table["log_steps"].to_numpy()
    failed = table["failed"].to_numpy()

    def residuals(parameters: np.ndarray) -> np.ndarray:
        error = _law(parameters).log_steps(*columns) - wanted
        error = np.where(failed, np.minimum(error, 0), error)
        return np.concatenate([error, _RIDGE * (parameters - _START)])

    first = _START if start is None else _parameters(start)
    found: Any = least_squares(residuals, first, loss="soft_l1", f_scale=0.15, max_nfev=300)
    return _law(found.x)


def left_out(table: pd.DataFrame) -> pd.Series:
    """ln(steps) of each configuration, predicted by a law fitted without its point."""
    whole = fit_steps(table)
    predicted = pd.Series(np.nan, index=table.index)
    for _, point in table.groupby(POINT):
        law = fit_steps(table.drop(point.index), whole)
        predicted.loc[point.index] = law.log_steps(*_columns(point))
    return predicted


def fit_odds(table: pd.DataFrame, predicted: pd.Series) -> tuple[float, float, float]:
    """The logistic chance of a mean F1 of 0.99, given ln(steps) predicted without the point."""
    spare = np.log(table["limit"].to_numpy(float)) - predicted.to_numpy(float)
    near = abs(spare) < 3
    narrow = np.minimum(np.log(table["d_model"].to_numpy() / WIDE_TABLE), 0.0)
    inputs = np.stack([np.ones_like(spare), spare, narrow], axis=1)[near]
    signs = np.where(table["f1"].to_numpy()[near] >= _PASSED, 1.0, -1.0)
    found: Any = minimize(lambda w: np.logaddexp(0, -signs * (inputs @ w)).sum(), np.zeros(3))
    first, second, third = found.x.tolist()
    return first, second, third


def _law(parameters: np.ndarray) -> StepsLaw:
    values = parameters.tolist()
    base, barrier, lost = values[:5], values[5:11], values[11:]
    return StepsLaw(
        Power(float(np.exp(base[0])), *base[1:]),
        Power(float(np.exp(barrier[0])), *barrier[1:]),
        Power(float(np.exp(lost[0])), *lost[1:]),
        (0.0, 1.0, 0.0),
    )


def _parameters(law: StepsLaw) -> np.ndarray:
    def of(power: Power) -> list[float]:
        exponents = [power.items, power.d_model, power.degree, power.heads, power.share]
        return [float(np.log(power.scale)), *exponents]

    return np.array([*of(law.base)[:5], *of(law.barrier), *of(law.lost)[:5]])


def _columns(table: pd.DataFrame) -> tuple[np.ndarray, ...]:
    items, degree = (table[name].to_numpy(float) for name in ("items", "degree"))
    rest = (table[name].to_numpy(float) for name in ("d_model", "heads", "key_dim"))
    return (table["needed"].to_numpy(float), items, items * degree, *rest)


def _values(table: pd.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].tolist() for name in names), strict=True))


@cache
def _needed(items: int, degree: float) -> float:
    return freedom_needed(items, round(items * degree))
