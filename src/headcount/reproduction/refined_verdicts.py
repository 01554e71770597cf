"""Verdicts on narrow heads and hubs, by the rules of preregistrations/refined-law/README.md."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from headcount.reproduction.adviser_verdicts import adviser_verdicts
from headcount.reproduction.law_verdicts import LawVerdict, verdict_table, verdicts
from headcount.reproduction.separability import measured_separability

_GROUP = ["key_dim", "graph", "degree", "d_model"]


def transition(group: pd.DataFrame, ratio: str) -> float | None:
    """The largest value of a ratio at which the share of separable graphs crosses one half.

    None if no size has a share below, or none has one above.

    >>> rows = {"R": [1.0, 1.0, 1.2, 1.2], "separable": [False, False, True, True]}
    >>> transition(pd.DataFrame(rows), "R")
    1.1
    """
    shares: Any = group.groupby(ratio)["separable"].mean()
    ratios, values = shares.index.to_numpy(float), shares.to_numpy(float) - 0.5
    steps = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
    if not steps.size:
        return None
    at = steps[-1]
    part = -values[at] / (values[at + 1] - values[at])
    return float(ratios[at] + part * (ratios[at + 1] - ratios[at]))


def transitions(part: str, ratio: str) -> dict[Hashable, float | None]:
    """The transition of every group of a part, by width, graph, degree and d_model."""
    table: Any = measured_separability()
    groups = table[table["part"] == part].groupby(_GROUP, sort=False)
    return {name: transition(group, ratio) for name, group in groups}


def refined_verdicts() -> list[LawVerdict]:
    """All verdicts, in the order of the preregistration."""
    return [_narrow_heads(), _fewer_bits(), _hubs(), _permutations()]


def _within(value: float | None, low: float, high: float) -> bool:
    return value is not None and low <= value <= high


def _narrow_heads() -> LawVerdict:
    found, rival = transitions("k", "width_ratio"), transitions("k", "ratio")
    inside = sum(_within(one, 0.95, 1.20) for one in found.values())
    theirs = sum(_within(one, 0.95, 1.20) for one in rival.values())
    outside = len(found) - inside
    verdict = "confirmed" if outside == 0 else "partly"
    if outside >= 4 or theirs >= inside:
        verdict = "refuted"
    number = f"{inside} of {len(found)} groups within [0.95, 1.20] in G, {theirs} in R"
    return LawVerdict("k", "narrow heads: the transition is at G = 1", verdict, number)


def _fewer_bits() -> LawVerdict:
    found = transitions("k", "width_ratio")
    shares: list[float | None] = []
    for key_dim in (3, 6, 12, 24):
        ours, theirs = (found[key_dim, graph, 1, 48] for graph in ("regular", "random"))
        shares.append(None if ours is None or theirs is None else ours / theirs)
    high = sum(share is not None and share >= 0.95 for share in shares)
    low = sum(share is not None and share < 0.85 for share in shares)
    verdict = "confirmed" if high == len(shares) else "refuted" if low >= 2 else "partly"
    said = ", ".join("none" if share is None else f"{share:.2f}" for share in shares)
    hypothesis = "labels with fewer bits need no less"
    number = f"permutations over random graphs: {said} (k = 3, 6, 12, 24)"
    return LawVerdict("k′", hypothesis, verdict, number)


def _hubs() -> LawVerdict:
    table: Any = measured_separability()
    table = table[table["part"] == "l"]
    decisive = table[["ratio", "hub_ratio"]].min(axis=1)
    below, above = table[decisive < 0.9]["separable"], table[decisive > 1.25]["separable"]
    low, high = float(below.mean()), float(above.mean())
    verdict = "confirmed" if low <= 0.05 and high >= 0.95 else "partly"
    if low > 0.15 or high < 0.85:
        verdict = "refuted"
    number = (
        f"{int(below.sum())} of {len(below)} separable below Z = 0.9, "
        f"{int(above.sum())} of {len(above)} above 1.25"
    )
    return LawVerdict("l", "hubs: the smaller of R and H decides", verdict, number)


def _permutations() -> LawVerdict:
    found = transitions("m", "ratio")
    inside = sum(_within(one, 0.95, 1.15) for one in found.values())
    outside = len(found) - inside
    verdict = "confirmed" if outside == 0 else "refuted" if outside >= 2 else "partly"
    ends = [f"{'none' if one is None else format(one, '.3f')}" for one in found.values()]
    number = f"transition at R = {', '.join(ends)} (d = 16, 24, 32, 48)"
    hypothesis = "permutations, full width, without training: the transition is at R = 1"
    return LawVerdict("m", hypothesis, verdict, number)


def law_verdicts() -> pd.DataFrame:
    """Every preregistered verdict on the capacity law and the adviser, with its numbers.

    >>> law_verdicts()["verdict"].isin(["confirmed", "partly", "refuted"]).all().item()
    True
    """
    parts = {
        "capacity-law": verdicts(),
        "refined-law": refined_verdicts(),
        "adviser": adviser_verdicts(),
    }
    tables = {about: verdict_table(found) for about, found in parts.items()}
    return pd.concat(tables, names=["about"]).reset_index("about").reset_index(drop=True)
