"""Results that are shipped with headcount: the paper's experiments, run once at full scale.

`measured/` holds what `headcount reproduce --preset paper` leaves in its folder, except the store,
and what `headcount frontier --out` wrote.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from headcount.errors import InputError
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.frontier_file import read_frontier
from headcount.reproduction.results_folder import ResultsFolder

MEASURED = ResultsFolder(Path(__file__).with_name("measured"))


def measured_runs(variant: str | None = None) -> pd.DataFrame:
    """The runs of the preset `paper`, one row each; with `variant`, only those of that variant.

    `value` is the test F1 of a run, and the mean squared error for the variant "value".

    >>> len(measured_runs()), len(measured_runs("sum"))
    (20630, 771)
    """
    runs = _all_runs()
    if variant is None:
        return runs.copy()
    variants = sorted(set(runs["variant"]))
    if variant not in variants:
        raise InputError(
            f"variant {variant!r}: no measured run has it; choose one of {', '.join(variants)}"
        )
    return runs.loc[runs["variant"] == variant].reset_index(drop=True)


@cache
def _all_runs() -> pd.DataFrame:
    return MEASURED.runs()


@cache
def measured_evidence() -> Evidence:
    """What the shipped runs came to, evaluated once a process."""
    return MEASURED.evidence()


@cache
def measured_steps() -> pd.DataFrame:
    """The runs behind the law of steps and the adviser; `measured/steps/manifest.json` explains."""
    return pd.read_parquet(MEASURED.path / "steps" / "runs.parquet")


@cache
def measured_frontier() -> pd.DataFrame:
    """The smallest compiled D_K beside trained and constructed ones, as `frontier` gives them."""
    return read_frontier(MEASURED.path / "frontier.csv")
