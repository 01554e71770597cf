"""Print what a step of the native engine consists of, and the rates that bound it (x86-64).

    python tools/native_phases.py [VARIANT] [--level avx2]

Times are µs per step on one core, the best of five rounds of 500 steps. `alone` is what the
products of a step take at the rate of bare multiply-adds, plus AdamW on weights in the L1 cache.
The compiler is $CXX, or else c++.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import tempfile
import time
from pathlib import Path

import torch

from headcount.bench.cases import SHAPES, VARIANTS, Case
from headcount.errors import InputError
from headcount.training.engines.base import State, adam_scales
from headcount.training.engines.native.library import levels
from headcount.training.engines.native.runs import NativeRun

NATIVE = Path(__file__).parents[1] / "src" / "headcount" / "training" / "engines" / "native"
FLAGS = ["-std=c++17", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
LEVELS = {  # lanes, and what the compiler must be told
    "avx2": (8, ["-mavx2", "-mfma"]),
    "avx512": (16, ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"]),
}
COMPILER = os.environ.get("CXX", "c++").split()
PHASES = ("contexts", "gather", "project", "join", "slope", "move", "update")
STEPS, ROUNDS = 500, 5


def timed_library(level: str, folder: str) -> ctypes.CDLL:
    """The kernels of a level with a clock in them, compiled."""
    lanes, flags = LEVELS[level]
    out = Path(folder) / "phases.so"
    source = Path(__file__).with_suffix(".cpp")
    words = [*COMPILER, *FLAGS, *flags, f"-DHEADCOUNT_WIDTH={lanes}"]
    subprocess.run([*words, "-I", NATIVE, "-shared", "-fPIC", "-w", source, "-o", out], check=True)
    found = ctypes.CDLL(str(out))
    found.flush_tiny_numbers()
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.timed_steps.argtypes = (pointer, number, pointer, pointer)
    found.timed_check.argtypes = (pointer, pointer)
    found.timed_multiply_adds.argtypes = found.timed_adam.argtypes = (pointer, number)
    found.ticks.restype = ctypes.c_uint64
    for name in ("timed_check", "timed_multiply_adds", "timed_adam"):
        getattr(found, name).restype = ctypes.c_double
    return found


class TimedRun:
    """A run of a case, and what the timed kernels need for it."""

    def __init__(self, found: ctypes.CDLL, case: Case, level: str) -> None:
        self._found, self.spec = found, case.specs(1)[0]
        self._run = NativeRun(self.spec, State.initial(self.spec), levels().index(level))
        self._run.will_evaluate("validation")
        self._scratch = torch.empty(self._run.scratch_bytes, dtype=torch.int8)

    def steps(self, count: int) -> list[float]:
        """Take steps; the ticks of every phase."""
        scales = adam_scales(self.spec.learning_rate, self._run.record.taken, count)
        self._run.record.scales = scales.ctypes.data
        ticks = (ctypes.c_double * len(PHASES))()
        record, scratch = ctypes.byref(self._run.record), self._scratch.data_ptr()
        self._found.timed_steps(record, count, scratch, ticks)
        return list(ticks)

    def check(self) -> float:
        """The ticks of a check."""
        return self._found.timed_check(ctypes.byref(self._run.record), self._scratch.data_ptr())

    def state(self) -> State:
        """As the engine would give it."""
        return self._run.state(self._run.record.taken)


def microseconds(found: ctypes.CDLL) -> float:
    """The length of a tick."""
    began, first = time.perf_counter(), found.ticks()
    time.sleep(0.2)
    return (time.perf_counter() - began) * 1e6 / (found.ticks() - first)


def row(run: TimedRun, tick: float) -> list[float]:
    """µs of every phase of a step, and of a check per step since the one before."""
    run.steps(STEPS // 5)
    rounds = [run.steps(STEPS) for _ in range(ROUNDS)]
    checks = [run.check() for _ in range(ROUNDS)]
    return [min(each) * tick / STEPS for each in zip(*rounds, strict=True)] + [
        min(checks) * tick / run.spec.check_every
    ]


def main() -> None:
    """Print a row per shape."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    try:
        runnable = [level for level in LEVELS if level in levels()]
    except InputError as missing:
        parser.error(str(missing))
    parser.add_argument("variant", nargs="?", default="max", choices=VARIANTS)
    parser.add_argument("--level", default=runnable[-1] if runnable else None, choices=runnable)
    asked = parser.parse_args()
    if not runnable:
        parser.error(f"this machine runs neither {' nor '.join(LEVELS)}")
    with tempfile.TemporaryDirectory() as folder:
        found = timed_library(asked.level, folder)
    tick, lanes = microseconds(found), LEVELS[asked.level][0]
    numbers = torch.ones(4096)
    product, adam = (
        min(timed(numbers.data_ptr(), 10**7) for _ in range(ROUNDS)) * tick / lanes
        for timed in (found.timed_multiply_adds, found.timed_adam)
    )
    print(f"multiply-adds: {2e-3 / product:.0f} GFLOP/s; AdamW: {1e-3 / adam:.2f} weights per ns")
    print("shape".ljust(22), *(name.rjust(8) for name in (*PHASES, "check", "alone")))
    for shape in SHAPES:
        case = shape._replace(variant=asked.variant)
        spec = case.specs(1)[0]
        weights = spec.d_model * (spec.budget + spec.key_budget)
        alone = case.flops / 2 * product + weights * adam
        times = [*row(TimedRun(found, case, asked.level), tick), alone]
        print(str(case.shape).ljust(22), *(f"{each:8.3f}" for each in times))


if __name__ == "__main__":
    main()
