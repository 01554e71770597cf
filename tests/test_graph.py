"""Graphs and their makers."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    Graph,
    InputError,
    permutation_graph,
    random_graph,
    regular_graph,
    skewed_graph,
    with_positions,
)
from headcount.problem import makers
from headcount.problem.graph import checked_edges
from headcount.problem.streams import generator
from tests.strategies import graphs

SIZES = st.integers(1, 12).flatmap(  # items and edges
    lambda m: st.tuples(st.just(m), st.integers(0, m * (m - 1)))
)


@given(graphs())
def test_views_agree(graph):
    pairs = {(int(s), int(t)) for s, t in graph.pairs}
    assert len(pairs) == graph.edges
    assert {(i, int(t)) for i in range(graph.items) for t in graph.neighbors(i)} == pairs
    grid = np.indices((graph.items, graph.items)).reshape(2, -1)
    assert {(int(i), int(j)) for i, j in grid.T[graph.has_edges(*grid)]} == pairs
    out = [sum(s == i for s, _ in pairs) for i in range(graph.items)]
    into = [sum(t == i for _, t in pairs) for i in range(graph.items)]
    assert graph.out_degrees.tolist() == out
    assert graph.in_degrees.tolist() == into
    assert graph.max_degree == max(out + into)
    assert Graph.from_networkx(graph.to_networkx()) == graph
    for d_model in (1, 2, 5):  # condition (33) as printed, Δ/d_avg ≤ m/d_model
        if pairs:
            skew = graph.max_degree / (len(pairs) / graph.items)
            assert graph.has_bounded_skew(d_model) == (skew <= graph.items / d_model + 1e-12)


def test_a_graph_cannot_be_changed():
    graph = permutation_graph(4)
    for array in (graph.sources, graph.targets, graph.starts, graph.out_degrees, graph.pairs):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_networkx_labels_must_be_items():
    with pytest.raises(InputError, match="convert_node_labels_to_integers"):
        Graph.from_networkx(nx.DiGraph([("a", 1)]))


def test_undirected_edges_become_both_directions():
    assert Graph.from_networkx(nx.path_graph(3)).pairs.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


@given(st.integers(1, 60), st.integers(0, 100))
def test_permutations(items, seed):
    graph = permutation_graph(items, seed)
    assert graph.is_permutation
    assert graph == permutation_graph(items, seed)


def test_permutations_are_uniform_with_fixed_points():
    seen = {}
    for seed in range(3000):
        key = tuple(permutation_graph(3, seed).targets.tolist())
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 6
    assert min(seen.values()) > 400  # 500 expected, standard deviation 20


@settings(deadline=None, max_examples=60)
@given(
    st.integers(2, 24).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, m - 1))),
    st.integers(0, 9),
)
def test_regular_graphs_up_to_the_complete_one(size, seed):
    items, degree = size
    graph = regular_graph(items, degree, seed)
    assert set(graph.in_degrees.tolist()) == set(graph.out_degrees.tolist()) == {degree}
    assert not (graph.sources == graph.targets).any()


@settings(deadline=None)
@given(
    SIZES,
    st.integers(0, 9),
)
def test_random_graphs_have_the_edges_asked_for(size, seed):
    items, edges = size
    graph = random_graph(items, edges, seed)
    assert graph.edges == edges
    assert not (graph.sources == graph.targets).any()


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(0, 99))
def test_skewed_graphs_have_the_edges_asked_for(size, seed):
    items, edges = size
    graph = skewed_graph(items, edges, seed)
    assert (graph.items, graph.edges) == (items, edges)
    assert (graph.sources != graph.targets).all()
    assert graph == skewed_graph(items, edges, seed)


@pytest.mark.parametrize("edges", [512, 5120, 60_000])  # drawn one by one, and by a race
def test_skewed_graphs_have_hubs(edges):
    graph = skewed_graph(512, edges, seed=3)
    into, out = np.sort(graph.in_degrees)[::-1], np.sort(graph.out_degrees)[::-1]
    mean = edges / 512
    assert into[0] >= min(400, 20 * mean)
    assert into[0] > 2 * out[0] or into[0] > 400
    assert out[0] > 2 * mean
    assert np.median(into) < 0.7 * mean
    assert (graph.in_degrees.argmax(), graph.out_degrees.argmax()) != (0, 0)


def test_both_ways_of_drawing_skewed_pairs_agree():
    """Six edges among four items, thousands of times: each pair as often either way."""
    sources, targets = np.arange(1, 5) ** -0.5, 1 / np.arange(1, 5)
    counts = []
    for draw in (makers._few_skewed, makers._many_skewed):
        codes = [draw(sources, targets, 6, generator(seed)) for seed in range(3000)]
        assert all(len(set(some.tolist())) == 6 for some in codes)
        counts.append(np.bincount(np.concatenate(codes), minlength=16) / 3000)
    assert np.abs(counts[0] - counts[1]).max() < 0.05
    assert counts[0][::5].sum() == 0


def test_random_graphs_are_uniform():
    seen = {}
    for seed in range(3000):
        key = tuple(map(tuple, random_graph(3, 2, seed).pairs.tolist()))
        seen[key] = seen.get(key, 0) + 1
    assert len(seen) == 15
    assert min(seen.values()) > 130  # 200 expected, standard deviation 14


@given(graphs(max_items=5), st.integers(1, 4), st.none() | st.lists(st.integers(-3, 3)))
def test_positions_follow_the_definition(graph, length, offsets):
    placed = with_positions(graph, length, offsets)
    expected = {
        (int(s) * length + p, int(t) * length + q)
        for s, t in graph.pairs
        for p in range(length)
        for q in range(length)
        if offsets is None or q - p in offsets
    }
    assert placed.items == graph.items * length
    assert {tuple(pair) for pair in placed.pairs.tolist()} == expected


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Graph.from_edges(0, []), "1 to 3037000499 items"),
        (lambda: Graph.from_edges(2, [(0, 2)]), "edge 1 .* outside 0…1"),
        (lambda: Graph.from_edges(2, [(0, 1), (0, 1)]), r"edge \(0, 1\) is given twice"),
        (lambda: Graph.from_edges(2**40, [(2**39, 5)]), "1 to 3037000499 items"),
        (lambda: permutation_graph(0), "too few"),
        (lambda: permutation_graph(10**20), "too many"),
        (lambda: permutation_graph(4, seed=-1), "seed -1"),
        (lambda: regular_graph(4, 4), "choose 1…3"),
        (lambda: random_graph(3, 7), "choose 0…6"),
        (lambda: with_positions(permutation_graph(2), 0), "no position"),
    ],
)
def test_impossible_graphs_are_refused(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def test_ids_out_of_range_are_no_edges():
    assert not Graph.from_edges(3, [(1, 0)]).has_edges([0, 1, 5], [3, -3, 0]).any()


@pytest.mark.parametrize(
    ("items", "sources", "targets", "message"),
    [
        (3, [0, 5], [1, 2], r"edge 2 \(5, 2\) has an id outside 0…2"),
        (3, [0, -1], [1, 2], "outside"),
        (3, [0, 0], [1, 1], "given twice"),
        (0, [], [], "1 to"),
        (3, [0, 1], [1], "2 sources and 1 targets"),
        (3, [0.5], [1], "sources of shape"),
        (3, [[0]], [[1]], "sources of shape"),
    ],
)
def test_a_graph_itself_refuses_what_is_none(items, sources, targets, message):
    """By `checked_edges`, which `Graph(…)` calls: the shape checker would speak before it here."""
    with pytest.raises(InputError, match=message):
        checked_edges(items, np.array(sources), np.array(targets))
    if message in ("outside", "given twice"):
        with pytest.raises(InputError, match=message):
            Graph(items, np.array(sources), np.array(targets))


def test_a_graph_sorts_its_edges():
    graph = Graph(3, np.array([2, 0]), np.array([1, 2]))
    assert graph == Graph.from_edges(3, [(0, 2), (2, 1)])
    assert graph.pairs.tolist() == [[0, 2], [2, 1]]
    with pytest.raises(ValueError, match="read-only"):
        graph.sources[0] = 1
