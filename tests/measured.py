"""Runs measured at paper scale, which come with headcount, as tests replay them."""

from __future__ import annotations

import pandas as pd

from headcount.experiments import paper
from headcount.experiments.evidence import KEY
from headcount.experiments.measured import measured_runs


def base_runs() -> pd.DataFrame:
    """All runs of the paper's base grid, as a frame of runs."""
    rows = [[getattr(spec, name) for name in KEY] for spec in paper.runs("base")]
    return pd.DataFrame(rows, columns=KEY).merge(measured_runs(), on=KEY, validate="one_to_one")
