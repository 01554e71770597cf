"""What k of n seeds decide: which of A.2's three tests a rung can still pass with all its seeds.

Two kinds of rules. Sound: F1 is between 0 and 1, so the best that the missing seeds can do is known
exactly. Statistical: the missing seeds are like those seen, whose spread is drawn towards the usual
one, as two seeds say little about it. Such a decision is wrong with odds `Rules.odds`. Only
failures are decided early: a pass takes all seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from scipy import stats

from headcount.analysis.curves import CONFIDENCE
from headcount.errors import InputError
from headcount.shapes import Float

_SLACK = 1e-9  # sums here and in the analysis differ by rounding: what is this near is left open
_NEAR = 0.2  # below the level: how far spreads are like those at the level


@dataclass(frozen=True)
class Rules:
    """When a search decides early; the defaults fit the F1 of the paper's base grid."""

    first: int = 2  # seeds of the first look at a rung; one alone may be a run that diverged
    growth: float = 1.5  # seeds after the next look, as a multiple
    odds: float = 1e-3  # of a wrong statistical decision
    spread: float = 0.03  # usual standard deviation of F1 between the seeds of a failing rung
    weight: float = 4.0  # how many seeds of a rung the usual spread is worth
    rungs_weight: float = (
        10.0  # how many seeds of the point's other rungs the `spread` given here is worth
    )
    drop: float = 0.03  # a fall of the mean F1 towards a larger budget that is more than a ripple

    def __post_init__(self) -> None:
        if self.first < 2 or self.growth <= 1:
            raise InputError(
                f"first {self.first} and growth {self.growth} do not fit; "
                "use first ≥ 2 and growth > 1"
            )
        if not 0 < self.odds < 0.5:
            raise InputError(
                f"odds {self.odds} of a wrong decision do not fit; choose between 0 and 0.5"
            )
        if min(self.spread, self.weight, self.rungs_weight) <= 0 or self.drop < 0:
            raise InputError(
                "spread and weights must be above 0 and drop at least 0; "
                "use the defaults or correct them"
            )


class Criteria(NamedTuple):
    """An answer for each of A.2's tests: whether the interval's high end, the mean, and the
    interval's low end reach the level."""

    optimistic: bool
    central: bool
    conservative: bool


def learned(rules: Rules, rungs: Iterable[Sequence[float]], level: float) -> Rules:
    """Draw the usual spread towards the one that the failing rungs of a point show.

    The more seeds these rungs have, the more they count. Passing rungs are left out: near F1 = 1
    scores hardly spread.
    """
    squares, weight = rules.rungs_weight * rules.spread**2, rules.rungs_weight
    for scores in rungs:
        if len(scores) > 1 and level - _NEAR <= np.mean(scores) < level:
            squares += _squares(scores)
            weight += len(scores) - 1
    return replace(rules, spread=sqrt(squares / weight))


def may_pass(scores: Sequence[float], seeds: int, level: float, rules: Rules) -> Criteria:
    """Say which tests a rung with these scores may still pass once all its seeds have run."""
    bound = level - _SLACK
    high, mean, low = best_case(scores, seeds)
    central = min(mean, reach(scores, seeds, rules)) >= bound
    return Criteria(
        optimistic=min(high, reach(scores, seeds, rules, high_end=True)) >= bound,
        central=central,
        conservative=central and low >= bound,
    )


def best_case(scores: Sequence[float], seeds: int) -> tuple[float, float, float]:
    """Give the largest high end, mean and low end that the missing seeds can lead to.

    The bounds are sound, and attained. The high end is convex in the missing scores: at its maximum
    each is 0 or 1. The low end is concave and treats them alike: at its maximum all are equal, to
    the root of its derivative or to 1.
    """
    seen, missing = np.asarray(scores, dtype=float), seeds - len(scores)
    mean = float((seen.sum() + missing) / seeds)
    if seeds < 2:
        return mean, mean, -inf  # one seed has no interval
    half = t_quantile((1 + CONFIDENCE) / 2, seeds - 1) / sqrt(seeds)
    ones = np.tri(missing + 1, missing, -1)  # none, one, two … of the missing scores are 1
    curvature = (half * len(seen)) ** 2 - (seeds - 1) * len(seen) * missing / seeds
    fill = 1.0
    if curvature > 0:
        fill = min(1.0, float(seen.mean()) + sqrt((seeds - 1) * _squares(scores) / curvature))
    return _end(seen, ones, half), mean, _end(seen, np.full((1, missing), fill), -half)


def _end(
    seen: Float[np.ndarray, " seen"], fills: Float[np.ndarray, "fills missing"], half: float
) -> float:
    """Give the largest end of the interval, mean + half·s, that one of the fills leads to."""
    full = np.hstack([np.broadcast_to(seen, (len(fills), len(seen))), fills])
    return float((full.mean(axis=1) + half * full.std(axis=1, ddof=1)).max())


def reach(
    scores: Sequence[float],
    seeds: int,
    rules: Rules,
    *,
    high_end: bool = False,
    below: bool = False,
) -> float:
    """Give what the mean of all n seeds exceeds with odds `rules.odds` at most.

    With `high_end` it is the high end of the mean's interval. The mean of n seeds lies about that
    of the k seen with the spread s·√(1/k − 1/n). With `below` it is that of a rung below, at most
    as good and with scores of its own: s·√(1/k + 1/n).
    """
    count = len(scores)
    spread, freedom = _spread(scores, rules)
    gap = sqrt(max(0.0, 1 / count + (1 if below else -1) / seeds))
    top = float(np.mean(scores)) + t_quantile(1 - rules.odds, freedom) * spread * gap
    if high_end and seeds > 1:
        top += t_quantile((1 + CONFIDENCE) / 2, seeds - 1) * spread / sqrt(seeds)
    return top


def told_apart(gaps: Sequence[float], seeds: int, rules: Rules) -> bool:
    """Say whether the paired t-test on all seeds will almost surely tell these gaps from zero."""
    sides = (gaps, [-gap for gap in gaps])
    return len(gaps) > 0 and any(
        reach(side, seeds, _for_gaps(rules), high_end=True) < 0 for side in sides
    )


def falls(gaps: Sequence[float], rules: Rules) -> bool:
    """Say whether the gaps by seed, larger budget minus smaller, show a clear fall of F1."""
    if not gaps or np.mean(gaps) > -rules.drop:
        return False
    spread, freedom = _spread(gaps, _for_gaps(rules))
    return float(np.mean(gaps)) + t_quantile(1 - rules.odds, freedom) * spread / sqrt(len(gaps)) < 0


def _for_gaps(rules: Rules) -> Rules:
    """The gap between two runs spreads √2 times as far as a run."""
    return replace(rules, spread=sqrt(2) * rules.spread)


def _spread(scores: Sequence[float], rules: Rules) -> tuple[float, float]:
    """Give the spread between seeds, drawn towards the usual one, and its degrees of freedom."""
    freedom = rules.weight + len(scores) - 1
    return sqrt((rules.weight * rules.spread**2 + _squares(scores)) / freedom), freedom


def _squares(scores: Sequence[float]) -> float:
    values = np.asarray(scores, dtype=float)
    return float(((values - values.mean()) ** 2).sum())


@lru_cache(maxsize=4096)
def t_quantile(share: float, freedom: float) -> float:
    """Give the quantile of Student's t."""
    return float(stats.t.ppf(share, freedom))
