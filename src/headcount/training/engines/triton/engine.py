"""The engine for CUDA: a run per Triton program, or several that share a large one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from headcount.training.engines.base import State
from headcount.training.engines.triton.compilation import compile_ahead
from headcount.training.engines.triton.fleet import TritonFleet
from headcount.training.engines.triton.memory import run_bytes
from headcount.training.engines.triton.shape import Shape
from headcount.training.spec import RunSpec
from headcount.triton_device import triton_device

_MOST_RUNS = 8192
_MANY, _FEW = 64, 8  # fleets side by side


class TritonEngine:
    """CUDA through Triton; with TRITON_INTERPRET=1 the CPU runs the kernels, slowly, for tests."""

    name = "triton"

    def __init__(self) -> None:
        self.device = triton_device()
        # What fleets may take: half of what is free now, as torch keeps what they give back.
        self._memory, self._slots = 2**31, 1  # the interpreter runs one program after the other
        if self.device == "cuda":
            self._memory = torch.cuda.mem_get_info()[0] // 2
            # Two programs of a shared run fill a multiprocessor.
            self._slots = 2 * torch.cuda.get_device_properties("cuda").multi_processor_count

    def group(self, spec: RunSpec) -> Hashable:
        shape, degree = Shape.of(spec), spec.degree
        protocol = (spec.rate, spec.learning_rate, spec.sharpness, spec.validation, spec.test)
        return shape, degree if shape.targets else 0, *protocol

    def capacity(self, spec: RunSpec) -> int:
        return max(1, min(_MOST_RUNS, self._memory // _FEW // run_bytes(spec)))

    def concurrency(self, specs: Sequence[RunSpec]) -> int:
        """Fewer where they need much memory, or where programs share a run.

        Those fill the device, and wait for each other.
        """
        members, largest = Shape.of(specs[0]).members, max(specs, key=lambda spec: spec.items)
        fleets = _MANY
        if members > 1:
            fleets = min(_MANY, max(_FEW, self._slots // (len(specs) * members)))
        return max(1, min(fleets, self._memory // (len(specs) * run_bytes(largest))))

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> TritonFleet:
        states = states or [State.initial(spec) for spec in specs]
        return TritonFleet(specs, states, self.device, self._slots)

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        if self.device == "cuda":
            compile_ahead(specs, self._slots)
