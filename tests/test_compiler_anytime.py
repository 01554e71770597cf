"""An answer at once, better ones while there is time, the best on disk whatever ends the search."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
import torch

import headcount as hc
from headcount.attention.storage import load_weights
from headcount.attention.verification import verify
from headcount.compiler import max_search
from headcount.compiler.compile import compile
from headcount.compiler.head_counts import first_budget
from headcount.compiler.last_resort import one_head_per_edge
from headcount.compiler.layout import Layout
from headcount.compiler.polish import certified_weights
from headcount.compiler.search import Compiled
from headcount.compiler.trial import Descended, start
from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.edge_list import write_graph
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph, random_graph
from headcount.problem.tables import save_embeddings
from tests.processes import forked, headcount
from tests.test_compiler import right_everywhere
from tests.test_verify_top import brute_force

CPU = torch.device("cpu")


def failing(problem: WhitenedProblem, layout: Layout, *rest: Any) -> Descended:
    return Descended(start(problem, layout.widths, 0), -1.0, 5, 1)


def test_budgets_fall_from_an_ample_one_and_all_are_certified():
    graph, table = permutation_graph(64, seed=9), gaussian_embeddings(64, 16, seed=9)
    found: list[Compiled] = []
    lines: list[str] = []

    def keep(one: Compiled) -> None:
        found.append(one)
        if one.weights.budget < 18:
            raise KeyboardInterrupt

    best = compile(graph, table, improved=keep, progress=lines.append)
    budgets = [one.weights.budget for one in found]
    assert budgets == sorted(set(budgets), reverse=True)
    assert budgets[0] == min(4 * first_budget(64, 64, 16), 2 * 16)  # two heads as wide as rows
    assert budgets[-1] == best.weights.budget < 18 <= budgets[0]
    for one in found:
        assert right_everywhere(one.weights, graph, table)
    assert any(line.startswith(f"best D_K = {budgets[0]}; ") for line in lines)


@pytest.mark.parametrize("top", [False, True])
@pytest.mark.parametrize(("rank", "seed"), [(8, 0), (10, 2)])
def test_one_head_per_edge_is_exact_without_a_search(rank, seed, top):
    """In the second table one row needs more than its own direction to be singled out."""
    graph, table = random_graph(40, 60, seed=seed), gaussian_embeddings(40, rank, seed=seed)
    problem = WhitenedProblem.of(graph, table, 1.0, CPU)
    certified = certified_weights(
        problem, one_head_per_edge(problem), Layout((1,) * graph.edges, top), graph, table
    )
    assert certified is not None
    assert certified[0].budget == certified[0].heads == 60
    if top:
        assert brute_force(certified[0], graph, table)[:2] == (0, 0)
    else:
        assert right_everywhere(certified[0], graph, table)


def test_equal_rows_share_a_pointer():
    table = gaussian_embeddings(12, 6, seed=1)
    table[7] = table[3]
    graph = Graph.from_edges(12, [(3, 5), (7, 5), (1, 3), (1, 7), (2, 2)])
    problem = WhitenedProblem.of(graph, table, 1.0, CPU)
    certified = certified_weights(
        problem, one_head_per_edge(problem), Layout((1,) * graph.edges), graph, table
    )
    assert certified is not None
    assert right_everywhere(certified[0], graph, table)


@pytest.mark.parametrize("limit", [None, 0.05])
def test_there_is_an_answer_where_every_descent_fails(limit, monkeypatch):
    monkeypatch.setattr(max_search, "descend_in_stages", failing)
    graph, table = permutation_graph(24, seed=2), gaussian_embeddings(24, 12, seed=2)
    found = compile(graph, table, time_limit=limit)
    assert found.weights.budget == 24
    assert right_everywhere(found.weights, graph, table)


def test_real_relations_within_the_time_limit(monkeypatch):
    # Processor time, which other work on the machine does not use up.
    monkeypatch.setattr(time, "monotonic", time.process_time)
    graph, table = hc.relations("antonyms", table="minilm")
    limit, begun = 3.0, time.monotonic()
    found = compile(graph, table, time_limit=limit, device="cpu")
    assert time.monotonic() - begun <= 1.1 * limit + 1  # a second for a slow machine
    scores = found.weights.aggregate(found.weights.scores(table.double(), table.double()))
    edge = torch.zeros(graph.items, graph.items, dtype=torch.bool)
    edge[torch.from_numpy(graph.sources.copy()), torch.from_numpy(graph.targets.copy())] = True
    assert torch.equal(scores > found.weights.threshold, edge)


@pytest.fixture
def files(tmp_path):
    """A problem whose search takes longer than any test waits."""
    write_graph(permutation_graph(192, seed=3), tmp_path / "graph.csv")
    save_embeddings(gaussian_embeddings(192, 24, seed=3), tmp_path / "table.npy")
    return tmp_path


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_the_best_weights_are_on_disk_when_the_search_is_killed(files, ending):
    out = files / "weights.safetensors"
    words = ("compile", "graph.csv", "table.npy", "--out", out, "--device", "cpu")
    with forked(headcount, *words, folder=files) as process:
        end = time.monotonic() + 100
        while not out.exists() and time.monotonic() < end:
            time.sleep(0.02)
        assert process.running
        process.send_signal(ending)
        code, _, _ = process.end()
    assert code == (0 if ending == signal.SIGINT else -ending)
    weights = load_weights(out)
    graph, table = permutation_graph(192, seed=3), gaussian_embeddings(192, 24, seed=3)
    assert verify(weights, graph, table).exact
    assert weights.budget <= 4 * first_budget(192, 192, 24)
