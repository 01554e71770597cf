"""How long a reproduction takes: the runs it needs, judging by ours, at this machine's pace."""

from __future__ import annotations

import math
import time

from headcount.reproduction.evidence import KEY
from headcount.reproduction.shipped import measured_runs
from headcount.store.store import Store
from headcount.sweeps.cost import estimate, work
from headcount.sweeps.file import SweepFile
from headcount.training.engines.base import Engine
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec


def expected_runs(sweep: SweepFile) -> dict[RunSpec, int]:
    """The runs that a sweep over the paper's grids would ask for, with the steps each takes.

    How long a run is, and what a search asks for next, depend on results. Those of the shipped
    runs of the same specs are taken; a run that has none counts with all its steps.
    """
    measured = measured_runs()
    rows = zip(*(measured[name] for name in (*KEY, "value", "steps")), strict=True)
    known = {row[:-2]: row[-2:] for row in rows}
    plan, found = sweep.plan(), dict[RunSpec, int]()
    while batch := plan.next_batch():
        results = [
            _as_before(spec, *known.get(_key(spec), (math.nan, spec.steps))) for spec in batch
        ]
        found |= {result.spec: result.steps for result in results}
        plan.observe(results)
    return found


class Forecast:
    """The time left: the remaining work at the pace so far, starting from a short measurement."""

    def __init__(self, sweep: SweepFile, engine: Engine, store: Store | None) -> None:
        self._work = {spec: work(spec, steps) for spec, steps in expected_runs(sweep).items()}
        self._store = store
        todo = self._missing()
        measured = estimate(todo, engine)
        most = sum(map(work, todo))
        # Operations per second.
        self._pace = most / measured.seconds if measured.seconds > 0 else math.inf
        self._first = sum(self._work[spec] for spec in todo)
        self.runs, self.known = len(todo), len(self._work) - len(todo)
        self.began = time.monotonic()

    @property
    def total(self) -> float:
        """Seconds for the whole, by the measurement alone."""
        return self._first / self._pace

    def left(self) -> tuple[float, float]:
        """Seconds left, and the share of the work that is done."""
        rest = sum(self._work[spec] for spec in self._missing())
        elapsed, done = time.monotonic() - self.began, self._first - rest
        weight = 20.0  # seconds of work that the first measurement counts for
        pace = (done + weight * self._pace) / (elapsed + weight)
        return rest / pace, done / self._first if self._first else 1.0

    def _missing(self) -> list[RunSpec]:
        known = self._store.known(self._work) if self._store else set[str]()
        return [spec for spec in self._work if spec.hash not in known]


def _key(spec: RunSpec) -> tuple[object, ...]:
    return tuple(getattr(spec, name) for name in KEY)


def _as_before(spec: RunSpec, value: float, steps: int) -> RunResult:
    return RunResult(spec, float(value), int(steps), 0.0, (), None, "", "", 0.0)
