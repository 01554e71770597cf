"""`compile(variant="softmax")`: against the softmax certificate and against every context."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import torch

from headcount import (
    Graph,
    InputError,
    KeyQuery,
    NoSolution,
    gaussian_embeddings,
    load_weights,
    permutation_graph,
    save_embeddings,
    write_graph,
)
from headcount.attention.softmax_bounds import Logits, bound_scores, extreme_masses
from headcount.attention.softmax_certificate import softmax_certificate
from headcount.compiler.certificate import Certificate
from headcount.compiler.compile import compile


def right_in_every_context(
    weights: KeyQuery, graph: Graph, table: torch.Tensor, length: int
) -> bool:
    """Eqs. (5)–(6) on each context in turn."""
    for context in combinations(range(graph.items), length):
        truth = graph.has_edges(*np.meshgrid(context, context, indexing="ij"))
        if not np.array_equal(weights.decide(table.double()[list(context)]).numpy(), truth):
            return False
    return True


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("length", [2, 5, 10])
def test_permutations_in_every_context(length, seed):
    graph, table = permutation_graph(10, seed), gaussian_embeddings(10, 6, seed)
    found = compile(graph, table, budget=12, variant="softmax", context_length=length)
    assert found.weights.aggregation == "softmax"
    assert found.weights.budget <= 12
    again = softmax_certificate(found.weights, graph, table, length)
    assert again.verdict == "certified"
    assert found.certificate.context_length == length
    assert found.certificate.margin == pytest.approx(again.margin)
    assert right_in_every_context(found.weights, graph, table, length)


def test_self_loops_and_items_without_edges():
    graph, table = Graph.from_edges(8, [(0, 0), (1, 2), (3, 2), (5, 7)]), gaussian_embeddings(8, 8)
    found = compile(graph, table, budget=16, variant="softmax", context_length=4)
    assert right_in_every_context(found.weights, graph, table, 4)


def test_two_targets_share_the_mass():
    graph, table = (
        Graph.from_edges(8, [(i, (i + k) % 8) for i in range(8) for k in (1, 3)]),
        torch.eye(8),
    )
    found = compile(graph, table, budget=16, variant="softmax", context_length=6)
    assert right_in_every_context(found.weights, graph, table, 6)


@pytest.mark.parametrize("edges", [[], [(i, j) for i in range(5) for j in range(5)]])
def test_constant_graphs(edges):
    graph, table = Graph.from_edges(5, edges), gaussian_embeddings(5, 3)
    found = compile(graph, table, variant="softmax", context_length=3)
    assert right_in_every_context(found.weights, graph, table, 3)


@pytest.mark.usefixtures("counted_time")
def test_search_without_a_budget_finds_fewer_parameters():
    graph, table = permutation_graph(8), gaussian_embeddings(8, 8)
    found = compile(graph, table, variant="softmax", context_length=4, time_limit=3)
    assert found.weights.budget < 16
    assert right_in_every_context(found.weights, graph, table, 4)


def test_what_no_weights_can_do_is_refused():
    graph = Graph.from_edges(6, [(0, j) for j in range(6)])  # item 0: edges alone; the others: none
    with pytest.raises(NoSolution, match="no τ parts them"):
        compile(graph, gaussian_embeddings(6, 6), variant="softmax", context_length=3)


@pytest.mark.usefixtures("counted_time")
def test_a_budget_too_small_is_an_honest_no():
    graph, table = permutation_graph(24), gaussian_embeddings(24, 6)
    with pytest.raises(
        NoSolution, match="no softmax weights were certified for every context of 6 items"
    ) as said:
        compile(graph, table, budget=2, variant="softmax", context_length=6, time_limit=0.5)
    assert "breaks the pair" in str(said.value) or "open" in str(said.value)


def test_bad_options():
    graph, table = permutation_graph(6), gaussian_embeddings(6, 6)
    with pytest.raises(InputError, match="needs a context length"):
        compile(graph, table, variant="softmax")
    with pytest.raises(InputError, match="does not fit"):
        compile(graph, table, variant="softmax", context_length=7)
    with pytest.raises(InputError, match="not rounded"):
        compile(graph, table, variant="softmax", context_length=3, bits=8)
    with pytest.raises(InputError, match="every length"):
        compile(graph, table, context_length=3)


@pytest.mark.parametrize("length", [2, 4, 7])
def test_descended_bounds_are_the_certificate_bounds_and_have_slopes(length):
    draw = torch.Generator().manual_seed(length)
    weights = KeyQuery(
        *torch.randn(2, 3, 5, 2, generator=draw), threshold=1.0, aggregation="softmax"
    )
    logits = Logits.of(weights, torch.randn(7, 5, generator=draw), length)
    rows = torch.stack([logits.rows(head, torch.arange(7)) for head in range(3)])
    bounds = bound_scores(logits, torch.arange(7), length)
    for largest, bound in zip((True, False), bounds, strict=True):
        rows.requires_grad_().grad = None
        mass = extreme_masses(rows, torch.arange(7), length, largest).sum(0)
        assert torch.allclose(mass.detach(), bound)
        mass.square().sum().backward()
        assert rows.grad is not None
        assert rows.grad.isfinite().all()
        assert rows.grad.any()


def test_contexts_of_one_item():
    table = gaussian_embeddings(4, 4)
    loops = Graph.from_edges(4, [(i, i) for i in range(4)])
    found = compile(loops, table, variant="softmax", context_length=1)
    assert right_in_every_context(found.weights, loops, table, 1)


def test_command_line(tmp_path, command):
    write_graph(permutation_graph(8), tmp_path / "graph.csv")
    save_embeddings(gaussian_embeddings(8, 8), tmp_path / "table.npy")
    files = ("graph.csv", "table.npy")
    options = ("--budget", 12, "--variant", "softmax", "--context-length", 4)
    code, out, err = command("compile", *files, *options, "--json", "-o", "w.safetensors")
    assert code == 0, err
    assert json.loads(out)["budget"] <= 12
    written = load_weights(tmp_path / "w.safetensors")
    assert written.context_length == 4
    certificate = Certificate.from_json(written.notes["certificate"])
    assert certificate.margin == json.loads(out)["margin"]
    code, _, err = command("verify", "w.safetensors", *files, "--context-length", 4, "--json")
    assert code == 0, err
