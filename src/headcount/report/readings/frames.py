"""Parts of the evidence, in the shape that readings need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

from headcount.analysis.fits import LineFit
from headcount.errors import InputError
from headcount.reproduction.evidence import Evidence

PERMUTATIONS = ("base", "extreme", "diagonal")  # the grids of permutations under max


def rows(table: pd.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    """Columns as rows of plain values, None for what is missing."""
    columns = (
        [None if pd.isna(entry) else entry for entry in table[name].tolist()] for name in names
    )
    return zip(*columns, strict=True)


def curves_on(evidence: Evidence, grid: str, **at: int | str) -> pd.DataFrame:
    """The curves of a grid, without those that have no mean; an empty frame where there is none."""
    return evidence.on(grid, "curves", **at).dropna(subset=["mean"])


def by_heads_on(evidence: Evidence, grid: str) -> pd.DataFrame:
    """The thresholds by head count of a grid."""
    return evidence.on(grid, "by_heads")


def passing(evidence: Evidence, grid: str) -> pd.DataFrame:
    """The thresholds of a grid where some budget passed."""
    table = evidence.on(grid, "thresholds")
    return table.loc[table["central"].notna()]


def law_points(evidence: Evidence, base_only: bool = False) -> pd.DataFrame:
    """The thresholds that the laws of Section 6.1 are fitted to, or those of the base grid."""
    return passing(evidence, "base") if base_only else evidence.law_points()


def permutation_points(evidence: Evidence) -> pd.DataFrame:
    """The thresholds of all permutations under max, each point once."""
    found = pd.concat([passing(evidence, grid) for grid in PERMUTATIONS])
    return found.drop_duplicates(["items", "d_model"], ignore_index=True)


def least_seeds(table: pd.DataFrame) -> int:
    """The seeds of the threshold or curve that has the fewest; 0 where there is none."""
    return int(min(table["runs"].tolist(), default=0))


def by_point(curves: pd.DataFrame) -> list[tuple[tuple[int, int], pd.DataFrame]]:
    """The curves of every (m, d_model), in order."""
    found = sorted(set(rows(curves, "items", "d_model")))
    return [
        ((m, d), curves.loc[(curves["items"] == m) & (curves["d_model"] == d)]) for m, d in found
    ]


def fitted(fit: Callable[..., LineFit], table: pd.DataFrame, **options: Any) -> LineFit | None:
    """A fit, or None where the points are too few or do not vary."""
    try:
        return fit(table, **options)
    except InputError:
        return None
