"""Runs measured elsewhere that tests replay; a file's first line says how they were made."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def base_runs() -> pd.DataFrame:
    """All runs of the paper's base grid, as a frame of runs."""
    runs = pd.read_csv(Path(__file__).with_name("data") / "base_runs.csv.gz", comment="#")
    budget = runs["heads"] * runs["key_dim"]
    return runs.assign(variant="max", degree=1, budget=budget, diverged=None)
