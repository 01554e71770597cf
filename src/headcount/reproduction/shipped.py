"""Results that are shipped with headcount: the paper's experiments, run once at full scale.

`measured/` holds what `headcount reproduce --preset paper` leaves in its folder, except the store,
and what `headcount frontier --out` wrote.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from headcount.reproduction.frontier_file import read_frontier
from headcount.reproduction.results_folder import ResultsFolder

MEASURED = ResultsFolder(Path(__file__).with_name("measured"))


@cache
def measured_runs() -> pd.DataFrame:
    """All runs of the preset `paper`, one row each."""
    return MEASURED.runs()


@cache
def measured_frontier() -> pd.DataFrame:
    """The smallest compiled D_K beside trained and constructed ones, as `frontier` gives them."""
    return read_frontier(MEASURED.path / "frontier.csv")
