"""Verdicts on the capacity law, by the rules of preregistrations/capacity-law and -law-2."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from headcount.analysis.transitions import (
    Bracket,
    Slowing,
    bootstrap,
    bracket,
    fit_slowing,
    passes,
    with_ratio,
)
from headcount.theory.capacity_law import items_at_ratio, items_held

_FOLDER = Path(__file__).with_name("measured") / "law"
_RESAMPLES = 200
_NEAR = 0.05  # how far the items at the transition may be from the prediction


@dataclass(frozen=True)
class LawVerdict:
    """What the runs say of one preregistered hypothesis."""

    part: str
    hypothesis: str
    verdict: Literal["confirmed", "partly", "refuted", "open"]
    number: str


def verdict_table(found: Iterable[LawVerdict]) -> pd.DataFrame:
    """One row per verdict, as reports and notebooks show them."""
    return pd.DataFrame([asdict(one) for one in found]).rename(columns={"number": "numbers"})


@cache
def law_runs() -> pd.DataFrame:
    """The preregistered runs that come with headcount, with R and success; treat it as read-only.

    `group` names the runs that differ only in items and seed.
    """
    runs = with_ratio(pd.read_parquet(_FOLDER / "runs.parquet"))
    # Parts with a constant share of edges have a degree that follows the items.
    share = (runs["degree"] / runs["items"]).where(runs["degree"] > 8)
    kind = share.map(lambda f: "" if pd.isna(f) else " f = 1/2" if f > 0.4 else " f = 1/4")
    degree = (
        runs["degree"].where(runs["degree"] <= 8, 0).map(lambda r: f" r = {r}" if r > 1 else "")
    )
    size = [
        f"d = {d}, {h} × {k}"
        for d, h, k in zip(runs["d_model"], runs["heads"], runs["key_dim"], strict=True)
    ]
    # The usual graphs and tables go without saying.
    graphs = runs["graph"].map(lambda name: "" if name == "regular" else f" {name}")
    tables = runs["table"].map(lambda name: "" if name == "gaussian" else f" {name}")
    return runs.assign(group=pd.Series(size, index=runs.index) + kind + degree + graphs + tables)


def groups_of(part: str, variant: str = "max") -> dict[Hashable, pd.DataFrame]:
    """The groups of a part, by name, in the order of their sizes."""
    runs = law_runs()
    chosen = runs[(runs["part"] == part) & (runs["variant"] == variant)]
    return {name: pd.DataFrame(part) for name, part in chosen.groupby("group", sort=False)}


@cache
def slowing(part: str) -> Slowing:
    """Steps against R in a part, with one exponent."""
    return fit_slowing(groups_of(part))


def deviations(part: str) -> dict[Hashable, float]:
    """Items at the extrapolated transition over the items that the law predicts, by group."""
    found, groups = slowing(part).critical, groups_of(part)
    return {name: _items_factor(groups[name], ratio) for name, ratio in found.items()}


def intervals(part: str) -> pd.DataFrame:
    """95 % bootstrap intervals of `deviations`, a row per group; a fit per resample takes time.

    `of_200` counts the resamples in which the group had the three successes that a fit needs.
    """
    groups = groups_of(part)
    found = bootstrap(groups, _RESAMPLES)
    rows = []
    for name in deviations(part):
        factors = [_items_factor(groups[name], ratio) for ratio in found[name].dropna()]
        low, high = np.quantile(factors, [0.025, 0.975])
        rows.append({"part": part, "group": name, "low": low, "high": high, "of_200": len(factors)})
    return pd.DataFrame(rows)


@cache
def measured_intervals() -> pd.DataFrame:
    """`intervals` of the parts a, b, d and h as shipped; treat it as read-only."""
    return pd.read_csv(_FOLDER / "intervals.csv")


def _items_factor(group: pd.DataFrame, ratio: float) -> float:
    one = group.iloc[0]
    channel = int(one["d_model"]), int(one["heads"]), int(one["key_dim"])
    if " f = " in str(one["group"]):  # at a constant share of edges m² is proportional to 1/R
        return float(ratio**-0.5)
    degree = float(one["degree"])
    return items_at_ratio(*channel, ratio, degree) / items_held(*channel, degree)


def verdicts() -> list[LawVerdict]:
    """All verdicts, in the order of the preregistration."""
    return [
        _transition("a", "one head of full width: the transition is at R = 1", 6, 4),
        _necessary_and_sufficient(),
        _transition("b", "one head of width k < d: the transition is at R = 1", 7, 5),
        _several_heads(),
        _transition("d", "denser graphs: the transition is at R = 1", 5, 4),
        _slowing_formula(),
        _summed(),
        _transition("h", "random and skewed graphs: the transition is at R = 1", 5, 4),
        _binary_tables(),
        _longer_runs(),
    ]


def _transition(part: str, hypothesis: str, enough: int, few: int) -> LawVerdict:
    """Confirmed with `enough` groups within 5 %, refuted with fewer than `few`."""
    found, groups = deviations(part), groups_of(part)
    near = sum(abs(factor - 1) <= _NEAR for factor in found.values())
    verdict = "confirmed" if near >= enough else "refuted" if near < few else "partly"
    spread = f"factors {min(found.values()):.3f} to {max(found.values()):.3f}"
    missing = len(groups) - len(found)
    none = f"; too few successes in {missing} of them" if missing else ""
    return LawVerdict(
        part, hypothesis, verdict, f"{near} of {len(groups)} groups within 5 %, {spread}{none}"
    )


def _necessary_and_sufficient() -> LawVerdict:
    runs = pd.concat(groups_of("a").values())
    early = int(runs.loc[runs["ratio"] < 0.95, "succeeded"].sum())
    late = [
        str(part["group"].tolist()[0])
        for _, part in runs[runs["ratio"] >= 1.15].groupby(["group", "ratio"])
        if not passes(part["value"])
    ]
    wrong = early + len(late)
    verdict = "confirmed" if wrong == 0 else "refuted" if wrong >= 3 else "partly"
    where = f", all at {', '.join(sorted(set(late)))}" if late else ""
    number = f"{early} runs succeed below 0.95; {len(late)} configurations fail above 1.15{where}"
    return LawVerdict("a′", "R < 0.95 never succeeds, R ≥ 1.15 always passes", verdict, number)


def brackets(part: str, variant: str = "max") -> dict[Hashable, Bracket]:
    """The bracket of every group of a part."""
    return {name: bracket(group) for name, group in groups_of(part, variant).items()}


def _several_heads() -> LawVerdict:
    found = brackets("c")
    apart = [name for name, one in found.items() if not one.meets(0.95, 1.10)]
    above = [one for one in found.values() if one.fails_at is not None and one.fails_at > 1.10]
    verdict = "confirmed" if not apart else "refuted" if len(above) >= 3 else "partly"
    number = f"{len(found) - len(apart)} of {len(found)} brackets meet [0.95, 1.10]"
    return LawVerdict("c", "several heads: the critical R is 1", verdict, number)


def _slowing_formula() -> LawVerdict:
    """Predict the steps of each d from the others: the mean of their R_c, and A = A₀·m^β."""
    groups = groups_of("a")
    errors = []
    for left_out, group in groups.items():
        wins = group[group["succeeded"]]
        if wins.empty:
            continue
        others = {name: other for name, other in groups.items() if name != left_out}
        fit = fit_slowing(others)
        sizes = [np.log(others[name]["items"].median()) for name in fit.scale]
        slope, intercept = np.polyfit(sizes, list(fit.scale.values()), 1)
        critical = min(float(np.mean(list(fit.critical.values()))), wins["ratio"].min() - 1e-3)
        logs = intercept + slope * np.log(wins["items"])
        logs = logs - fit.exponent * np.log(wins["ratio"] - critical)
        errors.append(float(np.median(np.abs(np.log2(np.exp(logs) / wins["steps"])))))
    worst = max(errors)
    verdict = "confirmed" if worst <= 1 else "refuted" if worst > 2 else "partly"
    ends = f"{min(errors):.2f} to {worst:.2f}"
    number = f"ν = {slowing('a').exponent:.2f}; left-out median error {ends} octaves"
    return LawVerdict("e", "steps follow A(R − R_c)^−ν with one ν", verdict, number)


def _summed() -> LawVerdict:
    wrong, runs = 0, 0
    for group in groups_of("f", "sum").values():
        one = group.iloc[0]
        width = min(int(one["heads"] * one["key_dim"]), int(one["d_model"]))
        factor = group["items"] / items_held(int(one["d_model"]), 1, width)
        runs += len(group)
        wrong += int(group.loc[factor >= 1.07, "succeeded"].sum())
        smaller = group[factor <= 0.87].groupby("items")
        wrong += sum(not passes(part["value"]) for _, part in smaller)
    verdict = "confirmed" if wrong == 0 else "refuted" if wrong >= 2 else "partly"
    hypothesis = "summed heads hold no more than one head of width min(hk, d)"
    return LawVerdict("f", hypothesis, verdict, f"{wrong} exceptions in {runs} runs")


def _binary_tables() -> LawVerdict:
    found = brackets("i")
    apart = sum(not one.meets(0.95, 1.10) for one in found.values())
    verdict = "confirmed" if apart == 0 else "refuted" if apart >= 2 else "partly"
    number = f"{len(found) - apart} of {len(found)} brackets meet [0.95, 1.10]"
    return LawVerdict(
        "i", "binary tables: the critical R is that of Gaussian rows", verdict, number
    )


def _longer_runs() -> LawVerdict:
    """The smallest R with a success, after five million steps and in part a."""
    longer, first = groups_of("j"), groups_of("a")
    ends = {
        name: tuple(runs.loc[runs["succeeded"], "ratio"].min() for runs in (group, first[name]))
        for name, group in longer.items()
    }
    lower = sum(late < early for late, early in ends.values())
    verdict = "confirmed" if lower == len(ends) else "partly" if lower else "refuted"
    said = [
        f"{str(name).split(',')[0]}: {late:.3f} against {early:.3f}"
        for name, (late, early) in ends.items()
    ]
    hypothesis = "longer runs bring the transition of permutations closer to 1"
    return LawVerdict("j", hypothesis, verdict, "; ".join(said))
