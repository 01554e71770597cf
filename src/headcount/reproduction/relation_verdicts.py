"""Verdicts on real tables and skewed graphs, by the rules of preregistrations/relations/README.md.

The runs are in `measured/relations`. `problem` is one of the names in the preregistration, `value`
the test F1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf, nextafter
from pathlib import Path
from typing import Literal

import pandas as pd

_RUNS = Path(__file__).with_name("measured") / "relations" / "runs.csv"
LEVEL = 0.99

Judgement = Literal["confirmed", "refuted", "open"]
Range = tuple[float, float]  # from the first, which belongs to it, to the second, which does not


@dataclass(frozen=True)
class Hypothesis:
    """The ratio q of two D_K*, and the ranges of q that support and refute the hypothesis."""

    part: int
    text: str
    problem: str
    beside: str
    support: tuple[Range, ...]
    refute: tuple[Range, ...]


@dataclass(frozen=True)
class RelationVerdict:
    """What the runs say of one hypothesis; `ratios` has q, or its bounds, for each relation."""

    hypothesis: Hypothesis
    verdict: Judgement
    ratios: dict[str, Range]


LESS, MORE = (0.0, 1.1), (1.25, inf)
HYPOTHESES = (
    Hypothesis(
        1,
        "a real table costs more than a Gaussian one",
        "minilm",
        "gaussian",
        support=(MORE,),
        refute=(LESS,),
    ),
    Hypothesis(
        2,
        "the relation costs no more than an even graph",
        "gaussian",
        "even",
        support=(LESS,),
        refute=(MORE,),
    ),
    Hypothesis(
        3,
        "hubs cost no more than an even graph",
        "hubs",
        "even",
        support=(LESS,),
        refute=(MORE,),
    ),
    Hypothesis(
        4,
        "what a row means has no effect",
        "minilm",
        "shuffled",
        support=((nextafter(0.9, 1), 1.1),),
        refute=((0.0, nextafter(0.8, 1)), MORE),
    ),
)


@cache
def relation_runs() -> pd.DataFrame:
    """The preregistered runs that come with headcount; treat it as read-only."""
    return pd.read_csv(_RUNS)


def mean_scores(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean test F1 by relation, problem and budget; a run that diverged counts as 0."""
    scores = runs.assign(value=runs["value"].where(runs["diverged"].isna(), 0.0))
    return scores.groupby(["relation", "problem", "budget"], sort=False, as_index=False).agg(
        f1=("value", "mean"), runs=("value", "size")
    )


def budget_ranges(runs: pd.DataFrame) -> dict[tuple[str, str], Range]:
    """D_K* by relation and problem: (D_K*, D_K*), or (the largest budget tested, ∞) without one."""
    found = dict[tuple[str, str], Range]()
    for score in mean_scores(runs).to_dict("records"):
        place = score["relation"], score["problem"]
        largest, least = found.get(place, (0.0, inf))
        if score["f1"] >= LEVEL:
            least = min(least, float(score["budget"]))
        found[place] = max(largest, float(score["budget"])), least
    return {place: (min(bounds), bounds[1]) for place, bounds in found.items()}


def verdicts(runs: pd.DataFrame) -> list[RelationVerdict]:
    """One verdict per hypothesis: both relations must agree, or it stays open."""
    budgets = budget_ranges(runs)
    relations = sorted({relation for relation, _ in budgets})
    judged = list[RelationVerdict]()
    for hypothesis in HYPOTHESES:
        ratios = {
            relation: ratio_of(
                budgets[relation, hypothesis.problem], budgets[relation, hypothesis.beside]
            )
            for relation in relations
        }
        verdict: Judgement = "open"
        if all(within(ratio, hypothesis.support) for ratio in ratios.values()):
            verdict = "confirmed"
        elif all(within(ratio, hypothesis.refute) for ratio in ratios.values()):
            verdict = "refuted"
        judged.append(RelationVerdict(hypothesis, verdict, ratios))
    return judged


def ratio_of(over: Range, under: Range) -> Range:
    """All that a quotient can be; an unknown D_K* is above the largest budget that was tested."""
    low = over[0] / under[1] if under[1] < inf else 0.0
    return low, over[1] / under[0] if under[0] else inf


def within(ratio: Range, ranges: tuple[Range, ...]) -> bool:
    """Whether every value that q can have lies in one of the ranges."""
    low, high = ratio
    return any(first <= low and (high < last or high == last == inf) for first, last in ranges)


def in_words(bounds: Range) -> str:
    """A D_K* or a ratio, or what is known of it.

    >>> in_words((1.5, 1.5)), in_words((112, inf)), in_words((0, 0.5)), in_words((0, inf))
    ('1.5', '> 112', '≤ 0.5', 'unknown')
    """
    low, high = bounds
    if low == high:
        return f"{low:.3g}"
    if high == inf:
        return f"> {low:.3g}" if low else "unknown"
    return f"≤ {high:.3g}" if not low else f"{low:.3g} to {high:.3g}"
