"""Lower bounds: values by hand, soundness against what is known to exist, monotonicity."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.theory.counting import log2_graphs
from headcount.theory.lower_bounds import (
    bit_budget_bound,
    heads_bound,
    lower_bounds,
    margin_bound,
    warren_bits,
    warren_bound,
)
from headcount.theory.margins import margin_bits
from tests.typechecker import TypeViolation

# (items, d_model) and a total key dimension at which exact weights for a permutation were found.
ACHIEVED = {
    (64, 16): 10,
    (128, 32): 10,
    (128, 64): 4,
    (256, 32): 36,
    (512, 64): 32,
    (4096, 512): 40,
}
quick = settings(deadline=None, max_examples=60)


# Hand-computed bounds


def test_bit_budget_by_hand():
    four, many = log2_graphs(4), log2_graphs(256)
    assert bit_budget_bound(four, d_model=1, bits_per_parameter=1) == 2  # 2·2 + 1 ≥ log2 24 = 4.58
    assert bit_budget_bound(many, 32, bits_per_parameter=1) == 27  # 64·26 < 1,684 ≤ 64·27
    assert bit_budget_bound(1.0, d_model=1, bits_per_parameter=1 / 3) == 1  # equality is enough


def test_margin_by_hand():
    bits = log2_graphs(256)
    assert margin_bound(bits, 32, 0.25) == math.ceil(bits / (64 * math.log2(9))) == 9
    assert margin_bound(bits, 32, 0.25, "softmax") == math.ceil(bits / (64 * math.log2(17))) == 7


def test_warren_by_hand():
    assert warren_bits(reals=65, pairs=65280, heads=1) == pytest.approx(
        65 * math.log2(8 * math.e * 65280 / 65), rel=1e-15
    )
    # More reals than polynomials: the trivial bound.
    assert warren_bits(reals=10, pairs=6, heads=1) == 6
    # 937 bits at D_K = 1, 1,861 at 2, 1,684 needed.
    assert warren_bound(log2_graphs(256), 256, 32) == 2


def test_single_head_can_be_ruled_out_at_every_width():
    bits = log2_graphs(512)
    assert warren_bound(bits, 512, 16, heads=1) == math.inf
    assert warren_bound(bits, 512, 16, aggregation="sum") == math.inf
    assert warren_bound(bits, 512, 16, heads=2) < math.inf
    assert heads_bound(bits, 512, 16) == 2


# Soundness


@pytest.mark.parametrize(("items", "d_model"), ACHIEVED)
def test_sign_patterns_never_exclude_what_exists(items, d_model):
    budget = ACHIEVED[items, d_model]
    bits = log2_graphs(items)
    assert warren_bound(bits, items, d_model) <= budget
    assert all(
        warren_bound(bits, items, d_model, heads=heads) <= budget for heads in range(1, budget + 1)
    )
    assert heads_bound(bits, items, d_model) == 1


def test_points_on_a_circle_recognise_permutations_with_two_columns():
    items = 50
    angle = 2 * math.pi * np.arange(items) / items
    keys = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    target = np.random.default_rng(0).permutation(items)
    scores = keys[target] @ keys.T  # a one-hot table: W_K = keys, W_Q = keys[target]
    found = scores > (1 + math.cos(angle[1])) / 2
    assert np.array_equal(found, np.eye(items, dtype=bool)[target])
    assert warren_bound(log2_graphs(items), items, items) <= 2


@quick
@given(
    seed=st.integers(0, 2**32 - 1),
    heads=st.integers(1, 4),
    key_dim=st.integers(1, 4),
    step=st.floats(0, 2),
)
def test_scores_are_lipschitz_in_the_papers_norm(seed, heads, key_dim, step):
    """Lemma 9.3 (max, sum) and Eq. (29) in contexts of every length, under Eq. (26)."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((5, 3))
    table /= np.linalg.norm(table, axis=1, keepdims=True)

    def ball(at: np.ndarray) -> np.ndarray:
        return at / max(1.0, float(np.linalg.norm(at)))

    start = [ball(rng.standard_normal((heads, 3, key_dim))) for _ in "UV"]
    end = [ball(at + step * rng.standard_normal(at.shape)) for at in start]
    moved = sum(np.linalg.norm(a - b) for a, b in zip(start, end, strict=True))

    def scores(weights):
        return np.einsum("id,hdk,hek,je->hij", table, weights[0], weights[1], table)

    for aggregate in (np.max, np.sum):
        change = aggregate(scores(start), axis=0) - aggregate(scores(end), axis=0)
        assert np.abs(change).max() <= moved + 1e-12

    def attention(weights, length):
        logits = np.exp(scores(weights)[:, :, :length] / math.sqrt(key_dim))
        return (logits / logits.sum(axis=2, keepdims=True)).sum(axis=0)

    for length in range(2, 6):
        change = np.abs(attention(start, length) - attention(end, length)).max()
        assert change <= moved / (2 * math.sqrt(key_dim)) + 1e-12


# Monotonicity


@quick
@given(
    items=st.integers(4, 2000),
    d_model=st.integers(1, 300),
    share=st.floats(0.01, 0.5),
    aggregation=st.sampled_from(["max", "sum", "softmax"]),
)
def test_more_edges_more_items_or_less_width_never_need_less(items, d_model, share, aggregation):
    edges = max(1, int(share * items * (items - 1)))

    def budgets(m, count, width):
        found = lower_bounds(m, count, width, family="graph", aggregation=aggregation, margin=0.01)
        return [bound.budget for bound in found]

    base = budgets(items, edges, d_model)
    more_edges = budgets(items, min(edges + 1, items * (items - 1) // 2), d_model)
    narrower = budgets(items, edges, max(1, d_model - 1))
    assert all(a <= b for a, b in zip(base, more_edges, strict=True))
    assert all(a <= b for a, b in zip(base, narrower, strict=True))
    # Sign patterns count decisions on m² pairs, so only the other two must grow with the items.
    assert all(
        a <= b for a, b in zip(base[:2], budgets(items + 1, edges, d_model)[:2], strict=True)
    )


@quick
@given(items=st.integers(3, 5000), d_model=st.integers(1, 500), heads=st.integers(1, 40))
def test_permutations_need_more_as_they_grow_and_heads_help(items, d_model, heads):
    bits = log2_graphs(items)
    fixed = warren_bound(bits, items, d_model, heads=heads)
    assert warren_bound(bits, items, d_model) <= max(fixed, heads)
    assert heads_bound(bits, items, d_model) <= heads or fixed == math.inf
    assert bit_budget_bound(bits, d_model) <= bit_budget_bound(log2_graphs(items + 1), d_model)


@quick
@given(d_model=st.integers(1, 100), budget=st.integers(1, 500), margin=st.floats(1e-6, 0.9))
def test_margin_bits_grow_with_the_budget_and_fall_with_the_margin(d_model, budget, margin):
    bits = margin_bits(d_model, budget, margin)
    assert bits < margin_bits(d_model, budget + 1, margin)
    assert bits > margin_bits(d_model, budget, margin * 1.05)
    assert margin_bound(bits, d_model, margin) == budget


def test_ten_million_items_are_finite_and_quick():
    start = time.process_time()
    items = 10**7
    for family, edges in (("permutation", items), ("graph", 50 * items), ("regular", 50 * items)):
        for bound in lower_bounds(items, edges, 4096, family=family):
            assert 100 < bound.budget < 10**7
            assert math.isfinite(bound.bits)
    assert time.process_time() - start < 1


# Refusals


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"items": 1}, "items = 1"),
        ({"items": 8, "edges": 0}, "edges = 0"),
        ({"items": 8, "edges": 57, "family": "graph"}, "56 ordered pairs"),
        ({"items": 8, "edges": 9}, "permutation of 8 items"),
        ({"items": 8, "edges": 12, "family": "regular"}, "degree × items"),
        ({"items": 8, "d_model": 0}, "d_model = 0"),
        ({"items": 8, "heads": 0}, "heads = 0"),
        ({"items": 8, "heads": -4, "aggregation": "softmax"}, "heads = -4"),
        ({"items": 8, "edges": 7, "family": "bounded"}, "pass max_degree"),
        ({"items": 8, "edges": 9, "family": "bounded", "max_degree": 1}, "max_degree = 1"),
        ({"items": 8, "bits_per_parameter": 0}, "bits = 0"),
        ({"items": 8, "bits_per_parameter": math.nan}, "bits = nan"),
        ({"items": 8, "margin": 1.5}, "margin = 1.5"),
        ({"items": 8, "margin": -0.1}, "margin = -0.1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, words):
    with pytest.raises(InputError, match=words) as refusal:
        lower_bounds(**{"edges": None, "d_model": 4} | arguments)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("arguments", [{"family": "tree"}, {"aggregation": "mean"}])
def test_unknown_names_are_refused(arguments):
    with pytest.raises((InputError, TypeViolation)):  # in the tests the type checker comes first
        lower_bounds(8, None, 4, **arguments)


def test_sign_patterns_refuse_softmax():
    with pytest.raises(InputError, match="not polynomials"):
        warren_bound(100.0, 8, 4, aggregation="softmax")
