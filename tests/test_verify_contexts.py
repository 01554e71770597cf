"""Verify on contexts: all of a length, given ones, or a sample."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import binom

from headcount import (
    ContextSampler,
    Graph,
    InputError,
    KeyQuery,
    gaussian_embeddings,
    permutation_graph,
    verify,
)
from headcount.attention.softmax_certificate import softmax_certificate


def test_softmax_counts_what_it_cannot_decide_as_wrong():
    # One item alone has probability 1 in each head, so the sum is h = τ; no float can prove that.
    weights = KeyQuery(
        torch.ones(2, 1, 1), torch.ones(2, 1, 1), threshold=2.0, aggregation="softmax"
    )
    contexts = torch.tensor([[0]])
    for graph in (Graph.from_edges(1, []), Graph.from_edges(1, [(0, 0)])):
        assert not verify(weights, graph, torch.ones(1, 1), contexts=contexts).exact


def test_sampled_contexts_give_a_clopper_pearson_bound():
    graph, table = permutation_graph(20, seed=3), gaussian_embeddings(20, 8)
    generator = torch.Generator().manual_seed(0)
    weights = KeyQuery(
        torch.randn(2, 8, 4, generator=generator),
        torch.randn(2, 8, 4, generator=generator),
        1.9,
        "softmax",
    )
    found = verify(
        weights, graph, table, contexts=ContextSampler(graph, length=2), samples=300, seed=1
    )
    assert 0 < found.failed_contexts < 300
    assert found.scope == "sampled contexts"
    # By definition: at the bound, so few failures have probability 5 %.
    assert binom.cdf(found.failed_contexts, 300, found.failure_rate_below) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("contexts", "sentence"),
    [
        (torch.tensor([[0, 9]]), "outside"),
        (torch.tensor([[0, 1], [1, 1]]), "context 1 holds the same item twice"),
    ],
)
def test_bad_contexts_are_refused(contexts, sentence):
    graph = permutation_graph(4)
    weights = KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.0)
    with pytest.raises(InputError, match=sentence):
        verify(weights, graph, torch.ones(4, 2), contexts=contexts)


def sharp_softmax(graph: Graph, scale: float) -> KeyQuery:
    """One head in which every source attends to its target."""
    target_of = torch.eye(graph.items)[torch.from_numpy(graph.targets.copy())]
    return KeyQuery(target_of[None] * scale, torch.eye(graph.items)[None], 0.4, "softmax")


def test_a_context_length_decides_every_context_of_that_length():
    graph, table = permutation_graph(8), torch.eye(8)
    weights = sharp_softmax(graph, 10.0)
    found = verify(weights, graph, table, context_length=4, samples=50)
    assert (found.exact, found.verdict, found.contexts) == (True, "certified", 50)
    assert found.certificate == softmax_certificate(weights, graph, table, 4)
    refuted = verify(weights, graph, table, context_length=2)
    assert (refuted.exact, refuted.verdict) == (False, "refuted")
    assert (refuted.scope, refuted.contexts) == ("given contexts", 1)
    assert refuted.false_positives + refuted.false_negatives > 0
    unsure = verify(weights, graph, table, context_length=2, search=0)
    assert (unsure.exact, unsure.verdict, unsure.scope) == (False, "open", "sampled contexts")


def test_a_context_length_changes_nothing_where_all_pairs_decide():
    graph, table = permutation_graph(8), torch.eye(8)
    weights = replace(sharp_softmax(graph, 1.0), aggregation="max")
    assert verify(weights, graph, table, context_length=4) == verify(weights, graph, table)
    assert verify(weights, graph, table).as_dict()["certificate"] is None
    with pytest.raises(InputError, match="exclude each other"):
        verify(weights, graph, table, context_length=2, contexts=torch.tensor([[0, 1]]))


def test_softmax_weights_are_checked_at_the_length_they_were_made_for():
    graph, table = permutation_graph(20), torch.eye(20)
    weights = sharp_softmax(graph, 10.0)
    assert verify(weights, graph, table, samples=3).pairs == 3 * 16**2
    noted = replace(weights, notes={"context_length": "5"})
    assert verify(noted, graph, table, samples=3).pairs == 3 * 5**2


def test_a_sample_of_contexts_is_never_called_exact():
    """Weights that a sample finds no error in, and that the certificate refutes."""
    graph, table = Graph.from_edges(40, [(0, 1)]), torch.eye(40)
    weights = replace(sharp_softmax(permutation_graph(40), 0.0), threshold=0.3)
    found = verify(weights, graph, table, contexts=ContextSampler(graph, 4, rate=0.01), samples=3)
    assert found.exact is None
    assert found.correct
    assert verify(weights, graph, table, context_length=4).verdict == "refuted"
    told = found.as_dict()
    assert told["exact"] is None
    assert told["correct"] is True
    assert told["statement"].startswith("no error in 3 sampled contexts of 4 items")
    assert told["statement"].endswith("that none does is not proved")
    given = verify(weights, graph, table, contexts=torch.tensor([[2, 3, 4, 5]]))
    assert given.exact is True
    assert given.statement.endswith("1 given contexts of 4 items; other contexts are not checked")
    wrong = verify(weights, graph, table, contexts=torch.tensor([[0, 1, 2, 3], [2, 3, 4, 5]]))
    assert wrong.exact is False
    assert wrong.statement.startswith("1 of 2 given contexts of 4 items hold a pair")


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_the_statement_of_all_pairs(scale):
    graph, table = permutation_graph(8), torch.eye(8)
    weights = replace(sharp_softmax(graph, scale), aggregation="max", threshold=5.0)
    found = verify(weights, graph, table)
    if scale > 5:
        assert found.statement.endswith("every context of every length")
        assert found.exact is found.correct is True
    else:
        assert found.statement == "8 of 64 pairs are decided wrongly"
        assert found.exact is found.correct is False
