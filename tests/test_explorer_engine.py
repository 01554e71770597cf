"""The engine in JavaScript passes the contract of the others: draws, contexts, steps and F1."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.problem.contexts import ContextSampler
from headcount.problem.graph import Graph
from headcount.training.engines.base import State
from headcount.training.engines.torch import TorchEngine
from headcount.training.spec import RunSpec
from headcount.training.task import first_weights, task_of, training_key

from .javascript import run_node

ENGINE = ["engine/training.js"]
SPECS = [
    RunSpec(64, 16, heads=4, key_dim=7, seed=3),
    RunSpec(64, 16, heads=1, key_dim=28, seed=0),
    RunSpec(100, 24, heads=3, key_dim=5, seed=2**40 + 7),
    RunSpec(8, 4, heads=2, key_dim=3, seed=1, length=8),
    RunSpec(48, 16, heads=6, key_dim=4, seed=2, kv_heads=2),
    RunSpec(48, 16, heads=4, key_dim=5, seed=2, kv_heads=1),
]
MAKE = """
  const spec = runSpec(given.spec);
  const graph = given.pairs ? graphOf(spec.items, given.pairs)
    : permutationGraph(spec.items, spec.seed);
  const rows = gaussianTable(spec.items, spec.dModel, spec.seed);
"""


def as_given(spec: RunSpec) -> dict:
    """The spec under the names that the script has."""
    return {
        "items": spec.items,
        "dModel": spec.d_model,
        "heads": spec.heads,
        "keyDim": spec.key_dim,
        "keyHeads": spec.key_heads,
        "seed": spec.seed,
        "degree": spec.degree,
        "length": spec.length,
        "isPermutation": spec.is_permutation,
    }


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.stream}/{spec.key_heads}")
def test_a_seed_draws_what_python_draws(spec):
    found = run_node(
        ENGINE,
        MAKE
        + """
        const { queries, keys } = firstWeights(spec);
        return { targets: graph.targets, rows, queries, keys, key: trainingKey(spec) };
        """,
        {"spec": as_given(spec)},
    )
    task = task_of(spec)
    assert found["targets"] == task.graph.targets.tolist()
    assert found["key"] == str(training_key(spec))
    assert torch.allclose(torch.tensor(found["rows"]), task.rows.flatten(), atol=1e-7, rtol=0)
    drawn = torch.tensor(found["queries"] + found["keys"])
    assert torch.allclose(drawn, first_weights(spec).flatten(), atol=1e-7, rtol=0)


def test_many_normals_agree():
    """Enough of them that the ziggurat's wedges and its tail are drawn from."""
    import numpy as np

    found = run_node(
        ENGINE,
        "const rng = () => new Generator([5, 6]);"
        "return { wide: rng().normals(20000), narrow: rng().normals32(20000) };",
        None,
    )
    wide = np.random.default_rng([5, 6]).standard_normal(20000)
    narrow = np.random.default_rng([5, 6]).standard_normal(20000, dtype=np.float32)
    assert np.abs(wide).max() > 3.66
    assert found["wide"] == pytest.approx(wide.tolist(), abs=1e-12)
    assert found["narrow"] == pytest.approx(narrow.tolist(), abs=1e-6)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_contexts_are_bit_for_bit_pythons(data):
    """On any graph: hubs, items without targets, loops."""
    items = data.draw(st.integers(2, 30))
    pair = st.tuples(st.integers(0, items - 1), st.integers(0, items - 1))
    pairs = sorted(data.draw(st.sets(pair, min_size=1, max_size=60)))
    length = data.draw(st.integers(1, min(items, 16)))
    rate = data.draw(st.sampled_from([0.1, 0.5, 0.9]))
    seed, start = data.draw(st.integers(0, 2**40)), data.draw(st.sampled_from([0, 10**7, 2**34]))
    found = run_node(
        ENGINE,
        """
        const graph = graphOf(given.items, given.pairs);
        const sampler = new ContextSampler(graph, given.length, given.rate,
          streamKey(given.seed, "some words"));
        return Array.from({ length: 40 }, (_, n) => {
          const context = new Int32Array(given.length);
          sampler.draw(given.start + n, context);
          return context;
        });
        """,
        {
            "items": items,
            "pairs": pairs,
            "length": length,
            "rate": rate,
            "seed": seed,
            "start": start,
        },
    )
    graph = Graph.from_edges(items, pairs)
    drawn = ContextSampler(graph, length, rate).draw(
        40, seed=seed, stream="some words", start=start
    )
    assert found == drawn.tolist()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.stream}/{spec.key_heads}")
def test_a_hundred_steps_are_the_references(spec):
    assert_same_steps(spec, None)


def test_a_graph_of_ones_own_trains_as_the_reference_does():
    """With hubs and several targets per item; the weight of edges is that of Eq. (30)."""
    pairs = [(i, j) for i in range(24) for j in range(24) if (i * j) % 7 == 1 or (i, j) == (2, 3)]
    spec = RunSpec.on(Graph.from_edges(24, pairs), d_model=6, heads=3, key_dim=4, seed=5)
    assert not spec.is_permutation
    assert_same_steps(spec, pairs)


def assert_same_steps(spec: RunSpec, pairs: list | None) -> None:
    found = run_node(
        ENGINE,
        MAKE
        + """
        const run = new Run(spec, graph, rows);
        for (let n = 0; n < 100; n += 1) run.step();
        const { f1 } = run.check();
        return { queries: run.queries.values, keys: run.keys.values, tau: run.threshold, f1 };
        """,
        {"spec": as_given(spec), "pairs": pairs},
    )
    fleet = TorchEngine("cpu").fleet([spec])
    fleet.launch(100)
    [state] = fleet.states([0])
    weights = torch.tensor(found["queries"] + found["keys"])
    assert torch.allclose(weights, flattened(state), atol=1e-4, rtol=0)
    assert found["tau"] == pytest.approx(float(state.threshold[0]), abs=1e-4)
    assert found["f1"] == pytest.approx(fleet.check().values[0], abs=1e-3)


def flattened(state: State) -> torch.Tensor:
    return torch.cat([part.flatten() for part in state.weights])


def test_f1_has_the_references_distribution():
    """The same seeds end at the same F1 on average; single runs drift apart by rounding."""
    spec, seeds = RunSpec(32, 10, heads=2, key_dim=5, steps=1500), range(6)
    found = run_node(
        ENGINE,
        """
        return given.seeds.map((seed) => {
          const spec = runSpec({ ...given.spec, seed, steps: 1500 });
          const run = new Run(spec, permutationGraph(spec.items, seed),
            gaussianTable(spec.items, spec.dModel, seed));
          while (!run.ended) run.step();
          return run.history.map(([, value]) => value);
        });
        """,
        {"spec": as_given(spec), "seeds": list(seeds)},
    )
    fleet = TorchEngine("cpu").fleet([replace(spec, seed=seed) for seed in seeds])
    for block in range(3):
        fleet.launch(500)
        ours = fleet.check().values
        theirs = [history[block] for history in found]
        assert sum(theirs) / len(theirs) == pytest.approx(sum(ours) / len(ours), abs=0.02)
    assert min(theirs) > 0.3
