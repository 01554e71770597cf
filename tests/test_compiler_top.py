"""Weights decided by the top of a row: compiled for every kind of graph, checked by brute force."""

from __future__ import annotations

import json

import pytest
import torch

from headcount.attention.key_query import KeyQuery
from headcount.attention.storage import load_weights
from headcount.attention.verification import verify
from headcount.compiler.certificate import Certificate
from headcount.compiler.compile import compile
from headcount.errors import InputError, NoSolution
from headcount.problem.edge_list import write_graph
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph, regular_graph
from headcount.problem.tables import save_embeddings
from tests.test_verify_top import brute_force

KINDS = {
    "permutation": permutation_graph(10, seed=1),
    "regular": regular_graph(10, 3),
    "several targets, one, none and all": Graph.from_edges(
        10, [(0, 1), (0, 2), (0, 3), (4, 4), (7, 0), *((9, item) for item in range(10))]
    ),
    "star in": Graph.from_edges(10, [(item, 0) for item in range(1, 10)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_target_is_the_top_of_its_row(kind):
    graph, table = KINDS[kind], gaussian_embeddings(10, 8, seed=3)
    found = compile(graph, table, budget=8, decide="top")
    missed, reaching, least = brute_force(found.weights, graph, table)
    assert (missed, reaching) == (0, 0)
    assert found.certificate.margin == pytest.approx(least)
    assert found.certificate.decide == "top"
    for context in torch.randint(0, 10, (50, 4), generator=torch.Generator().manual_seed(0)):
        _top_of_the_context(found.weights, graph, table, context.unique())


def _top_of_the_context(
    weights: KeyQuery, graph: Graph, table: torch.Tensor, context: torch.Tensor
) -> None:
    """As attention reads it: the highest score of a row is a target, if the context holds one."""
    rows = table[context]
    best = weights.aggregate(weights.scores(rows, rows)).argmax(1)
    for place, item in enumerate(context.tolist()):
        targets = set(graph.targets[graph.sources == item].tolist()) & set(context.tolist())
        assert not targets or int(context[best[place]]) in targets


@pytest.mark.usefixtures("counted_time")
def test_fewer_columns_than_a_threshold_needs():
    """The levels of rows are free, so the budget at which a threshold is found is not needed."""
    graph, table = permutation_graph(64, seed=5), gaussian_embeddings(64, 8, seed=5)
    by_threshold = compile(graph, table, time_limit=1.5, seed=1)
    by_top = compile(graph, table, decide="top", time_limit=1.5, seed=1)
    assert by_top.weights.budget < by_threshold.weights.budget
    found = verify(by_top.weights, graph, table)
    assert found.exact
    assert by_top.weights.notes["decide"] == "top"
    assert brute_force(by_top.weights, graph, table)[:2] == (0, 0)


def test_nothing_to_order_needs_no_search():
    full = Graph.from_edges(3, [(1, 0), (1, 1), (1, 2)])
    found = compile(full, gaussian_embeddings(3, 4), decide="top")
    assert not found.weights.queries.any()
    assert verify(found.weights, full, gaussian_embeddings(3, 4)).exact


def test_equal_rows_may_have_nested_targets():
    table = gaussian_embeddings(6, 5, seed=1)
    table[1] = table[0]
    nested = Graph.from_edges(6, [(0, 2), (1, 2), (1, 3)])
    found = compile(nested, table, budget=5, decide="top")
    assert brute_force(found.weights, nested, table)[:2] == (0, 0)
    with pytest.raises(NoSolution, match="rows 0 and 1"):
        compile(Graph.from_edges(6, [(0, 2), (1, 3)]), table, decide="top")
    with pytest.raises(NoSolution, match="the edges into them differ"):
        compile(Graph.from_edges(6, [(2, 0)]), table, decide="top")
    table[5] = 0
    with pytest.raises(NoSolution, match="row 5 of the table is zero"):
        compile(Graph.from_edges(6, [(5, 2)]), table, decide="top")
    with pytest.raises(NoSolution, match="row 5 of the table is zero"):
        compile(Graph.from_edges(6, [(2, 5)]), table)
    target = Graph.from_edges(6, [(2, 5)])  # a zero row as the top of another
    found = compile(target, table, budget=5, decide="top")
    assert brute_force(found.weights, target, table)[:2] == (0, 0)


def test_saved_with_its_reading_and_certificate(tmp_path, command):
    graph, table = permutation_graph(12, seed=2), gaussian_embeddings(12, 8, seed=2)
    write_graph(graph, tmp_path / "graph.csv")
    save_embeddings(table, tmp_path / "table.npy")
    out = tmp_path / "top.safetensors"
    files = ("graph.csv", "table.npy")
    code, _, said = command(
        "compile", *files, "--budget", 6, "--decide", "top", "--out", out, "--json"
    )
    assert code == 0, said
    weights = load_weights(out)
    assert weights.decided_by == "top"
    certificate = Certificate.from_notes(weights.notes)
    assert certificate.decide == "top"
    assert 0 < certificate.relative_margin <= 1
    checked = json.loads(command("verify", out, *files, "--json")[1])
    assert checked["decide"] == "top"
    assert checked["margin"] == certificate.margin


@pytest.mark.parametrize("options", [{"bits": 4}, {"variant": "softmax", "context_length": 4}])
def test_rounding_and_softmax_are_refused(options):
    with pytest.raises(InputError, match="compiled for max"):
        compile(permutation_graph(8), gaussian_embeddings(8, 4), decide="top", **options)


def test_unknown_reading_is_refused():
    with pytest.raises(InputError, match="use threshold or top"):
        compile(permutation_graph(8), gaussian_embeddings(8, 4), decide="first")
