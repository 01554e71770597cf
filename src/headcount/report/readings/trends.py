"""Trends over points: steps between neighbours, and rank correlation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd


@dataclass(frozen=True)
class Steps:
    """Of neighbouring points, how many go up, stay level and go down."""

    up: int
    level: int
    down: int

    @property
    def all(self) -> int:
        return self.up + self.level + self.down


def steps(table: pd.DataFrame, column: str, along: str) -> Steps:
    """Compare neighbours along `items` at the same d_model, or along `d_model` at the same m."""
    across = "d_model" if along == "items" else "items"
    changes = [
        after - before
        for _, line in table.sort_values(along).groupby(across)
        for before, after in pairwise(int(entry) for entry in line[column])
    ]
    return Steps(
        sum(c > 0 for c in changes), sum(c == 0 for c in changes), sum(c < 0 for c in changes)
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's correlation; None where a side does not vary."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return float(pd.Series(first).rank().corr(pd.Series(second).rank()))
