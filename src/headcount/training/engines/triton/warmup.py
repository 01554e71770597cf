"""Compile kernels ahead and in parallel: the paper's grid has some hundred shapes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import current_process, get_context

from headcount.provenance import cores
from headcount.training.engines.base import Engine
from headcount.training.engines.triton.shape import Shape
from headcount.training.spec import RunSpec, is_content_hash

_CACHED = 1.5  # seconds that a shape takes at most if Triton's cache on disk has its kernels
_MOST_PROCESSES = 16  # each has its own context on the device


def warm_up(specs: Sequence[RunSpec], engine: Engine) -> int:
    """Bring every kernel that these runs need into Triton's cache; returns the number of shapes.

    Shapes are tried one by one while they come from the cache. From the first one that has to be
    compiled, which takes seconds, the rest is compiled by as many processes as there are cores. A
    daemonic process, as a dask worker is, may not start others and compiles them itself.
    """
    shapes = _by_shape(specs)
    left, alone = iter(shapes), current_process().daemon
    for spec in left:
        began = time.perf_counter()
        touch(spec, engine)
        if time.perf_counter() - began > _CACHED and not alone:
            break
    rest = list(left)
    if len(rest) > 1 and cores() > 1:
        processes = min(cores(), _MOST_PROCESSES, len(rest))
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            list(pool.map(_touch_anew, rest))
    return len(shapes)


def touch(spec: RunSpec, engine: Engine) -> None:
    """Run two steps, a check and a test of one run: all kernels of its shape."""
    fleet = engine.fleet([spec])
    fleet.launch(2)
    fleet.check()
    fleet.test([0])


def _touch_anew(spec: RunSpec) -> None:
    from headcount.training.engines.triton.engine import TritonEngine

    touch(spec, TritonEngine())


def smallest(spec: RunSpec) -> RunSpec:
    """A run with the same kernels and the smallest problem, which any process draws at once."""
    own = {"graph": "random", "degree": 1} if is_content_hash(spec.graph) else {}
    degree = own.get("degree", spec.degree)
    items = 2 * max(spec.length, degree) + 1
    # A check goes over all pairs unless they are many more than the contexts hold, as they are if
    # there is but one context.
    contexts = -(-(items**2) // spec.length**2) if Shape.of(spec).pairs else 1
    return replace(spec, items=items, table="gaussian", validation=contexts, test=contexts, **own)


def _by_shape(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """One small run for each shape, the largest shapes first: they take longest to compile."""
    found = {Shape.of(spec): spec for spec in specs}
    return [
        smallest(spec)
        for spec in sorted(found.values(), key=lambda spec: -spec.d_model * spec.budget)
    ]
