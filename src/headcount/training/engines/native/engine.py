"""The engine for CPUs: C++ kernels, one run per thread, its state in cache for a block of steps."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.provenance import cores
from headcount.shapes import Int
from headcount.training.engines.base import Check, State, adam_scales, lockstep
from headcount.training.engines.native.library import Run, levels, run_steps
from headcount.training.engines.native.runs import NativeRun
from headcount.training.objective import metrics
from headcount.training.spec import RunSpec

Level = Literal["plain", "baseline", "neon", "avx2", "avx512"]
_WIDEST = 2**20  # budget


class NativeEngine:
    """C++ on the CPU: by default on every core it may use, with the widest vectors it has."""

    name = "native"
    device = "cpu"

    def __init__(self, threads: int | None = None, level: Level | None = None) -> None:
        runnable = levels()
        if level is not None and level not in runnable:
            raise InputError(
                f"this machine does not run level {level!r}; leave it out or use "
                f"{', '.join(runnable)}"
            )
        if threads is not None and threads < 1:
            raise InputError(f"{threads} threads do no work; choose at least 1, or leave them out")
        self.level = runnable.index(level) if level else len(runnable) - 1
        self.level_name = runnable[self.level]
        self.threads = threads or cores()
        self._stop: ctypes.c_int32 | None = None  # of a `single` engine

    def single(self) -> NativeEngine:
        """The same level on one thread, for use on threads other than Python's main thread."""
        engine = NativeEngine(1)
        engine.level, engine.level_name = self.level, self.level_name
        engine._stop = ctypes.c_int32(0)
        return engine

    def halt(self) -> None:
        """End all that a `single` engine does, within a few steps."""
        assert self._stop is not None
        self._stop.value = 1

    def group(self, spec: RunSpec) -> Hashable:
        return self.name  # each run has its own shape, rate and pointers

    def capacity(self, spec: RunSpec) -> int:
        return max(1, 2**29 // (6 * spec.d_model * spec.budget + 2 * spec.items * spec.d_model))

    def concurrency(self, specs: Sequence[RunSpec]) -> int:
        return 1

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> NativeFleet:
        for spec in specs:
            if spec.items >= 2**31 or spec.budget > _WIDEST:
                raise InputError(
                    f"the native engine takes up to {2**31 - 1} items and a budget of {_WIDEST}"
                )
        states = states or [State.initial(spec) for spec in specs]
        return NativeFleet(specs, states, self.level, self.threads, self._stop)

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        pass


class NativeFleet:
    """Runs of any shape; `launch` blocks until all of them have taken their steps."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        states: Sequence[State],
        level: int,
        threads: int,
        stop: ctypes.c_int32 | None = None,
    ) -> None:
        self.specs, self.taken = list(specs), lockstep(states)
        self._level, self._threads, self._stop = level, threads, stop
        self._scratch = torch.empty(0, 0, dtype=torch.int8)
        self._scales: dict[float, Tensor] = {}
        self._runs = [NativeRun(*both, level) for both in zip(specs, states, strict=True)]

    def launch(self, steps: int) -> None:
        rates = {spec.learning_rate for spec in self.specs}
        self._scales = {
            rate: torch.from_numpy(adam_scales(rate, self.taken, steps)) for rate in rates
        }
        for run in self._runs:
            run.record.scales = self._scales[run.spec.learning_rate].data_ptr()
            run.will_evaluate("validation")
        self._values = self._call(self._runs, steps)
        self.taken += steps

    def check(self) -> Check:
        return Check(self._values, [run.record.diverged or None for run in self._runs])

    def test(self, rows: Sequence[int]) -> list[float]:
        runs = [self._runs[row] for row in rows]
        for run in runs:
            run.will_evaluate("test")
        return self._call(runs, 0)

    def states(self, rows: Sequence[int]) -> list[State]:
        return [self._runs[row].state(self.taken) for row in rows]

    def keep(self, rows: Sequence[int]) -> None:
        self.specs = [self.specs[row] for row in rows]
        self._runs = [self._runs[row] for row in rows]

    def contexts(self, steps: int) -> list[Int[Tensor, "steps length"]]:
        """The training contexts of every run's next steps, drawn on the engine's threads."""
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda run: run.contexts(steps), self._runs))

    def _call(self, runs: list[NativeRun], steps: int) -> list[float]:
        """Steps and an evaluation of these runs; returns their metrics."""
        # Costly runs first: none is left for the end, when the other threads have nothing to do.
        order = sorted(runs, key=lambda run: -run.spec.d_model * run.spec.budget)
        records = (Run * len(order))(*(run.record for run in order))
        threads, most = min(self._threads, len(order)), max(run.scratch_bytes for run in order)
        if len(self._scratch) < threads or self._scratch.shape[1] < most:
            self._scratch = torch.empty(threads, most, dtype=torch.int8)
        held = (runs, self._scales)
        run_steps(self._level, records, steps, self._scratch[:threads], held, self._stop)
        for run, record in zip(order, records, strict=True):
            run.record = record
        tallies = torch.tensor([tuple(run.record.tally) for run in runs], dtype=torch.float64)
        asked = {run.spec.metric for run in runs}
        values = {kind: metrics(kind, tallies) for kind in ("f1", "mse") if kind in asked}
        return [values[run.spec.metric][row] for row, run in enumerate(runs)]
