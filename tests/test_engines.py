"""Every engine against the reference, step by step, and the contexts that it draws."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from headcount.problem.contexts import ContextSampler, labels
from headcount.problem.graph import Graph
from headcount.training import task as training_task
from headcount.training.engines.edges import StackedEdges
from headcount.training.engines.torch import TorchEngine
from headcount.training.spec import RunSpec
from headcount.training.task import task_of
from tests.made_engines import (
    HUBS,
    VECTORS,
    assert_same_states,
    follow_the_reference,
    made,
    reference_of,
    small_run,
    specs,
)


# A seed, since otherwise each level would get examples of its own, and a reference for each.
@seed(1)
@settings(deadline=None, max_examples=25, derandomize=True)
@given(spec=specs(), before=st.sampled_from([0, 100]))
@pytest.mark.parametrize("name", VECTORS)
def test_native_follows_the_reference(name, spec, before):
    follow_the_reference(made(name), spec, before)


@seed(1)
@settings(deadline=None, max_examples=40, derandomize=True)
@given(spec=specs(shared=True, more_variants=("logsumexp",)), before=st.sampled_from([0, 100]))
@pytest.mark.parametrize("name", VECTORS)
def test_native_follows_the_reference_with_shared_keys(name, spec, before):
    follow_the_reference(made(name), spec, before)


@seed(1)
@settings(deadline=None, max_examples=15, derandomize=True)
@given(
    sizes=st.tuples(st.sampled_from([20, 40, 90]), st.integers(4, 20), st.integers(1, 5)),
    degree=st.integers(1, 5),
    variant=st.sampled_from(["max", "value", "sum"]),
    graph=st.sampled_from(["random", "skewed"]),
    table=st.sampled_from(["gaussian", "binary"]),
    validation=st.sampled_from([2, 12]),
)
@pytest.mark.parametrize("name", VECTORS)
def test_native_follows_the_reference_on_irregular_graphs(
    name, sizes, degree, variant, graph, table, validation
):
    problem = {"degree": degree, "graph": graph, "table": table}
    spec = RunSpec(*sizes, 3, 1, variant=variant, validation=validation, test=4, **problem)
    follow_the_reference(made(name), spec, 0)


@settings(deadline=None, max_examples=15, derandomize=True)
@given(
    spec=st.one_of(specs(more_variants=("logsumexp",)), specs(shared=True)),
    graph=st.sampled_from(["regular", "skewed"]),
)
def test_plain_has_the_bits_of_baseline(spec, graph):
    """The same sums in the same order; neither has fused multiply-add."""
    both = []
    for name in ("native-plain", "native-baseline"):
        fleet = made(name).fleet([replace(spec, graph=graph)])
        fleet.launch(20)
        (state,) = fleet.states([0])
        parts = (state.weights, state.first, state.second, state.threshold)
        both.append(([part.numpy().tobytes() for part in parts], fleet.check().values))
    assert both[0] == both[1]


def test_softmax_on_binary_tables(fast_engine):
    """Where a column of a context is constant, its weight of the keys does not show in a softmax:
    the gradient cancels to rounding. In this many rows no column is."""
    steps = 2 if fast_engine.name == "triton" else 20
    spec = RunSpec(90, 17, 3, 2, 2, **HUBS, degree=2, variant="softmax", validation=2, test=4)
    follow_the_reference(fast_engine, spec, 0, steps)


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        *(((64, 70, 3, 17, 64), variant) for variant in ("max", "value")),
        *(((70, 9, 3, 5, 33), variant) for variant in ("max", "value", "logsumexp")),
        ((300, 33, 40, 7, 16), "max"),
        ((16, 1, 2, 1, 16), "max"),
        ((9, 4, 2, 3, 1), "max"),
    ],
)
def test_long_contexts_many_heads_and_the_smallest_shapes(fast_engine, shape, variant):
    items, d_model, heads, key_dim, length = shape
    tests = {"validation": 20, "test": 20}
    spec = RunSpec(items, d_model, heads, key_dim, variant=variant, length=length, **tests)
    steps = 3 if fast_engine.name == "triton" else 10
    reference, fleet = reference_of((spec,), 0, steps), fast_engine.fleet([spec])
    fleet.launch(steps)
    assert_same_states(fleet.states([0])[0], reference.end[0])
    assert fleet.check().values == pytest.approx(reference.check.values, abs=1e-3)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    sizes=st.tuples(st.integers(2, 60), st.integers(1, 8)),
    graph=st.sampled_from(["regular", "random", "skewed"]),
    length=st.integers(1, 20),
    rate=st.sampled_from([0.1, 0.5, 0.9]),
    number=st.integers(0, 99),
)
def test_native_draws_the_samplers_contexts(sizes, graph, length, rate, number):
    items, degree = sizes
    length, degree = min(length, items), min(degree, items - 1)
    tests = {"validation": 1, "test": 1}
    spec = RunSpec(items, 2, 1, 1, number, degree, length=length, rate=rate, graph=graph, **tests)
    found = made("native-plain").fleet([spec]).contexts(40)[0]
    sampler = ContextSampler(task_of(spec).graph, length, rate)
    expected = sampler.draw(40, seed=number, stream=spec.stream)
    assert found.tolist() == expected.tolist()


def test_hubs_and_items_without_edges(engine, monkeypatch):
    """One item points at 300 others: more than any engine compares one by one."""
    edges = [(0, j) for j in range(1, 301)] + [(5, 0), (5, 7), (6, 0)]
    graph = Graph.from_edges(310, edges)
    monkeypatch.setattr(training_task, "graph_of", lambda spec: graph)
    spec = small_run(engine, items=310, graph="random", rate=0.9, seed=77, length=7)
    spec = replace(spec, length=16 if engine.device == "cpu" and engine.name != "triton" else 7)
    fleet, reference = engine.fleet([spec]), TorchEngine("cpu").fleet([spec])
    for one in (fleet, reference):
        one.launch(4)
    found = fleet.contexts(12)[0][:, : spec.length]
    sampler = ContextSampler(graph, spec.length, spec.rate)
    expected = sampler.draw(12, seed=spec.seed, stream=spec.stream, start=4)
    assert found.tolist() == expected.tolist()
    assert_same_states(fleet.states([0])[0], reference.states([0])[0])
    assert fleet.check().values == pytest.approx(reference.check().values, abs=1e-6)
    hub = torch.tensor([[0, 5, 6, 7, 1, 309, 300], [8, 9, 301, 2, 3, 305, 4]])
    assert torch.equal(StackedEdges([graph, graph], "cpu").labels(hub), labels(graph, hub))


def test_every_engine_draws_the_same_contexts(engine):
    several = [
        small_run(engine, seed=1, degree=degree, length=length, variant="softmax", graph=graph)
        for degree, length, graph in (
            *((1, 7, "regular"), (3, 7, "regular"), (1, 1, "regular")),
            *((1, 7, "random"), (3, 7, "skewed"), (1, 1, "skewed")),
        )
    ]
    for spec in several:
        fleet, task = engine.fleet([spec]), task_of(spec)
        fleet.launch(2)
        (found,) = fleet.contexts(5)[:1]
        sampler = ContextSampler(task.graph, spec.length, spec.rate)
        expected = sampler.draw(5, seed=spec.seed, stream=spec.stream, start=2)
        assert found[:, : spec.length].tolist() == expected.tolist()
