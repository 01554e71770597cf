"""Verify against exact arithmetic: every pair, every size, every tie."""

from __future__ import annotations

import math
from fractions import Fraction
from operator import mul

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headcount.attention.pair_verification as pair_verification
from headcount import (
    Graph,
    InputError,
    KeyQuery,
    permutation_graph,
    verify,
)
from headcount.attention.exact import ErrorBound, cuts, predicted_exactly
from headcount.attention.tiles import Projections
from tests.strategies import problems


def shift(weights: KeyQuery, table: torch.Tensor) -> int:
    """The power of two by which scores are scaled where entries are beyond 2^±200."""
    peaks = (
        math.frexp(float(part.abs().max()))[1] for part in (table, weights.queries, weights.keys)
    )
    rows, queries, keys = (peak if abs(peak) > 199 else 0 for peak in peaks)
    return 2 * rows + queries + keys


def exact_scores(weights: KeyQuery, table: torch.Tensor) -> list[list[Fraction]]:
    """Every score in rational arithmetic, written as the definitions read."""
    rows = [[Fraction(float(x)) for x in row] for row in table]

    def projections(part, head):
        columns = [[Fraction(float(x)) for x in column] for column in part[head].T]
        return [[sum(map(mul, row, column), Fraction(0)) for column in columns] for row in rows]

    queries = [projections(weights.queries, k) for k in range(weights.heads)]
    keys = [projections(weights.keys, k) for k in range(weights.kv_heads)]

    def score(i, j):
        per_head = [
            sum(
                map(mul, queries[k][i], keys[k * weights.kv_heads // weights.heads][j]), Fraction(0)
            )
            for k in range(weights.heads)
        ]
        return max(per_head) if weights.aggregation == "max" else sum(per_head, Fraction(0))

    return [[score(i, j) for j in range(len(rows))] for i in range(len(rows))]


# Powers of 2: from float32's range to where products leave float64's.
EXTREME = (0, -80, 80, -140, 140, -240, 240)


@settings(deadline=None, max_examples=300)
@given(
    problems(max_items=6, scales=EXTREME),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([1, 3, 1024]),
)
def test_verify_agrees_with_rational_brute_force(problem, precision, tile):
    weights, graph, table = problem
    scores = exact_scores(weights, table)
    truth = {(int(s), int(t)) for s, t in graph.pairs}
    wrong_above, wrong_below, edge, other = 0, 0, [], []
    for i in range(graph.items):
        for j in range(graph.items):
            above = scores[i][j] > Fraction(weights.threshold)
            wrong_above += above and (i, j) not in truth
            wrong_below += (not above) and (i, j) in truth
            (edge if (i, j) in truth else other).append(scores[i][j])
    pair_verification._TILE, before = tile, pair_verification._TILE
    try:
        found = verify(weights, graph, table, precision=precision)
    except InputError:  # only for a threshold so far from the scores that one scale fits neither
        size = math.log2(abs(weights.threshold))
        assert max(abs(size), abs(size - shift(weights, table))) > 800
        return
    finally:
        pair_verification._TILE = before
    assert (found.false_positives, found.false_negatives) == (wrong_above, wrong_below)
    assert found.exact == (wrong_above + wrong_below == 0)
    hits = graph.edges - wrong_below
    errors = wrong_above + wrong_below
    assert found.f1 == pytest.approx(2 * hits / (2 * hits + errors) if hits or errors else 1.0)
    tau = Fraction(weights.threshold)
    margins = ([min(edge) - tau] if edge else []) + ([tau - max(other)] if other else [])
    assert found.margin == pytest.approx(float(min(margins)), abs=found.score_error, rel=1e-9)
    assert (found.lowest_edge is None) == (not edge)
    assert (found.highest_non_edge is None) == (not other)
    if found.lowest_edge:
        assert (found.lowest_edge.source, found.lowest_edge.target) in truth
    if found.highest_non_edge:
        assert (found.highest_non_edge.source, found.highest_non_edge.target) not in truth


@settings(deadline=None, max_examples=150)
@given(problems(max_items=5, scales=(0, -80, 80, -140, 140)))
def test_error_bounds_hold(problem):
    weights, _, table = problem
    parts = Projections.of(weights, table)
    bound = ErrorBound.of_scores(weights, table, parts)
    exact = exact_scores(weights, table)
    for dtype in (torch.float32, torch.float64):
        for rows, columns, tile in parts.tiles(dtype, 2):
            for i in range(tile.shape[0]):
                for j in range(tile.shape[1]):
                    if bound.of(dtype) == float("inf"):
                        continue
                    off = abs(
                        Fraction(float(tile[i, j])) - exact[rows.start + i][columns.start + j]
                    )
                    assert off <= Fraction(bound.of(dtype))


@settings(deadline=None, max_examples=60)
@given(problems(max_items=6))
def test_exact_tier_alone_agrees_with_fractions(problem):
    weights, graph, table = problem
    every = torch.arange(graph.items)
    sources, targets = every.repeat_interleave(graph.items), every.repeat(graph.items)
    above = predicted_exactly(weights, table, sources, targets).view(graph.items, graph.items)
    exact = exact_scores(weights, table)
    assert above.tolist() == [
        [score > Fraction(weights.threshold) for score in row] for row in exact
    ]


def test_a_verdict_never_hangs_on_the_last_bit():
    # The true score is 1 + 2⁻⁶⁰ > τ = 1, which neither float32 nor float64 can tell from 1.
    table = torch.tensor([[1.0, 2.0**-30]], dtype=torch.float64)
    weights = KeyQuery(torch.eye(2)[None].double(), torch.eye(2)[None].double(), threshold=1.0)
    looped, empty = Graph.from_edges(1, [(0, 0)]), Graph.from_edges(1, [])
    for precision in ("float32", "float64"):
        assert verify(weights, looped, table, precision=precision).exact
        assert not verify(weights, empty, table, precision=precision).exact


@given(st.floats(-1e30, 1e30), st.floats(0, 1e10), st.floats(width=32, allow_nan=False))
def test_cuts_in_float32_mean_what_they_say(threshold, error, score):
    low, high = cuts(threshold, error, torch.float32)
    value = Fraction(score) if np.isfinite(score) else score
    if torch.tensor(score) <= low:
        assert value + (Fraction(error) if np.isfinite(score) else 0) <= threshold
    if torch.tensor(score) > high:
        assert value - (Fraction(error) if np.isfinite(score) else 0) > threshold


def test_ties_at_the_threshold_are_not_edges():
    table = torch.eye(2)
    weights = KeyQuery(
        torch.eye(2)[None], torch.ones(1, 2, 2), threshold=1.0
    )  # every score is exactly τ
    found = verify(weights, Graph.from_edges(2, []), table)
    assert found.exact
    assert found.margin == 0


def test_huge_scores_leave_float32():
    table = torch.eye(2) * 1e30
    weights = KeyQuery(torch.eye(2)[None], torch.eye(2)[None], threshold=1e59)
    found = verify(weights, Graph.from_edges(2, [(0, 0), (1, 1)]), table, precision="float32")
    assert found.exact
    assert found.checked_in == "float64"


@settings(deadline=None, max_examples=40)
@given(problems(aggregations=("max", "sum", "softmax")), st.integers(0, 1000))
def test_contexts_agree_with_brute_force(problem, seed):
    weights, graph, table = problem
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, graph.items + 1))
    contexts = np.stack([rng.permutation(graph.items)[:length] for _ in range(5)])
    found = verify(weights, graph, table, contexts=torch.from_numpy(contexts))
    wrong, failed, close = 0, 0, False
    for context in contexts:
        rows = table.double().numpy()[context]
        queries, keys = weights.queries.double().numpy(), weights.keys.double().numpy()
        keys = keys[[k * len(keys) // len(queries) for k in range(len(queries))]]
        per_head = np.einsum("pi,kia,qj,kja->kpq", rows, queries, rows, keys)
        if weights.aggregation == "softmax":
            logits = per_head / np.sqrt(weights.widths)[:, None, None]
            powers = np.exp(logits - logits.max(axis=2, keepdims=True))
            joined = (powers / powers.sum(axis=2, keepdims=True)).sum(axis=0)
        else:
            joined = per_head.max(axis=0) if weights.aggregation == "max" else per_head.sum(axis=0)
        truth = graph.has_edges(np.repeat(context, length), np.tile(context, length)).reshape(
            length, length
        )
        close |= bool((abs(joined - weights.threshold) < 1e-9).any())
        mistakes = ((joined > weights.threshold) != truth).sum()
        wrong += mistakes
        failed += mistakes > 0
    if not close:
        assert found.false_positives + found.false_negatives == wrong
        assert found.failed_contexts == failed
    if weights.aggregation != "softmax":  # decided exactly, ties too: as the all-pairs table says
        scores = exact_scores(weights, table)
        truth = {(int(s), int(t)) for s, t in graph.pairs}
        mistakes = [
            (scores[i][j] > Fraction(weights.threshold)) != ((i, j) in truth)
            for context in contexts.tolist()
            for i in context
            for j in context
        ]
        assert found.false_positives + found.false_negatives == sum(mistakes)
    assert found.contexts == 5
    assert found.exact == (found.failed_contexts == 0)


def test_the_callers_matmul_precision_is_kept():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        graph, table = permutation_graph(8), torch.eye(8)
        verify(
            KeyQuery(torch.eye(8)[None], torch.eye(8)[None], 0.5), graph, table, precision="float32"
        )
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_scores_that_no_float_holds_are_refused():
    table = torch.ones(3, 1, dtype=torch.float64)
    graph = Graph.from_edges(3, [(0, 1)])
    for aggregation in ("max", "sum", "softmax"):
        huge = torch.full((1, 1, 1), 1e200, dtype=torch.float64)
        with pytest.raises(InputError, match="float64"):
            verify(KeyQuery(huge, huge, 5.0, aggregation), graph, table)


def test_exactness_in_float32_minds_its_exponent_range():
    # All scores are powers of two, exact on their grid, but far below float32's smallest number.
    table = torch.eye(4, dtype=torch.float64) * 2.0**-80
    weights = KeyQuery(
        torch.eye(4)[None].double() * 2.0**-80, torch.eye(4)[None].double() * 2.0**-80, 0.0
    )
    assert verify(weights, Graph.from_edges(4, []), table, precision="float32").false_positives == 4
    above = KeyQuery(torch.eye(2)[None], torch.eye(2)[None], 2.0**201)
    assert verify(
        above, Graph.from_edges(2, []), torch.eye(2).double() * 2.0**100, precision="float32"
    ).exact


def test_nothing_is_verified_by_nothing():
    weights = KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.0, "softmax")
    with pytest.raises(InputError, match="0 samples"):
        verify(weights, permutation_graph(4), torch.ones(4, 2), samples=0)
    with pytest.raises(InputError, match="NaN"):
        verify(weights, permutation_graph(4), torch.full((4, 2), torch.nan))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@settings(deadline=None, max_examples=50)
@given(problems(aggregations=("max", "sum")))
def test_cuda_finds_what_the_cpu_finds(problem):
    here, there = (verify(*problem, device=device) for device in ("cpu", "cuda"))
    assert (here.false_positives, here.false_negatives) == (
        there.false_positives,
        there.false_negatives,
    )


def test_sizes_beyond_any_product_are_still_decided():
    def one(value):
        return torch.full((1, 1, 1), value, dtype=torch.float64)

    loop, none = Graph.from_edges(1, [(0, 0)]), Graph.from_edges(1, [])
    tiny = KeyQuery(one(2.0**-600), one(2.0**-600), 0.0)
    assert verify(tiny, loop, torch.full((1, 1), 2.0**-600, dtype=torch.float64)).exact
    with pytest.raises(InputError, match="float64"):
        verify(
            KeyQuery(one(2.0**1023), one(2.0**1023), 0.0),
            loop,
            torch.full((1, 1), 4.0, dtype=torch.float64),
        )
    table, context = torch.full((1, 1), 2.0**199, dtype=torch.float64), torch.tensor([[0]])
    small = KeyQuery(one(2.0**-700), one(2.0**-500), 0.0)
    assert (
        verify(small, loop, table).margin
        == verify(small, loop, table, contexts=context).margin
        == 2.0**-802
    )
    large = KeyQuery(one(2.0**150), one(-(2.0**1000)), 0.0)
    for contexts in (None, context):
        with pytest.raises(InputError, match="overflow"):
            verify(large, none, torch.ones(1, 1, dtype=torch.float64), contexts=contexts)
    far = KeyQuery(one(1.5e154), one(1.0e154), -1.5e308)
    with pytest.raises(InputError, match="overflows float64"):
        verify(far, none, torch.ones(1, 1, dtype=torch.float64))
