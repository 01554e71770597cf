"""Compile kernels ahead and in parallel: the paper's grid has some hundred shapes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import current_process, get_context
from typing import Any

from headcount.provenance import cores
from headcount.training.engines.base import State
from headcount.training.engines.triton.fleet import TritonFleet
from headcount.training.engines.triton.shape import Shape
from headcount.training.spec import RunSpec, is_content_hash

_CACHED = 0.5  # seconds that a shape takes at most if Triton's cache on disk has its kernels
_START = 1.0  # more for the first: Triton reads its own source to know which cache is its own
_MOST_PROCESSES = 32  # each takes some 0.4 GB of memory


class Compilation(TritonFleet):
    """A fleet whose kernels are compiled where another would launch them; it needs no device."""

    @classmethod
    def of(cls, spec: RunSpec, slots: int) -> None:
        """Bring all kernels of a run's shape into Triton's cache."""
        small = smallest(spec)
        cls([small], [State.initial(small)], "cpu", slots).launch(2)

    def _begin(self, kernel: Any, grid: tuple[int, ...], *arguments: object, **named: Any) -> None:
        kernel.warmup(*arguments, grid=grid, **named)


@dataclass(frozen=True)
class _Target:
    """The part of a Triton driver that compilation asks for, in a process without the device.

    A context on the device takes such a process seconds, and the device some of its memory.
    """

    target: Any

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_for(target: Any) -> None:
    """Let Triton compile for this kind of GPU in this process, which has none."""
    from triton.runtime import driver

    stand_in: Any = _Target(target)
    driver.set_active(stand_in)


def compile_ahead(specs: Sequence[RunSpec], slots: int) -> int:
    """Bring every kernel that these runs need into Triton's cache; returns the number of shapes.

    Shapes are tried one by one while they come from the cache. From the first one that has to be
    compiled, which takes seconds, the rest is compiled by as many processes as there are cores. A
    daemonic process, as a dask worker is, may not start others and compiles them itself.
    """
    shapes = distinct_shapes(specs)
    left, alone, limit = iter(shapes), current_process().daemon, _CACHED + _START
    for spec in left:
        began = time.perf_counter()
        Compilation.of(spec, slots)
        if time.perf_counter() - began > limit and not alone:
            break
        limit = _CACHED
    rest = list(left)
    if len(rest) > 1 and cores() > 1:
        from triton.runtime import driver

        with ProcessPoolExecutor(
            min(cores(), _MOST_PROCESSES, len(rest)),
            mp_context=get_context("spawn"),
            initializer=compile_for,
            initargs=(driver.active.get_current_target(),),
        ) as pool:
            list(pool.map(Compilation.of, rest, [slots] * len(rest)))
    return len(shapes)


def smallest(spec: RunSpec) -> RunSpec:
    """A run with the same kernels and the smallest problem, which any process draws at once."""
    graph = "random" if is_content_hash(spec.graph) else spec.graph
    items = 2 * spec.length + 3
    # A check goes over all pairs unless they are many more than the contexts hold, as they are if
    # there is but one context.
    contexts = -(-(items**2) // spec.length**2) if Shape.of(spec).pairs else 1
    return replace(
        spec,
        items=items,
        graph=graph,
        degree=min(spec.degree, 2),
        table="gaussian",
        validation=contexts,
        test=contexts,
    )


def distinct_shapes(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """One run of each shape, the largest shapes first: they take longest to compile."""
    found = {Shape.of(spec): spec for spec in specs}
    return sorted(found.values(), key=lambda spec: -spec.d_model * spec.budget)
