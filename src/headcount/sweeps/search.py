"""Threshold search: the D_K* of a full grid for a tenth of its run-steps (Appendix A.2).

A search is given the grid that it takes its runs from: all runs of one point (variant, degree,
items, d_model), a ladder of budgets for each head count and the same seeds on each rung. It says
which runs it needs next and takes their results, in any order and from anywhere; what it does not
need is never run.

Assumed: F1 rises with D_K at a fixed head count, so a rung that fails clearly speaks for those
below it. This is tested on the runs made, of which one per head count is made for this alone,
below its clear failure. A head count with a clear fall of the mean F1, or with a passing rung below
a clear failure, is listed in `Outcome.fallback`; each of its rungs that can matter is then looked
at. A peak between rungs that were never run goes unseen.

What holds without any assumption: every value is that of a rung with all its seeds, so none is
below the full grid's. What is statistical: a rung is given up before all its seeds have run if its
chance to pass is below `Rules.odds`. This takes scores of a rung to scatter without gross outliers:
where single runs diverge (F1 = 0), a full grid's intervals widen, and its optimistic value and
interval of h* may be lower than those found here. With two seeds an interval is 12.7 standard
errors to each side, so that two scores that happen to be far apart do the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isnan
from typing import Any

import pandas as pd

from headcount.analysis.curves import POINT, curves
from headcount.analysis.thresholds import LEVEL, WHOLE_NUMBERS, Threshold, heads_interval, threshold
from headcount.errors import InputError
from headcount.store.frames import specs_frame
from headcount.sweeps.search_plan import SearchPlan
from headcount.sweeps.search_seeds import Criteria, Rules, learned
from headcount.sweeps.search_state import Ladder, Rung
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec

Results = Iterable[RunResult] | pd.DataFrame
_SHARED = [item.name for item in fields(RunSpec) if item.name not in ("heads", "key_dim", "seed")]
_ROW = ("hash", "value", "diverged", "steps")
_FOUND = [item.name for item in fields(Threshold)]
_SPENT = ["settled", "runs", "steps", "grid_runs", "fallback"]


@dataclass(frozen=True)
class Outcome:
    """What a search found, and what it cost."""

    threshold: Threshold
    settled: bool  # no further run is needed; before, values are those of the completed rungs
    runs: int  # known to the search
    steps: int  # trained in them
    grid_runs: int  # of the full grid
    fallback: tuple[int, ...]  # head counts whose F1 does not rise with D_K


class ThresholdSearch:
    """The search at one point: ask for a batch, run it, observe it, until the batch is empty.

    >>> sizes = [(key_dim, seed) for key_dim in range(4, 12) for seed in range(10)]
    >>> grid = [RunSpec(64, 16, heads=2, key_dim=key_dim, seed=seed) for key_dim, seed in sizes]
    >>> search = ThresholdSearch(grid)
    >>> [(spec.key_dim, spec.seed) for spec in search.next_batch()]
    [(8, 0), (8, 1)]
    """

    def __init__(
        self, grid: Iterable[RunSpec], level: float = LEVEL, rules: Rules | None = None
    ) -> None:
        specs = list(dict.fromkeys(grid))
        if len({_protocol(spec) for spec in specs}) != 1:
            raise InputError(
                "a search needs the runs of one point, alike but for heads, key_dim, seed; "
                "use ThresholdSearches"
            )
        if specs[0].metric != "f1":
            raise InputError(
                "variant value is judged by squared error and has no F1 threshold; "
                "leave its runs out"
            )
        self._level, self._rules = level, rules or Rules()
        by_rung: dict[tuple[int, int], list[RunSpec]] = defaultdict(list)
        for spec in specs:
            by_rung[spec.heads, spec.budget].append(spec)
        self._rungs = [Rung(by_rung[key]) for key in sorted(by_rung)]
        self._at = {spec: rung for rung in self._rungs for spec in rung.specs}
        self._ladders = [
            Ladder([rung for rung in self._rungs if rung.heads == heads])
            for heads in sorted({rung.heads for rung in self._rungs})
        ]
        self._steps: dict[RunSpec, int] = {}

    def observe(self, results: Results) -> int:
        """Take results, or the rows of `Store.frame`; returns how many are new.

        Runs of other grids are ignored.
        """
        new = 0
        for spec, value, diverged, steps in self._rows(results):
            if spec in self._at and spec not in self._steps:
                # A diverged run recovers nothing: it counts as F1 = 0, as in `curves`.
                self._at[spec].scores[spec.seed] = 0.0 if diverged or isnan(value) else value
                self._steps[spec] = int(steps)
                new += 1
        return new

    def next_batch(self) -> list[RunSpec]:
        """Give the runs needed next, none of them known; empty when the search has ended."""
        return self._plan().runs()

    def outcome(self) -> Outcome:
        """Give the threshold by the rungs with all their seeds, and what was spent."""
        plan = self._plan()
        settled, winner = not plan.runs(), plan.winner()
        complete = [rung for rung in self._rungs if rung.complete]
        found = (
            threshold(_frame(complete), self._level)
            if complete
            else _nothing(self._rungs[0].specs[0])
        )
        if winner:
            # Only the rung nearest D_K* stands for a head count, even where a farther one is
            # complete.
            pool = [rung for rungs in plan.pool(winner).values() for rung in rungs if rung.complete]
            low, high = heads_interval(_frame([winner, *pool]), winner.budget, winner.heads)
            found = replace(found, heads_low=low, heads_high=high)
        fallback = tuple(ladder.heads for ladder in self._ladders if ladder.broken)
        return Outcome(
            found, settled, len(self._steps), sum(self._steps.values()), len(self._at), fallback
        )

    def _plan(self) -> SearchPlan:
        """Judge every rung by what is known."""
        new = [rung for rung in self._rungs if rung.complete and rung.exact is None]
        if new:
            _judge_complete(new, self._level)
        rules = learned(self._rules, [rung.values for rung in self._rungs], self._level)
        for ladder in self._ladders:
            ladder.judge(self._level, rules)
        return SearchPlan(self._ladders, rules)

    def _rows(self, results: Results) -> Iterator[tuple[RunSpec, float, bool, int]]:
        if isinstance(results, pd.DataFrame):
            missing = [name for name in _ROW if name not in results.columns]
            if missing:
                raise InputError(
                    f"the frame of runs has no column {', '.join(missing)}; "
                    "take it from Store.frame"
                )
            columns = (results[name].tolist() for name in _ROW)
            for key, value, diverged, steps in zip(*columns, strict=True):
                if key in self._hashes:
                    yield self._hashes[key], float(value), not pd.isna(diverged), steps
        else:
            for result in results:
                yield result.spec, result.value, result.diverged is not None, result.steps

    @cached_property
    def _hashes(self) -> dict[str, RunSpec]:
        return {spec.hash: spec for spec in self._at}


class ThresholdSearches:
    """Searches at many points that advance together, so that an engine gets large batches."""

    def __init__(
        self, grid: Iterable[RunSpec], level: float = LEVEL, rules: Rules | None = None
    ) -> None:
        points: dict[tuple[Any, ...], list[RunSpec]] = defaultdict(list)
        for spec in grid:
            points[_protocol(spec)].append(spec)
        self.points = [ThresholdSearch(specs, level, rules) for specs in points.values()]

    def observe(self, results: Results) -> int:
        """Take results of any of the points; returns how many are new."""
        rows = results if isinstance(results, pd.DataFrame) else list(results)
        return sum(search.observe(rows) for search in self.points)

    def next_batch(self) -> list[RunSpec]:
        """Give the runs that all open points need next."""
        return [spec for search in self.points for spec in search.next_batch()]

    def replay(self, known: pd.DataFrame) -> None:
        """Observe those of the known runs that the searches ask for, batch after batch.

        What they then find, and what they count as spent, is what they would have found by
        training, however many other runs are known.
        """
        while batch := self.next_batch():
            asked = known["hash"].isin([spec.hash for spec in batch])
            if not self.observe(known.loc[asked]):
                break

    def outcomes(self) -> list[Outcome]:
        """Give the outcome of every point, in the order of the grid."""
        return [search.outcome() for search in self.points]


def outcomes_frame(outcomes: Iterable[Outcome]) -> pd.DataFrame:
    """Give outcomes as a frame: the columns of `thresholds`, then what was spent."""
    rows = [
        vars(item.threshold) | {name: getattr(item, name) for name in _SPENT} for item in outcomes
    ]
    table = pd.DataFrame(rows, columns=pd.Index([*_FOUND, *_SPENT]))
    return table.astype(dict.fromkeys(WHOLE_NUMBERS, "Int64") | {"mean": "float64"})


def _protocol(spec: RunSpec) -> tuple[Any, ...]:
    """The spec without what varies in one point's grid."""
    return tuple(getattr(spec, name) for name in _SHARED)


def _nothing(spec: RunSpec) -> Threshold:
    """The threshold of a point none of whose rungs is complete."""
    blank: dict[str, Any] = dict.fromkeys(_FOUND)
    return Threshold(**(blank | {name: getattr(spec, name) for name in POINT}))


def _judge_complete(rungs: list[Rung], level: float) -> None:
    """Set what A.2 says of rungs whose seeds have all run.

    The analysis itself decides, so that no rounding comes between the search and the full grid.
    """
    table = curves(_frame(rungs))
    at = {(rung.heads, rung.budget): rung for rung in rungs}
    columns = (table[name].tolist() for name in ("heads", "budget", "mean", "low", "high"))
    for heads, budget, mean, low, high in zip(*columns, strict=True):
        rung = at[heads, budget]
        rung.exact = Criteria(mean >= level or high >= level, mean >= level, low >= level)
        rung.exact_mean = mean


def _frame(rungs: list[Rung]) -> pd.DataFrame:
    """Give the known runs of rungs as the analysis takes them."""
    known = [(spec, rung) for rung in rungs for spec in rung.specs if spec.seed in rung.scores]
    scores = [rung.scores[spec.seed] for spec, rung in known]
    names = (*POINT, "heads", "key_dim", "budget", "seed")
    return specs_frame((spec for spec, _ in known), names).assign(value=scores, diverged=None)
