"""The control of shared keys: training with shared queries, and the runs of the preregistration."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import softplus

from headcount import RunSpec
from headcount.training.engines.base import State
from headcount.training.engines.torch import TorchEngine
from headcount.training.task import task_of

FOLDER = Path(__file__).parent.parent / "preregistrations" / "shared-keys"


@pytest.fixture(scope="module")
def scripts():
    """The scripts of the preregistration, which lie beside each other."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("measure"), importlib.import_module("control")
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("measure", "control"):
            sys.modules.pop(name, None)


def exchanged(state: State, heads: int) -> State:
    """The state with the two sides exchanged."""
    swap = {
        name: getattr(state, name).roll(heads, 0).clone() for name in ("weights", "first", "second")
    }
    return replace(state, **swap, threshold=state.threshold.clone())


def test_with_queries_of_their_own_it_is_the_torch_engine_with_sides_exchanged(scripts):
    _, control = scripts
    specs = [RunSpec(24, 8, heads=2, key_dim=3, seed=seed, steps=200) for seed in range(3)]
    states = [State.initial(spec) for spec in specs]
    other = [exchanged(state, 2) for state in states]
    plain, shared = (
        TorchEngine().fleet(specs, states),
        control.SharedQueryEngine().fleet(specs, other),
    )
    for fleet in (plain, shared):
        fleet.launch(60)
    assert shared.check().values == pytest.approx(plain.check().values, abs=0.01)
    for ours, theirs in zip(plain.states(range(3)), shared.states(range(3)), strict=True):
        torch.testing.assert_close(exchanged(ours, 2).weights, theirs.weights, rtol=1e-3, atol=1e-4)


def test_its_gradient_is_that_of_shared_queries(scripts):
    """After one step Adam's first moment is a tenth of the gradient."""
    _, control = scripts
    spec = RunSpec(24, 8, heads=4, key_dim=3, kv_heads=2, seed=5)
    task, state = task_of(spec), State.initial(spec)
    fleet = control.SharedQueryEngine().fleet([spec], [state])
    context = fleet.contexts(1)[0, 0]
    weights = state.weights.clone().double().requires_grad_()
    keys_of, queries_of = weights.split([4, 2])  # keys are a head's own, queries are shared
    rows = task.rows[context].double()
    queries = (rows @ queries_of).repeat_interleave(2, 0)
    scores = (queries @ (rows @ keys_of).mT).amax(0)
    edges = set(map(tuple, task.graph.pairs.tolist()))
    ids = context.tolist()
    labels = torch.tensor([[float((p, q) in edges) for q in ids] for p in ids]).double()
    z = spec.sharpness * scores
    loss = (15 * labels * softplus(-z) + (1 - labels) * softplus(z)).mean()
    (gradient,) = torch.autograd.grad(loss, weights)
    fleet.launch(1)
    (after,) = fleet.states([0])
    torch.testing.assert_close(after.first.double(), 0.1 * gradient, rtol=1e-3, atol=1e-6)


def test_the_runs_are_those_of_the_preregistration(scripts):
    measure, control = scripts
    jobs = measure.jobs()
    parts = dict.fromkeys(job.part for job in jobs)
    assert list(parts) == ["main", "softmax", "regular", "narrow", "antonyms", "longer"]
    for job in jobs:
        assert len(set(job.specs)) == len(job.specs)
        assert {spec.seed for spec in job.specs} == set(range(700, 710))
        widths = {}
        for spec in job.specs:
            widths.setdefault((spec.heads, spec.key_heads), set()).add(spec.key_dim)
            assert spec.key_dim <= spec.d_model
        assert all(len(found) >= 4 for found in widths.values())
        shared = sum(heads > keys for heads, keys in widths)
        assert shared == {"softmax": 6, "regular": 5, "narrow": 2, "antonyms": 4}.get(job.part, 7)
    assert {spec.steps for job in jobs if job.part == "longer" for spec in job.specs} == {200_000}
    found = {
        (spec.items, spec.heads, spec.kv_heads) for batch in control.batches() for spec in batch
    }
    assert found == {(m, *split) for m in (64, 128) for split in ((4, 1), (8, 2), (8, 1))}


def test_what_is_kept_of_a_run(scripts):
    _, control = scripts
    (row,) = control.train([RunSpec(16, 16, heads=4, key_dim=4, kv_heads=2, steps=6000)])
    assert (row["part"], row["kv_heads"], row["limit"]) == ("queries", 2, 6000)
    assert row["value"] > 0.99
    assert 0 < row["reached"] <= row["steps"] <= 6000
