"""One contract for every engine: autograd, the reference, and each engine alone bit for bit."""

from __future__ import annotations

import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.nn import functional

from headcount.errors import InputError
from headcount.problem.contexts import ContextSampler, labels
from headcount.problem.graph import Graph
from headcount.training import task as training_task
from headcount.training.engines.base import Engine, State
from headcount.training.engines.edges import StackedEdges
from headcount.training.engines.native.engine import NativeEngine
from headcount.training.engines.selection import choose_engine
from headcount.training.engines.torch import TorchEngine
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec
from headcount.training.task import Task, task_of
from headcount.training.train import train

ENGINES: dict[str, Callable[[], Engine]] = {
    "torch": lambda: TorchEngine("cpu"),
    "native-baseline": lambda: NativeEngine(level="baseline"),
    "native-avx2": lambda: NativeEngine(level="avx2"),
    "native-avx512": lambda: NativeEngine(level="avx512"),
    "triton": lambda: choose_engine("triton"),  # without a CUDA device its kernels are interpreted
}


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


# --- the reference against the paper's formulas ---------------------------------------------------


def written_loss(
    spec: RunSpec, task: Task, context: Tensor, weights: Tensor, threshold: Tensor
) -> Tensor:
    """The loss of one context as the paper prints it, for autograd."""
    rows, key_of = task.rows[context], [k * spec.key_heads // spec.heads for k in range(spec.heads)]
    queries, keys = weights[: spec.heads], weights[spec.heads :][key_of]
    scores = (rows @ queries) @ (rows @ keys).mT
    if spec.variant == "softmax":  # Section 7.1
        joined = (scores / math.sqrt(spec.key_dim)).softmax(-1).sum(0)
    elif spec.variant == "logsumexp":
        joined = spec.temperature * (scores / spec.temperature).logsumexp(0)
    else:
        joined = scores.sum(0) if spec.variant == "sum" else scores.max(0).values
    positive = labels(task.graph, context[None])[0]
    if (
        spec.variant == "value"
    ):  # Eqs. (3)-(4): the message's squared error, where there is a target
        valid = positive.any(-1)
        found = [[q for q, y in enumerate(row) if y] for row in positive.tolist()]
        messages = task.messages[context]
        retrieved, wanted = joined @ messages, torch.stack([messages[q].sum(0) for q in found])
        return (retrieved - wanted)[valid].square().sum() / valid.sum().clamp(min=1)
    count = positive.sum()
    weight = torch.tensor(spec.length - 1.0)  # A.1
    if spec.degree > 1 or spec.graph != "regular":  # Eq. (30)
        weight = (spec.length**2 - count) / count if count else torch.tensor(0.0)
    logits = spec.sharpness * (joined - threshold)
    return functional.binary_cross_entropy_with_logits(logits, positive.float(), pos_weight=weight)


@pytest.mark.parametrize("kv_heads", [0, 1, 2])
@pytest.mark.parametrize(("graph", "table"), [("regular", "gaussian"), ("skewed", "binary")])
@pytest.mark.parametrize(
    ("variant", "degree"),
    [
        *(("max", 1), ("max", 3), ("softmax", 1), ("softmax", 2)),
        *(("value", 1), ("value", 3), ("sum", 1), ("sum", 2), ("logsumexp", 1), ("logsumexp", 2)),
    ],
)
def test_the_reference_is_autograd_and_adamw(variant, degree, graph, table, kv_heads):
    protocol = {"learning_rate": 1e-2, "validation": 2, "test": 2, "graph": graph, "table": table}
    heads = 6 if kv_heads else 3
    spec = RunSpec(24, 6, heads, 5, 1, degree, variant, kv_heads=kv_heads, **protocol)
    if variant == "logsumexp":
        spec = replace(spec, temperature=0.3 * degree)
    task, start = task_of(spec), State.initial(spec)
    weights, threshold = start.weights.clone().requires_grad_(), torch.zeros((), requires_grad=True)
    optimizer = torch.optim.AdamW([weights, threshold], lr=spec.learning_rate, weight_decay=0)
    for context in ContextSampler(task.graph, spec.length, spec.rate).draw(
        12, seed=spec.seed, stream=spec.stream
    ):
        optimizer.zero_grad()
        written_loss(spec, task, context, weights, threshold).backward()
        optimizer.step()
    fleet = TorchEngine("cpu").fleet([spec])
    fleet.launch(12)
    (state,) = fleet.states([0])
    assert state.taken == 12
    torch.testing.assert_close(state.weights, weights.detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(state.threshold[0], threshold.detach(), rtol=0, atol=1e-5)


# --- every engine against the reference -----------------------------------------------------------


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


@settings(deadline=None, max_examples=25, derandomize=True)
@given(spec=specs(), before=st.sampled_from([0, 100]))
@pytest.mark.parametrize("name", [name for name in ENGINES if name.startswith("native")])
def test_native_follows_the_reference(name, spec, before):
    follow_the_reference(made(name), spec, before)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(spec=specs(shared=True, more_variants=("logsumexp",)), before=st.sampled_from([0, 100]))
@pytest.mark.parametrize("name", [name for name in ENGINES if name.startswith("native")])
def test_native_follows_the_reference_with_shared_keys(name, spec, before):
    follow_the_reference(made(name), spec, before)


@settings(deadline=None, max_examples=15, derandomize=True)
@given(
    sizes=st.tuples(st.sampled_from([20, 40, 90]), st.integers(4, 20), st.integers(1, 5)),
    degree=st.integers(1, 5),
    variant=st.sampled_from(["max", "value", "sum"]),
    graph=st.sampled_from(["random", "skewed"]),
    table=st.sampled_from(["gaussian", "binary"]),
    validation=st.sampled_from([2, 12]),
)
@pytest.mark.parametrize("name", [name for name in ENGINES if name.startswith("native")])
def test_native_follows_the_reference_on_irregular_graphs(
    name, sizes, degree, variant, graph, table, validation
):
    problem = {"degree": degree, "graph": graph, "table": table}
    spec = RunSpec(*sizes, 3, 1, variant=variant, validation=validation, test=4, **problem)
    follow_the_reference(made(name), spec, 0)


# For interpreted kernels, which are slow: every variant, one target and several, every length.
HUBS = {"graph": "skewed", "table": "binary"}
FAST = {"learning_rate": 3e-3}
FEW = [
    (RunSpec(40, 12, 5, 3, 1, length=16, rate=0.5, validation=12), 100),
    (RunSpec(23, 7, 3, 11, 2, degree=3, length=20, rate=0.9, sharpness=4.0, validation=2), 0),
    (RunSpec(16, 14, 3, 6, 3, variant="softmax", length=16, rate=0.1, validation=2, **FAST), 100),
    (RunSpec(90, 20, 2, 1, 4, variant="softmax", degree=2, length=7, rate=0.5, validation=12), 0),
    (RunSpec(7, 17, 4, 8, 5, variant="value", length=4, rate=0.9, validation=12, **FAST), 100),
    (RunSpec(40, 9, 3, 7, 6, variant="value", length=20, rate=0.5, validation=2), 0),
    (RunSpec(10, 2, 5, 4, 7, variant="sum", length=7, rate=0.1, sharpness=4.0, validation=2), 100),
    (RunSpec(20, 11, 3, 2, 8, variant="sum", degree=3, length=20, rate=0.5, validation=12), 0),
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
    (RunSpec(20, 11, 6, 2, 8, variant="logsumexp", temperature=0.3, validation=12, **TWO), 0),
    (RunSpec(20, 40, 4, 20, 1, length=7, validation=12, **TWO), 0),
    (RunSpec(20, 40, 6, 18, 2, variant="softmax", length=7, validation=2, **THREE), 0),
    (RunSpec(20, 40, 4, 40, 3, length=7, validation=2, **ONE), 0),
    (RunSpec(20, 20, 5, 50, 4, variant="logsumexp", temperature=0.3, length=4, **ONE), 0),
    (RunSpec(20, 20, 5, 50, 5, variant="sum", length=4, validation=2, **ONE), 0),
    (RunSpec(20, 20, 6, 50, 5, variant="value", length=4, validation=2, **TWO), 0),
    (RunSpec(12, 20, 2, 130, 6, length=4, validation=2, **ONE), 0),
]


@pytest.mark.parametrize(
    ("spec", "before"), [(replace(spec, test=4), before) for spec, before in FEW]
)
def test_triton_follows_the_reference(spec, before):
    follow_the_reference(made("triton"), spec, before, steps=8)


def follow_the_reference(fast_engine: Engine, spec: RunSpec, before: int, steps: int = 20) -> None:
    """Some steps from the first state or from a later one, then the metrics."""
    several = [replace(spec, seed=spec.seed + more) for more in range(2)]
    reference = TorchEngine("cpu").fleet(several)
    if before:
        reference.launch(before)
    fleet = fast_engine.fleet(several, reference.states([0, 1]) if before else None)
    reference.launch(steps)
    fleet.launch(steps)
    for found, expected in zip(fleet.states([0, 1]), reference.states([0, 1]), strict=True):
        assert_same_states(found, expected)
    assert fleet.check().diverged == reference.check().diverged
    # A pair whose score is within rounding of τ could be decided either way; here none is.
    assert fleet.check().values == pytest.approx(
        reference.check().values, rel=1e-5, abs=1e-6, nan_ok=True
    )
    assert fleet.test([1, 0]) == pytest.approx(
        reference.test([1, 0]), rel=1e-5, abs=1e-6, nan_ok=True
    )


def test_softmax_on_binary_tables(fast_engine):
    """Where a column of a context is constant, its weight of the keys does not show in a softmax:
    the gradient cancels to rounding. In this many rows no column is."""
    steps = 2 if fast_engine.name == "triton" else 20
    spec = RunSpec(90, 17, 3, 2, 2, **HUBS, degree=2, variant="softmax", validation=2, test=4)
    follow_the_reference(fast_engine, spec, 0, steps)


@pytest.mark.parametrize(
    "shape", [(64, 70, 3, 17, 64), (300, 33, 40, 7, 16), (16, 1, 2, 1, 16), (9, 4, 2, 3, 1)]
)
def test_long_contexts_many_heads_and_the_smallest_shapes(fast_engine, shape):
    items, d_model, heads, key_dim, length = shape
    spec = RunSpec(items, d_model, heads, key_dim, length=length, validation=20, test=20)
    reference, fleet = TorchEngine("cpu").fleet([spec]), fast_engine.fleet([spec])
    reference.launch(10)
    fleet.launch(10)
    assert_same_states(fleet.states([0])[0], reference.states([0])[0])
    assert fleet.check().values == pytest.approx(reference.check().values, abs=1e-3)


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


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    sizes=st.tuples(st.integers(2, 60), st.integers(1, 8)),
    graph=st.sampled_from(["regular", "random", "skewed"]),
    length=st.integers(1, 20),
    rate=st.sampled_from([0.1, 0.5, 0.9]),
    seed=st.integers(0, 99),
)
def test_native_draws_the_samplers_contexts(sizes, graph, length, rate, seed):
    items, degree = sizes
    length, degree = min(length, items), min(degree, items - 1)
    tests = {"validation": 1, "test": 1}
    spec = RunSpec(items, 2, 1, 1, seed, degree, length=length, rate=rate, graph=graph, **tests)
    found = made("native-baseline").fleet([spec]).contexts(40)[0]
    sampler = ContextSampler(task_of(spec).graph, length, rate)
    expected = sampler.draw(40, seed=seed, stream=spec.stream)
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


# --- runs and their neighbours --------------------------------------------------------------------


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
    """Of two full blocks and a bit; smaller still where kernels are interpreted."""
    sizes = {"steps": 90, "check_every": 40, "validation": 20, "test": 20}
    if engine.name == "triton" and engine.device == "cpu":
        sizes = {"steps": 5, "check_every": 2, "validation": 2, "test": 2, "length": 7}
    return replace(RunSpec(20, 6, 3, 3), **(sizes | changes))


def test_a_result_depends_neither_on_order_nor_on_company(engine):
    several = [
        small_run(engine, seed=n % 2, variant=name)
        for n, name in enumerate(("max", "max", "softmax", "value", "sum", "logsumexp"))
    ]
    several += [
        small_run(engine, heads=5, seed=7),
        small_run(engine, d_model=9),
        small_run(engine, learning_rate=1e-2),
    ]
    together = bits(train(several, engine, progress=False, weights=True))
    assert together == bits(train(several[::-1], engine, progress=False, weights=True))[::-1]
    assert together == [
        bits(train([spec], engine, progress=False, weights=True))[0] for spec in several
    ]
    assert len({str(result) for result in together}) == len(several)


def test_threads_do_not_show():
    several = [
        small_run(made("native-baseline"), seed=seed, heads=1 + seed % 4) for seed in range(8)
    ]
    one, three = (
        train(several, NativeEngine(threads=n), progress=False, weights=True) for n in (1, 3)
    )
    assert bits(one) == bits(three)


@pytest.mark.filterwarnings(
    "ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning"
)  # interpreted kernels
def test_a_run_that_diverges_says_when_and_leaves_its_neighbours_alone(engine):
    calm = [small_run(engine, seed=1), small_run(engine, seed=2)]
    wild = small_run(engine, learning_rate=1e25)
    found = train([calm[0], wild, calm[1]], engine, progress=False)
    expected = train([wild], TorchEngine("cpu"), progress=False)[0]
    # Where scores overflow, a sum of products is ±inf with fused multiply-adds and NaN without:
    # one step apart.
    assert found[1].diverged in (2, 3)
    assert expected.diverged in (2, 3)
    assert math.isnan(found[1].value)
    assert found[1].steps == wild.check_every
    assert bits([found[0], found[2]]) == bits(train(calm, engine, progress=False))


@pytest.mark.filterwarnings(
    "ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning"
)  # interpreted kernels
def test_a_run_that_diverges_in_its_last_step_is_reported_too(engine):
    calm, wild = small_run(engine, steps=2), small_run(engine, steps=2, learning_rate=1e25)
    found = train([wild, calm], engine, progress=False, weights=True)
    assert found[0].diverged == 2
    assert math.isnan(found[0].value)
    assert found[0].weights is None
    assert found[1].weights is not None


@pytest.mark.parametrize(
    "spec", [RunSpec(64, 1, 1, 20, length=20), RunSpec(64, 64, 2, 1, length=20)]
)
def test_the_references_bits_do_not_depend_on_how_many_runs_there_are(spec):
    several = [replace(spec, seed=seed, steps=30, validation=2, test=2) for seed in range(40)]
    engine = TorchEngine("cpu")
    together = bits(train(several, engine, progress=False, weights=True))
    for some in (several[:1], several[3:20]):
        alone = bits(train(some, engine, progress=False, weights=True))
        assert alone == [together[several.index(one)] for one in some]


@pytest.mark.parametrize("length", [7, 16, 33])
def test_the_references_bits_do_not_depend_on_a_runs_place(length):
    """7² and 33² are not multiples of what a CPU computes at once: a tensor's end is special."""
    spec = RunSpec(40, 6, 3, 3, length=length, steps=20, check_every=20, validation=2, test=2)
    several = [replace(spec, seed=seed) for seed in range(9)]
    fleet = TorchEngine("cpu").fleet(several)
    fleet.launch(20)
    for row in (0, 3, 8):
        alone = TorchEngine("cpu").fleet([several[row]])
        alone.launch(20)
        assert torch.equal(fleet.states([row])[0].weights, alone.states([0])[0].weights)
        assert fleet.test([row]) == alone.test([0])


@settings(deadline=None, max_examples=20, derandomize=True)
@given(spec=specs(), contexts=st.sampled_from([1, 40]))
def test_a_check_of_pairs_is_the_check_of_contexts(spec, contexts):
    """Many contexts are judged by a table of all pairs, few by their own scores."""
    from headcount.training.engines import torch as module

    fleet = TorchEngine("cpu").fleet([replace(spec, validation=contexts)])
    fleet.launch(30)
    drawn = [task_of(replace(spec, validation=contexts)).validation]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MANY", 0)
        by_context = fleet._evaluate([0], drawn)
        patch.setattr(module, "_MANY", 10**9)
        by_pair = fleet._evaluate([0], drawn)
    assert by_pair == pytest.approx(by_context, rel=1e-5, abs=1e-6, nan_ok=True)


def test_a_fleet_goes_on_with_the_runs_it_keeps(engine):
    several = [small_run(engine, seed=seed) for seed in range(3)]
    fleet, alone = engine.fleet(several), engine.fleet([several[2]])
    for one in (fleet, alone):
        one.launch(4)
    fleet.keep([0, 2])
    fleet.contexts(3)  # leaves no trace
    for one in (fleet, alone):
        one.launch(3)
    assert fleet.specs == [several[0], several[2]]
    assert fleet.check().values[1] == alone.check().values[0]
    assert torch.equal(fleet.states([1])[0].weights, alone.states([0])[0].weights)
    assert fleet.test([1]) == alone.test([0])


# --- interrupts -----------------------------------------------------------------------------------

INTERRUPTED = """
import sys
from headcount.training.engines.native.engine import NativeEngine
from headcount.training.spec import RunSpec
from headcount.training.train import train
short = [RunSpec(32, 8, 2, 2, seed=seed, steps=10, check_every=10) for seed in range(2)]
long = [RunSpec(64, 64, 16, 16, seed=seed, steps=10**8, check_every=10**6) for seed in range(3)]
say = lambda result: print("done", flush=True)
done = train(short + long, NativeEngine(threads=2), progress=False, on_result=say)
print(len(done), all(result.spec in short for result in done))
"""


def test_an_interrupt_returns_the_finished_runs_at_once():
    made("native-baseline")
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert [process.stdout.readline() for _ in range(2)] == ["done\n"] * 2
        time.sleep(0.5)  # now in the long runs
        began = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.read() == "2 True\n"
        assert time.monotonic() - began < 5  # a block would take a minute
    assert process.returncode == 0


OFTEN_INTERRUPTED = """
import signal, threading, time
from headcount.training.engines.native.engine import NativeEngine
from headcount.training.spec import RunSpec
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
fleet = NativeEngine(threads=2).fleet([RunSpec(64, 32, 8, 8, seed=seed) for seed in range(4)])
fleet.launch(1)
for n in range(60):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001 + n * 0.00002)
        fleet.launch(4000)
        print("not interrupted")
    except KeyboardInterrupt:
        pass
time.sleep(0.1)
assert [thread.is_alive() for thread in threading.enumerate()].count(True) == 1, "a worker is left"
used = time.process_time()
time.sleep(0.05)
print(time.process_time() - used < 0.03)
"""


def test_an_interrupt_at_any_moment_leaves_no_worker_behind():
    made("native-baseline")
    done = subprocess.run(
        [sys.executable, "-c", OFTEN_INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


# --- the distribution of results ------------------------------------------------------------------


@cache
def values_of(name: str, *shape: int) -> tuple[float, ...]:
    seeds = [RunSpec(*shape, seed=seed) for seed in range(10)]
    return tuple(result.value for result in train(seeds, made(name), progress=False))


def interval(values: tuple[float, ...]) -> tuple[float, float]:
    """The 95 % t-interval of the mean, at least 0.001 either way."""
    half = max(1e-3, stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return statistics.mean(values) - half, statistics.mean(values) + half


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(64, 16, 4, 5), (64, 16, 1, 20), (128, 64, 1, 7)])
@pytest.mark.parametrize("name", [name for name in ENGINES if name != "torch"])
def test_mean_f1_over_seeds_is_the_references(name, shape):
    if name == "triton" and made(name).device != "cuda":
        pytest.skip("interpreted kernels would take days; on a CUDA device this runs")
    (low, high), (lowest, highest) = (
        interval(values_of(name, *shape)),
        interval(values_of("torch", *shape)),
    )
    assert low <= highest
    assert lowest <= high


def test_kernels_are_compiled_ahead_for_every_shape(monkeypatch):
    """Slow shapes go to other processes; the count is of shapes, not of runs."""
    pytest.importorskip("triton")
    from headcount.training.engines.triton import warmup as triton_warmup
    from headcount.training.engines.triton.engine import TritonEngine

    if (engine := TritonEngine()).device != "cpu":
        pytest.skip("with a device the kernels compile for good")
    monkeypatch.setattr(triton_warmup, "_CACHED", -1.0)  # every shape counts as slow
    monkeypatch.setattr(triton_warmup, "cores", lambda: 2)
    touched = []
    monkeypatch.setattr(triton_warmup, "touch", lambda spec, engine: touched.append(spec))
    small = RunSpec(32, 16, 1, 4, validation=2, test=2, check_every=2, steps=2)
    specs = [replace(small, heads=heads, seed=seed) for heads in (1, 2, 4) for seed in (0, 1)]
    assert triton_warmup.warm_up(specs, engine) == 3
    assert [spec.heads for spec in touched] == [4]  # the largest, here; the others elsewhere
