"""The peers compute what the reference engine computes, or their times would mean nothing."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from headcount.bench import subjects
from headcount.bench.peers.eager import EagerRun
from headcount.bench.shapes import MAIN, SHAPES, Shape
from headcount.errors import InputError
from headcount.problem.contexts import ContextSampler
from headcount.training.engines.base import State, adam_scales
from headcount.training.engines.torch import TorchEngine
from headcount.training.spec import RunSpec
from headcount.training.task import task_of

STEPS = 10
SPECS = [
    RunSpec(items=24, d_model=12, heads=3, key_dim=5, seed=seed, length=8) for seed in range(3)
]
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")


@pytest.fixture(scope="module")
def reference() -> list[State]:
    """Each run after ten steps of the reference engine."""
    fleet = TorchEngine("cpu").fleet(SPECS)
    fleet.launch(STEPS)
    return fleet.states(range(len(SPECS)))


def test_the_eager_peer_takes_the_reference_steps(reference):
    for spec, expected in zip(SPECS, reference, strict=True):
        task = task_of(spec)
        run = EagerRun(spec, State.initial(spec), task.rows, task.targets)
        torch.testing.assert_close(run.weights(), State.initial(spec).weights, rtol=0, atol=0)
        for context in ContextSampler(task.graph, spec.length).draw(
            STEPS, seed=spec.seed, stream=spec.stream
        ):
            run.step(context)
        torch.testing.assert_close(run.weights(), expected.weights, rtol=0, atol=1e-5)
        assert float(run.channel.threshold.detach()) == pytest.approx(
            float(expected.threshold[0]), abs=1e-5
        )


@needs_jax
def test_the_jax_peer_takes_the_reference_steps(reference):
    from headcount.bench.peers.jax import begin, drawn, scan_steps, unpacked

    spec = SPECS[0]
    state = begin(spec, [State.initial(each) for each in SPECS])
    rows, targets, contexts = drawn(SPECS, STEPS)
    np.testing.assert_array_equal(rows, np.stack([task_of(each).rows.numpy() for each in SPECS]))
    np.testing.assert_array_equal(
        targets, np.stack([task_of(each).targets.numpy() for each in SPECS])
    )
    run = scan_steps(spec)
    # In two halves: the state carries over from call to call.
    for half in (slice(0, STEPS // 2), slice(STEPS // 2, STEPS)):
        scales = adam_scales(spec.learning_rate, half.start, STEPS // 2)
        state = run(state, rows, targets, contexts[half], scales)
    (weights, threshold), first, second = state
    for name, found in (("weights", weights), ("first", first[0]), ("second", second[0])):
        expected = np.stack([getattr(each, name).numpy() for each in reference])
        np.testing.assert_allclose(unpacked(spec, np.asarray(found)), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        threshold, [float(each.threshold[0]) for each in reference], rtol=0, atol=1e-5
    )


@needs_jax
def test_the_jax_worker_times_itself_and_ends():
    subject = subjects.JaxSubject("jax", "cpu", Shape(16, 8, 2, 4), runs=2, steps=5, threads=1)
    try:
        subject.open()
        assert 0 < subject.read()["seconds"] < 10
        assert 0 < subject.read()["seconds"] < 10
        process = subject.process
    finally:
        subject.close()
    assert process is not None
    assert process.returncode is not None


def test_a_worker_that_fails_says_why(monkeypatch):
    monkeypatch.setattr(subjects, "find_spec", lambda name: True)
    subject = subjects.JaxSubject("jax", "cpu", Shape(16, 8, 2, 4), runs=2, steps=-1, threads=1)
    with pytest.raises(InputError, match=r"the worker ended: .+"):
        subject.open()
    subject.close()


def test_without_jax_the_row_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(subjects, "find_spec", lambda name: None)
    subject = subjects.JaxSubject("jax", "cpu", MAIN, runs=2)
    with pytest.raises(InputError, match="not installed: pip install jax"):
        subject.open()
    subject.close()


def test_the_eager_subject_times_single_runs():
    subject = subjects.EagerSubject("eager", "cpu", Shape(16, 8, 2, 4), 1, steps=3, threads=1)
    subject.open()
    assert subject.read()["seconds"] > 0
    subject.close()


def test_arithmetic_of_a_step():
    """Counted product by product: (a × b)(b × c) is 2abc."""
    for shape in SHAPES:
        key_dim = shape.budget // shape.heads
        assert key_dim * shape.heads == shape.budget
        forward = 2 * (2 * 16 * shape.d_model * shape.budget) + shape.heads * (
            2 * 16 * key_dim * 16
        )
        backward = 2 * (2 * 16 * 16 * key_dim) + 2 * (2 * shape.d_model * 16 * shape.budget)
        assert shape.flops == forward + backward
        assert 2 <= shape.runs(80) <= 80
        assert shape.runs(80) * shape.flops <= max(80 * MAIN.flops, 2 * shape.flops)
        assert shape.items * shape.d_model * shape.runs_on_cuda(4000) <= 2**29
