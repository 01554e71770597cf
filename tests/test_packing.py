"""Lemma B.8 and its even version on random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import Graph, InputError, permutation_graph, random_graph, regular_graph
from headcount.constructions.packing import color_edges, pack, pack_evenly
from tests.strategies import graphs


def assert_matchings(graph, matchings):
    """Matchings have distinct sources and targets; together they are the edges, once each."""
    for matching in matchings:
        assert np.unique(matching.sources).size == matching.sources.size == matching.targets.size
        assert np.unique(matching.targets).size == matching.targets.size
    sources = (
        np.concatenate([matching.sources for matching in matchings])
        if matchings
        else np.empty(0, int)
    )
    targets = (
        np.concatenate([matching.targets for matching in matchings])
        if matchings
        else np.empty(0, int)
    )
    assert Graph.from_arrays(graph.items, sources, targets) == graph


@settings(deadline=None, max_examples=150)
@given(graphs(max_items=12), st.integers(1, 8))
def test_lemma_b8(graph, block):
    colors = color_edges(graph)
    assert colors.size == graph.edges
    if graph.edges:
        assert colors.min() >= 0
        # Exactly Δ colours: a vertex of degree Δ needs them all.
        assert colors.max() < graph.max_degree
    matchings = pack(graph, block)
    assert_matchings(graph, matchings)
    assert all(1 <= matching.sources.size <= block for matching in matchings)
    assert len(matchings) <= -(-graph.edges // block) + graph.max_degree


@settings(deadline=None, max_examples=150)
@given(graphs(max_items=12), st.integers(0, 20))
def test_even_packing(graph, more):
    heads = max(graph.max_degree, 1) + more
    matchings = pack_evenly(graph, heads)
    assert len(matchings) == heads
    assert_matchings(graph, matchings)
    sizes = [matching.sources.size for matching in matchings]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "graph",
    [
        permutation_graph(5000),
        regular_graph(301, 127),  # odd at every level: 127, 63, 31, …
        regular_graph(200, 199),
        random_graph(3000, 60_000),
        Graph.from_edges(400, [(0, t) for t in range(400)] + [(s, 0) for s in range(1, 400)]),
    ],
    ids=["permutation", "odd regular", "complete", "random", "double star"],
)
def test_larger_graphs(graph):
    matchings = pack(graph, 64)
    assert_matchings(graph, matchings)
    assert len(matchings) <= -(-graph.edges // 64) + graph.max_degree
    heads = max(graph.max_degree, -(-graph.edges // 64))
    even = pack_evenly(graph, heads)
    assert_matchings(graph, even)
    assert max(matching.sources.size for matching in even) <= 64


@pytest.mark.slow
@pytest.mark.parametrize(
    "graph", [random_graph(333_333, 10**6), regular_graph(1001, 1000), random_graph(4096, 10**6)]
)
def test_a_million_edges(graph):
    matchings = pack(graph, 512)
    assert_matchings(graph, matchings)
    assert len(matchings) <= -(-graph.edges // 512) + graph.max_degree


def test_too_few_heads_are_refused():
    with pytest.raises(InputError, match="degree 3"):
        pack_evenly(regular_graph(8, 3), 2)
    with pytest.raises(InputError, match="block 0"):
        pack(regular_graph(8, 3), 0)
