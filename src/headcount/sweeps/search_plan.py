"""What a search runs next.

Its stages: bracket and bisect, challenge, decide, walk down, compare with h*, test the assumption.
A plan is a function of the scores alone, whatever their order. Its stages are in the order of their
gain: each shrinks the work of those after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from headcount.analysis.thresholds import POOL_PERCENT, SIGNIFICANCE, paired_p
from headcount.sweeps.search_seeds import Criteria, Rules, told_apart
from headcount.sweeps.search_state import Ladder, Rung
from headcount.training.spec import RunSpec


class Best(NamedTuple):
    """The smallest budgets that pass A.2's tests with all their seeds; infinite where none does."""

    optimistic: float
    central: float
    conservative: float


class SearchPlan:
    """The next runs of one point, from ladders that have been judged."""

    def __init__(self, ladders: Sequence[Ladder], rules: Rules) -> None:
        self._ladders, self._rules = ladders, rules
        self._rungs = sorted(
            (rung for ladder in ladders for rung in ladder.rungs), key=lambda r: (r.budget, r.heads)
        )
        exact = [(rung.budget, rung.exact) for rung in self._rungs if rung.exact]
        self.best = Best(
            *(
                min((budget for budget, tests in exact if tests[test]), default=inf)
                for test in range(3)
            )
        )
        self._ceiling = min(ladder.ceiling for ladder in ladders)

    def runs(self) -> list[RunSpec]:
        """Give the next runs; none when every value is decided."""
        stages = (
            self._first,
            self._broken,
            self._bisect,
            self._challenge,
            self._decide,
            self._walk_down,
            self._conservative,
            self._pool,
        )
        rungs = next((rungs for stage in stages if (rungs := stage())), [])
        return [
            spec for rung in dict.fromkeys(rungs) for spec in rung.look(self._rules)
        ] or self._witnesses()

    def winner(self) -> Rung | None:
        """The rung of D_K* and h*: of equal budgets the larger mean F1, then the fewer heads."""
        passing = [rung for rung in self._rungs if rung.exact and rung.exact.central]
        return min(
            passing, key=lambda rung: (rung.budget, -rung.exact_mean, rung.heads), default=None
        )

    def pool(self, winner: Rung) -> dict[int, list[Rung]]:
        """Give the nearest rungs (one, or two) of each other head count within 10 % of D_K*."""
        pool: dict[int, list[Rung]] = {}
        for ladder in self._ladders:
            away = {rung: abs(rung.budget - winner.budget) for rung in ladder.rungs}
            near = min(away.values())
            if ladder.heads != winner.heads and 100 * near <= POOL_PERCENT * winner.budget:
                pool[ladder.heads] = [rung for rung in ladder.rungs if away[rung] == near]
        return pool

    def _first(self) -> list[Rung]:
        """Bracket: the middle of every ladder, when nothing is known."""
        if any(rung.tried(self._rules) for rung in self._rungs):
            return []
        return [ladder.rungs[len(ladder.rungs) // 2] for ladder in self._ladders]

    def _broken(self) -> list[Rung]:
        """Fall back to the grid where F1 does not rise with D_K: every rung that can matter."""
        return [rung for ladder in self._ladders if ladder.broken for rung in self._untried(ladder)]

    def _bisect(self) -> list[Rung]:
        """Bisect the ladder with the lowest passing rung.

        While none passes, go up the ladder with the largest F1.
        """
        if self._ceiling < inf:
            leader = min(self._ladders, key=lambda ladder: ladder.ceiling)
            return self._middle(leader, leader.ceiling)
        climbs = {}
        for ladder in self._ladders:
            tried = [row for row, rung in enumerate(ladder.rungs) if rung.tried(self._rules)]
            above = [rung for rung in ladder.rungs[max(tried, default=-1) + 1 :] if any(rung.may)]
            if above:
                best = max((ladder.rungs[row].mean for row in tried), default=0.0)
                climbs[best, -ladder.heads] = above
        return [above[len(above) // 2] for _, above in sorted(climbs.items())[-1:]]

    def _challenge(self) -> list[Rung]:
        """Try the other head counts near the lowest passing budget.

        Most fail there, and with that below it. A head count none of whose rungs can still matter
        is abandoned: `_matters` leaves it nothing to run.
        """
        limit = self._ceiling * (1 + POOL_PERCENT / 100)
        picks = []
        for ladder in self._ladders if limit < inf else ():
            untried = self._untried(ladder, limit)
            if untried:
                lowest = untried[0].budget
                tried = any(
                    rung.tried(self._rules) and lowest < rung.budget <= limit
                    for rung in ladder.rungs
                )
                picks += self._middle(ladder, limit) if tried else untried[-1:]
        return picks

    def _decide(self) -> list[Rung]:
        """Spend seeds where the central or the optimistic value is open."""
        return self._open(1) + self._open(0)

    def _walk_down(self) -> list[Rung]:
        """Look below rungs that fail, but not so clearly that all below them do."""
        picks = []
        for ladder in self._ladders:
            untried = self._untried(ladder, self._ceiling)
            picks += [rung for rung in untried if any(self._matters(rung)[:2])][-1:]
        return picks

    def _conservative(self) -> list[Rung]:
        """Find the lowest budget that passes by its low end.

        First up the ladder that leads, then what is below its budget.
        """
        wanted = {
            ladder: [rung for rung in ladder.rungs if self._matters(rung)[2]]
            for ladder in self._ladders
        }
        if self.best.conservative == inf:
            ladders = sorted(
                (ladder for ladder in self._ladders if wanted[ladder]),
                key=lambda ladder: ladder.ceiling,
            )
            return [wanted[ladder][0] for ladder in ladders[:1]]
        untried = [
            [rung for rung in rungs if not rung.tried(self._rules)] for rungs in wanted.values()
        ]
        return self._open(2) or [rung for rungs in untried for rung in rungs[-1:]]

    def _pool(self) -> list[Rung]:
        """Complete what the interval of h* needs.

        From the outside in, up to the first head count that is kept: those between do not move the
        ends of the interval.
        """
        winner = self.winner()
        if winner is None or len(winner.specs) < 2:
            return []
        pool, picks = self.pool(winner), []
        below = sorted(heads for heads in pool if heads < winner.heads)
        above = sorted((heads for heads in pool if heads > winner.heads), reverse=True)
        for side in (below, above):
            for heads in side:
                needed = [
                    rung
                    for rung in pool[heads]
                    if not (rung.complete or self._differs(rung, winner))
                ]
                picks += needed
                if needed or self._kept(pool[heads], winner):
                    break
        return picks

    def _witnesses(self) -> list[RunSpec]:
        """Test the assumption: one run amid the untested rungs that would matter if they passed."""
        limit = max(self.best.central, self.best.conservative)
        return [rung.specs[0] for ladder in self._ladders for rung in ladder.witness(limit)]

    def _matters(self, rung: Rung) -> Criteria:
        """Say for which tests the rung's missing seeds can change the smallest budget, or h*."""
        if rung.complete:
            return Criteria(False, False, False)
        return Criteria(
            optimistic=rung.may.optimistic and rung.budget < self.best.optimistic,
            # Equal budgets compete for h*.
            central=rung.may.central and rung.budget <= self.best.central,
            conservative=rung.may.conservative and rung.budget < self.best.conservative,
        )

    def _untried(self, ladder: Ladder, limit: float = inf) -> list[Rung]:
        """Give the rungs up to a budget that matter and have not been looked at."""
        rungs = (
            rung for rung in ladder.rungs if rung.budget <= limit and not rung.tried(self._rules)
        )
        return [rung for rung in rungs if any(self._matters(rung))]

    def _middle(self, ladder: Ladder, limit: float) -> list[Rung]:
        """Give the middle rung between the highest that fails and the lowest that passes."""
        tried = [
            rung.budget
            for rung in ladder.rungs
            if rung.tried(self._rules) and rung.budget < ladder.ceiling
        ]
        floor = max(tried, default=0)
        between = [
            rung for rung in self._untried(ladder, limit) if floor < rung.budget < ladder.ceiling
        ]
        return between[len(between) // 2 :][:1]

    def _open(self, test: int) -> list[Rung]:
        """Give the rungs to spend seeds on for one test.

        Of those that seem to pass the lowest, as it would decide for all above. Of those that seem
        to fail the highest of each ladder, as it may turn out dead and decide for all below.
        """
        rungs = [
            rung for rung in self._rungs if rung.tried(self._rules) and self._matters(rung)[test]
        ]
        lowest = [rung for rung in rungs if rung.passing][:1]
        limit = lowest[0].budget if lowest else inf
        highest = {rung.heads: rung for rung in rungs if not rung.passing and rung.budget <= limit}
        return lowest + list(highest.values())

    def _differs(self, rung: Rung, winner: Rung) -> bool:
        """Whether a rung is known to differ from h* before all its seeds have run."""
        if not rung.tried(self._rules):
            return not any(rung.may)
        return rung.dead or told_apart(rung.gaps(winner), len(winner.specs), self._rules)

    def _kept(self, rungs: list[Rung], winner: Rung) -> bool:
        """Whether A.2 keeps a head count beside h*."""
        complete = [rung for rung in rungs if rung.complete]
        if not complete:
            return False
        entry = max(complete, key=lambda rung: rung.exact_mean)
        return paired_p(winner.scores, entry.scores) > SIGNIFICANCE
