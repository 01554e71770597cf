"""The compiler: exact on every kind of graph, honest about failure, its model against autograd."""

from __future__ import annotations

import contextlib
import json
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.attention.key_query import KeyQuery
from headcount.attention.storage import load_weights
from headcount.attention.verification import verify
from headcount.compiler.certificate import Certificate, graph_hash, table_hash
from headcount.compiler.compile import compile
from headcount.compiler.head_counts import first_budget, head_counts, widths_of
from headcount.compiler.layout import Layout
from headcount.compiler.pair_loss import PairLoss
from headcount.compiler.trial import start
from headcount.compiler.whitened import WhitenedProblem
from headcount.errors import InputError, NoSolution
from headcount.problem.edge_list import write_graph
from headcount.problem.embeddings import binary_embeddings, gaussian_embeddings, one_hot_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph, random_graph, regular_graph
from headcount.problem.tables import save_embeddings


def right_everywhere(weights: KeyQuery, graph: Graph, table: torch.Tensor) -> bool:
    """Brute force in rational arithmetic: every pair, every head, every column."""

    def fractions(values: torch.Tensor) -> np.ndarray:
        return np.vectorize(Fraction, otypes=[object])(values.double().numpy())

    rows, edges = fractions(table), set(map(tuple, graph.pairs.tolist()))
    heads = zip(weights.queries, weights.keys, strict=True)
    scores = np.max(
        [(rows @ fractions(query)) @ (rows @ fractions(key)).T for query, key in heads], 0
    )
    threshold = Fraction(weights.threshold)
    items = range(graph.items)
    return all((scores[i, j] > threshold) == ((i, j) in edges) for i in items for j in items)


def compiled_correctly(graph: Graph, table: torch.Tensor, **options: object) -> KeyQuery:
    found = compile(graph, table, **options)  # pyright: ignore[reportArgumentType]
    assert right_everywhere(found.weights, graph, table)
    assert found.certificate.margin == verify(found.weights, graph, table).margin
    assert any(
        attempt.exact and attempt.budget == found.weights.budget for attempt in found.frontier
    )
    return found.weights


STAR = [(0, j) for j in range(1, 8)]
KINDS = {
    "permutation": permutation_graph(8, seed=1),
    "regular": regular_graph(8, 3),
    "star out": Graph.from_edges(8, STAR),
    "star in": Graph.from_edges(8, [(j, i) for i, j in STAR]),
    "bipartite": Graph.from_edges(
        8, [(i, j) for i in range(4) for j in range(4, 8) if (i * j) % 3]
    ),
    "loops only": Graph.from_edges(8, [(i, i) for i in range(8)]),
    "some loops": Graph.from_edges(8, [(0, 0), (3, 3), (3, 4), (5, 1)]),
    "disconnected": Graph.from_edges(8, [(0, 1), (1, 0), (5, 6)]),
    "one edge": Graph.from_edges(8, [(2, 7)]),
    "all but loops": Graph.from_edges(8, [(i, j) for i in range(8) for j in range(8) if i != j]),
    "all but one": Graph.from_edges(
        8, [(i, j) for i in range(8) for j in range(8) if (i, j) != (2, 5)]
    ),
    "dense": random_graph(8, 44),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "table", [gaussian_embeddings(8, 8), one_hot_embeddings(8)], ids=["gaussian", "one-hot"]
)
def test_every_kind_of_graph_is_compiled(kind: str, table: torch.Tensor) -> None:
    graph = KINDS[kind]
    compiled_correctly(graph, table, budget=8)


@settings(max_examples=15, deadline=None)
@given(
    items=st.integers(2, 9),
    density=st.floats(0, 1),
    wide=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_random_graphs_on_independent_rows_are_compiled(
    items: int, density: float, wide: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = Graph.from_arrays(items, *np.nonzero(rng.random((items, items)) < density))
    compiled_correctly(graph, gaussian_embeddings(items, items + wide, seed=seed), budget=2 * items)


@settings(max_examples=15, deadline=None)
@given(
    items=st.integers(1, 9),
    d_model=st.integers(1, 5),
    density=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_what_is_found_on_any_table_is_exact(
    items: int, d_model: int, density: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = Graph.from_arrays(items, *np.nonzero(rng.random((items, items)) < density))
    table = (
        gaussian_embeddings(items, d_model, seed)
        if seed % 2
        else binary_embeddings(items, d_model, seed)
    )
    with contextlib.suppress(NoSolution):  # rows may be equal, or too few dimensions for this graph
        compiled_correctly(graph, table, budget=2 * d_model, time_limit=0.5)


@pytest.mark.parametrize("edges", [[], [(0, 0)]])
def test_one_item(edges: list[tuple[int, int]]) -> None:
    assert compiled_correctly(Graph.from_edges(1, edges), torch.ones(1, 2)).budget == 1


def test_no_edges_and_all_edges_need_no_weights() -> None:
    everything = Graph.from_edges(5, [(i, j) for i in range(5) for j in range(5)])
    for graph in (Graph.from_edges(5, []), everything):
        assert not compiled_correctly(graph, gaussian_embeddings(5, 2)).queries.any()


def test_a_search_finds_the_smallest_budget_of_a_star() -> None:
    assert compiled_correctly(KINDS["star out"], one_hot_embeddings(8)).budget == 1


def test_a_permutation_below_the_trained_threshold() -> None:
    """Table 1 trains (64, 16) to D_K = 20."""
    graph, table = permutation_graph(64), gaussian_embeddings(64, 16)
    found = compile(graph, table, budget=10)
    assert found.weights.budget <= 10
    assert verify(found.weights, graph, table).exact


def test_an_anisotropic_table_is_whitened() -> None:
    graph = permutation_graph(32)
    table = gaussian_embeddings(32, 16) * torch.logspace(0, -3, 16) + 5.0
    assert compile(graph, table, budget=12).certificate.margin > 0


def test_uneven_widths_and_given_heads() -> None:
    weights = compiled_correctly(
        permutation_graph(12), gaussian_embeddings(12, 8), budget=7, heads=3
    )
    assert weights.widths == (3, 2, 2)


def test_a_seed_decides_the_weights() -> None:
    graph, table = permutation_graph(16), gaussian_embeddings(16, 8)
    first, again, other = (compile(graph, table, budget=6, seed=seed).weights for seed in (0, 0, 1))
    assert torch.equal(first.queries, again.queries)
    assert not torch.equal(first.queries, other.queries)


@pytest.mark.usefixtures("counted_time")
def test_a_budget_too_small_says_how_far_it_got() -> None:
    with pytest.raises(
        NoSolution,
        match=r"closest, D_K = 1 in 1 heads?, had \d+ violations among 1,024 pairs and",
    ):
        compile(permutation_graph(32), gaussian_embeddings(32, 8), budget=1, time_limit=0.4)


@pytest.mark.usefixtures("counted_time")
def test_a_margin_is_kept_or_refused() -> None:
    graph, table = permutation_graph(16), gaussian_embeddings(16, 16)
    assert compile(graph, table, budget=8, margin=0.2).certificate.relative_margin >= 0.2
    with pytest.raises(NoSolution, match="relative margin of"):
        compile(graph, table, budget=3, margin=0.9, time_limit=0.5)


def test_equal_rows_with_unequal_edges_are_impossible() -> None:
    table = gaussian_embeddings(4, 4)
    table[2] = table[0]
    with pytest.raises(
        NoSolution, match="rows 0 and 2 of the table are equal but the edges out of them differ"
    ):
        compile(Graph.from_edges(4, [(0, 1)]), table)
    compiled_correctly(Graph.from_edges(4, [(0, 1), (2, 1)]), table, budget=4)


def test_a_zero_row_with_edges_is_impossible() -> None:
    table = gaussian_embeddings(4, 4)
    table[1] = 0
    with pytest.raises(NoSolution, match="row 1 of the table is zero"):
        compile(Graph.from_edges(4, [(1, 2)]), table)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"heads": 0}, "heads"), ({"budget": 2, "heads": 3}, "budget"), ({"margin": 1.5}, "margin")],
)
def test_bad_requests_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        compile(permutation_graph(4), torch.eye(4), **options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="rows"):
        compile(permutation_graph(4), torch.eye(5))


def test_an_interruption_returns_the_best_so_far() -> None:
    def interrupt(line: str) -> None:
        if "exact" in line:
            told.append(line)
        elif told:
            raise KeyboardInterrupt

    told: list[str] = []
    graph, table = permutation_graph(16), gaussian_embeddings(16, 8)
    found = compile(graph, table, progress=interrupt)
    assert verify(found.weights, graph, table).exact
    assert sum(attempt.exact for attempt in found.frontier) == 1


def test_the_time_limit_is_kept() -> None:
    begun = time.monotonic()
    with pytest.raises(NoSolution, match="in time"):
        compile(permutation_graph(64), gaussian_embeddings(64, 8), budget=4, time_limit=0.5)
    assert time.monotonic() - begun < 5


def test_a_certificate_names_its_problem_and_is_not_given_for_errors() -> None:
    graph, table = permutation_graph(6), torch.eye(6)
    certificate = compile(graph, table, budget=6).certificate
    assert certificate.graph_hash == graph_hash(graph) != graph_hash(permutation_graph(6, seed=3))
    assert certificate.table_hash == table_hash(table.double()) != table_hash(2 * table)
    assert (certificate.pairs, certificate.tiles) == (36, 1)
    wrong = KeyQuery(torch.zeros(1, 6, 1), torch.zeros(1, 6, 1), 1.0)
    with pytest.raises(ValueError, match="certified"):
        Certificate.of(verify(wrong, graph, table), wrong, graph, table)


def test_columns_beyond_a_width_stay_zero() -> None:
    problem = WhitenedProblem.of(
        permutation_graph(12), gaussian_embeddings(12, 4), 1.0, torch.device("cpu")
    )
    loss = PairLoss(problem, Layout((3, 1)))
    _, slope, _ = loss.value_and_slope(loss.start(start(problem, (3, 1), seed=0)), 0.5, 0.1)
    moved = loss.weights(slope)
    assert moved.queries[1, :, :1].any()
    assert not moved.queries[1, :, 1:].any()
    assert not moved.keys[1, :, 1:].any()


def test_splits() -> None:
    problem = WhitenedProblem.of(
        permutation_graph(256), gaussian_embeddings(256, 32), 1.0, torch.device("cpu")
    )
    assert head_counts(problem, 20, None)[0] == 4
    assert head_counts(problem, 2, None) == [2]
    assert head_counts(problem, 20, 7) == [7]
    assert sum(widths_of(23, 5, 32)) == 23
    assert widths_of(10, 2, 3) == (3, 3)
    assert 15 <= first_budget(256, 256, 32) <= 30


@pytest.mark.parametrize(
    "options", [{"bits": 8}, {"variant": "softmax", "context_length": 3}, {}], ids=str
)
def test_a_certificate_survives_json(options: dict[str, int | str]) -> None:
    found = compile(permutation_graph(6), torch.eye(6), budget=12, **options)  # pyright: ignore[reportArgumentType]
    text = found.certificate.to_json()
    assert Certificate.from_json(text) == found.certificate
    assert json.loads(text) == found.certificate.as_dict()


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "not a certificate"), ("[]", "no JSON object"), ("{}", "margin is missing")],
)
def test_what_is_not_a_certificate_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Certificate.from_json(text)


CONSTANT = {  # items and pairs
    "empty": (4, []),
    "complete": (4, [(i, j) for i in range(4) for j in range(4)]),
    "one item": (1, []),
    "one item and its loop": (1, [(0, 0)]),
}


@pytest.mark.parametrize("case", CONSTANT)
@pytest.mark.parametrize("options", ["", "--bits 4", "--variant softmax --context-length 1"])
def test_graphs_that_a_threshold_decides_are_saved(command, tmp_path, case, options):
    items, pairs = CONSTANT[case]
    graph, table = Graph.from_edges(items, pairs), gaussian_embeddings(items, 3)
    write_graph(graph, tmp_path / "g.csv")
    save_embeddings(table, tmp_path / "t.npy")
    code, out, err = command(
        "compile", "g.csv", "t.npy", *options.split(), "--out", "w.safetensors", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["budget"] == 1
    length = 1 if "softmax" in options else None
    weights = load_weights(tmp_path / "w.safetensors")
    assert verify(weights, graph, table, context_length=length).exact
