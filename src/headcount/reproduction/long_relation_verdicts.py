"""Verdicts on real relations and tables, by the rules of preregistrations/relations-2/README.md.

A frame of runs has one row per run. `step` and `f1` are lists: at each step the mean of the last
five checks of validation F1. `problem` is one of the names in the preregistration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, log, nan, nextafter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headcount.reproduction.relation_verdicts import (
    LESS,
    LEVEL,
    MORE,
    Judgement,
    Range,
    ratio_of,
    within,
)
from headcount.theory.capacity_law import freedom_needed
from headcount.theory.steps_law import STEPS_LAW

_FOLDER = Path(__file__).with_name("measured") / "relations"
_TOGETHER = 5  # checks whose mean is a score
_LAW = "law"


@dataclass(frozen=True)
class LongHypothesis:
    """Pairs of problems, of whose D_K* q is the ratio, and the ranges of q that decide."""

    part: int
    text: str
    pairs: tuple[tuple[str, str], ...]
    support: tuple[Range, ...]
    refute: tuple[Range, ...]


@dataclass(frozen=True)
class LongVerdict:
    """What the runs say of one hypothesis; `ratios` has q or its bounds by relation and pair."""

    hypothesis: LongHypothesis
    verdict: Judgement
    ratios: dict[tuple[str, str], Range]
    supporting: int
    refuting: int


_TABLES = (("minilm", "gaussian"), ("smollm2", "smollm2-gaussian"))
LONG_HYPOTHESES = (
    LongHypothesis(1, "a real table costs more than a Gaussian one", _TABLES, (MORE,), (LESS,)),
    LongHypothesis(
        2,
        "the relation costs no more than an even graph",
        (("gaussian", "even"), ("minilm", "minilm-even")),
        (LESS,),
        (MORE,),
    ),
    LongHypothesis(
        3, "hubs cost no more than an even graph", (("hubs", "even"),), (LESS,), (MORE,)
    ),
    LongHypothesis(
        4,
        "what a row means has no effect",
        (("minilm", "shuffled"),),
        ((nextafter(0.9, 1), 1.1),),
        ((0.0, nextafter(0.8, 1)), MORE),
    ),
    LongHypothesis(
        5,
        "the law of steps holds at these sizes",
        (("even", _LAW),),
        ((0.8, nextafter(1.25, 2)),),
        ((0.0, nextafter(0.67, 1)), (1.5, inf)),
    ),
    LongHypothesis(
        6,
        "scaled to a mean norm of 1, SmolLM2's rows cost less than twice as much as Gaussian ones",
        (("smollm2-scaled", "smollm2-gaussian"),),
        ((0.0, 2.0),),
        ((2.0, inf),),
    ),
)


@cache
def long_relation_runs() -> pd.DataFrame:
    """All runs of the preregistration that come with headcount; treat it as read-only.

    `plan` is `runs` for those of runs.toml and `more` for those that were added later.
    """
    return pd.read_parquet(_FOLDER / "long-runs.parquet")


def judged_runs() -> pd.DataFrame:
    """The runs that decide: those of the first plan, and of the added ones the scaled rows."""
    runs = long_relation_runs()
    return runs.loc[(runs["plan"] == "runs") | (runs["problem"] == "smollm2-scaled")]


def longer_hypernyms() -> pd.DataFrame:
    """The hypernyms that were trained again with more steps, reported and not judged."""
    runs = long_relation_runs()
    return runs.loc[(runs["plan"] == "more") & (runs["relation"] == "hypernyms")]


@cache
def compiled_relations() -> pd.DataFrame:
    """What the compiler certified, and what it did not find in time; treat it as read-only."""
    return pd.read_csv(_FOLDER / "compiled.csv", keep_default_na=False, na_values={"margin": [""]})


def with_means(runs: pd.DataFrame) -> pd.DataFrame:
    """What `measure.py` wrote, with `step` and `f1` in place of the single checks.

    One entry is kept for every five checks, and one for the last.
    """

    def means(checks: Sequence[float]) -> dict[int, float]:
        ends = {*range(_TOGETHER, len(checks) + 1, _TOGETHER), len(checks)}
        return {
            end: round(float(np.mean(checks[end - _TOGETHER : end])), 5)
            for end in sorted(ends)
            if end >= _TOGETHER
        }

    kept = [means(checks) for checks in runs["validation"]]
    steps = [
        [end * every for end in of_run]
        for of_run, every in zip(kept, runs["check_every"], strict=True)
    ]
    f1 = [list(of_run.values()) for of_run in kept]
    return runs.drop(columns="validation").assign(step=steps, f1=f1)


def common_steps(runs: pd.DataFrame) -> dict[str, int]:
    """S by relation: the planned steps, or those that all runs had when the time limit came."""
    found = dict[str, int]()
    for run in runs.to_dict("records"):
        steps = int(run["steps"])
        if run["ended"] == "time":
            together = _TOGETHER * int(run["check_every"])
            steps = int(run["taken"]) // together * together
        found[run["relation"]] = min(steps, found.get(run["relation"], steps))
    return found


def score_at(run: Mapping[Any, Any], steps: int) -> float:
    """The score of a run at a number of steps; NaN if it has had too few checks."""
    if not pd.isna(run["diverged"]) and run["diverged"] <= steps:
        return 0.0
    before = [value for step, value in zip(run["step"], run["f1"], strict=True) if step <= steps]
    return before[-1] if before else nan


def mean_scores_at(runs: pd.DataFrame, steps: dict[str, int]) -> pd.DataFrame:
    """Mean score by relation, problem and budget, where all seeds of the relation have one."""
    scores = [score_at(run, steps[run["relation"]]) for run in runs.to_dict("records")]
    means = (
        runs.assign(score=scores)
        .groupby(["relation", "problem", "budget"], sort=False, as_index=False)
        .agg(f1=("score", "mean"), seeds=("score", "count"))
    )
    seeds = dict[str, set[int]]()
    for relation, seed in zip(runs["relation"], runs["seed"], strict=True):
        seeds.setdefault(relation, set()).add(seed)
    planned = means["relation"].map(lambda relation: len(seeds[relation]))
    return means.loc[means["seeds"] == planned]


def thresholds_at(runs: pd.DataFrame, steps: dict[str, int]) -> dict[tuple[str, str], Range]:
    """D_K* by relation and problem, or what is known of it: (lower bound, upper bound)."""
    scores = dict[tuple[str, str], dict[float, float]]()
    for mean in mean_scores_at(runs, steps).to_dict("records"):
        place = mean["relation"], mean["problem"]
        scores.setdefault(place, {})[float(mean["budget"])] = mean["f1"]
    return {place: _threshold(of_problem) for place, of_problem in scores.items()}


def _threshold(scores: Mapping[float, float]) -> Range:
    least = min((budget for budget, f1 in scores.items() if f1 >= LEVEL), default=inf)
    if least == inf:
        return max(scores), inf
    return (0.0 if least == min(scores) else least), least


def law_budget(items: int, edges: int, d_model: int, heads: int, steps: int) -> float:
    """The smallest D_K in whole widths whose predicted steps are at most these."""
    widths = np.arange(1.0, d_model + 1)
    sizes = float(items), float(edges), float(d_model), float(heads)
    logs = STEPS_LAW.log_steps(freedom_needed(items, edges), *sizes, widths)
    return float(heads * widths[logs <= log(steps)][0])


def law_budgets(runs: pd.DataFrame, steps: dict[str, int]) -> dict[str, float]:
    """The law's D_K for the even graph of each relation."""
    return {
        run["relation"]: law_budget(
            **{name: int(run[name]) for name in ("items", "edges", "d_model", "heads")},
            steps=steps[run["relation"]],
        )
        for run in runs.to_dict("records")
        if run["problem"] == "even"
    }


def long_verdicts(runs: pd.DataFrame) -> list[LongVerdict]:
    """One verdict per hypothesis: most cases must support it and none refute it, or vice versa."""
    steps = common_steps(runs)
    budgets = thresholds_at(runs, steps)
    budgets |= {(relation, _LAW): (k, k) for relation, k in law_budgets(runs, steps).items()}
    judged = list[LongVerdict]()
    for hypothesis in LONG_HYPOTHESES:
        ratios = {
            (relation, f"{over}/{under}"): ratio_of(
                budgets[relation, over], budgets[relation, under]
            )
            for over, under in hypothesis.pairs
            for relation in steps
            if (relation, over) in budgets and (relation, under) in budgets
        }
        judged.append(_judged(hypothesis, ratios))
    return judged


def second_reading() -> list[LongVerdict]:
    """Parts 1, 2 and 5 with the longer hypernyms in place of the first ones, by the same rule.

    SmolLM2's hypernyms were not trained again; that case of part 1 stays as it was first read.
    """
    pairs = zip(long_verdicts(judged_runs()), long_verdicts(longer_hypernyms()), strict=True)
    return [
        _judged(first.hypothesis, first.ratios | longer.ratios)
        for first, longer in pairs
        if longer.ratios
    ]


def _judged(hypothesis: LongHypothesis, ratios: dict[tuple[str, str], Range]) -> LongVerdict:
    supporting = sum(within(ratio, hypothesis.support) for ratio in ratios.values())
    refuting = sum(within(ratio, hypothesis.refute) for ratio in ratios.values())
    verdict: Judgement = "open"
    if 2 * supporting > len(ratios) and not refuting:
        verdict = "confirmed"
    elif 2 * refuting > len(ratios) and not supporting:
        verdict = "refuted"
    return LongVerdict(hypothesis, verdict, ratios, supporting, refuting)
