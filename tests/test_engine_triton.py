"""Triton's kernels, interpreted where there is no CUDA device."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headcount.training.engines.base import State
from headcount.training.spec import RunSpec
from tests.made_engines import HUBS, assert_same_states, follow_the_reference, made

# For interpreted kernels, which are slow: every variant, one target and several, every length.
FAST = {"learning_rate": 3e-3}
JOINED = {"variant": "logsumexp", "temperature": 0.3}
FEW = [
    (RunSpec(40, 12, 5, 3, 1, length=16, rate=0.5, validation=12), 100),
    (RunSpec(23, 7, 3, 11, 2, degree=3, length=20, rate=0.9, sharpness=4.0, validation=2), 0),
    (RunSpec(16, 14, 3, 6, 3, variant="softmax", length=16, rate=0.1, validation=2, **FAST), 100),
    (RunSpec(90, 20, 2, 1, 4, variant="softmax", degree=2, length=7, rate=0.5, validation=12), 0),
    (RunSpec(7, 17, 4, 8, 5, variant="value", length=4, rate=0.9, validation=12, **FAST), 100),
    (RunSpec(40, 9, 3, 7, 6, variant="value", length=20, rate=0.5, validation=2), 0),
    (RunSpec(10, 2, 5, 4, 7, variant="sum", length=7, rate=0.1, sharpness=4.0, validation=2), 100),
    (RunSpec(20, 11, 3, 2, 8, variant="sum", degree=3, length=20, rate=0.5, validation=12), 0),
    (RunSpec(20, 12, 1, 70, 9, length=7, validation=12), 0),
    (RunSpec(40, 12, 5, 3, 1, graph="random", length=16, rate=0.5, validation=12), 100),
    (RunSpec(40, 9, 2, 4, 1, **HUBS, degree=9, length=7, rate=0.9, validation=2), 0),
    (RunSpec(90, 17, 3, 2, 2, **HUBS, variant="softmax", length=16, rate=0.5, validation=2), 0),
    (RunSpec(23, 7, 4, 8, 5, **HUBS, variant="value", degree=2, length=4, validation=12), 100),
    (RunSpec(20, 11, 3, 2, 8, graph="random", variant="sum", degree=2, validation=12), 0),
]
# Shared keys, with the state in registers, and streamed: whole keys at a time or some of the heads
# of one, with padding among the heads of a key, among the keys, and columns in parts.
ONE, TWO, THREE = {"kv_heads": 1}, {"kv_heads": 2}, {"kv_heads": 3}
FEW += [
    (RunSpec(40, 12, 4, 3, 1, length=16, validation=12, **ONE), 100),
    (RunSpec(23, 7, 6, 11, 2, degree=3, length=20, validation=2, **TWO), 0),
    (RunSpec(16, 14, 6, 6, 3, variant="softmax", validation=2, **THREE, **FAST), 100),
    (RunSpec(30, 9, 3, 7, 6, variant="value", length=20, validation=2, **ONE), 0),
    (RunSpec(10, 2, 5, 4, 7, variant="sum", length=7, validation=2, **ONE), 100),
    (RunSpec(20, 11, 6, 2, 8, variant="sum", degree=3, validation=12, **TWO), 0),
    (RunSpec(20, 11, 6, 2, 8, validation=12, **JOINED, **TWO), 0),
    (RunSpec(20, 40, 4, 20, 1, length=7, validation=12, **TWO), 0),
    (RunSpec(20, 40, 6, 18, 2, variant="softmax", length=7, validation=2, **THREE), 0),
    (RunSpec(20, 40, 4, 40, 3, length=7, validation=2, **ONE), 0),
    (RunSpec(20, 20, 5, 50, 4, length=4, validation=2, **JOINED, **ONE), 0),
    (RunSpec(20, 20, 5, 50, 5, variant="sum", length=4, validation=2, **ONE), 0),
    (RunSpec(20, 20, 6, 50, 5, variant="value", length=4, validation=2, **TWO), 0),
    (RunSpec(12, 20, 2, 130, 6, length=4, validation=2, **ONE), 0),
    # Keys repeated for their heads: by a program that keeps all, and by several.
    (RunSpec(20, 30, 8, 8, 7, length=7, validation=2, **TWO), 100),
    (RunSpec(20, 30, 6, 16, 8, length=4, validation=2, variant="softmax", **TWO), 100),
    (RunSpec(20, 60, 8, 8, 9, length=4, validation=2, variant="value", **TWO), 100),
    (RunSpec(20, 60, 9, 8, 9, length=4, validation=2, **JOINED, **THREE), 0),
]


@pytest.mark.parametrize(
    ("spec", "before"), [(replace(spec, test=4), before) for spec, before in FEW]
)
def test_triton_follows_the_reference(spec, before):
    follow_the_reference(made("triton"), spec, before, steps=4)


# Programs that share a run: some heads each, some rows, both, and pieces of heads.
SHARED_RUNS = [
    (RunSpec(20, 100, 11, 6, 1, length=16), (3, 1)),
    (RunSpec(20, 200, 4, 5, 2, length=7, **JOINED), (1, 2)),
    (RunSpec(20, 130, 6, 7, 3, length=16, variant="softmax"), (2, 2)),
    (RunSpec(20, 130, 1, 40, 4, length=16, degree=2), (2, 2)),
    (RunSpec(20, 90, 3, 40, 5, length=4, variant="value"), (6, 1)),
    (RunSpec(20, 200, 5, 5, 6, length=7, variant="value"), (2, 2)),
    (RunSpec(20, 100, 12, 6, 7, length=16, kv_heads=3), (3, 1)),
    (RunSpec(20, 200, 12, 5, 8, length=7, kv_heads=4, variant="softmax"), (4, 2)),
    (RunSpec(20, 70, 8, 12, 9, length=4, kv_heads=4, variant="value"), (4, 1)),
    (RunSpec(20, 130, 6, 8, 10, length=4, kv_heads=3, variant="sum"), (2, 2)),
]


@pytest.mark.parametrize(("spec", "members"), SHARED_RUNS)
def test_programs_that_share_a_run_come_to_what_one_does(spec, members, monkeypatch):
    """The interpreter runs one program after another, so here none waits for the others' words.

    The same step is taken again and again instead, from the words of the time before: first come
    the partial sums, then the scores, then all is as if they had waited.
    """
    engine = made("triton")
    if engine.device != "cpu":
        pytest.skip("tests/test_engine_cuda.py has them run at once")
    from headcount.training.engines.triton.kernels import together

    specs = [replace(spec, validation=2, test=2)]
    (start,) = [State.initial(spec) for spec in specs]
    start.first, start.second = start.weights.flip(0) / 10, start.weights.square() / 10
    alone = engine.fleet(specs, [deepcopy(start)])
    assert (alone.shape.together["ACROSS"], alone.shape.together["DOWN"]) == members
    alone.launch(1)

    received, words = together._received, torch.zeros(2**18, dtype=torch.int64)
    monkeypatch.setattr(together, "_received", lambda *given: (received(*given)[0], 0))
    monkeypatch.setattr(engine, "_slots", alone.shape.members)
    for _ in range(3 if min(members) > 1 else 2):
        shared = engine.fleet(specs, [deepcopy(start)])
        monkeypatch.setattr(shared, "_words", lambda count: words)
        shared._train(1)
    (found,), (expected,) = shared.states([0]), alone.states([0])
    assert_same_states(replace(found, taken=1), expected)
    assert set((words >> 32).tolist()) == {0, 1}  # the tag of the first step, in one of two places


@given(
    heads=st.integers(1, 300),
    key_dim=st.integers(1, 2000),
    d_model=st.integers(1, 1024),
    length=st.integers(1, 64),
)
def test_a_kernel_asks_for_no_more_threads_and_tiles_than_a_gpu_has(
    heads, key_dim, d_model, length
):
    triton_shape = pytest.importorskip("headcount.training.engines.triton.shape")
    shape = triton_shape.Shape.of(RunSpec(64, d_model, heads, key_dim, length=length))
    assert 1 <= shape.warps <= 16
    assert 1 <= shape.check_warps <= 16
    assert shape.group * shape.part <= max(128, shape.part)
    assert shape.block * shape.group * shape.part <= 8192


@given(
    sizes=st.tuples(st.integers(64, 4096), st.integers(8, 600), st.integers(1, 40)),
    key_dim=st.integers(1, 40),
    variant=st.sampled_from(["max", "value"]),
    runs=st.integers(1, 8192),
    gigabytes=st.integers(1, 80),
)
def test_fleets_side_by_side_fit_into_memory(sizes, key_dim, variant, runs, gigabytes):
    engine = deepcopy(made("triton"))
    from headcount.training.engines.triton.memory import run_bytes

    engine._memory, engine._slots = gigabytes * 2**30, 264
    spec = RunSpec(*sizes, key_dim, variant=variant)
    runs = min(runs, engine.capacity(spec))
    smaller = replace(spec, items=spec.length)  # one fleet takes runs of any number of items
    fleets = engine.concurrency([smaller] + [spec] * (runs - 1) if runs > 1 else [spec])
    assert fleets * runs * run_bytes(spec) <= engine._memory or fleets == 1
    assert runs * run_bytes(spec) <= engine._memory / 8 or runs == 1


@pytest.mark.parametrize(
    "spec",
    [
        RunSpec(40, 12, 4, 3, validation=9, test=20, check_every=7),
        RunSpec(60, 20, 6, 3, validation=2, test=20, variant="value"),
        RunSpec(60, 20, 6, 3, validation=2, test=2, variant="softmax", kv_heads=2),
        RunSpec(20, 16, 32, 16, validation=2, test=2, length=4, check_every=1),  # streamed
    ],
)
def test_a_run_takes_no_more_memory_than_is_counted(spec):
    """All that grows with the task: the graph, some bytes per edge, is not counted."""
    from headcount.training.engines.triton.memory import run_bytes

    fleet = made("triton").fleet([replace(spec, seed=seed) for seed in range(3)])
    assert bool(fleet.shape.scratch) == (spec.budget == 512)
    runs, problems = fleet._runs, fleet._problems
    kept = [runs.weights, runs.first, runs.second, problems.rows, problems.messages]
    kept += [*problems.contexts.values(), *problems.counts.values()]
    taken = sum(part.numel() * part.element_size() for part in kept)
    # In a block of steps come its contexts, and in a check the projections.
    per_run = spec.check_every * fleet.shape.l + spec.items * (fleet.shape.d + fleet.shape.kd)
    per_run += fleet.shape.scratch
    assert taken + 3 * 4 * per_run == 3 * run_bytes(spec)


def test_what_ended_runs_took_is_given_back():
    """Their tasks go when half of the runs have ended; those that stay go on as if nothing was."""
    specs = [RunSpec(20, 6, 2, 3, seed, length=4, validation=20, test=2) for seed in range(5)]
    fleet, alone = (made("triton").fleet(some) for some in (specs, specs[3:]))
    assert len(fleet._problems.rows) == 5 * 20
    for each in (fleet, alone):
        each.launch(2)
    fleet.keep([1, 3, 4])
    assert len(fleet._problems.rows) == 5 * 20
    fleet.keep([1, 2])
    assert len(fleet._problems.rows) == len(fleet._problems.counts["test"]) // 20 == 2 * 20
    for each in (fleet, alone):
        each.launch(2)
    assert fleet.check() == alone.check()
    assert fleet.test([1]) == alone.test([1])
    for found, expected in zip(fleet.states([0, 1]), alone.states([0, 1]), strict=True):
        assert torch.equal(found.weights, expected.weights)
