"""The peers compute what the reference engine computes, or their times would mean nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from headcount.bench import subjects
from headcount.bench.cases import MAIN, SHAPES, VARIANTS, Case
from headcount.bench.peers.eager import EagerRun
from headcount.errors import InputError
from headcount.problem.contexts import ContextSampler
from headcount.training.engines.base import State, adam_scales
from headcount.training.engines.torch import TorchEngine
from headcount.training.spec import RunSpec, is_content_hash
from headcount.training.task import task_of

STEPS = 10
SMALL = Case(24, 12, 4, 20)
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")


def specs_of(variant: str) -> list[RunSpec]:
    """Three runs on short contexts; the temperature is not 1, so that it counts."""
    warm = {"temperature": 0.7} if variant == "logsumexp" else {}
    specs = SMALL._replace(variant=variant).specs(3)
    return [replace(spec, length=8, **warm) for spec in specs]


@cache
def reference(variant: str) -> list[State]:
    """Each run after ten steps of the reference engine."""
    fleet = TorchEngine("cpu").fleet(specs_of(variant))
    fleet.launch(STEPS)
    return fleet.states(range(3))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_eager_peer_takes_the_reference_steps(variant):
    for spec, expected in zip(specs_of(variant), reference(variant), strict=True):
        task = task_of(spec)
        run = EagerRun(spec, State.initial(spec), task)
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
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_jax_peer_takes_the_reference_steps(variant):
    from headcount.bench.peers.jax import begin, drawn, scan_steps, unpacked

    specs = specs_of(variant)
    state = begin([State.initial(each) for each in specs])
    problem, contexts = drawn(specs, STEPS)
    for name, part in problem.items():
        each = part if part.shape[0] == len(specs) else [part] * len(specs)
        for found, spec in zip(each, specs, strict=True):
            np.testing.assert_array_equal(found, getattr(task_of(spec), name).numpy())
    assert ("messages" in problem) == (variant == "value")
    run = scan_steps(specs[0])
    # In two halves: the state carries over from call to call.
    for half in (slice(0, STEPS // 2), slice(STEPS // 2, STEPS)):
        scales = adam_scales(specs[0].learning_rate, half.start, STEPS // 2)
        state = run(state, problem, contexts[half], scales)
    (weights, threshold), first, second = state
    for name, found in (("weights", weights), ("first", first[0]), ("second", second[0])):
        expected = np.stack([getattr(each, name).numpy() for each in reference(variant)])
        found = unpacked(specs[0], np.asarray(found))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        threshold, [float(each.threshold[0]) for each in reference(variant)], rtol=0, atol=1e-5
    )


def test_every_variant_is_a_different_case():
    specs = {variant: SMALL._replace(variant=variant).specs(2)[0] for variant in VARIANTS}
    assert len(set(specs.values())) == len(VARIANTS)
    assert specs["shared keys"].key_heads == 1
    assert is_content_hash(specs["own table"].table)
    lengths = task_of(specs["own table"]).rows.norm(dim=1)
    assert float(lengths.max() / lengths.min()) > 1.2
    for variant in ("softmax", "value", "sum", "logsumexp"):
        assert specs[variant].variant == variant


@needs_jax
def test_the_jax_worker_times_itself_and_ends():
    subject = subjects.JaxSubject("jax", "cpu", Case(16, 8, 2, 4), runs=2, steps=5, threads=1)
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
    subject = subjects.JaxSubject("jax", "cpu", Case(16, 8, 2, 4), runs=2, steps=-1, threads=1)
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
    subject = subjects.EagerSubject("eager", "cpu", Case(16, 8, 2, 4), 1, steps=3, threads=1)
    subject.open()
    assert subject.read()["seconds"] > 0
    subject.close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_arithmetic_of_a_step(variant):
    """Counted product by product: (a × b)(b × c) is 2abc."""
    for shape in SHAPES:
        case = shape._replace(variant=variant)
        key_dim = case.budget // case.heads
        assert key_dim * case.heads == case.budget
        key_heads = case.heads // 4 if variant == "shared keys" else case.heads
        projections = 2 * 16 * case.d_model * key_dim * (case.heads + key_heads)
        moved = case.heads if variant in ("softmax", "sum", "logsumexp") else 1
        scores = (case.heads + 2 * moved) * (2 * 16 * key_dim * 16)
        messages = 2 * (2 * 16 * 16 * case.d_model) if variant == "value" else 0
        assert case.flops == 2 * projections + scores + messages
        assert 2 <= case.runs(80) <= 80
        assert case.runs(80) * case.flops <= max(80 * MAIN.flops, 2 * case.flops)
        assert case.items * case.d_model * case.runs_on_cuda(4000) <= 2**29
