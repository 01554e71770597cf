"""More budget does not cost more: counted in scores that descents compute, not in seconds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.compiler import max_search
from headcount.compiler.compile import compile
from headcount.compiler.pair_loss import PairLoss
from headcount.compiler.trial import Descended, start

_NOISE = 1.25  # a descent takes a few steps more or less than its neighbour

Problem = tuple[hc.Graph, torch.Tensor]


@cache
def antonyms(words: int = 300) -> Problem:
    """WordNet's antonyms among the first words, on the rows of a real model."""
    graph, table = hc.relations("antonyms", table="minilm")
    kept = (graph.sources < words) & (graph.targets < words)
    pairs = np.stack([graph.sources[kept], graph.targets[kept]], 1)
    return hc.Graph.from_edges(words, pairs), table[:words]


@cache
def gaussian(items: int, d_model: int, degree: int = 1) -> Problem:
    graph = hc.permutation_graph(items, seed=9)
    if degree > 1:
        graph = hc.regular_graph(items, degree, seed=9)
    return graph, hc.gaussian_embeddings(items, d_model, seed=9)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Scores of all heads, for every evaluation of the loss.

    A margin is not widened: that takes 90 evaluations at most, and more where it can get wider.
    """
    counts, real = list[int](), PairLoss.value_and_slope

    def counted(self: PairLoss, *given):
        counts.append(self.layout.heads * self.problem.items**2)
        return real(self, *given)

    monkeypatch.setattr(PairLoss, "value_and_slope", counted)
    monkeypatch.setattr(max_search, "widen_in_stages", lambda problem, weights, *_: weights)
    return counts


@pytest.mark.parametrize(
    ("problem", "budgets"),
    [
        (antonyms, (4, 8, 48, 4000)),
        (lambda: gaussian(64, 16), (12, 16, 24, 36, 64, 128, 512)),
        (lambda: gaussian(96, 32), (10, 14, 20, 40, 80, 320)),
        (lambda: gaussian(48, 16, 4), (20, 30, 60, 120, 480)),
    ],
    ids=["antonyms", "permutation of 64", "permutation of 96", "regular graph"],
)
def test_more_budget_takes_no_more_work(problem, budgets, scored):
    graph, table = problem()
    spent = list[int]()
    for budget in budgets:
        scored.clear()
        found = compile(graph, table, budget=budget, device="cpu")
        assert found.weights.budget <= budget
        spent.append(sum(scored))
    least = np.minimum.accumulate(spent)
    assert np.all(spent <= _NOISE * least), spent


def test_a_budget_is_used_up_where_that_was_asked_for():
    graph, table = gaussian(32, 16)
    assert compile(graph, table, budget=200).weights.budget < 60
    assert compile(graph, table, budget=60, heads=4).weights.budget == 60
    assert compile(graph, table, budget=60, margin=0.1).weights.budget == 60


def test_a_budget_is_used_up_where_an_ample_one_fails(monkeypatch):
    """Round 0 at an ample budget is one more attempt; all others are as without it."""
    graph, table = gaussian(32, 16)
    real, widths = max_search.descend_in_stages, list[int]()

    def descend(problem, layout, seed, *rest):
        widths.append(sum(layout.widths))
        if len(widths) < 2:
            return Descended(start(problem, layout.widths, seed), -1.0, 5, 1)
        return real(problem, layout, seed, *rest)

    monkeypatch.setattr(max_search, "descend_in_stages", descend)
    assert compile(graph, table, budget=100).weights.budget == 100
    assert widths[0] < 60
    assert widths[1] == 100
