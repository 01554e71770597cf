"""Verdicts on shared keys in a whole block: preregistrations/shared-keys-block/README.md.

The runs are in `measured/shared-keys-block`, with the columns of `BLOCK_COLUMNS`. A sum is
D_Q + D_KV, the columns of queries and keys together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from headcount.reproduction.law_verdicts import LawVerdict
from headcount.sweeps.block_frame import read_block_frame
from headcount.theory.refined_law import squared_width

LEVELS = (0.5, 0.7, 0.9)
_FOLDER = Path(__file__).with_name("measured") / "shared-keys-block"
_PLACE = ["items", "d_model", "control"]
_FEWEST = 9  # q of a control, below which a hypothesis is open


@cache
def shared_block_runs() -> pd.DataFrame:
    """The preregistered runs that come with headcount; treat it as read-only."""
    return read_block_frame(_FOLDER / "runs.parquet")


def mean_accuracies(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean test accuracy of each configuration, with its sum; a run that diverged counts as 0."""
    scored = runs.assign(
        accuracy=runs["test"].where(runs["diverged"].isna(), 0.0),
        sum=runs["budget"] + runs["key_budget"],
    )
    names = [*_PLACE, "heads", "key_heads", "key_dim", "budget", "key_budget", "sum"]
    return scored.groupby(names, as_index=False).agg(
        accuracy=("accuracy", "mean"),
        low=("accuracy", "min"),
        high=("accuracy", "max"),
        seeds=("accuracy", "size"),
    )


def thresholds(runs: pd.DataFrame) -> pd.DataFrame:
    """The sum at which the accuracy crosses each level, by place and g, where it does.

    Beside it are `q`, the sum over that with keys of their own; `weight`, the c for which
    D_Q + c·D_KV is the same in both; and the sums that R and G predict, `by_freedom` and
    `by_width`. These are missing where keys of their own do not cross the level.
    """
    means: Any = mean_accuracies(runs)
    lines = []
    for (*place, heads), here in means.groupby([*_PLACE, "heads"]):
        at = dict(zip(_PLACE, place, strict=True)) | {"heads": heads}
        for level in LEVELS:
            own = _crossing(here[here["key_heads"] == heads], level)
            for key_heads, curve in here.groupby("key_heads"):
                found = _crossing(curve, level)
                if found is None:
                    continue
                line = at | {"level": level, "key_heads": key_heads, "sum": found}
                if own is not None:
                    line |= _beside(at["d_model"], heads, key_heads, found, own)
                lines.append(line)
    names = [*_PLACE, "heads", "level", "key_heads", "sum"]
    names += ["q", "weight", "by_freedom", "by_width"]
    return pd.DataFrame(lines, columns=pd.Index(names))


def shared_block_verdicts(runs: pd.DataFrame) -> list[LawVerdict]:
    """One verdict per hypothesis of the preregistration."""
    found: Any = thresholds(runs)
    shared = found[(found["key_heads"] < found["heads"]) & found["q"].notna()]
    barred, plain = (shared[shared["control"] == control] for control in ("barred", "none"))
    return [
        _sum(barred, "sum", "the sum at the threshold does not depend on g (s barred)"),
        _sum(plain, "whole", "the same without a control"),
        _rival(barred),
    ]


def _sum(found: Any, part: str, hypothesis: str) -> LawVerdict:
    if len(found) < _FEWEST:
        return LawVerdict(part, hypothesis, "open", f"{len(found)} thresholds to compare")
    within = int(found["q"].between(0.80, 1.25).sum())
    mean = float(np.exp(np.log(found["q"]).mean()))
    verdict = "partly"
    if within >= 0.9 * len(found) and 0.90 <= mean <= 1.10:
        verdict = "confirmed"
    elif within < 0.6 * len(found) or not 0.80 <= mean <= 1.25:
        verdict = "refuted"
    number = (
        f"{within} of {len(found)} q within [0.80, 1.25], {found['q'].min():.2f} to "
        f"{found['q'].max():.2f}, geometric mean {mean:.2f}"
    )
    return LawVerdict(part, hypothesis, verdict, number)


def _rival(found: Any) -> LawVerdict:
    hypothesis = "degrees of freedom (R) predict the thresholds better than Gaussian width (G)"
    if len(found) < _FEWEST:
        return LawVerdict("rival", hypothesis, "open", f"{len(found)} thresholds to compare")
    better, texts = [], []
    for (items, d_model), here in found.groupby(["items", "d_model"]):
        # Sums of one g are in the ratio of their widths.
        freedom, width = (
            float(np.sqrt((np.log(here["sum"] / here[name]) ** 2).mean()))
            for name in ("by_freedom", "by_width")
        )
        better.append(freedom < width)
        texts.append(f"({items:,}, {d_model}): {freedom:.3f} with R, {width:.3f} with G")
    verdict = "confirmed" if all(better) else "partly" if any(better) else "refuted"
    if len(better) < 2:
        verdict = "open"
    return LawVerdict("rival", hypothesis, verdict, "rms of ln at " + "; at ".join(texts))


def _crossing(curve: pd.DataFrame, level: float) -> float | None:
    """The largest sum at which the accuracy rises through the level, between two tested widths."""
    points = curve.sort_values("sum")[["sum", "accuracy"]].itertuples(index=False)
    found = None
    for (low, below), (high, above) in pairwise(points):
        if below < level <= above:
            share = (level - below) / (above - below)
            found = exp(log(low) + share * log(high / low))
    return found


def _beside(d: int, heads: int, key_heads: int, found: float, own: float) -> dict[str, float]:
    """What a threshold is compared with, given that with keys of their own."""
    width, own_width = found / (heads + key_heads), own / (2 * heads)
    # c solves h·k + c·g·k = h·k₀ + c·h·k₀; without a saving in key columns there is none.
    saved = heads * own_width - key_heads * width
    weight = heads * (width - own_width) / saved if key_heads < heads and saved > 0 else np.nan

    def freedom(g: int, k: float) -> float:
        return d * (heads + g) * k - g * k**2

    def gaussian(g: int, k: float) -> float:
        return g * squared_width(d * heads // g, d, k)

    predicted = {
        name: (heads + key_heads) * _width_with(law, heads, key_heads, own_width, d)
        for name, law in (("by_freedom", freedom), ("by_width", gaussian))
    }
    return {"q": found / own, "weight": weight} | predicted


def _width_with(
    law: Callable[[int, float], float], heads: int, key_heads: int, own_width: float, d: int
) -> float:
    """The width at which g keys have what keys of their own have; d where none up to d suffices."""
    wanted = law(heads, own_width)
    if law(key_heads, d) <= wanted:
        return float(d)
    found: Any = brentq(lambda k: law(key_heads, k) - wanted, 1e-9, d)
    return float(found)
