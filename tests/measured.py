"""Runs measured at paper scale, which come with headcount, as tests replay them."""

from __future__ import annotations

from functools import cache

import pandas as pd

from headcount.reproduction.evidence import KEY
from headcount.reproduction.shipped import measured_evidence, measured_runs
from headcount.sweeps.grid import paper_runs

__all__ = ["base_runs", "measured_evidence"]


@cache
def base_runs() -> pd.DataFrame:
    """All runs of the paper's base grid, as a frame of runs."""
    rows = [[getattr(spec, name) for name in KEY] for spec in paper_runs("base")]
    return pd.DataFrame(rows, columns=KEY).merge(measured_runs(), on=KEY, validate="one_to_one")
