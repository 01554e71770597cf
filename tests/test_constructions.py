"""The constructions line by line, and all of them against verify."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    ContextSampler,
    Graph,
    binary_embeddings,
    construct,
    gaussian_embeddings,
    one_hot_embeddings,
    permutation_graph,
    random_graph,
    regular_graph,
    verify,
)
from headcount.constructions.methods import (
    compressive,
    general_embedding,
    general_graph,
    one_hot,
)
from headcount.constructions.packing import pack
from headcount.constructions.request import (
    default_context_length,
    sampler_for,
    verify_construction,
)
from headcount.constructions.template import Signatures
from headcount.errors import PreconditionWarning
from headcount.theory.constants import constants


def literal_templates(table, matchings, w):
    """Alg. 1, lines 6–9 (and Alg. 5, lines 5–6) as printed: m × d_k templates, then W = Xᵀ W'."""
    heads = []
    for matching in matchings:
        query = torch.zeros(len(table), w.shape[1])
        key = torch.zeros(len(table), w.shape[1])
        for i, j in zip(matching.sources.tolist(), matching.targets.tolist(), strict=True):
            query[i] = w[j]
            key[j] = w[j]
        heads.append((table.T @ query, table.T @ key))
    return heads


@settings(deadline=None, max_examples=30)
@given(st.integers(5, 40), st.integers(2, 12), st.integers(1, 6), st.integers(0, 99))
def test_algorithm_1_line_by_line(items, d_model, key_dim, seed):
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, d_model, seed)
    weights = compressive(graph, table, key_dim, signatures=Signatures(seed=seed))
    assert weights.heads == math.ceil(items / d_model)
    assert weights.threshold == key_dim / 2
    blocks = np.array_split(np.arange(items), weights.heads)
    assert all(len(block) <= d_model for block in blocks)
    w = Signatures(seed=seed).draw(items, key_dim)
    assert set(w.unique().tolist()) <= {-1.0, 1.0}
    for k, block in enumerate(blocks):
        query, key = torch.zeros(items, key_dim), torch.zeros(items, key_dim)
        for i in block:
            query[i] = w[graph.targets[i]]
            key[graph.targets[i]] = w[graph.targets[i]]
        torch.testing.assert_close(weights.queries[k], table.T @ query)
        torch.testing.assert_close(weights.keys[k], table.T @ key)


@settings(deadline=None, max_examples=20)
@given(st.integers(4, 16), st.integers(0, 60), st.integers(2, 8), st.integers(0, 9))
def test_algorithm_5_line_by_line(items, edges, d_model, seed):
    graph = random_graph(items, min(edges, items * (items - 1)), seed)
    table = gaussian_embeddings(items, d_model, seed)
    weights = general_graph(graph, table, 3, signatures=Signatures(seed=seed))
    heads = literal_templates(table, pack(graph, d_model), Signatures(seed=seed).draw(items, 3))
    assert weights.threshold == 1.5
    for k, (query, key) in enumerate(heads):
        torch.testing.assert_close(weights.queries[k], query)
        torch.testing.assert_close(weights.keys[k], key)


def test_algorithm_3_with_bernoulli_signatures():
    graph, table = permutation_graph(64, seed=1), one_hot_embeddings(64)
    signatures = Signatures("bernoulli", 0.25, seed=0)
    weights = one_hot(graph, table, 400, signatures=signatures)
    assert weights.threshold == pytest.approx((0.25 + 0.25**2) / 2 * 400)
    assert torch.equal(weights.keys[0], signatures.draw(64, 400))
    assert torch.equal(weights.queries[0], weights.keys[0][graph.targets.copy()])
    assert verify(weights, graph, table).exact


def test_algorithm_4_scales_by_mu():
    graph, table = permutation_graph(30, seed=1), binary_embeddings(30, 60, seed=1)
    weights = general_embedding(graph, table, 5, heads=3, signatures=Signatures("bernoulli", 0.05))
    squares = table.square().sum(1)
    scale = float(squares.min() + squares.max()) / 2
    w = Signatures("bernoulli", 0.05).draw(30, 5)
    first = np.array_split(np.arange(30), 3)[0]
    expected = table[first].T @ w[graph.targets[first]] / scale
    torch.testing.assert_close(weights.queries[0], expected)
    assert weights.threshold == pytest.approx((0.05 + 0.05**2) / 2 * 5)


def test_signatures_are_prefixes_of_wider_ones():
    for kind in ("rademacher", "bernoulli"):
        wide = Signatures(kind, 0.3, seed=4).draw(20, 16)
        assert torch.equal(Signatures(kind, 0.3, seed=4).draw(20, 5), wide[:, :5])
        assert not torch.equal(Signatures(kind, 0.3, seed=5).draw(20, 16), wide)


def test_pinv_leaves_no_leakage_inside_a_block():
    graph, table = permutation_graph(24, seed=2), gaussian_embeddings(24, 16, seed=2).double()
    weights = compressive(graph, table, 7, heads=3, inverse="pinv")
    w = Signatures().draw(24, 7).double()
    block = np.arange(8)
    scores = weights.scores(table[block], table[graph.targets[block].copy()])[0]
    expected = w[graph.targets[block].copy()] @ w[graph.targets[block].copy()].T
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


CONTRACT = [
    ("one-hot", permutation_graph(40), one_hot_embeddings(40)),
    ("compressive", permutation_graph(60), gaussian_embeddings(60, 40)),
    ("general-embedding", permutation_graph(40), binary_embeddings(40, 1000, density=0.08)),
    ("general-embedding", permutation_graph(50), 3.0 * gaussian_embeddings(50, 40)),
    ("general-graph", regular_graph(24, 3), gaussian_embeddings(24, 30)),
    ("general-graph", random_graph(30, 45), gaussian_embeddings(30, 24)),
    (
        "general-graph",
        Graph.from_edges(20, [(0, t) for t in range(1, 20)]),
        gaussian_embeddings(20, 16),
    ),
]


@pytest.mark.parametrize("inverse", ["transpose", "pinv"])
@pytest.mark.parametrize(("method", "graph", "table"), CONTRACT)
def test_every_construction_repeats_and_is_confirmed_by_verify(method, graph, table, inverse):
    weights, again = (construct(graph, table, method, inverse=inverse) for _ in range(2))
    assert torch.equal(again.queries, weights.queries)
    assert torch.equal(again.keys, weights.keys)
    assert weights.notes["method"] == method
    found = verify(weights, graph, table)
    assert found.exact
    assert found.margin > 0
    size = {"key_dim": weights.key_dim, "heads": weights.heads, "threshold": "midpoint"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PreconditionWarning)
        built = construct(graph, table, method, inverse=inverse, **size)
    # Not bit for bit: a search cuts its widths from a wider product, whose sums round otherwise.
    torch.testing.assert_close(built.queries, weights.queries)
    torch.testing.assert_close(built.keys, weights.keys)
    assert built.threshold == pytest.approx(weights.threshold, rel=1e-4)


def test_softmax_weights_hold_on_contexts_that_the_search_never_saw():
    """One head owns every item, contexts hold half the vocabulary: many targets are absent."""
    graph, table = permutation_graph(96), gaussian_embeddings(96, 96)
    weights = construct(graph, table, "softmax", inverse="pinv", heads=1)
    length = int(weights.notes["context_length"])
    assert length == default_context_length(96, 1) == 48
    rows = ContextSampler(graph, length).draw(500, seed=99)
    absent = (torch.from_numpy(graph.targets.copy())[rows][:, :, None] != rows[:, None, :]).all(2)
    assert absent.float().mean() > 0.2
    assert verify(weights, graph, table, contexts=rows).exact
    assert sampler_for(weights, graph) == ContextSampler(graph, length)
    again = verify_construction(weights, graph, table)
    assert (again.correct, again.scope, again.contexts) == (True, "sampled contexts", 1000)
    assert again.exact is None


CALIBRATED = [
    ("compressive", permutation_graph, "transpose", lambda m, d: None, 512, 512),
    ("compressive", permutation_graph, "pinv", lambda m, d: 4 * -(-m // d), 256, 128),
    ("general-embedding", permutation_graph, "transpose", lambda m, d: None, 512, 512),
    (
        "general-graph",
        lambda m, s: regular_graph(m, 2, s),
        "transpose",
        lambda m, d: None,
        512,
        512,
    ),
    (
        "general-graph",
        lambda m, s: regular_graph(m, 3, s),
        "pinv",
        lambda m, d: 4 * -(-3 * m // d),
        128,
        96,
    ),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("method", "maker", "inverse", "heads", "items", "d_model"), CALIBRATED)
@pytest.mark.filterwarnings("ignore::headcount.errors.PreconditionWarning")
def test_constructions_are_exact_at_the_calibrated_constants(
    method, maker, inverse, heads, items, d_model, seed
):
    """Half as much again as the C at which 95 % of the draws succeed."""
    graph, table = maker(items, seed), gaussian_embeddings(items, d_model, seed)
    if method == "general-embedding":
        table = 3.0 * table
    constant = constants()["pseudo-inverse" if inverse == "pinv" else method].C
    key_dim = math.ceil(1.5 * constant * math.log(items))
    threshold = "midpoint" if inverse == "pinv" else "paper"
    options = {
        "key_dim": key_dim,
        "heads": heads(items, d_model),
        "inverse": inverse,
        "threshold": threshold,
    }
    weights = construct(graph, table, method, seed=seed, **options)
    assert verify(weights, graph, table).exact


@settings(deadline=None, max_examples=15)
@given(st.integers(20, 40), st.integers(0, 1000), st.data())
def test_exact_weights_are_right_in_every_context(items, seed, data):
    """Monotonicity under context restriction (Section 4), on contexts of random length."""
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, items, seed)
    weights = construct(graph, table, inverse="pinv", seed=seed)
    assert verify(weights, graph, table).exact
    length = data.draw(st.integers(1, items))
    rows = ContextSampler(graph, length).draw(20, seed=seed)
    assert verify(weights, graph, table, contexts=rows).exact


def test_real_tables_and_graphs_can_be_built():
    """Rows of any norm, any graph: pseudo-inverses do not care."""
    graph, table = (
        random_graph(30, 60),
        gaussian_embeddings(30, 60) * torch.linspace(0.8, 1.5, 30)[:, None],
    )
    assert verify(construct(graph, table, inverse="pinv"), graph, table).exact


@pytest.mark.parametrize("items", [1, 2, 5])
def test_a_graph_without_edges_is_recognised(items):
    graph, table = Graph.from_edges(items, []), gaussian_embeddings(items, 4)
    for inverse in ("transpose", "pinv"):
        assert verify(construct(graph, table, inverse=inverse), graph, table).exact
