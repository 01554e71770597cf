"""The softmax certificate against brute force over all contexts."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headcount.attention.context_search as context_search
import headcount.attention.softmax_certificate as softmax
from headcount import (
    ContextSampler,
    Graph,
    KeyQuery,
    gaussian_embeddings,
    verify,
)
from headcount.attention.softmax_bounds import Logits, bound_scores
from headcount.attention.softmax_certificate import calibration, softmax_certificate


def ranges(weights: KeyQuery, table: torch.Tensor, length: int) -> tuple[np.ndarray, np.ndarray]:
    """min and max of A_ij over every context, as Eqs. (5)–(6) read; (inf, −inf) for none."""
    rows, items = table.double().numpy(), len(table)
    queries, keys = weights.queries.double().numpy(), weights.keys.double().numpy()
    keys = keys[[k * len(keys) // len(queries) for k in range(len(queries))]]
    logits = (
        np.einsum("pi,kia,qj,kja->kpq", rows, queries, rows, keys)
        / np.sqrt(weights.widths)[:, None, None]
    )
    low, high = np.full((items, items), np.inf), np.full((items, items), -np.inf)
    for context in combinations(range(items), length):
        cell = np.ix_(context, context)
        some = np.stack([head[cell] for head in logits])
        powers = np.exp(some - some.max(axis=2, keepdims=True))
        scores = (powers / powers.sum(axis=2, keepdims=True)).sum(axis=0)
        low[cell], high[cell] = np.minimum(low[cell], scores), np.maximum(high[cell], scores)
    return low, high


@cache
def random_problem(seed: int) -> tuple[KeyQuery, Graph, torch.Tensor, int]:
    """Softmax weights with uneven heads; the graph is random, or what they say in every context."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    items = int(rng.integers(1, 8))
    length = int(rng.integers(1, min(items, 5) + 1))
    d_model = int(rng.integers(1, 5))
    scale = float(rng.choice([0.1, 0.5, 2.0, 20.0]))
    table = torch.randn(items, d_model, generator=generator, dtype=torch.float64)

    def entries(width: int) -> torch.Tensor:
        return torch.randn(d_model, width, generator=generator, dtype=torch.float64)

    heads = [
        (entries(width) * scale, entries(width))
        for width in rng.integers(1, 4, size=rng.integers(1, 4)).tolist()
    ]
    sharing = 1 + seed % 3  # heads with one key
    if sharing > 1:
        heads = [(entries(key.shape[1]) * scale, key) for _, key in heads for _ in range(sharing)]
    weights = KeyQuery.from_heads(heads, float(rng.uniform(0, len(heads))), "softmax")
    weights = replace(weights, keys=weights.keys[::sharing])
    low, high = ranges(weights, table, length)
    if (
        rng.random() < 0.5
    ):  # a τ that no pair's range straddles, if there is one: then the answer is yes
        ends = np.unique(np.concatenate([low[np.isfinite(low)], high[np.isfinite(low)]]))
        middles = ((ends[1:] + ends[:-1]) / 2)[np.diff(ends) > 1e-6]
        clear = [tau for tau in middles if not ((low <= tau) & (tau < high)).any()]
        weights = replace(weights, threshold=float(rng.choice(clear))) if clear else weights
    firm = np.isfinite(low) & (low > weights.threshold)
    chosen = rng.random((items, items)) < 0.3 if rng.random() < 0.2 else firm
    return weights, Graph.from_edges(items, np.argwhere(chosen)), table, length


@cache
def truth_of(seed: int) -> tuple[float, float]:
    """The least A_ij of an edge and the greatest of a non-edge."""
    weights, graph, table, length = random_problem(seed)
    low, high = ranges(weights, table, length)
    edge = np.zeros_like(low, dtype=bool)
    edge[graph.sources, graph.targets] = True
    return float(low[edge].min(initial=np.inf)), float(high[~edge].max(initial=-np.inf))


def assert_sound(seed: int, search: int) -> str:
    weights, graph, table, length = random_problem(seed)
    found = softmax_certificate(weights, graph, table, length, search=search)
    edge, other = truth_of(seed)
    margin = min(edge - weights.threshold, weights.threshold - other)
    if found.verdict == "certified":
        assert margin > -1e-9
        assert found.open_pairs == 0
        assert found.margin >= 0
    if found.verdict == "open":
        assert found.open_pairs > 0
        assert (
            search < 20_000 or abs(margin) < 1e-9
        )  # at this size the search decides everything but ties
    assert (found.lowest_edge is None) == (edge == math.inf)
    assert (found.highest_non_edge is None) == (other == -math.inf)
    if found.lowest_edge:
        assert found.lowest_edge.score <= edge + 1e-12
    if found.highest_non_edge:
        assert found.highest_non_edge.score >= other - 1e-12
    assert found.margin <= margin + 1e-12
    assert (found.counterexample is None) == (found.broken is None) == (found.verdict != "refuted")
    if found.counterexample and found.broken:
        assert margin < 1e-9
        assert {found.broken.source, found.broken.target} <= set(found.counterexample)
        checked = verify(weights, graph, table, contexts=torch.tensor([found.counterexample]))
        assert not checked.exact
        assert found.broken in (checked.lowest_edge, checked.highest_non_edge)
        assert len(found.counterexample) == length
    return found.verdict


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 5, 20_000]))
def test_it_never_contradicts_brute_force(seed, search):
    assert_sound(seed, search)


def test_every_verdict_occurs():
    """Over 200 fixed problems; some are certified only by the search."""
    verdicts = {
        search: Counter(assert_sound(seed, search) for seed in range(200)) for search in (0, 20_000)
    }
    assert verdicts[20_000]["certified"] > verdicts[0]["certified"] > 20
    assert verdicts[20_000]["refuted"] > 20
    assert verdicts[20_000]["open"] == 0
    assert (verdicts[0]["refuted"], verdicts[0]["open"] > 20) == (0, True)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_bounds_hold_for_every_pair(seed):
    weights, _, table, length = random_problem(seed)
    low, high = ranges(weights, table, length)
    bounds = bound_scores(Logits.of(weights, table, length), torch.arange(len(table)), length)
    below, above = (part.numpy() for part in bounds)
    exists = np.isfinite(low)
    assert (below[exists] <= low[exists] + 1e-12).all()
    assert (above[exists] >= high[exists] - 1e-12).all()
    if weights.heads == 1 or length == len(
        table
    ):  # one head, or one context: the worst cases are one
        assert below[exists] == pytest.approx(low[exists], abs=1e-9)
        assert above[exists] == pytest.approx(high[exists], abs=1e-9)


@pytest.mark.parametrize("kind", [context_search.EdgeSearch, context_search.NonEdgeSearch])
@pytest.mark.parametrize("length", [2, 3, 6, 8])
def test_the_search_finds_the_threshold_at_which_a_pair_breaks(kind, length):
    """Just inside the true extreme of a pair it refutes, just outside it certifies."""
    generator = torch.Generator().manual_seed(length)
    table = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    parts = torch.randn(2, 5, 4, 2, generator=generator, dtype=torch.float64) * 2
    weights = KeyQuery(parts[0], parts[1], 1.0, "softmax")
    extremes = ranges(weights, table, length)
    for source, target in [(0, 1), (3, 3), (5, 2)]:
        extreme = float(extremes[0 if kind.edges else 1][source, target])
        for shift, breaks in [(1e-3, kind.edges), (-1e-3, not kind.edges)]:
            pair = torch.tensor([source]), torch.tensor([target])
            finder = kind.of(Logits.of(weights, table, length), *pair, extreme + shift, length)
            assert finder.run(5000).tolist() == [breaks]
            assert (finder.broken is not None) == breaks


@pytest.mark.parametrize("tiles", [(7, 300), (2**20, 2**21)])
def test_larger_problems_agree_with_drawn_contexts(tiles, monkeypatch):
    """24 items, 4 heads, ℓ = 6: near the τ where the answer changes it is right and never open."""
    monkeypatch.setattr(softmax, "_TILE", tiles[0])
    monkeypatch.setattr(softmax, "_BATCH", tiles[1])
    generator = torch.Generator().manual_seed(1)
    parts = torch.randn(2, 4, 8, 4, generator=generator) * 1.2
    graph, table = Graph.from_edges(24, []), gaussian_embeddings(24, 8)
    weights = KeyQuery(parts[0], parts[1], 0.0, "softmax")
    refuted, certified = 0.0, 4.0
    while certified - refuted > 0.01:
        weights = replace(weights, threshold=(refuted + certified) / 2)
        found = softmax_certificate(weights, graph, table, 6)
        sampled = verify(
            weights, graph, table, contexts=ContextSampler(graph, length=6), samples=500
        )
        assert found.verdict != "open"
        if found.verdict == "certified":
            certified = weights.threshold
            assert sampled.correct
            assert sampled.exact is None
            assert 0 <= found.margin <= sampled.margin
        else:
            refuted = weights.threshold
    assert 1 < certified < 4


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_lemma_8_2_is_implied_by_the_bound(seed):
    """z_⋆ ≥ a and z_t ≤ b give 1/(1 + (ℓ − 1)e^(b − a)); no head's worst context is worse."""
    weights, _, table, length = random_problem(seed)
    logits = Logits.of(weights, table, length)
    low, _ = bound_scores(logits, torch.arange(len(table)), length)
    for i in range(len(table)):
        for j in range(len(table)) if length > 1 else [i]:
            rivals = [t for t in range(len(table)) if t != j]
            rows = [logits.rows(head, torch.tensor([i]))[0] for head in range(weights.heads)]
            gaps = [float(row[j] - row[rivals].max()) if rivals else 0.0 for row in rows]
            assert low[i, j] >= sum(calibration(gap, length) for gap in gaps) - 1e-9
