"""Where training starts to succeed: brackets and extrapolated transitions of the capacity law.

A frame of runs has the columns `COLUMNS`; a run succeeds if it stopped before its limit. A group is
a set of runs that differ only in size and seed. The readings are those of the preregistration,
preregistrations/capacity-law/README.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from headcount.errors import InputError
from headcount.theory.capacity_law import capacity_ratio

COLUMNS = ("items", "degree", "d_model", "heads", "key_dim", "value", "steps", "limit")
LEVEL = 0.99  # mean test F1 from which a configuration passes
_LEAST = 0.5  # below this no transition is looked for


def with_ratio(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with their capacity ratio R and whether they succeeded."""
    missing = [name for name in COLUMNS if name not in runs]
    if missing:
        raise InputError(f"the runs lack the columns {', '.join(missing)}; add them")
    ratios = {
        size: capacity_ratio(size[0], size[0] * size[1], *size[2:])
        for size in set(runs[list(COLUMNS[:5])].itertuples(index=False, name=None))
    }
    sizes = runs[list(COLUMNS[:5])].itertuples(index=False, name=None)
    found = [ratios[size] for size in sizes]
    return runs.assign(ratio=found, succeeded=runs["steps"] < runs["limit"])


@dataclass(frozen=True)
class Bracket:
    """Between which R a group turns from failing completely to passing throughout."""

    fails_at: float | None  # the largest R at which no run succeeds
    passes_from: float | None  # the smallest R from which on every configuration passes

    def meets(self, low: float, high: float) -> bool:
        """Whether it overlaps an interval; an open end reaches as far as anything."""
        below = self.fails_at is None or self.fails_at <= high
        return below and (self.passes_from is None or self.passes_from >= low)


def passes(values: Any) -> bool:
    """Whether the mean of a configuration's F1 values reaches 0.99."""
    return float(np.mean(values)) >= LEVEL


def bracket(group: pd.DataFrame) -> Bracket:
    """Read the bracket of one group of `with_ratio`.

    >>> runs = pd.DataFrame({"ratio": [0.9, 1.0, 1.2], "value": [0.5, 0.98, 1.0],
    ...                      "succeeded": [False, True, True]})
    >>> bracket(runs)
    Bracket(fails_at=0.9, passes_from=1.2)
    """
    rows = [
        (ratio, passes(part["value"]), bool(part["succeeded"].any()))
        for ratio in sorted(set(group["ratio"].tolist()))
        for part in [group[group["ratio"] == ratio]]
    ]
    failing = [ratio for ratio, _, succeeded in rows if not succeeded]
    passing = list(takewhile(lambda row: row[1], reversed(rows)))  # from the largest R down
    return Bracket(max(failing, default=None), passing[-1][0] if passing else None)


@dataclass(frozen=True)
class Slowing:
    """Steps to success near a transition: log T = a − ν·log(R − R_c), with one ν for all groups."""

    exponent: float  # ν
    critical: Mapping[Hashable, float]  # R_c of each group
    scale: Mapping[Hashable, float]  # a of each group


def fit_slowing(groups: Mapping[Hashable, pd.DataFrame], near: Slowing | None = None) -> Slowing:
    """Fit the steps of the successful runs of all groups by least squares.

    R_c is sought between 0.5 and the smallest R with a success; groups with fewer than three
    successes are left out. With `near`, a fit of similar data, the search starts there alone.
    """
    wins = {name: group[group["succeeded"]] for name, group in groups.items()}
    wins = {name: group for name, group in wins.items() if len(group) > 2}
    if not wins:
        raise InputError("no group has three successful runs; there is nothing to fit")
    names = list(wins)
    ratios = [np.asarray(wins[name]["ratio"], dtype=float) for name in names]
    logs = [np.log(np.asarray(wins[name]["steps"], dtype=float)) for name in names]

    def criticals(places: np.ndarray) -> list[float]:
        # A logistic keeps R_c inside its interval without bounds that the solver could sit on.
        shares = 1 / (1 + np.exp(-places))
        return [_LEAST + (r.min() - _LEAST - 1e-4) * s for r, s in zip(ratios, shares, strict=True)]

    def residuals(values: np.ndarray) -> np.ndarray:
        scales, places, exponent = values[: len(names)], values[len(names) : -1], values[-1]
        parts = zip(logs, ratios, scales, criticals(places), strict=True)
        return np.concatenate([t - (a - exponent * np.log(r - rc)) for t, r, a, rc in parts])

    if near is None or not set(names) <= set(near.critical):
        starts = [_start(logs, place) for place in (0.5, 2.0, 4.0)]
    else:
        shares = [
            np.clip((near.critical[name] - _LEAST) / (r.min() - _LEAST - 1e-4), 0.02, 0.98)
            for name, r in zip(names, ratios, strict=True)
        ]
        places = [float(np.log(share / (1 - share))) for share in shares]
        starts = [np.array([*(near.scale[name] for name in names), *places, near.exponent])]
    best: Any = min((least_squares(residuals, start) for start in starts), key=lambda fit: fit.cost)
    count = len(names)
    return Slowing(
        float(best.x[-1]),
        dict(zip(names, map(float, criticals(best.x[count:-1])), strict=True)),
        dict(zip(names, map(float, best.x[:count]), strict=True)),
    )


def bootstrap(
    groups: Mapping[Hashable, pd.DataFrame], resamples: int, seed: int = 0
) -> pd.DataFrame:
    """R_c of every group (columns) in fits to resampled runs (rows), one draw per configuration.

    A configuration is the runs of a group with the same R. Groups that a resample leaves with
    fewer than three successes have no value there.
    """
    rng, whole = np.random.default_rng(seed), fit_slowing(groups)
    parts = {
        name: [np.flatnonzero(group["ratio"] == ratio) for ratio in sorted(set(group["ratio"]))]
        for name, group in groups.items()
    }
    rows = []
    for _ in range(resamples):
        drawn = {
            name: groups[name].iloc[
                np.concatenate([rng.choice(rows, len(rows)) for rows in places])
            ]
            for name, places in parts.items()
        }
        rows.append(fit_slowing(drawn, whole).critical)
    return pd.DataFrame(rows, columns=list(groups))


def _start(logs: Sequence[np.ndarray], place: float) -> np.ndarray:
    return np.array([*(float(np.median(part)) - 1 for part in logs), *([place] * len(logs)), 1.0])
