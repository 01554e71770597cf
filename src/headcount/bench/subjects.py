"""What is timed: engines as `train` drives them, the two peers, and bare matrix products."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import torch

from headcount.attention.tiles import products_in
from headcount.bench.cases import STEPS, Case
from headcount.bench.peers.eager import EagerRun
from headcount.bench.timing import seconds_of
from headcount.errors import InputError
from headcount.problem.contexts import ContextSampler
from headcount.threads import torch_threads
from headcount.training.engines.base import Engine, Fleet, State
from headcount.training.engines.selection import choose_engine
from headcount.training.task import task_of


@dataclass
class Subject:
    """Something to time on a case: `open` prepares it, `read` times one call."""

    name: str
    device: str
    case: Case
    runs: int | None = None
    steps: int = STEPS
    threads: int | None = None  # of the CPU
    missing: str | None = None  # why it could not be timed

    def open(self) -> None:
        """Prepare what must not be timed."""
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("this machine has no CUDA device")

    def read(self) -> dict[str, float]:
        """`seconds` of one call, and what else it measured."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what `open` took."""


@runtime_checkable
class TimedFleet(Fleet, Protocol):
    """A fleet that can also draw its contexts without using them, as those of our engines can."""

    def contexts(self, steps: int) -> object:
        """The training contexts of every run's next steps."""
        ...


@dataclass
class EngineSubject(Subject):
    """Fleets between two checks, as `train` drives them: drawing, steps, then the validation."""

    fleets: list[TimedFleet] = field(default_factory=list, repr=False)

    def open(self) -> None:
        super().open()
        assert self.runs is not None
        engine = _engine(self.name, self.device, self.threads)
        spec = self.case.specs(1)[0]
        size = engine.capacity(spec)
        fleets = engine.concurrency(self.case.specs(min(self.runs, size)))
        self.runs = min(self.runs, size * fleets)
        specs = self.case.specs(self.runs)
        for first in range(0, self.runs, size):
            fleet = engine.fleet(specs[first : first + size])
            assert isinstance(fleet, TimedFleet)
            self.fleets.append(fleet)

    def read(self) -> dict[str, float]:
        """Seconds, and the shares of them that the check and the drawing of contexts take.

        A call of one step differs from a call of many by steps alone, which gives the check's.
        """
        with torch_threads(self.threads):
            many, one = self._launch(self.steps), self._launch(1)
            drawing = seconds_of(self._draw)
        check = (one * self.steps - many) / (self.steps - 1)
        return {
            "seconds": many,
            "share_evaluation": min(max(check / many, 0.0), 1.0),
            "share_drawing": min(drawing / many, 1.0),
        }

    def _draw(self) -> None:
        for fleet in self.fleets:
            fleet.contexts(self.steps)

    def _launch(self, steps: int) -> float:
        began = time.perf_counter()
        for fleet in self.fleets:
            fleet.launch(steps)
        for fleet in self.fleets:
            fleet.check()
        return time.perf_counter() - began

    def close(self) -> None:
        self.fleets = []


def _engine(name: str, device: str, threads: int | None) -> Engine:
    if name == "native":
        from headcount.training.engines.native.engine import NativeEngine

        return NativeEngine(threads=threads)
    if name == "torch":
        from headcount.training.engines.torch import TorchEngine

        return TorchEngine(device)
    return choose_engine("triton")


@dataclass
class EagerSubject(Subject):
    """One run of the eager loop, contexts predrawn and on the device, no check."""

    run: EagerRun | None = field(default=None, repr=False)

    def open(self) -> None:
        super().open()
        spec = self.case.specs(1)[0]
        task = task_of(spec)
        drawn = ContextSampler(task.graph, spec.length, spec.rate).draw(
            self.steps, seed=spec.seed, stream=spec.stream
        )
        self.contexts = drawn.to(self.device)
        self.run = EagerRun(spec, State.initial(spec), task, self.device)

    def read(self) -> dict[str, float]:
        assert self.run is not None
        with torch_threads(self.threads):
            began = time.perf_counter()
            for context in self.contexts:
                self.run.step(context)
            if self.device == "cuda":
                torch.cuda.synchronize()
            return {"seconds": time.perf_counter() - began}

    def close(self) -> None:
        self.run = None


@dataclass
class JaxSubject(Subject):
    """The JAX peer in a process of its own, so that its threads and memory can be limited."""

    process: subprocess.Popen[str] | None = field(default=None, repr=False)
    errors: IO[str] | None = field(default=None, repr=False)

    def open(self) -> None:
        super().open()
        if find_spec("jax") is None:
            raise InputError("not installed: pip install jax")
        setup = {"case": self.case, "runs": self.runs, "steps": self.steps, "device": self.device}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (`close` closes it)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headcount.bench.peers.jax"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | _jax_settings(self.device),
        )
        self._ask(json.dumps(setup))

    def read(self) -> dict[str, float]:
        return self._ask("again")

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            print(line, file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise InputError(f"the worker ended: {self._last_words()}")
        return json.loads(answer)

    def _last_words(self) -> str:
        """The last line it wrote to standard error."""
        assert self.errors is not None
        self.errors.seek(0)
        lines = self.errors.read().split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        if self.errors is not None:
            self.errors.close()
        self.process = self.errors = None


def _jax_settings(device: str) -> dict[str, str]:
    """The worker's environment: our package, one thread on the CPU, memory as needed on CUDA."""
    folders = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(folders).rstrip(os.pathsep)
    if device == "cuda":
        return {
            "PYTHONPATH": path,
            "JAX_PLATFORMS": "cuda",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    return {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


class MatmulSubject(Subject):
    """The rate of torch's own float32 products, of square matrices; not a bound for others."""

    def open(self) -> None:
        super().open()
        sizes = (8192,) if self.device == "cuda" else (512, 768, 1024)
        self._pairs = [torch.randn(2, size, size, device=self.device) for size in sizes]

    def read(self) -> dict[str, float]:
        """GFLOP/s at each size."""
        with torch_threads(self.threads), products_in("highest"):
            return {f"gflops_{len(pair[0])}": self._rate(pair) for pair in self._pairs}

    def _rate(self, pair: torch.Tensor) -> float:
        began = time.perf_counter()
        torch.mm(pair[0], pair[1])
        if self.device == "cuda":
            torch.cuda.synchronize()
        return 2 * len(pair[0]) ** 3 / (time.perf_counter() - began) / 1e9

    def close(self) -> None:
        self._pairs = []
