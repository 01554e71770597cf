"""What runs cost: a model of their arithmetic, and a short measurement that scales it."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headcount.training.engines.base import Engine, State
from headcount.training.spec import RunSpec

_SHAPES = 5  # measured at most
_LONGEST = 0.25  # seconds of one measurement
# Operations per second before anything was measured; of the native engine, per thread.
_GUESS = {"native": 3e10, "triton": 3e12}
_SLOW = 5e9


def work(spec: RunSpec, steps: int | None = None) -> float:
    """Arithmetic operations of a run with these steps (by default all), its checks and its test."""
    taken = spec.steps if steps is None else steps
    length, width = spec.length, spec.d_model * (spec.budget + spec.key_budget) / 2
    # Projections forward and backward, scores forward and backward, AdamW, and what every step
    # costs besides.
    step = 8 * length * width + 6 * length**2 * spec.budget + 20 * width + 60_000
    return (
        taken * step
        + taken / spec.check_every * _check(spec, spec.validation)
        + _check(spec, spec.test)
    )


def _check(spec: RunSpec, contexts: int) -> float:
    """Project every item, then score every pair, or every context where these are fewer."""
    pairs = contexts * spec.length**2
    if spec.variant in ("max", "sum"):
        pairs = min(pairs, spec.items**2)
    columns = spec.budget + spec.key_budget
    return 2 * spec.items * spec.d_model * columns + 2 * pairs * spec.budget


@dataclass
class Throughput:
    """Operations per second, learned on the way."""

    rate: float

    @classmethod
    def of(cls, name: str, threads: int = 1) -> Throughput:
        """A first guess for an engine; only the native one trains runs on several threads."""
        return cls(_GUESS.get(name, _SLOW) * (threads if name == "native" else 1))

    def learn(self, done: float, seconds: float) -> None:
        """Learn from work done in this time."""
        # A geometric mean in which the last measurement counts three quarters: early stops and
        # other processes change the rate by large factors, in both directions.
        if done > 0 and seconds > 0:
            self.rate = (self.rate * (done / seconds) ** 3) ** 0.25

    def runs_in(self, specs: Sequence[RunSpec], seconds: float) -> int:
        """How many of the first runs take about this time; at least one."""
        room = self.rate * seconds
        for number, spec in enumerate(specs):
            room -= work(spec)
            if room <= 0:
                return number + 1
        return len(specs)


@dataclass(frozen=True)
class Estimate:
    """The time that runs take at most: they stop early."""

    seconds: float
    measured: int  # shapes
    took: float  # seconds of measuring
    each: tuple[float, ...] = ()  # seconds by run


def estimate(specs: Sequence[RunSpec], engine: Engine, seconds: float = 2.5) -> Estimate:
    """Time a few steps of a few of these shapes and scale the rest by their arithmetic.

    The measurement takes about `seconds`.
    """
    began = time.perf_counter()
    if not specs:
        return Estimate(0.0, 0, 0.0)
    found: list[tuple[float, float]] = []  # (operations per step, seconds per operation)
    for fleet_specs in _samples(specs, engine):
        found.append(_measured(fleet_specs, engine))
        if time.perf_counter() - began > seconds - 2 * _LONGEST:
            break
    # Small steps reach a lower rate: the cost of an operation is interpolated between the measured
    # sizes of a step, both on a logarithmic scale.
    sizes, costs = np.log(np.array(sorted(found))).T
    all_work = np.array([work(spec) for spec in specs])
    per_step = all_work / np.array([spec.steps for spec in specs])
    each = all_work * np.exp(np.interp(np.log(per_step), sizes, costs))
    took = time.perf_counter() - began
    return Estimate(float(each.sum()), len(found), took, tuple(each.tolist()))


def _samples(specs: Sequence[RunSpec], engine: Engine) -> Iterator[list[RunSpec]]:
    """Fleets like the runs at the middle, the ends and the quarters of the list sorted by cost."""
    ranked = sorted(specs, key=lambda spec: work(spec) / spec.steps)
    groups: dict[Hashable, list[RunSpec]] = {}
    for spec in ranked:
        groups.setdefault(engine.group(spec), []).append(spec)
    seen: set[RunSpec] = set()
    for share in (0.5, 0.0, 1.0, 0.25, 0.75)[:_SHAPES]:
        spec = ranked[round(share * (len(ranked) - 1))]
        if spec in seen:
            continue
        same = groups[engine.group(spec)]
        # As many at once as fill the engine, and no more than a measurement has time for.
        many = min(engine.capacity(spec), 1024 if engine.concurrency([spec]) > 1 else 16)
        first = max(0, min(same.index(spec) - many // 2, len(same) - many))
        fleet = same[first : first + many]
        seen.update(fleet)
        yield fleet


def _measured(specs: list[RunSpec], engine: Engine) -> tuple[float, float]:
    fleet = engine.fleet(specs, [State.initial(spec) for spec in specs])
    steps, taken, seconds = min(10, specs[0].check_every), 0, 0.0
    for _ in range(2):  # the first launch warms up and shows how many steps there is time for
        began = time.perf_counter()
        fleet.launch(steps)
        fleet.check()
        seconds, taken = time.perf_counter() - began, steps
        steps = max(1, min(int(steps * _LONGEST / seconds), specs[0].check_every))
    # What was timed: the steps, and one check per run whatever their number.
    done = sum(work(spec, taken) - _check(spec, spec.test) for spec in specs)
    done += sum((1 - taken / spec.check_every) * _check(spec, spec.validation) for spec in specs)
    return float(np.mean([work(spec) / spec.steps for spec in specs])), seconds / done
