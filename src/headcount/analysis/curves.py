"""F1–D_K curves: means over seeds and their 95 % t-intervals (Appendix A.2, "Display CIs for F1 curves").

The frame of runs has one row a run and the columns of `COLUMNS`; further columns are ignored.
Functions here take the runs of one protocol: the same seed twice at one configuration is an error,
not an average.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from headcount.errors import InputError

POINT = ["variant", "degree", "items", "d_model"]  # one D_K* each
SPLIT = ["heads", "budget"]
COLUMNS = (*POINT, "heads", "key_dim", "budget", "seed", "value", "diverged")
CONFIDENCE = 0.95


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean test metric of every (point, heads, budget), with its interval mean ± t_{0.975, n−1}·s/√n.

    One row each, in order, with `mean`, `low`, `high` (NaN for one seed), `runs` and `diverged`
    (how many did). A diverged run recovers nothing: it counts as F1 = 0. Mean squared error has no
    such worst value, so a diverged run of the `value` variant is left out of the mean, and is
    counted in `diverged` alone.
    """
    table = checked_runs(frame)
    # Sums are taken about the first seed's score: seeds that agree have exactly that mean, and no spread.
    first = table.groupby([*POINT, *SPLIT])["score"].transform("first")
    groups = table.assign(score=table["score"] - first, first=first).groupby(
        [*POINT, *SPLIT], sort=True
    )
    scores = groups["score"]
    columns = (groups["first"].first(), scores.mean(), scores.std(), scores.count())
    start, offset, spread, finite = (np.asarray(column, dtype=float) for column in columns)
    mean = start + offset
    half = stats.t.ppf((1 + CONFIDENCE) / 2, finite - 1) * spread / np.sqrt(np.maximum(finite, 1))
    counts = {"runs": np.asarray(groups.size()), "diverged": np.asarray(groups["failed"].sum())}
    keys = groups.size().index.to_frame(index=False)
    return keys.assign(mean=mean, low=mean - half, high=mean + half, **counts)


def checked_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Give the runs with `failed` and `score`, what a run counts with; refuse a frame that is not one of runs.

    Their order is fixed, which makes every sum the same however the rows come.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise InputError(
            f"the frame of runs has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}"
        )
    table = frame.loc[:, list(COLUMNS)].sort_values([*POINT, *SPLIT, "seed"], ignore_index=True)
    wrong = table[table["heads"] * table["key_dim"] != table["budget"]]
    if len(wrong):
        raise InputError(f"budget differs from heads·key_dim {_at(wrong)}; correct the row")
    twice = table[table.duplicated([*POINT, *SPLIT, "seed"])]
    if len(twice):
        raise InputError(
            f"seed {twice['seed'].iloc[0]} appears twice {_at(twice)}; keep the runs of one protocol"
        )
    value = table["value"].astype(float)
    table["failed"] = table["diverged"].notna() | value.isna()
    table["score"] = value.mask(table["failed"], np.where(table["variant"] == "value", np.nan, 0.0))
    return table


def _at(rows: pd.DataFrame) -> str:
    """Say where the first row lies."""
    first = rows.iloc[0]
    return "at " + ", ".join(f"{name} {first[name]}" for name in (*POINT, "heads", "key_dim"))
