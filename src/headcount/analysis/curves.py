"""F1–D_K curves: means over seeds and their 95 % t-intervals (Appendix A.2).

The frame of runs has one row per run and the columns of `COLUMNS`. Where its columns `graph`,
`table` and `kv_heads` (shared keys; 0: every head has its own) hold several kinds, each is a point
of its own, and these columns are in the result. Further columns are ignored. Functions here take
the runs of one protocol: the same seed twice at one configuration is an error, not an average.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from headcount.errors import InputError

POINT = ["variant", "degree", "items", "d_model"]  # one D_K* each
USUAL = {"graph": "regular", "table": "gaussian", "kv_heads": 0}  # in frames without them
SPLIT = ["heads", "budget"]
COLUMNS = (*POINT, "heads", "key_dim", "budget", "seed", "value", "diverged")
CONFIDENCE = 0.95


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean test metric over seeds of every (point, heads, budget), with its 95 % interval.

    `frame` has one row per run and the columns of `COLUMNS`, as a store's export and
    `measured_runs` give it. The result has one row per configuration, in order: `mean`, the ends
    `low` and `high` of mean ± t_{0.975, n−1}·s/√n, cut to the values that the metric can take (NaN
    for one seed), `runs`, and `diverged`, how many of them did.

    A diverged run recovers nothing: it counts as F1 = 0. Mean squared error has no such worst
    value, so a diverged run of the `value` variant is left out of the mean and counted in
    `diverged` alone.

    >>> point = {"variant": "max", "degree": 1, "items": 64, "d_model": 16, "heads": 4}
    >>> split = {"key_dim": 5, "budget": 20, "diverged": None}
    >>> runs = pd.DataFrame(
    ...     [point | split | {"seed": seed, "value": f1} for seed, f1 in enumerate([0.98, 1.0])]
    ... )
    >>> curves(runs)[["budget", "mean", "runs"]].to_dict("records")
    [{'budget': 20, 'mean': 0.99, 'runs': 2}]
    """
    return curves_of(checked_runs(frame))


def curves_of(table: pd.DataFrame) -> pd.DataFrame:
    """The curves of checked runs."""
    point = point_columns(table)
    # Sums are taken about the first seed's score, so that seeds that agree have exactly that mean
    # and no spread: rounding must not move a mean across the threshold's level.
    first = table.groupby([*point, *SPLIT])["score"].transform("first")
    groups = table.assign(score=table["score"] - first, first=first).groupby(
        [*point, *SPLIT], sort=True
    )
    scores = groups["score"]
    columns = (groups["first"].first(), scores.mean(), scores.std(), scores.count())
    start, offset, spread, finite = (np.asarray(column, dtype=float) for column in columns)
    mean = start + offset
    half = stats.t.ppf((1 + CONFIDENCE) / 2, finite - 1) * spread / np.sqrt(np.maximum(finite, 1))
    counts = {"runs": np.asarray(groups.size()), "diverged": np.asarray(groups["failed"].sum())}
    keys = groups.size().index.to_frame(index=False)
    most = np.where(keys["variant"] == "value", np.inf, 1.0)  # F1 ends at 1, an error nowhere
    ends = {"low": np.maximum(mean - half, 0.0), "high": np.minimum(mean + half, most)}
    return keys.assign(mean=mean, **ends, **counts)


def checked_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Check a frame of runs; add `failed` and `score`, the value that a run counts with.

    The rows are sorted, which makes every sum the same whatever their order was.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise InputError(
            f"the frame of runs has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}"
        )
    usual = {name: value for name, value in USUAL.items() if name not in frame.columns}
    table = frame.assign(**usual).loc[:, [*COLUMNS, *USUAL]]
    point = point_columns(table)
    table = table.sort_values([*point, *SPLIT, "seed"], ignore_index=True)
    wrong = table[table["heads"] * table["key_dim"] != table["budget"]]
    if len(wrong):
        raise InputError(f"budget differs from heads·key_dim {_at(wrong)}; correct the row")
    twice = table[table.duplicated([*point, *SPLIT, "seed"])]
    if len(twice):
        raise InputError(
            f"seed {twice['seed'].iloc[0]} appears twice {_at(twice)}; "
            "keep the runs of one protocol"
        )
    value = table["value"].astype(float)
    table["failed"] = table["diverged"].notna() | value.isna()
    table["score"] = value.mask(table["failed"], np.where(table["variant"] == "value", np.nan, 0.0))
    return table


def point_columns(table: pd.DataFrame) -> list[str]:
    """The columns that tell the points of checked runs apart."""
    return [*POINT, *(name for name in USUAL if len(table[name].drop_duplicates()) > 1)]


def _at(rows: pd.DataFrame) -> str:
    """Where the first row is."""
    first = rows.iloc[0]
    return "at " + ", ".join(f"{name} {first[name]}" for name in (*POINT, "heads", "key_dim"))
