"""Ladders of rungs: the budgets of one head count, what their runs say, and what follows from it.

The search assumes that F1 rises with D_K at a fixed head count: below a rung that fails clearly,
every rung fails.
`Ladder.broken` says where the runs contradict it; on such a ladder every rung answers for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import ceil, inf, nan
from statistics import fmean

from headcount.sweeps.search_seeds import Criteria, Rules, falls, may_pass, reach
from headcount.training.spec import RunSpec

_OPEN, _SHUT = Criteria(True, True, True), Criteria(False, False, False)


class Rung:
    """One (heads, key_dim): a run per seed, the scores known so far, and what they leave open."""

    def __init__(self, specs: Iterable[RunSpec]) -> None:
        self.specs = sorted(specs, key=lambda spec: spec.seed)
        self.heads, self.budget = self.specs[0].heads, self.specs[0].budget
        self.scores: dict[int, float] = {}  # by seed
        self.exact: Criteria | None = None  # what A.2 says of all seeds, once they are there
        self.exact_mean = nan
        self.may = _OPEN  # the tests that it may pass
        self.dead = False  # it fails so clearly that all below it do
        self.passing = False  # the seeds seen pass on their mean

    @property
    def complete(self) -> bool:
        """Whether every seed has run."""
        return len(self.scores) == len(self.specs)

    @property
    def values(self) -> list[float]:
        """The scores in the order of their seeds, which makes every sum the same."""
        return [self.scores[seed] for seed in sorted(self.scores)]

    @property
    def mean(self) -> float:
        """The mean F1 of the seeds seen."""
        return fmean(self.values)

    def tried(self, rules: Rules) -> bool:
        """Whether enough seeds have run to judge it."""
        return len(self.scores) >= min(rules.first, len(self.specs))

    def gaps(self, other: Rung) -> list[float]:
        """Give the score less the other rung's, for every seed that both have."""
        return [
            self.scores[seed] - other.scores[seed]
            for seed in sorted(set(self.scores) & set(other.scores))
        ]

    def look(self, rules: Rules) -> list[RunSpec]:
        """Give the runs of the next look: a few more seeds, or all where those seen pass."""
        missing = [spec for spec in self.specs if spec.seed not in self.scores]
        seen = len(self.scores)
        return (
            missing
            if self.passing
            else missing[: max(rules.first, ceil(seen * rules.growth)) - seen]
        )

    def judge(self, level: float, rules: Rules) -> None:
        """Set `may`, `dead` and `passing` by its own scores."""
        self.may, self.dead, self.passing = self.exact or _OPEN, False, False
        if self.tried(rules):
            seeds = len(self.specs)
            self.may = self.exact or may_pass(self.values, seeds, level, rules)
            self.dead = (
                not any(self.may)
                and reach(self.values, seeds, rules, high_end=True, below=True) < level
            )
            self.passing = (
                self.exact.central if self.exact else self.may.central and self.mean >= level
            )


class Ladder:
    """The rungs of one head count, by budget."""

    def __init__(self, rungs: Sequence[Rung]) -> None:
        self.rungs = sorted(rungs, key=lambda rung: rung.budget)
        self.heads = self.rungs[0].heads
        self.broken = False
        self._judged: object = None

    def judge(self, level: float, rules: Rules) -> None:
        """Judge every rung and test the assumption; where it holds, shut rungs below a dead one."""
        state = level, rules, [tuple(rung.values) for rung in self.rungs]
        if state == self._judged:
            return
        self._judged = state
        for rung in self.rungs:
            rung.judge(level, rules)
        seen = [rung for rung in self.rungs if rung.scores]
        self.broken = any(
            (upper.dead and lower.passing) or falls(upper.gaps(lower), rules)
            for lower, upper in combinations(seen, 2)
        )
        if not self.broken:
            for rung in self.rungs[: self._highest_dead]:
                rung.may = rung.exact or _SHUT

    def witness(self, limit: float) -> list[Rung]:
        """Give the rung whose run would test the assumption.

        It is the middle of those, up to a budget, that were shut because they are below a dead one.
        None where it has been tested there or below.
        """
        shut = [
            rung
            for rung in self.rungs[: self._highest_dead]
            if rung.budget <= limit and not self.broken
        ]
        lower = shut[: len(shut) // 2 + 1]
        return [] if any(rung.scores for rung in lower) else lower[-1:]

    @property
    def _highest_dead(self) -> int:
        return max((row for row, rung in enumerate(self.rungs) if rung.dead), default=0)

    @property
    def ceiling(self) -> float:
        """The lowest budget that passes by the seeds seen; infinite if none does."""
        return next((rung.budget for rung in self.rungs if rung.passing), inf)
