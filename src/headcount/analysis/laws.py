"""The paper's fits to thresholds, and a fit as a law for `plan` (Section 6.1, Appendix A.3).

Every function takes what `thresholds` returns; the caller chooses the points. Rows where no tested
budget passed are left out (`points` of the fit says how many were used).
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats

from headcount.analysis.curves import USUAL
from headcount.analysis.fits import LineFit, fit_line
from headcount.errors import InputError
from headcount.shapes import Float
from headcount.theory.laws import FEATURES, Form, TrainedLaw

Floats = Float[np.ndarray, "rows"]


def budget_fit(table: pd.DataFrame, *, wide: bool = False) -> LineFit:
    """Fit D_K* against m log₂ m/d_model through the origin (Section 6.1, Fig. 3).

    Only the permutations of `max` are used; with `wide`, without the points d_model = 16, m > 64,
    which miss the precondition d_model ≳ c₀ ln m.
    """
    rows = _permutations(table)
    if wide:
        rows = rows.loc[(rows["d_model"] != 16) | (rows["items"] <= 64)]
    return _fit(rows, "central", "edges·log2(items)/d_model", intercept=False)


def heads_fit(table: pd.DataFrame) -> LineFit:
    """Fit h* of the permutations of `max` against m/d_model, with an intercept (Fig. 10)."""
    return _fit(_permutations(table), "heads", "edges/d_model", intercept=True)


def regular_fit(table: pd.DataFrame) -> LineFit:
    """Fit D_K* of all degrees of `max` against r·m log₂ m/d_model (Eq. (32), Fig. 12)."""
    return _fit(
        table.loc[table["variant"] == "max"],
        "central",
        "edges·log2(items)/d_model",
        intercept=False,
    )


def fit_law(
    table: pd.DataFrame,
    form: Form = "edges·log2(items)/d_model",
    *,
    quantity: Literal["budget", "heads"] = "budget",
    intercept: bool = False,
    name: str = "fitted",
    source: str = "",
) -> TrainedLaw:
    """Fit thresholds as a law with a 95 % prediction interval, for `plan(law=...)`.

    `table` is what `thresholds` returns, restricted to one variant and one kind of problem.
    `quantity` "budget" fits D_K*, "heads" fits h*; the line goes through the origin unless
    `intercept` is set.

    The line is the least-squares one, as the paper's. A `TrainedLaw` gives its interval as two
    factors of the value, so the interval comes from the ratios of the found values to the law's; a
    line's own prediction interval has nearly the same width at all sizes. With b and s the mean and
    standard deviation of the ratios' logarithms, a new ratio falls within
    exp(b ± t_{0.975, n−1}·s·√(1 + 1/n)) with 95 % probability if these are normal.

    >>> sizes = {"variant": "max", "degree": 1, "items": [64, 256, 256], "d_model": [16, 32, 64]}
    >>> law = fit_law(pd.DataFrame(sizes | {"central": [24, 64, 33]}))
    >>> round(law.slope, 2), round(law(512, 512, 64))
    (1.01, 72)

    From the runs that are shipped with headcount:

    >>> import headcount as hc
    >>> runs = hc.measured_runs(variant="max")
    >>> law = hc.fit_law(hc.thresholds(runs[(runs["degree"] == 1) & (runs["items"] <= 128)]))
    >>> round(law.slope, 2), round(law(256, 256, 32))
    (0.87, 56)
    """
    for kind in ("variant", *USUAL):
        if kind in table and len(set(table[kind])) > 1:
            raise InputError(
                f"the thresholds hold more than one {kind}; a law describes one, so select its rows"
            )
    column = "central" if quantity == "budget" else "heads"
    fit = _fit(table, column, form, intercept)
    line = TrainedLaw(
        name=name,
        quantity=quantity,
        form=form,
        slope=fit.slope,
        source=source or f"fitted to {fit.points} thresholds",
        intercept=fit.intercept,
        r_squared=fit.r_squared,
    )
    return replace(line, interval=_ratio_interval(line, table.dropna(subset=[column]), column))


def _ratio_interval(line: TrainedLaw, rows: pd.DataFrame, column: str) -> tuple[float, float]:
    """The 95 % prediction interval of found value over law's value, from the ratios' logarithms."""
    values = [
        line(int(m), int(r) * int(m), int(d))
        for m, r, d in rows[["items", "degree", "d_model"]].to_numpy()
    ]
    ratios = np.log(_floats(rows, column) / np.array(values))
    n = len(ratios)
    half = float(stats.t.ppf(0.975, n - 1)) * float(ratios.std(ddof=1)) * sqrt(1 + 1 / n)
    low, high = np.exp(ratios.mean() + np.array([-half, half]))
    return float(low), float(high)


def feature(table: pd.DataFrame, form: Form) -> Floats:
    """The x of a law for every row of a frame of thresholds, with m' = r·m edges."""
    items, degree, d_model = (_floats(table, name) for name in ("items", "degree", "d_model"))
    return FEATURES[form](items, degree * items, d_model)


def _fit(table: pd.DataFrame, column: str, form: Form, intercept: bool) -> LineFit:
    rows = table.dropna(subset=[column])
    return fit_line(feature(rows, form), _floats(rows, column), intercept)


def _permutations(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[(table["variant"] == "max") & (table["degree"] == 1)]


def _floats(table: pd.DataFrame, column: str) -> Floats:
    return table[column].to_numpy(dtype=float)
