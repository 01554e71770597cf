"""The kernels over all pairs, interpreted: against plain torch, and against their error bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.attention import pair_verification, sieve
from headcount.attention.key_query import KeyQuery
from headcount.attention.recovery import Extreme
from headcount.attention.sieve import Sieve, halved, padded, sieve_edges
from headcount.attention.tiles import Projections
from headcount.attention.verification import verify
from headcount.compiler import fused_pass
from headcount.compiler.compile import compile
from headcount.compiler.fused_pass import FusedPass
from headcount.compiler.layout import Layout
from headcount.compiler.pair_loss import PairLoss
from headcount.compiler.tiled_pass import TiledPass
from headcount.compiler.trial import start
from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph, random_graph, skewed_graph

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are interpreted here")


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Several tiles each way, none of them full at the end."""
    monkeypatch.setattr(sieve, "_ROWS", 16)
    monkeypatch.setattr(sieve, "_COLUMNS", 32)
    monkeypatch.setattr(sieve, "_PARTS", 2)
    monkeypatch.setattr(sieve, "_CHUNK", 16)
    monkeypatch.setattr(fused_pass, "_ROWS", 32)
    monkeypatch.setattr(fused_pass, "_COLUMNS", 32)


def problem_of(graph: Graph, level: float = 1.0) -> WhitenedProblem:
    return WhitenedProblem.of(
        graph, gaussian_embeddings(graph.items, 6, seed=1), level, torch.device("cpu")
    )


def vectors(generator: torch.Generator, heads: int, items: int, width: int) -> torch.Tensor:
    return torch.randn(heads, items, width, generator=generator) / width**0.25


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    items=st.integers(17, 70),
    heads=st.integers(1, 3),
    width=st.sampled_from([1, 5, 16, 20]),
    level=st.sampled_from([1.0, -0.4]),
    top=st.booleans(),
    kind=st.sampled_from([random_graph, skewed_graph]),
)
def test_violations_are_those_of_plain_torch(seed, items, heads, width, level, top, kind):
    problem = problem_of(kind(items, items, seed=seed), level)
    layout, generator = Layout((width,) * heads, top), torch.Generator().manual_seed(seed)
    queries, keys = (vectors(generator, heads, items, width) for _ in range(2))
    added = 0.3 - level + 0.1 * torch.randn(items, generator=generator)
    pull = torch.rand(heads, problem.edges, generator=generator)
    plain, fused = TiledPass(problem, layout), FusedPass(problem, layout)
    edges = problem.sources * items + problem.targets
    places = torch.arange(0, items**2, 7)
    places = places[~torch.isin(places, edges)]
    for one in (plain, fused):
        one.press(places, 1 + 3 * torch.arange(len(places)) / len(places))
    wanted, found = (one.violations(queries, keys, added, pull) for one in (plain, fused))
    assert float(found.loss) == pytest.approx(float(wanted.loss), rel=3e-3)
    for name in ("query_slopes", "key_slopes", "peaks", *(["sums"] if top else [])):
        expected = getattr(wanted, name)
        torch.testing.assert_close(
            getattr(found, name), expected, rtol=0, atol=4e-3 * float(expected.abs().max() + 0.1)
        )


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), items=st.integers(17, 70), width=st.sampled_from([3, 16, 40]))
def test_pairs_above_their_rows_levels_are_found(seed, items, width):
    problem = problem_of(random_graph(items, 2 * items, seed=seed))
    layout, generator = Layout((width,) * 2), torch.Generator().manual_seed(seed)
    queries, keys = (vectors(generator, 2, items, width) for _ in range(2))
    levels = torch.rand(items, generator=generator)
    wanted, found = (
        one(problem, layout).sifted(queries, keys, levels) for one in (TiledPass, FusedPass)
    )
    torch.testing.assert_close(found.highs, wanted.highs, rtol=1e-5, atol=1e-5)
    assert found.count == len(found.above)
    # Only pairs within rounding of their level may differ.
    scores = (queries @ keys.mT).amax(0) - levels[:, None]
    either = set(found.above.tolist()) ^ set(wanted.above.tolist())
    assert all(abs(float(scores.view(-1)[place])) < 1e-4 for place in either)


def test_more_pairs_than_the_list_holds_are_counted(monkeypatch):
    monkeypatch.setattr(sieve, "_CAPACITY", 10)
    problem = problem_of(permutation_graph(20, seed=0))
    ones = padded(torch.ones(1, 20, 1))
    edges = sieve_edges(problem.sources, problem.targets, 20)
    peaks, count, places = Sieve(ones, ones, edges).sift(torch.zeros(20))
    assert (count, len(places), peaks.unique().tolist()) == (380, 0, [1.0])


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    spread=st.floats(0, 12),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e6]),
)
def test_scores_in_half_precision_stay_within_their_bound(seed, spread, scale):
    """Entries of very different sizes, so that some vanish in half precision."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.exp(-spread * torch.rand(2, 2, 30, 8, generator=generator))
    both = scale * sizes * torch.randn(2, 2, 30, 8, generator=generator)
    queries, keys = both.double()
    found = Sieve.of(Projections(list(queries), list(keys)), permutation_graph(30, seed=1))
    rounded = found.queries.double() @ found.keys.double().mT * found.unit
    assert float((rounded - queries @ keys.mT).abs().max()) <= found.error
    assert found.error <= 2.0**-8 * float(queries.norm(dim=2).max() * keys.norm(dim=2).max())


def test_half_precision_holds_any_finite_vectors():
    for size in (1e-38, 1.0, 3e38):
        half, scale = halved(torch.full((1, 3, 2), size, dtype=torch.float64))
        assert float(half[0, 0, 0]) / float(scale) == pytest.approx(size, rel=1e-3)
    zero, scale = halved(torch.zeros(1, 3, 2))
    assert not zero.any()
    assert float(scale) > 0


@pytest.mark.parametrize("aggregation", ["max", "sum"])
def test_sieved_verification_says_what_the_whole_pass_says(monkeypatch, aggregation):
    graph, table = permutation_graph(34, seed=3), gaussian_embeddings(34, 16, seed=3)
    exact = compile(graph, table, budget=12, heads=1 if aggregation == "sum" else 2, seed=0)
    exact_weights = replace(exact.weights, aggregation=aggregation)
    noise = 0.05 * torch.randn(
        exact_weights.queries.shape, generator=torch.Generator().manual_seed(1)
    )
    for weights in (exact_weights, replace(exact_weights, queries=exact_weights.queries + noise)):
        plain = verify(weights, graph, table)
        with monkeypatch.context() as patch:
            patch.setattr(pair_verification, "_DOUBLE_WORK", 0)
            patch.setattr(pair_verification, "sieve_runs_on", lambda *_: True)
            sieved = verify(weights, graph, table)
        assert sieved.checked_in == "half precision, open pairs in float64"
        assert replace(sieved, checked_in=plain.checked_in, score_error=0.0) == replace(
            plain, score_error=0.0
        )


@pytest.fixture
def always_sieved(monkeypatch):
    monkeypatch.setattr(pair_verification, "_DOUBLE_WORK", 0)
    monkeypatch.setattr(pair_verification, "sieve_runs_on", lambda *_: True)


def test_non_edges_at_the_threshold_are_settled_exactly(always_sieved):
    """Beside one non-edge far above τ, others miss it, reach it or exceed it by one rounding."""
    graph = Graph.from_edges(20, [(0, 0)])
    queries = torch.eye(20, dtype=torch.float64)
    queries[0, 0], queries[1, 1] = 30.0, 30.0
    for score, above in ((np.nextafter(1, 0), False), (1.0, False), (np.nextafter(1, 2), True)):
        queries[2, 2] = score
        weights = KeyQuery(queries[None], torch.eye(20, dtype=torch.float64)[None], threshold=1.0)
        found = verify(weights, graph, torch.eye(20, dtype=torch.float64))
        assert found.checked_in == "half precision, open pairs in float64"
        assert (found.false_negatives, found.false_positives) == (0, 1 + above)
        assert found.highest_non_edge == Extreme(30.0, 1, 1)


@pytest.mark.parametrize("scale", [1e-50, 1e-30, 1e-18, 1e-9, 1e9, 1e15])
def test_scores_of_any_size_are_verified(always_sieved, scale):
    graph, table = permutation_graph(20, seed=3), gaussian_embeddings(20, 4, seed=3)
    table, ones = table.abs() + 1, torch.full((1, 4, 1), scale, dtype=torch.float64)
    found = verify(KeyQuery(ones, ones, scale**2 * 20), graph, table, precision="auto")
    wanted = verify(KeyQuery(ones, ones, scale**2 * 20), graph, table, precision="float64")
    assert found.false_positives == wanted.false_positives > 0
    assert found.false_negatives == wanted.false_negatives
    difference = found.highest_non_edge.score - wanted.highest_non_edge.score
    assert abs(difference) <= found.score_error + wanted.score_error


def test_large_pulls_leave_the_loss_and_the_slopes_as_they_are():
    problem = problem_of(permutation_graph(40, seed=2))
    layout, generator = Layout((4,) * 2), torch.Generator().manual_seed(0)
    queries, keys = (vectors(generator, 2, 40, 4) for _ in range(2))
    added, pull = torch.full((40,), -0.7), torch.full((2, 40), 3000.0)
    wanted, found = (
        one(problem, layout).violations(queries, keys, added, pull)
        for one in (TiledPass, FusedPass)
    )
    assert float(found.loss) == pytest.approx(float(wanted.loss), rel=3e-3)
    torch.testing.assert_close(found.query_slopes, wanted.query_slopes, rtol=3e-3, atol=10)
    huge = FusedPass(problem, layout).violations(queries, keys, added, 1e6 * pull)
    assert huge.query_slopes.isfinite().all()


def test_more_wrong_pairs_than_are_listed_press_nothing(monkeypatch):
    monkeypatch.setattr(sieve, "_CAPACITY", 5)
    monkeypatch.setattr("headcount.compiler.pair_loss.pass_for", FusedPass)
    problem = problem_of(permutation_graph(40, seed=2), -0.4)
    loss = PairLoss(problem, Layout((4,)))
    found = loss.look(loss.start(start(problem, (4,), 0)))
    assert found.wrong > 5
    loss.press(found, 2.0)
    assert bool((loss.edge_weight == 1).all())


def test_weights_far_from_exact_go_through_the_whole_pass(monkeypatch, always_sieved):
    monkeypatch.setattr(sieve, "_CAPACITY", 5)
    graph, table = permutation_graph(20, seed=3), gaussian_embeddings(20, 4, seed=3)
    found = verify(KeyQuery(torch.ones(1, 4, 1), torch.ones(1, 4, 1), -1.0), graph, table)
    assert found.checked_in == "float32, open pairs in float64"
    assert found.false_positives > 5
