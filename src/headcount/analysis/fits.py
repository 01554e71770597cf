"""Least-squares lines with R² and confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy import stats

from headcount.errors import InputError


@dataclass(frozen=True)
class LineFit:
    """A line fitted by least squares: y = slope·x + intercept.

    Where the intercept was left out it is 0 and has no error.

    R² is 1 − SS_res/SS_tot with SS_tot about the mean of y, with and without an intercept, so that
    the two can be compared; without one it may be negative. (Some packages report 1 − SS_res/Σy²
    there, which is larger.)
    """

    slope: float
    intercept: float
    slope_error: float  # standard error
    intercept_error: float
    r_squared: float  # NaN where y does not vary
    points: int
    freedom: int  # points − parameters
    spread: float  # residual standard deviation, √(SS_res/freedom)

    def __call__(self, x: float) -> float:
        return self.slope * x + self.intercept

    def slope_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The confidence interval of the slope."""
        return self._around(self.slope, self.slope_error, confidence)

    def intercept_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The confidence interval of the intercept; (0, 0) where it was left out."""
        return self._around(self.intercept, self.intercept_error, confidence)

    def _around(self, value: float, error: float, confidence: float) -> tuple[float, float]:
        half = float(stats.t.ppf((1 + confidence) / 2, self.freedom)) * error
        return value - half, value + half


def fit_line(
    x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, intercept: bool = True
) -> LineFit:
    """Fit y = slope·x + intercept, or y = slope·x through the origin, by least squares.

    >>> fit = fit_line([1, 2, 3], [2, 4, 7], intercept=False)
    >>> round(fit.slope, 3), round(fit.r_squared, 3)  # 31/14; 1 − 0.357/12.667
    (2.214, 0.972)
    """
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if xs.ndim != 1 or xs.shape != ys.shape:
        raise InputError(f"x has shape {xs.shape} and y {ys.shape}; pass two lists of one length")
    if not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        raise InputError("a point of the fit is not finite; leave it out")
    parameters = 1 + intercept
    freedom = len(xs) - parameters
    if freedom < 1:
        raise InputError(
            f"a line with {parameters} parameters needs {parameters + 1} points; "
            f"{len(xs)} were given"
        )
    center = float(xs.mean()) if intercept else 0.0
    x_squares = float(((xs - center) ** 2).sum())
    # Equal x differ from their mean by rounding alone.
    if x_squares <= (1e-12 * float(abs(xs).max())) ** 2 * len(xs):
        raise InputError("x does not vary, so no slope can be fitted; add points at other sizes")
    about = float(ys.mean())
    slope = float((xs - center) @ (ys - about * intercept)) / x_squares
    constant = about - slope * center if intercept else 0.0
    residual = float(((ys - slope * xs - constant) ** 2).sum())
    total = float(((ys - about) ** 2).sum())
    spread = sqrt(residual / freedom)
    return LineFit(
        slope=slope,
        intercept=constant,
        slope_error=spread / sqrt(x_squares),
        intercept_error=spread * sqrt(1 / len(xs) + center**2 / x_squares) if intercept else 0.0,
        r_squared=1 - residual / total if total > 0 else float("nan"),
        points=len(xs),
        freedom=freedom,
        spread=spread,
    )
