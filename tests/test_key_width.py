"""How narrow shared keys may be: each formula against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial.distance import pdist

from headcount.errors import InputError
from headcount.theory.capacity_law import degrees_of_freedom
from headcount.theory.key_width import (
    corner_width,
    free_query_width,
    packing_width,
    random_key_width,
)
from headcount.theory.refined_law import effective_freedom, squared_width, width_ratio


def can_be_cut_off(keys: np.ndarray, target: int) -> bool:
    """Whether some query scores the target above all others: a linear program."""
    others = np.delete(keys, target, 0) - keys[target]
    found = linprog(
        np.zeros(keys.shape[1]),
        A_ub=others,
        b_ub=-np.ones(len(others)),
        bounds=[(None, None)] * keys.shape[1],
    )
    return found.status == 0


@given(st.integers(3, 40), st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_on_a_line_two_keys_can_be_cut_off_and_in_the_plane_all(items, seed):
    rng = np.random.default_rng(seed)
    line = rng.standard_normal((items, 1))
    assert sum(can_be_cut_off(line, item) for item in range(items)) == 2
    angles = 2 * np.pi * (np.arange(items) + 0.5 * rng.random(items)) / items
    circle = np.stack([np.cos(angles), np.sin(angles)], 1)
    assert all(can_be_cut_off(circle, item) for item in range(items))
    assert corner_width(items) == 2
    assert corner_width(items, kv_heads=-(-items // 2)) == 1


@given(st.integers(1, 4), st.floats(0.2, 1.5), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_keys_that_are_a_margin_apart_respect_the_packing_bound(columns, margin, seed):
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((400, columns))
    drawn *= (rng.random((400, 1)) ** (1 / columns)) / np.linalg.norm(drawn, axis=1, keepdims=True)
    kept = np.zeros((0, columns))
    for key in drawn:  # a greedy packing
        if np.all(np.linalg.norm(kept - key, axis=1) >= margin):
            kept = np.vstack([kept, key])
    assert len(kept) == 1 or pdist(kept).min() >= margin
    assert packing_width(len(kept), margin) <= columns


def test_random_keys_can_be_cut_off_from_the_width_that_the_perceptron_needs():
    """Half of the typical keys are corners near k = m/α_c, none far below, all far above."""
    rng = np.random.default_rng(3)
    need = random_key_width(128)
    assert need == pytest.approx(5.53, abs=0.01)

    def share(width: int) -> float:
        tables = [rng.standard_normal((128, width)) for _ in range(4)]
        found = [can_be_cut_off(keys, item) for keys in tables for item in range(24)]
        return float(np.mean(found))

    assert share(2) < 0.25 < 0.5 < share(6)
    assert share(12) > 0.97


@pytest.mark.parametrize(
    ("rows", "columns", "rank"), [(40, 40, 6), (80, 40, 10), (320, 40, 3), (60, 40, 40)]
)
def test_the_squared_width_is_that_of_gaussian_matrices(rows, columns, rank):
    rng = np.random.default_rng(rows + rank)
    tops = [
        np.sum(np.linalg.svd(rng.standard_normal((rows, columns)), compute_uv=False)[:rank] ** 2)
        for _ in range(40)
    ]
    assert squared_width(rows, columns, rank) == pytest.approx(np.mean(tops), rel=0.03)


@given(st.integers(2, 200), st.integers(1, 6), st.integers(1, 6), st.integers(1, 250))
@settings(max_examples=60, deadline=None)
def test_sharing_keys_lies_between_one_head_and_keys_of_their_own(d_model, groups, by, key_dim):
    heads = groups * by
    own, shared = (effective_freedom(d_model, heads, key_dim, count) for count in (heads, groups))
    assert own == effective_freedom(d_model, heads, key_dim)  # g = h, to the last bit
    assert effective_freedom(d_model, groups, key_dim) <= shared * (1 + 1e-9)
    assert shared <= own * (1 + 1e-9)
    # More than the degrees of freedom, and in the limit of few columns (√h + √g)² per column.
    assert shared >= degrees_of_freedom(d_model, heads, key_dim, groups) * (1 - 1e-9)
    most = key_dim * d_model * (heads**0.5 + groups**0.5) ** 2
    assert shared <= most * (1 + 1e-9)


def test_the_ratio_counts_shared_keys():
    assert width_ratio(256, 256, 32, 8, 12, kv_heads=1) < width_ratio(256, 256, 32, 8, 12)
    with pytest.raises(InputError, match="3 key heads do not divide 8 heads"):
        width_ratio(256, 256, 32, 8, 12, kv_heads=3)


@given(st.integers(8, 300), st.integers(4, 300))
@settings(max_examples=30, deadline=None)
def test_free_queries_need_no_more_than_any_number_of_heads(items, d_model):
    """At the width of free queries, the heads that give each source its own query have G ≥ 1."""
    try:
        width = free_query_width(items, items, d_model)
    except InputError:
        return
    rows, columns = max(items, d_model), min(items, d_model)
    assert 0 < width <= columns
    assert squared_width(rows, columns, width) == pytest.approx(
        width_ratio(items, items, d_model, 1, d_model) ** -1 * d_model**2, rel=1e-6
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: corner_width(0), "at least 1"),
        (lambda: packing_width(8, 0.0), "margin"),
        (lambda: free_query_width(256, 20_000, 4), "need more than"),
        (lambda: squared_width(3, 4, 1), "fewer than 4 columns"),
    ],
)
def test_bad_sizes_get_a_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()
