"""Verdicts on the limit of compiled weights: preregistrations/compiled-limit/README.md."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from headcount.reproduction.law_verdicts import LawVerdict

_TABLE = Path(__file__).with_name("measured") / "law" / "compiled_limit.csv"
_GROUP = ["part", "items", "d_model", "degree", "heads"]
_GROUPS = {"one head": 3, "heads": 5, "more heads": 3, "degree 4": 3}  # preregistered


@cache
def measured_limit() -> pd.DataFrame:
    """The smallest exact D_K of every search that was finished; treat it as read-only."""
    return pd.read_csv(_TABLE)


def limit_groups() -> pd.DataFrame:
    """Each group's search with the median D_K, the larger one of two, and the number of seeds.

    A search that found nothing counts as larger than any, and is left empty where it is the median.
    """
    rows = []
    for _, group in measured_limit().groupby(_GROUP, sort=False):
        ordered = group.sort_values("budget", na_position="last")
        middle = ordered.iloc[len(ordered) // 2].to_dict()
        rows.append(middle | {"seeds": len(group)})
    return pd.DataFrame(rows).drop(columns=["seed", "seconds"])


def limit_verdicts() -> list[LawVerdict]:
    """All verdicts, in the order of the preregistration."""
    return [
        _meets("one head", "one head is exact down to G = 1"),
        _meets("heads", "m/(2d) heads are exact down to G = 1"),
        _more_heads(),
        _growing(),
        _meets("degree 4", "graphs of degree 4 follow G as well"),
    ]


def _meets(part: str, hypothesis: str) -> LawVerdict:
    """Whether the bracket in G of every group meets [1, 1.15]."""
    groups = _of(part)
    inside = int(((groups["width_ratio"] >= 1) & (groups["failed_width_ratio"] <= 1.15)).sum())
    outside = len(groups) - inside
    missing = _GROUPS[part] - len(groups)
    verdict = _judged(not (outside or missing), outside >= 2, missing)
    ends = zip(groups["failed_width_ratio"], groups["width_ratio"], strict=True)
    said = ", ".join(f"{low:.2f}–{high:.2f}" for low, high in ends) or "none"
    return LawVerdict(part, hypothesis, verdict, f"brackets in G: {said}{_absent(missing)}")


def _more_heads() -> LawVerdict:
    shares = []
    two = _of("heads").set_index(["items", "d_model"])["width_ratio"]
    row: Any
    for row in _of("more heads").itertuples():
        if (row.items, row.d_model) in two.index:
            shares.append(float(row.width_ratio / two[row.items, row.d_model]))
    missing = _GROUPS["more heads"] - len(shares)
    all_more = not missing and all(share >= 1.05 for share in shares)
    verdict = _judged(all_more, sum(share < 1 for share in shares) >= 2, missing)
    said = ", ".join(f"{share:.2f}" for share in shares)
    number = f"G of four heads over G of two: {said}{_absent(missing)}"
    return LawVerdict("more heads", "twice as many heads need more", verdict, number)


def _growing() -> LawVerdict:
    groups = _of("heads")
    ratios = groups[groups["items"] == 4 * groups["d_model"]].sort_values("items")["ratio"]
    found = ratios.tolist()
    missing = 4 - len(found)
    flat = all(later <= earlier + 0.02 for earlier, later in pairwise(found))
    grown = not missing and found[-1] > found[0] + 0.05
    verdict = _judged(not missing and flat and max(found) < 0.85, grown, missing)
    number = f"R = {', '.join(f'{one:.2f}' for one in found)}{_absent(missing)}"
    return LawVerdict("growing", "along m = 4d with two heads R does not grow", verdict, number)


def _of(part: str) -> Any:
    groups = limit_groups()
    return groups[groups["part"] == part]


def _judged(
    confirmed: bool, refuted: bool, missing: int
) -> Literal["confirmed", "partly", "refuted", "open"]:
    """Groups that are missing leave it open, unless the others refute it."""
    if refuted:
        return "refuted"
    return "open" if missing else "confirmed" if confirmed else "partly"


def _absent(missing: int) -> str:
    return f"; {missing} not measured" if missing else ""
