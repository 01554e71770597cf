"""Verdicts on shared keys, by the rules of preregistrations/shared-keys/README.md."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headcount.analysis.shared_keys import PASSING, beside_own, split_thresholds
from headcount.reproduction.law_verdicts import LawVerdict, verdict_table
from headcount.theory.key_width import free_query_width, random_key_width

_FOLDER = Path(__file__).with_name("measured") / "shared-keys"
_POINT = ["items", "d_model"]
_NEAR, _NEAR_MEAN = (0.80, 1.25), (0.90, 1.10)
_SMALL, _LARGE = 0.12, 0.25  # rms errors of ln k
_KNOWN = 0.8  # share of thresholds without which a hypothesis is open
_EXPECTED = {"main": 35, "softmax": 18, "longer": 28, "regular": 5, "antonyms": 4, "queries": 6}


@cache
def shared_key_runs() -> pd.DataFrame:
    """The preregistered runs that come with headcount, one row each; treat it as read-only.

    `value` is the test F1, `kv_heads` the number of keys, and `reached` the first check from which
    validation F1 stays at 0.99 (0: none). In the part `queries` the queries are shared instead.
    """
    return pd.read_parquet(_FOLDER / "runs.parquet")


@cache
def shared_key_thresholds() -> pd.DataFrame:
    """The threshold of every split in the shipped runs; treat it as read-only."""
    return split_thresholds(shared_key_runs())


def shared_key_verdicts() -> pd.DataFrame:
    """Every preregistered verdict on shared keys, with its numbers.

    >>> shared_key_verdicts()["part"].tolist()[:3]
    ['sum', 'freedom', 'rival']
    """
    return verdict_table(verdicts(shared_key_runs(), shared_key_thresholds()))


def verdicts(runs: pd.DataFrame, thresholds: pd.DataFrame | None = None) -> list[LawVerdict]:
    """All verdicts on these runs, in the order of the preregistration."""
    known = split_thresholds(runs, resamples=0) if thresholds is None else thresholds
    beside: Any = beside_own(known)
    parts = {part: beside[beside["part"] == part] for part in _EXPECTED}
    main = parts["main"]
    said = "the sum D_Q + D_KV at the threshold does not depend on g"
    return [
        _sums("sum", said, main),
        _freedom(main),
        _rival(main),
        _left_out(main),
        _sums("softmax", f"{said}, softmax", parts["softmax"]),
        _all_near("regular", f"{said}, a regular graph", parts["regular"]),
        _all_near("antonyms", f"{said}, a real relation and table", parts["antonyms"]),
        _sums("longer", f"{said}, ten times the steps", parts["longer"]),
        _floor(runs),
        _random_keys(runs),
        _queries(known),
    ]


def _judged(confirmed: bool, refuted: bool) -> Any:
    return "confirmed" if confirmed else "refuted" if refuted else "partly"


def _open(part: str, hypothesis: str, found: int, expected: int) -> LawVerdict | None:
    """Fewer than 80 % of the thresholds that were planned leave a hypothesis open."""
    if found >= _KNOWN * expected:
        return None
    return LawVerdict(part, hypothesis, "open", f"{found} of {expected} thresholds are known")


def _sums(part: str, hypothesis: str, beside: Any) -> LawVerdict:
    """Most ratios of sums near 1, and their mean nearer."""
    expected = _EXPECTED["main" if part == "sum" else part]
    ratios = beside["sum_ratio"].dropna()
    if undecided := _open(part, hypothesis, len(ratios), expected):
        return undecided
    near, mean = int(ratios.between(*_NEAR).sum()), float(np.exp(np.log(ratios).mean()))
    share = near / len(ratios)
    verdict = _judged(
        share >= 0.9 and _NEAR_MEAN[0] <= mean <= _NEAR_MEAN[1],
        share < 0.6 or not _NEAR[0] <= mean <= _NEAR[1],
    )
    return LawVerdict(part, hypothesis, verdict, f"{_ratios(ratios, near)}, mean {mean:.2f}")


def _all_near(part: str, hypothesis: str, beside: Any) -> LawVerdict:
    ratios = beside["sum_ratio"].dropna()
    if undecided := _open(part, hypothesis, len(ratios), _EXPECTED[part]):
        return undecided
    near = int(ratios.between(*_NEAR).sum())
    verdict = _judged(near == len(ratios), 2 * (len(ratios) - near) >= len(ratios))
    return LawVerdict(part, hypothesis, verdict, _ratios(ratios, near))


def _ratios(ratios: Any, near: int) -> str:
    ends = f"{ratios.min():.2f} to {ratios.max():.2f}"
    return f"{near} of {len(ratios)} ratios within [0.80, 1.25], {ends}"


def log_errors(beside: Any, prediction: str) -> Any:
    """ln(k*/predicted) of the splits whose two thresholds are known."""
    return np.log(beside["threshold"] / beside[prediction]).dropna()


def _rms(errors: Any) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def _freedom(main: Any) -> LawVerdict:
    hypothesis = "R predicts the threshold from that with keys of their own"
    errors = log_errors(main, "by_freedom")
    if undecided := _open("freedom", hypothesis, len(errors), _EXPECTED["main"]):
        return undecided
    size, bias = _rms(errors), round(float(errors.mean()), 3) + 0.0  # no minus before a zero
    number = f"rms error {size:.3f}, mean {bias:+.3f} in ln k, {len(errors)} splits"
    return LawVerdict("freedom", hypothesis, _judged(size <= _SMALL, size > _LARGE), number)


def _rival(main: Any) -> LawVerdict:
    hypothesis = "R predicts it better than G"
    points = main.dropna(subset=["threshold", "own"]).groupby(_POINT, sort=False)
    errors = {
        name: [_rms(log_errors(part, name)) for _, part in points]
        for name in ("by_freedom", "by_width")
    }
    known = len(main.dropna(subset=["threshold", "own"]))
    if undecided := _open("rival", hypothesis, known, _EXPECTED["main"]):
        return undecided
    better = sum(ours < theirs for ours, theirs in zip(*errors.values(), strict=True))
    ours, theirs = (", ".join(f"{one:.3f}" for one in part) for part in errors.values())
    number = f"better at {better} of {len(points)} points; rms errors R {ours}; G {theirs}"
    return LawVerdict("rival", hypothesis, _judged(better >= 4, better <= 1), number)


def exponent(beside: Any) -> float:
    """β of k* = k*(h, h)·(2h/(h + g))^β by least squares; 1 if the sum alone counts."""
    gain = np.log(2 * beside["heads"] / (beside["heads"] + beside["kv_heads"]))
    cost = np.log(beside["threshold"] / beside["own"])
    return float((gain * cost).sum() / (gain**2).sum())


def left_out_errors(main: Any) -> Any:
    """ln(k*/predicted) at each point, with β fitted to the other points."""
    known = main.dropna(subset=["threshold", "own"])
    errors = []
    for _, part in known.groupby(_POINT, sort=False):
        others = known.drop(part.index)
        gain = 2 * part["heads"] / (part["heads"] + part["kv_heads"])
        errors.append(np.log(part["threshold"] / (part["own"] * gain ** exponent(others))))
    return pd.concat(errors)


def _left_out(main: Any) -> LawVerdict:
    hypothesis = "one exponent of 2h/(h + g), fitted to four points, predicts the fifth"
    known = main.dropna(subset=["threshold", "own"])
    if undecided := _open("left-out", hypothesis, len(known), _EXPECTED["main"]):
        return undecided
    size = _rms(left_out_errors(main))
    number = f"left-out rms error {size:.3f} in ln k; β = {exponent(known):.2f}"
    return LawVerdict("left-out", hypothesis, _judged(size <= _SMALL, size > _LARGE), number)


def least_widths(runs: pd.DataFrame) -> dict[tuple[int, int], int]:
    """The smallest width that passes with one key head, by point; 0 if none does."""
    chosen: Any = runs[runs["part"].isin(["main", "narrow", "longer"]) & (runs["kv_heads"] == 1)]
    scores = chosen.assign(value=chosen["value"].where(chosen["diverged"] == 0, 0.0))
    means = scores.groupby([*_POINT, "part", "heads", "key_dim"])["value"].mean()
    points = sorted(map(tuple, chosen[_POINT].drop_duplicates().to_numpy().tolist()))
    found = dict.fromkeys(points, 0)
    for m, d, _, _, width in sorted(means[means >= PASSING].index, key=lambda key: -key[-1]):
        found[m, d] = int(width)  # the widest first, so that the narrowest stays
    return found


def _floor(runs: pd.DataFrame) -> LawVerdict:
    hypothesis = "no key is narrower than one free query per source needs by the refined law"
    found = least_widths(runs)
    if undecided := _open("floor", hypothesis, len(found), 5):
        return undecided
    floors = {(m, d): free_query_width(m, m, d) for m, d in found}
    below = sum(0 < least < floors[point] for point, least in found.items())
    said = ", ".join(f"{least or 'none'} ({floors[point]:.1f})" for point, least in found.items())
    number = f"smallest k with g = 1, and the floor: {said}"
    return LawVerdict("floor", hypothesis, _judged(below == 0, below >= 2), number)


def _random_keys(runs: pd.DataFrame) -> LawVerdict:
    hypothesis = "the smallest key is 1 to 1.6 times as wide as random keys need"
    found = least_widths(runs)
    if undecided := _open("random keys", hypothesis, len(found), 5):
        return undecided
    factors = [least / random_key_width(m) for (m, _), least in found.items()]
    outside = sum(not 1 <= factor <= 1.6 for factor in factors)
    number = "factors " + ", ".join(f"{factor:.2f}" for factor in factors)
    return LawVerdict("random keys", hypothesis, _judged(outside == 0, outside >= 3), number)


def query_ratios(thresholds: Any) -> Any:
    """k* with shared queries over k* with shared keys, for each split of the control."""
    split = [*_POINT, "heads", "kv_heads"]
    by_part = {
        part: thresholds[thresholds["part"] == part].set_index(split)["threshold"]
        for part in ("queries", "main")
    }
    return (by_part["queries"] / by_part["main"].reindex(by_part["queries"].index)).dropna()


def _queries(thresholds: Any) -> LawVerdict:
    hypothesis = "shared queries need the width of shared keys"
    ratios = query_ratios(thresholds)
    if undecided := _open("queries", hypothesis, len(ratios), _EXPECTED["queries"]):
        return undecided
    far = int((~ratios.between(*_NEAR)).sum())
    verdict = _judged(bool(ratios.between(0.87, 1.15).all()), far >= 2)
    number = "ratios " + ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return LawVerdict("queries", hypothesis, verdict, number)
