"""`train`: many runs, grouped, stopped each by its own rule, returned in order (Appendix A.1)."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

from headcount.errors import InputError
from headcount.progress import notice
from headcount.provenance import versions
from headcount.training.engines.base import Engine, Fleet, State
from headcount.training.engines.selection import EngineName, choose_engine
from headcount.training.progress import Progress, show_progress
from headcount.training.result import RunResult, RunResults
from headcount.training.spec import RunSpec


@dataclass
class UnderWay:
    """A run that is not finished: all that the stopping rule needs, and its state where known.

    A state that `on_block` gives may be the engine's own memory: copy or write it before the next
    block.
    """

    spec: RunSpec
    history: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0
    state: State | None = None
    # The best of the first `_seen` values. The rule is asked after every one of thousands of
    # checks: going through all of them each time would cost more than the training.
    _best: float = field(default=math.inf, repr=False, compare=False)
    _seen: int = field(default=0, repr=False, compare=False)

    def stops(self) -> bool:
        """A.1: validation micro-F1 above the target at `patience` consecutive checks.

        Section 7.2 stops on validation error "with the same check interval and patience" and names
        no target: here, when the last `patience` checks brought no new best.
        """
        last = [value for _, value in self.history[-self.spec.patience :]]
        if len(last) < self.spec.patience:
            return False
        if self.spec.metric == "f1":
            return min(last) > self.spec.target
        for _, value in self.history[self._seen : -self.spec.patience]:
            self._best, self._seen = min(self._best, value), self._seen + 1
        return self._seen > 0 and min(last) >= self._best


# Given the run-steps just taken, and a function that returns the runs under way: reading their
# states costs a copy from the device, so it happens only if asked for.
OnBlock = Callable[[int, Callable[[], list[UnderWay]]], None]


def train(
    specs: Sequence[RunSpec],
    engine: EngineName | Engine = "auto",
    progress: bool = True,
    *,
    weights: bool = False,
    on_result: Callable[[RunResult], None] | None = None,
    on_block: OnBlock | None = None,
    resume: Iterable[UnderWay] = (),
) -> RunResults:
    """Train every spec and return the results in the order of the specs.

    Runs that can share a batch do; a result does not depend on its neighbours, their order or their
    number. An interrupt (Ctrl-C) ends the training and returns the finished runs.

    Args:
        specs: The runs to train; a spec that is given twice is trained once.
        engine: The name of an engine or an engine; `auto` takes the fastest on this machine.
        progress: Whether to report progress on standard error.
        weights: Whether results keep their `KeyQuery`.
        on_result: Called with each result as soon as it is known.
        on_block: Called after every block of steps with the number of run-steps taken and a
            function that returns the runs under way.
        resume: Runs under way that `on_block` gave. On the same engine and kind of machine they end
            bit for bit as if they had never stopped.

    >>> specs = [RunSpec(16, 16, heads=2, key_dim=4, seed=seed, steps=1000) for seed in range(2)]
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
    left = {run.spec: run for run in resume}
    runs = [left.get(spec) or UnderWay(spec) for spec in distinct]
    with (
        show_progress(distinct, chosen, results)
        if progress
        else nullcontext(lambda steps: None) as report
    ):
        try:
            fleet_runs = _fleet_runs(runs, chosen, weights)
            _run_all(fleet_runs, finished, report, on_block)
        except KeyboardInterrupt:
            if progress:
                notice(f"interrupted: {len(results)} of {len(distinct)} runs are finished")
    return RunResults(results[spec] for spec in specs if spec in results)


class _FleetRun:
    """Runs trained together in one fleet: blocks of steps, after each of which some may stop."""

    def __init__(self, engine: Engine, runs: list[UnderWay], keep_weights: bool) -> None:
        self._engine, self._keep_weights = engine, keep_weights
        self._fleet: Fleet | None = None
        self.runs = [replace(run, history=list(run.history)) for run in runs]
        self.taken = _taken(runs[0])

    @property
    def share(self) -> float:
        """Of the engine."""
        return 1 / self._engine.concurrency([run.spec for run in self.runs])

    def launch(self) -> int:
        """Begin the next block; returns its steps, summed over the runs."""
        spec = self.runs[0].spec
        if self._fleet is None:
            states = [run.state or State.initial(run.spec) for run in self.runs]
            self._fleet = self._engine.fleet([run.spec for run in self.runs], states)
        steps = min(spec.check_every, spec.steps - self.taken)
        self._fleet.launch(steps)
        self.taken += steps
        return steps * len(self.runs)

    def wait(self) -> None:
        """Wait for the end of the block and its checks."""
        assert self._fleet is not None
        self._check = self._fleet.check()

    def stop_finished(self, seconds: float) -> list[RunResult]:
        """Results of the runs that end here; `seconds` of the block are per run."""
        assert self._fleet is not None
        ended = []
        checks = zip(self.runs, self._check.values, self._check.diverged, strict=True)
        for row, (run, value, diverged) in enumerate(checks):
            run.seconds += seconds
            run.history.append((self.taken, value))
            if diverged or self.taken >= run.spec.steps or run.stops():
                ended.append(row)
        if not ended:
            return []
        results = [
            self._result(row, value, state)
            for row, value, state in zip(
                ended, self._fleet.test(ended), self._fleet.states(ended), strict=True
            )
        ]
        stay = sorted(set(range(len(self.runs))) - set(ended))
        self.runs = [self.runs[row] for row in stay]
        if stay:
            self._fleet.keep(stay)
        return results

    def under_way(self) -> list[UnderWay]:
        """The runs that have not ended, with their states."""
        assert self._fleet is not None
        states = self._fleet.states(range(len(self.runs)))
        return [
            replace(run, history=list(run.history), state=state)
            for run, state in zip(self.runs, states, strict=True)
        ]

    def _result(self, row: int, value: float, state: State) -> RunResult:
        run = self.runs[row]
        # The last step itself may have made a number that no later step could notice.
        diverged = self._check.diverged[row] or (None if state.finite else self.taken)
        return RunResult(
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


def _taken(run: UnderWay) -> int:
    return run.state.taken if run.state else 0


def _fleet_runs(runs: Sequence[UnderWay], engine: Engine, weights: bool) -> Iterator[_FleetRun]:
    """Group what can share a fleet and has the same blocks; split what is too large for one."""
    groups: dict[Hashable, list[UnderWay]] = defaultdict(list)
    for run in runs:
        spec, taken = run.spec, _taken(run)
        if taken >= spec.steps:
            raise InputError(
                f"a run of {spec.steps} steps cannot continue after {taken}; raise its limit"
            )
        groups[engine.group(spec), spec.steps, spec.check_every, taken].append(run)
    for group in groups.values():
        size = min(engine.capacity(run.spec) for run in group)
        for first in range(0, len(group), size):
            yield _FleetRun(engine, group[first : first + size], weights)


def _run_all(
    waiting: Iterator[_FleetRun],
    finished: Callable[[RunResult], None],
    report: Progress,
    on_block: OnBlock | None,
) -> None:
    """Train as many fleets side by side as the engine gains from, until none is left."""
    open_runs: list[_FleetRun] = []
    while True:
        while sum(fleet.share for fleet in open_runs) < 1 and (more := next(waiting, None)):
            open_runs.append(more)
        if not open_runs:
            return
        began, runs = time.perf_counter(), sum(len(fleet.runs) for fleet in open_runs)
        # All launches come before the first wait: on a GPU the fleets then run side by side.
        steps = sum(fleet.launch() for fleet in open_runs)
        for fleet in open_runs:
            fleet.wait()
        seconds = (time.perf_counter() - began) / runs
        for fleet in open_runs:
            for result in fleet.stop_finished(seconds):
                finished(result)
        report(steps)
        open_runs = [fleet for fleet in open_runs if fleet.runs]
        if on_block:
            on_block(steps, partial(_all_under_way, open_runs))


def _all_under_way(fleets: Sequence[_FleetRun]) -> list[UnderWay]:
    return [run for fleet in fleets for run in fleet.under_way()]
