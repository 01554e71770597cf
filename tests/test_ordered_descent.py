"""The order of logits that sharp softmax heads need: the loss, pair by pair, and descents."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import Graph, gaussian_embeddings, permutation_graph
from headcount.attention.softmax_certificate import softmax_certificate
from headcount.compiler.compile import compile
from headcount.compiler.ordered_descent import Order, descend_in_order
from headcount.compiler.whitened import WhitenedProblem


@st.composite
def maps(draw) -> Graph:
    """At most one target per source; self-loops and sources without a target are allowed."""
    items = draw(st.integers(2, 7))
    targets = draw(st.lists(st.integers(-1, items - 1), min_size=items, max_size=items))
    edges = [(source, target) for source, target in enumerate(targets) if target >= 0]
    return Graph.from_edges(items, edges or [(0, 1)])


def problem_of(graph: Graph, d_model: int, seed: int) -> WhitenedProblem:
    table = gaussian_embeddings(graph.items, d_model, seed)
    return WhitenedProblem.of(graph, table, 1.0, torch.device("cpu"))


def rules(logits: torch.Tensor, graph: Graph, source_is_above: bool) -> list[torch.Tensor]:
    """Every difference of logits that must be positive, pair by pair."""
    found, target = [], dict(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    for i in range(graph.items):
        edge = target.get(i)
        for j in range(graph.items):
            if edge is not None and j != edge:
                found.append(logits[i, edge] - logits[i, j])
            if i not in (j, edge) and j != edge:
                ahead = logits[i, i] - logits[i, j]
                found.append(ahead if source_is_above else -ahead)
    return found


@settings(max_examples=40, deadline=None)
@given(maps(), st.booleans(), st.floats(0.05, 1.0), st.integers(0, 99))
def test_the_loss_is_the_sum_of_squared_shortfalls(graph, source_is_above, margin, seed):
    problem = problem_of(graph, 4, seed)
    weights = torch.randn(2, problem.rank, 2, generator=torch.manual_seed(seed)).requires_grad_()
    queries, keys = problem.points @ weights
    ahead = rules(queries @ keys.T, graph, source_is_above)
    plain = sum(((margin - one).clamp_min(0).square() for one in ahead), torch.zeros(()))
    (slope,) = torch.autograd.grad(plain, weights)
    found = Order(problem, source_is_above).loss(weights.detach(), margin)
    assert found[0] == pytest.approx(float(plain.detach()), rel=1e-4, abs=1e-5)
    torch.testing.assert_close(found[1], slope, rtol=1e-3, atol=1e-4)
    assert found[2] == pytest.approx(float(torch.stack(ahead).min().detach()), abs=1e-5)


@pytest.mark.parametrize("source_is_above", [True, False])
def test_a_descent_ends_in_the_order(source_is_above):
    graph = permutation_graph(48, seed=3)
    problem = problem_of(graph, 24, 3)
    order = Order(problem, source_is_above)
    (queries, keys), least = descend_in_order(order, 8, 3, lambda: True)
    logits = (problem.points @ queries) @ (problem.points @ keys).T
    ahead = torch.stack(rules(logits, graph, source_is_above))
    assert 0 < least == pytest.approx(float(ahead.min()), abs=1e-4)


def test_a_descent_ends_in_time():
    calls = 0

    def keep_on() -> bool:
        nonlocal calls
        calls += 1
        return calls < 3

    order = Order(problem_of(permutation_graph(40, seed=1), 8, 1), True)
    _, least = descend_in_order(order, 1, 1, keep_on)
    assert calls < 20
    assert math.isfinite(least)


def test_tables_of_hundreds_of_rows():
    graph, table = permutation_graph(256, seed=5), gaussian_embeddings(256, 64, seed=5)
    found = compile(graph, table, budget=40, variant="softmax", context_length=16)
    assert found.weights.heads == 2
    assert found.certificate.context_length == 16
    assert len(found.frontier) == 1


def test_an_order_that_is_missed_narrowly_is_certified_all_the_same():
    """Two heads of width 4 cannot order these rows, but every context of 4 items is right."""
    graph = Graph.from_edges(16, [(2 * n, 2 * n + 1) for n in range(8)])
    table = gaussian_embeddings(16, 8, seed=0)
    problem = WhitenedProblem.of(graph, table, 1.0, torch.device("cpu"))
    assert descend_in_order(Order(problem, source_is_above=False), 4, 0, lambda: True)[1] < 0
    found = compile(graph, table, budget=8, variant="softmax", context_length=4)
    assert softmax_certificate(found.weights, graph, table, 4).verdict == "certified"
