"""Results of the transformer block as a data frame."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from headcount.block.evaluate import ANSWERS
from headcount.block.spec import BlockResult
from headcount.files import load_frame

_OF_SPEC = (
    *("hash", "table", "table_hash", "items", "length", "d_model", "heads", "key_dim", "budget"),
    *("key_heads", "key_budget"),  # fewer than heads and budget where heads share keys
    *("seed", "scale", "control", "steps", "batch", "learning_rate"),
)
_OF_RESULT = ("best_validation", "best_step", "test", "final_test", "barred_test")
BLOCK_COLUMNS = (
    *_OF_SPEC,
    *_OF_RESULT,
    *(f"answer_{name}" for name in ANSWERS),
    *("target_best", "target_mean", "own_best", "own_mean"),
    *("loss", "diverged", "seconds", "history"),
)
_SETTING = ["control", "scale", "budget", "heads", "key_heads"]


def block_frame(results: Iterable[BlockResult]) -> pd.DataFrame:
    """One row per run with the columns `BLOCK_COLUMNS`."""
    return pd.DataFrame([_row(result) for result in results], columns=list(BLOCK_COLUMNS))


def read_block_frame(path: Path) -> pd.DataFrame:
    """The table of runs in a parquet file.

    Files from before keys could be shared lack the columns for it: every head has its own keys.
    """
    frame = load_frame(path)
    for name, own in (("key_heads", "heads"), ("key_budget", "budget")):
        if name not in frame:
            frame[name] = frame[own]
    return frame.loc[:, list(BLOCK_COLUMNS)]


def block_means(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean test accuracy of each setting, with the least and the greatest over seeds."""
    return frame.groupby(_SETTING)["test"].agg(["mean", "min", "max"]).reset_index()


def _row(result: BlockResult) -> dict[str, Any]:
    seen, values = result.attention, asdict(result)
    return (
        {name: getattr(result.spec, name) for name in _OF_SPEC}
        | {name: values[name] for name in (*_OF_RESULT, "loss", "seconds")}
        | {f"answer_{name}": result.answers[name] for name in ANSWERS}
        | {"target_best": seen.best_target, "target_mean": fmean(seen.target)}
        | {"own_best": seen.best_own, "own_mean": fmean(seen.own)}
        | {"diverged": float("nan") if result.diverged is None else result.diverged}
        | {"history": json.dumps([[step, round(value, 5)] for step, value in result.history])}
    )
