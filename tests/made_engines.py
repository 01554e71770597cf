"""The engines under test, and what every one of them is held to."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.training.engines.base import Check, Engine, State
from headcount.training.engines.native.engine import NativeEngine
from headcount.training.engines.selection import choose_engine
from headcount.training.engines.torch import TorchEngine
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec

ENGINES: dict[str, Callable[[], Engine]] = {
    "torch": lambda: TorchEngine("cpu"),
    "native-plain": lambda: NativeEngine(level="plain"),
    "native-baseline": lambda: NativeEngine(level="baseline"),
    "native-neon": lambda: NativeEngine(level="neon"),
    "native-avx2": lambda: NativeEngine(level="avx2"),
    "native-avx512": lambda: NativeEngine(level="avx512"),
    "triton": lambda: choose_engine("triton"),  # without a CUDA device its kernels are interpreted
}
# The levels with vector types: `plain` is compared with one of them, bit for bit.
VECTORS = ("native-baseline", "native-neon", "native-avx2", "native-avx512")
HUBS = {"graph": "skewed", "table": "binary"}


def made(name: str) -> Engine:
    """The engine, or a skip that says what it lacks."""
    try:
        return ENGINES[name]()
    except InputError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=ENGINES)
def engine(request) -> Engine:
    return made(request.param)


@pytest.fixture(scope="module", params=[name for name in ENGINES if name != "torch"])
def fast_engine(request) -> Engine:
    return made(request.param)


@st.composite
def specs(draw, shared: bool = False, more_variants: tuple[str, ...] = ()) -> RunSpec:
    length = draw(st.sampled_from([4, 7, 16, 20]))
    variant = draw(st.sampled_from(["max", "softmax", "value", "sum", *more_variants]))
    keys, share = draw(st.integers(1, 5)), 1
    if shared:
        keys, share = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    return RunSpec(
        items=draw(st.sampled_from([length, length + 3, 40, 90])),
        d_model=draw(st.integers(2, 20)),
        heads=keys * share,
        kv_heads=keys,
        key_dim=draw(st.integers(1, 11)),
        seed=draw(st.integers(0, 99)),
        degree=1 if variant == "value" else draw(st.integers(1, 3)),
        variant=variant,
        length=length,
        rate=draw(st.sampled_from([0.1, 0.5, 0.9])),
        learning_rate=draw(st.sampled_from([1e-3, 3e-3])),
        sharpness=draw(st.sampled_from([4.0, 10.0])),
        # Few contexts are checked one by one, many as counted pairs.
        validation=draw(st.sampled_from([2, 12])),
        test=4,
    )


def assert_same_states(found: State, expected: State) -> None:
    """Equal to 1e-5: engines add in different orders, and no more than rounding may come of it.

    Two heads that tie within rounding, or a gradient that cancels to rounding, could part two
    engines by a step of η. The examples are fixed (`derandomize`), and in them neither happens, so
    every entry is compared.
    """
    assert found.taken == expected.taken
    for part in ("weights", "threshold"):
        torch.testing.assert_close(getattr(found, part), getattr(expected, part), rtol=0, atol=1e-5)
    for part in ("first", "second"):  # moments are small numbers: measured by their largest
        largest = float(getattr(expected, part).abs().max())
        torch.testing.assert_close(
            getattr(found, part), getattr(expected, part), rtol=0, atol=1e-5 * largest
        )


@dataclass(frozen=True)
class Followed:
    """What the reference came to: states before the steps and after them, check and test."""

    start: list[State] | None
    end: list[State]
    check: Check
    test: list[float]


@cache
def reference_of(several: tuple[RunSpec, ...], before: int, steps: int) -> Followed:
    """The reference's runs, trained once for all the engines that follow it."""
    rows = list(range(len(several)))
    reference = TorchEngine("cpu").fleet(several)
    if before:
        reference.launch(before)
    start = reference.states(rows) if before else None
    reference.launch(steps)
    return Followed(start, reference.states(rows), reference.check(), reference.test(rows[::-1]))


def follow_the_reference(fast_engine: Engine, spec: RunSpec, before: int, steps: int = 20) -> None:
    """Some steps from the first state or from a later one, then the metrics."""
    several = [replace(spec, seed=spec.seed + more) for more in range(2)]
    reference = reference_of(tuple(several), before, steps)
    fleet = fast_engine.fleet(several, deepcopy(reference.start))
    fleet.launch(steps)
    for found, expected in zip(fleet.states([0, 1]), reference.end, strict=True):
        assert_same_states(found, expected)
    assert fleet.check().diverged == reference.check.diverged
    # A pair whose score is within rounding of τ could be decided either way; here none is.
    assert fleet.check().values == pytest.approx(
        reference.check.values, rel=1e-5, abs=1e-6, nan_ok=True
    )
    assert fleet.test([1, 0]) == pytest.approx(reference.test, rel=1e-5, abs=1e-6, nan_ok=True)


def bits(results: list[RunResult]) -> list[tuple]:
    """All of a result that must not depend on its company."""
    return [
        (
            r.spec,
            repr(r.value),
            r.steps,
            r.threshold,
            r.history,
            r.diverged,
            r.weights and r.weights.queries.tolist(),
        )
        for r in results
    ]


def small_run(engine: Engine, **changes) -> RunSpec:
    """Of two full blocks and a bit; of one and a bit where kernels are interpreted."""
    sizes = {"steps": 90, "check_every": 40, "validation": 20, "test": 20}
    if engine.name == "triton" and engine.device == "cpu":
        sizes = {"steps": 3, "check_every": 2, "validation": 2, "test": 2, "length": 7}
    return replace(RunSpec(20, 6, 3, 3), **(sizes | changes))
