"""How long a reproduction takes: the runs that it needs, by our own results of them, at this machine's pace."""

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
    """The runs that a sweep over the paper's grids would ask for, with the steps each takes, had they gone as ours did.

    A run's length, and what a search asks next, depend on results; ours are those of the same specs.
    """
    wanted = {
        spec: key
        for part in (*sweep.grids, *sweep.searches)
        for spec in part.runs
        for key in [_key(spec)]
    }
    columns = measured_runs()
    rows = zip(*(columns[name] for name in (*KEY, "value", "steps")), strict=True)
    known = {row[:-2]: row[-2:] for row in rows}
    plan, found = sweep.plan(), dict[RunSpec, int]()
    while batch := plan.next_batch():
        results = [
            _as_before(spec, *known.get(wanted[spec], (math.nan, spec.steps))) for spec in batch
        ]
        found |= {result.spec: result.steps for result in results}
        plan.observe(results)
    return found


class Forecast:
    """Seconds that are left: the work that is left by the pace so far, which a short measurement begins."""

    def __init__(self, sweep: SweepFile, engine: Engine, store: Store) -> None:
        self._work = {spec: work(spec, steps) for spec, steps in expected_runs(sweep).items()}
        self._store = store
        todo = self._missing()
        measured = estimate(todo, engine)
        most = sum(map(work, todo))
        self._pace = (
            most / measured.seconds if measured.seconds > 0 else math.inf
        )  # operations a second
        self._first = sum(self._work[spec] for spec in todo)
        self.runs = len(todo)
        self.began = time.monotonic()

    @property
    def total(self) -> float:
        """Seconds that the whole takes, by the measurement alone."""
        return self._first / self._pace

    def left(self) -> tuple[float, float]:
        """Seconds that are left, and the share of the work that is done."""
        rest = sum(self._work[spec] for spec in self._missing())
        elapsed, done = time.monotonic() - self.began, self._first - rest
        weight = 20.0  # seconds for which the measurement counts
        pace = (done + weight * self._pace) / (elapsed + weight)
        return rest / pace, done / self._first if self._first else 1.0

    def _missing(self) -> list[RunSpec]:
        known = self._store.known(self._work)
        return [spec for spec in self._work if spec.hash not in known]


def _key(spec: RunSpec) -> tuple[object, ...]:
    return tuple(getattr(spec, name) for name in KEY)


def _as_before(spec: RunSpec, value: float, steps: int) -> RunResult:
    return RunResult(spec, float(value), int(steps), 0.0, (), None, "", "", 0.0)
