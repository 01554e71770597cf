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
from headcount.compiler import curvature
from headcount.compiler.certificate import Certificate, graph_hash, table_hash
from headcount.compiler.compile import compile
from headcount.compiler.curvature import Direct, Iterative
from headcount.compiler.descent import Schedule, descend, start
from headcount.compiler.head_counts import first_budget, head_counts, widths_of
from headcount.compiler.objective import Objective, Pressure, Reading, Weights
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


def test_a_budget_too_small_says_how_far_it_got() -> None:
    with pytest.raises(
        NoSolution,
        match=r"closest, D_K = 1 in 1 heads?, had \d+ violations among the 1,024 scores of",
    ):
        compile(permutation_graph(32), gaussian_embeddings(32, 8), budget=1, time_limit=1)


def test_a_margin_is_kept_or_refused() -> None:
    graph, table = permutation_graph(16), gaussian_embeddings(16, 16)
    assert compile(graph, table, budget=8, margin=0.2).certificate.relative_margin >= 0.2
    with pytest.raises(NoSolution, match="relative margin of"):
        compile(graph, table, budget=3, margin=0.9, time_limit=2)


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


def plain_loss(
    problem: WhitenedProblem, flat: torch.Tensor, shape: torch.Size, margin: float, warmth: float
) -> torch.Tensor:
    """The loss of one trial as written, all pairs at once."""
    queries, keys = flat.view(2, *shape)
    scores = (problem.points @ queries) @ (problem.points @ keys).mT
    edge = torch.zeros(problem.items, problem.items, dtype=torch.bool)
    edge[problem.sources, problem.targets] = True
    others = (scores - problem.level + margin).clamp_min(0).square()[:, ~edge].sum()
    costs = (problem.level + margin - scores).clamp_min(0).square()[:, edge]
    return others - warmth * (-costs / warmth).logsumexp(0).sum()


@pytest.mark.parametrize("level", [1.0, -1.0])
def test_the_model_has_the_slope_of_the_loss(level: float) -> None:
    graph = random_graph(10, 20)
    problem = WhitenedProblem.of(graph, gaussian_embeddings(10, 4), level, torch.device("cpu"))
    weights = start(problem, (3, 3), 1, seed=0)
    reading = Objective(problem).read(
        weights, 0.3, 0.2, Pressure(torch.ones(1, graph.edges)), damping=torch.full((1,), 1e7)
    )
    assert reading.step is not None
    flat = torch.stack([weights.queries[0], weights.keys[0]]).requires_grad_()
    loss = plain_loss(problem, flat, weights.queries[0].shape, 0.3, 0.2)
    slope = torch.autograd.grad(loss, flat)[0].transpose(0, 1)
    assert float(reading.loss) == pytest.approx(float(loss.detach()), rel=1e-5)
    for head in range(
        2
    ):  # at this damping a step is the slope, scaled by the head's mean curvature
        ratio = reading.step[0, head] / slope[head]
        torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), rtol=2e-3, atol=0)


def test_both_models_take_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "_ROUNDS", 500)
    monkeypatch.setattr(curvature, "_CLOSE", 1e-6)
    problem = WhitenedProblem.of(
        permutation_graph(20), gaussian_embeddings(20, 5), 1.0, torch.device("cpu")
    )
    weights, pressure = start(problem, (2, 2), 2, seed=1), Pressure(torch.ones(2, 20))
    steps = {}
    for kind in (Direct, Iterative):
        monkeypatch.setattr("headcount.compiler.objective.model_of", kind)
        steps[kind] = (
            Objective(problem).read(weights, 0.5, 0.1, pressure, torch.full((2,), 0.1)).step
        )
    torch.testing.assert_close(steps[Direct], steps[Iterative], rtol=1e-3, atol=1e-4)


def test_the_direct_model_solves_the_least_squares_problem() -> None:
    problem = WhitenedProblem.of(
        permutation_graph(12), gaussian_embeddings(12, 4), 1.0, torch.device("cpu")
    )
    weights, margin, damping = start(problem, (2,), 1, seed=2), 0.5, 0.1
    found = (
        Objective(problem)
        .read(weights, margin, 0.0, Pressure(torch.ones(1, 12)), torch.tensor([damping]))
        .step
    )
    edge = torch.zeros(12, 12, dtype=torch.bool)
    edge[problem.sources, problem.targets] = True

    def violations(flat: torch.Tensor) -> torch.Tensor:
        queries, keys = flat.view(2, 4, 2)
        scores = (problem.points @ queries) @ (problem.points @ keys).T
        return torch.where(edge, 1 + margin - scores, scores - 1 + margin).clamp_min(0).flatten()

    flat = torch.stack([weights.queries[0, 0], weights.keys[0, 0]]).flatten()
    slopes = torch.autograd.functional.jacobian(violations, flat)
    assert isinstance(slopes, torch.Tensor)
    matrix = slopes.T @ slopes
    shift = (damping + 1e-6) * matrix.diagonal().mean()
    expected = torch.linalg.solve(matrix + shift * torch.eye(16), slopes.T @ violations(flat))
    assert found is not None
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("pressed", [False, True])
def test_tiles_do_not_change_a_reading(pressed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = WhitenedProblem.of(
        random_graph(30, 50), gaussian_embeddings(30, 5), 1.0, torch.device("cpu")
    )
    weights = start(problem, (3, 2), 3, seed=0)

    def read() -> tuple[Reading, Pressure]:
        others = (
            torch.rand(3, 30, 30, generator=torch.Generator().manual_seed(0)) + 1
            if pressed
            else None
        )
        pressure = Pressure(torch.ones(3, 50), others, factor=1.1 if pressed else 1.0)
        return Objective(problem).read(weights, 0.5, 0.1, pressure, torch.full((3,), 0.1)), pressure

    (whole, pressure), plain = read(), Objective(problem).read(weights, 0.5, 0.1, read()[1])
    monkeypatch.setattr("headcount.compiler.objective._TILE", {"cpu": 100})
    monkeypatch.setattr("headcount.compiler.objective._ROWS", 7)
    parts, again = read()
    assert torch.equal(whole.wrong, parts.wrong)
    torch.testing.assert_close(whole.gap, parts.gap)
    torch.testing.assert_close(whole.loss, parts.loss)
    torch.testing.assert_close(whole.loss, plain.loss)
    torch.testing.assert_close(whole.step, parts.step, rtol=1e-3, atol=1e-4)
    if pressure.others is None or again.others is None:
        return
    before = pressure.others.clone()
    pressure.press(whole)
    again.press(parts)
    assert torch.equal(pressure.others, again.others)
    assert torch.equal(pressure.edges, again.edges)
    scores = ((problem.points @ weights.queries) @ (problem.points @ weights.keys).mT).amax(1)
    above = scores > 1
    above[:, problem.sources, problem.targets] = False
    torch.testing.assert_close(
        pressure.others, torch.where(above, 1.1 * before, before)
    )  # once, in however many heads


def test_wrong_pairs_gain_weight_in_the_second_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(self: Pressure, found: Reading) -> None:
        real(self, found)
        seen.append(
            (float(self.edges.max()), 1.0 if self.others is None else float(self.others.max()))
        )

    seen: list[tuple[float, float]] = []
    real = Pressure.press
    monkeypatch.setattr(Pressure, "press", press)
    problem = WhitenedProblem.of(
        permutation_graph(32), gaussian_embeddings(32, 8), 1.0, torch.device("cpu")
    )
    descend(problem, (1,), 1, 0, Schedule(steps=20))
    assert seen[:10] == [(1.0, 1.0)] * 10
    assert all(edge > 1 for edge, _ in seen[10:])
    assert seen[-1][0] <= 1.1 ** (len(seen) - 10) * 1.001


def test_columns_beyond_a_width_stay_zero() -> None:
    problem = WhitenedProblem.of(
        permutation_graph(12), gaussian_embeddings(12, 4), 1.0, torch.device("cpu")
    )
    weights = start(problem, (3, 1), 1, seed=0)
    step = (
        Objective(problem)
        .read(weights, 0.5, 0.1, Pressure(torch.ones(1, 12)), torch.tensor([0.1]))
        .step
    )
    assert step is not None
    moved = weights.minus(step)
    assert isinstance(moved, Weights)
    assert not moved.queries[0, 1, :, 1:].any()
    assert not moved.keys[0, 1, :, 1:].any()


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
