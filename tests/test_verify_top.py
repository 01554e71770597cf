"""Verification by the top of a row, against brute force in rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.attention import pair_verification
from headcount.attention.key_query import KeyQuery
from headcount.attention.storage import load_weights
from headcount.attention.verification import verify
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph, random_graph


def brute_force(weights: KeyQuery, graph: Graph, table: torch.Tensor) -> tuple[int, int, float]:
    """(missed targets, items that reach a target, least difference), by Python's fractions."""

    def fractions(values: torch.Tensor) -> np.ndarray:
        return np.vectorize(Fraction, otypes=[object])(values.double().numpy())

    rows = fractions(table)
    heads = [
        (rows @ fractions(query)) @ (rows @ fractions(key)).T
        for query, key in zip(weights.queries, weights.keys, strict=True)
    ]
    scores = np.sum(heads, 0) if weights.aggregation == "sum" else np.max(heads, 0)
    missed = reaching = 0
    least = float("inf")
    for row in range(graph.items):
        targets = set(graph.targets[graph.sources == row].tolist())
        wanted = [scores[row, item] for item in targets]
        others = [scores[row, item] for item in range(graph.items) if item not in targets]
        if wanted and others:
            missed += sum(score <= max(others) for score in wanted)
            reaching += sum(score >= min(wanted) for score in others)
            least = min(least, float(min(wanted) - max(others)))
    return missed, reaching, least


def agrees(weights: KeyQuery, graph: Graph, table: torch.Tensor, precision: str = "auto") -> None:
    found = verify(weights, graph, table, decide="top", precision=precision)  # pyright: ignore
    missed, reaching, least = brute_force(weights, graph, table)
    assert (found.false_negatives, found.false_positives) == (missed, reaching)
    assert found.exact == (missed == 0 == reaching)
    if np.isfinite(least):
        assert abs(found.margin - least) <= found.score_error + 1e-12 * abs(least)
        assert found.lowest_edge is not None
        assert found.highest_non_edge is not None
        assert found.lowest_edge.source == found.highest_non_edge.source
    else:
        assert found.margin == least


@settings(max_examples=60, deadline=None)
@given(
    items=st.integers(1, 9),
    heads=st.integers(1, 3),
    seed=st.integers(0, 10**6),
    whole=st.booleans(),
    kind=st.sampled_from(["max", "sum"]),
    precision=st.sampled_from(["float32", "float64"]),
    data=st.data(),
)
def test_counts_and_margin(items, heads, seed, whole, kind, precision, data):
    """Whole numbers give ties, which fail; graphs include rows without targets and full ones."""
    chosen = data.draw(st.sets(st.integers(0, items**2 - 1)))
    graph = Graph.from_edges(items, [divmod(place, items) for place in sorted(chosen)])
    made = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        if whole:
            return torch.randint(-1, 2, shape, generator=made).float()
        return torch.randn(shape, generator=made)

    weights = KeyQuery(draw(heads, 3, 2), draw(heads, 3, 2), 0.0, kind)
    agrees(weights, graph, draw(items, 3), precision)


def test_ties_that_rounding_hides_are_settled_exactly():
    """Equal rows tie exactly; float64 sums them in one order, and 1/3 is not on any short grid."""
    table = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)).double() / 3
    table[4] = table[2]
    graph = Graph.from_edges(6, [(0, 2), (1, 2), (1, 4)])
    generator = torch.Generator().manual_seed(2)
    parts = [torch.randn(2, 5, 3, generator=generator, dtype=torch.float64) for _ in range(2)]
    weights = KeyQuery(parts[0], parts[1], 0.0)
    agrees(weights, graph, table)
    assert verify(weights, graph, table, decide="top").exact is False
    for shift in (-1e-13, 0.0, 1e-13):  # far below what float32 can tell, close to float64's bound
        moved = table.clone()
        moved[4] *= 1 + shift
        for precision in ("float32", "float64"):
            agrees(weights, graph, moved, precision)


def test_many_tiles_and_float32(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pair_verification, "_TILE", 5)
    graph = random_graph(23, 40, seed=3)
    made = torch.Generator().manual_seed(5)
    table = torch.randn(23, 6, generator=made)
    queries, keys = (torch.randn(2, 6, 3, generator=made) for _ in range(2))
    weights = KeyQuery(queries, keys, 0.0)
    for precision in ("float32", "float64"):
        agrees(weights, graph, table, precision)


def test_weights_whose_note_says_top_are_verified_so(tmp_path):
    """The diagonal scores highest in each row, at heights that no single threshold parts."""
    graph = Graph.from_edges(3, [(i, i) for i in range(3)])
    scores = torch.tensor([[1.0, 0.5, 0.0], [5.0, 6.0, 4.0], [-3.0, -2.0, -1.0]])
    plain = KeyQuery(scores[None], torch.eye(3)[None], 0.0)
    noted = KeyQuery(scores[None], torch.eye(3)[None], 0.0, notes={"decide": "top"})
    assert not verify(plain, graph, torch.eye(3)).exact
    noted.save(tmp_path / "top.safetensors")
    loaded = load_weights(tmp_path / "top.safetensors")
    found = verify(loaded, graph, torch.eye(3))
    assert (found.exact, found.margin, found.decide) == (True, 0.5, "top")
    assert "top of its row" in found.statement
    assert not verify(loaded, graph, torch.eye(3), decide="threshold").exact
    with pytest.raises(InputError, match="argmax"):
        loaded.decide(torch.eye(3))


def test_a_single_softmax_head_orders_rows_as_its_scores_do():
    graph, table = permutation_graph(6, seed=1), torch.eye(6)
    target_of = torch.eye(6)[torch.from_numpy(graph.targets.copy())]
    one = KeyQuery(target_of[None], torch.eye(6)[None], 0.5, "softmax")
    assert verify(one, graph, table, decide="top").exact
    two = KeyQuery(target_of[None].repeat(2, 1, 1), torch.eye(6).repeat(2, 1, 1), 0.5, "softmax")
    with pytest.raises(InputError, match="several heads under softmax"):
        verify(two, graph, table, decide="top")


def test_contexts_and_unknown_readings_are_refused():
    graph, table = permutation_graph(4), torch.eye(4)
    weights = KeyQuery(torch.eye(4)[None], torch.eye(4)[None], 0.5)
    with pytest.raises(InputError, match="over all items"):
        verify(weights, graph, table, decide="top", contexts=torch.tensor([[0, 1]]))
    with pytest.raises(InputError, match="use threshold or top"):
        verify(weights, graph, table, decide="best")
