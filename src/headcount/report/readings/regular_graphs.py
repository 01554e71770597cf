"""What the runs on regular graphs say (Figs. 12 and 13): D_K* and h* by degree."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
import pandas as pd

from headcount.analysis.fits import LineFit, fit_line
from headcount.analysis.laws import feature, regular_fit
from headcount.report.readings.frames import fitted, passing, rows
from headcount.report.readings.paper_numbers import paper_integers
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence
from headcount.theory.laws import BUDGET

# a power that counts as 1
PROPORTIONAL = (rule("C5")["least_power"], rule("C5")["largest_power"])


def regular_line(evidence: Evidence, *, all_degrees: bool = False) -> LineFit | None:
    """D_K* against r·m log₂ m/d_model (Fig. 12), on the paper's degrees or on all measured."""
    return fitted(regular_fit, _degrees(evidence, all_degrees))


def degree_power(
    evidence: Evidence, column: str = "central", *, all_degrees: bool = False
) -> LineFit | None:
    """The line of log D_K* (or of log h*, `heads`) against log r: its slope is the power of r."""
    return fitted(_log_fit, _degrees(evidence, all_degrees), column=column)


def end_power(evidence: Evidence) -> float | None:
    """The power of r with which D_K* grows from the least to the largest degree measured."""
    found = sorted(rows(passing(evidence, "regular"), "degree", "central"))
    if len(found) < 2:
        return None
    (least, first), (largest, last) = found[0], found[-1]
    return log(last / first) / log(largest / least)


def is_proportional(power: float) -> bool:
    """Whether a power counts as 1."""
    return PROPORTIONAL[0] <= power <= PROPORTIONAL[1]


def beyond_line(evidence: Evidence) -> list[tuple[int, str, float]]:
    """Degrees that the paper's fit leaves out: their side of our fit, and D_K* relative to it."""
    line, table = regular_line(evidence), passing(evidence, "regular")
    table = table.loc[~table["degree"].isin(paper_integers("regular.degrees"))]
    if line is None or table.empty:
        return []
    expected = [line(x) for x in feature(table, BUDGET.form)]
    return [
        (degree, "below" if budget < height else "above", budget / height)
        for (degree, budget), height in zip(rows(table, "degree", "central"), expected, strict=True)
    ]


def _degrees(evidence: Evidence, all_degrees: bool) -> pd.DataFrame:
    table = passing(evidence, "regular")
    if all_degrees:
        return table
    return table.loc[table["degree"].isin(paper_integers("regular.degrees"))]


def _log_fit(table: pd.DataFrame, column: str) -> LineFit:
    degrees, found = (np.log(table[name].to_numpy(dtype=float)) for name in ("degree", column))
    return fit_line(degrees, found)


@dataclass(frozen=True)
class DegreeHeads:
    """h* of one degree beside m'/d_model."""

    degree: int
    heads: int
    low: int
    high: int
    target: float  # m'/d_model

    @property
    def factor(self) -> float:
        """How far h* lies from m'/d_model, at least 1."""
        return max(self.heads / self.target, self.target / self.heads)

    @property
    def nearest(self) -> float:
        """The same for the nearest end of h*'s interval; 1 where the interval holds the target."""
        return max(1.0, self.low / self.target, self.target / self.high)


def degree_heads(evidence: Evidence) -> list[DegreeHeads]:
    """h* of every degree measured (Fig. 13)."""
    table = passing(evidence, "regular").sort_values("degree")
    names = ("degree", "heads", "heads_low", "heads_high", "items", "d_model")
    return [
        DegreeHeads(degree, heads, low or heads, high or heads, degree * items / d_model)
        for degree, heads, low, high, items, d_model in rows(table, *names)
    ]
