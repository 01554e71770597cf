"""`train`: many runs, grouped, stopped each by its own rule, returned in order (Appendix A.1)."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from headcount.training.choose import EngineName, choose_engine
from headcount.training.engine import Engine, Fleet
from headcount.training.progress import Progress, notice, show_progress
from headcount.training.result import RunResult, versions
from headcount.training.spec import RunSpec


def train(
    specs: Sequence[RunSpec],
    engine: EngineName | Engine = "auto",
    progress: bool = True,
    *,
    weights: bool = False,
    on_result: Callable[[RunResult], None] | None = None,
) -> list[RunResult]:
    """Train every spec and return the results in the order of the specs.

    Runs that can share a batch do; a result does not depend on its neighbours, their order or their number. An
    interrupt (Ctrl-C) ends the training and returns the runs that are finished. `weights` keeps each run's
    `KeyQuery`; `on_result` is called with each result as soon as it is there.

    >>> specs = [RunSpec(items=16, d_model=16, heads=2, key_dim=4, seed=seed, steps=1000) for seed in range(2)]
    >>> [result.steps for result in train(specs, engine="torch", progress=False)]
    [1000, 1000]
    """
    chosen = choose_engine(engine)
    results: dict[RunSpec, RunResult] = {}

    def finished(result: RunResult) -> None:
        results[result.spec] = result
        if on_result:
            on_result(result)

    distinct = list(dict.fromkeys(specs))
    with show_progress(distinct, chosen, results) if progress else nullcontext(lambda steps: None) as report:
        try:
            _sail(_convoys(distinct, chosen, weights), chosen, finished, report)
        except KeyboardInterrupt:
            if progress:
                notice(f"interrupted: {len(results)} of {len(distinct)} runs are finished")
    return [results[spec] for spec in specs if spec in results]


@dataclass
class _Run:
    """A run under way: what the stopping rule and the result need."""

    spec: RunSpec
    history: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0

    def stops(self) -> bool:
        """A.1: validation micro-F1 above the target at `patience` consecutive checks.

        Section 7.2 stops on validation error "with the same check interval and patience": here, when the last
        `patience` checks brought no new best.
        """
        values = [value for _, value in self.history]
        last, before = values[-self.spec.patience :], values[: -self.spec.patience]
        if len(last) < self.spec.patience:
            return False
        if self.spec.metric == "f1":
            return min(last) > self.spec.target
        return bool(before) and min(last) >= min(before)


class _Convoy:
    """A fleet on its way: launches blocks of steps, and lets runs go as they stop."""

    def __init__(self, engine: Engine, specs: list[RunSpec], keep_weights: bool) -> None:
        self._engine, self._keep_weights = engine, keep_weights
        self._fleet: Fleet | None = None
        self.runs = [_Run(spec) for spec in specs]
        self.taken = 0

    def launch(self) -> int:
        """Begin the next block; returns its steps, summed over the runs."""
        self._fleet = self._fleet or self._engine.fleet([run.spec for run in self.runs])
        spec = self.runs[0].spec
        steps = min(spec.check_every, spec.steps - self.taken)
        self._fleet.launch(steps)
        self.taken += steps
        return steps * len(self.runs)

    def wait(self) -> None:
        """Wait for the end of the block and its checks."""
        assert self._fleet is not None
        self._check = self._fleet.check()

    def arrivals(self, seconds: float) -> list[RunResult]:
        """Results of the runs that end here; the others stay. `seconds` is a run's share of the block's time."""
        assert self._fleet is not None
        ended = []
        for row, (run, value, diverged) in enumerate(
            zip(self.runs, self._check.values, self._check.diverged, strict=True)
        ):
            run.seconds += seconds
            run.history.append((self.taken, value))
            if diverged or self.taken >= run.spec.steps or run.stops():
                ended.append(row)
        if not ended:
            return []
        results = self._results(self._fleet, ended)
        stay = [row for row in range(len(self.runs)) if row not in set(ended)]
        self.runs = [self.runs[row] for row in stay]
        if stay:
            self._fleet.keep(stay)
        return results

    def _results(self, fleet: Fleet, rows: list[int]) -> list[RunResult]:
        values, states = fleet.test(rows), fleet.states(rows)
        results = []
        for row, value, state in zip(rows, values, states, strict=True):
            run, diverged = self.runs[row], self._check.diverged[row]
            results.append(
                RunResult(
                    spec=run.spec,
                    value=math.nan if diverged else value,
                    steps=self.taken,
                    threshold=float(state.threshold[0]),
                    history=tuple(run.history),
                    diverged=diverged,
                    engine=self._engine.name,
                    device=self._engine.device,
                    seconds=run.seconds,
                    versions=versions(),
                    weights=state.key_query(run.spec) if self._keep_weights and not diverged else None,
                )
            )
        return results


def _convoys(specs: Sequence[RunSpec], engine: Engine, weights: bool) -> Iterator[_Convoy]:
    """Group what can share a batch and moves in the same blocks; split what is too large for one."""
    groups: dict[Hashable, list[RunSpec]] = defaultdict(list)
    for spec in specs:
        groups[engine.group(spec), spec.steps, spec.check_every].append(spec)
    for group in groups.values():
        size = min(engine.capacity(spec) for spec in group)
        for first in range(0, len(group), size):
            yield _Convoy(engine, group[first : first + size], weights)


def _sail(convoys: Iterator[_Convoy], engine: Engine, finished: Callable[[RunResult], None], report: Progress) -> None:
    """Move as many convoys together as the engine gains from, until all have arrived."""
    under_way: list[_Convoy] = []
    while True:
        while len(under_way) < engine.concurrency and (more := next(convoys, None)):
            under_way.append(more)
        if not under_way:
            return
        began, runs = time.perf_counter(), sum(len(convoy.runs) for convoy in under_way)
        steps = sum(convoy.launch() for convoy in under_way)
        for convoy in under_way:
            convoy.wait()
        share = (time.perf_counter() - began) / runs
        for convoy in under_way:
            for result in convoy.arrivals(share):
                finished(result)
        report(steps)
        under_way = [convoy for convoy in under_way if convoy.runs]
