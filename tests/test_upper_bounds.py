"""Budgets of the constructions: values by hand, monotonicity, constants and refusals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.theory import upper_bounds as upper
from headcount.theory.constants import constants
from headcount.theory.single_head import (
    single_head,
    softmax_advantage,
    softmax_single_head,
    softmax_width,
)

quick = settings(deadline=None, max_examples=50)


def test_constructions_by_hand():
    assert upper.compressive(100, 30, constant=2).heads == 4  # ⌈100/30⌉
    assert upper.compressive(100, 30, constant=2).key_dim == 10  # ⌈2·4.605⌉
    assert upper.bounded_skew(100, 500, 30, constant=2).heads == 17
    # Eq. (33) fails: one head per edge of the hub.
    assert upper.bounded_skew(100, 500, 30, max_degree=40).heads == 40
    assert upper.softmax(100, 30, constant=1).key_dim == 22  # ⌈4.605²⌉
    assert upper.gaussian_embedding(100, 30, constant=2).heads == upper.compressive(100, 30).heads
    assert single_head(100, 30, constant=1).key_dim == 52  # ⌈(100/30)²·4.605⌉
    assert softmax_advantage(100, 10) == pytest.approx(10 / math.log(100))


def test_softmax_width_is_the_larger_of_floor_and_leakage():
    floor = softmax_width(1000, 64, block=64, context_length=1000, floor=1, leakage=1)
    assert floor == math.ceil(math.log(1000) ** 2)
    leaky = softmax_width(1000, 64, block=1000, context_length=16, floor=1, leakage=1)
    assert leaky == math.ceil((1000 / 64) ** 2 * math.log(1000))
    single = softmax_single_head(1000, 64, floor=1, leakage=1)
    # Eq. (20) is necessary, not known to suffice.
    assert (single.budget, single.sure) == (leaky, False)


def test_constants_name_their_source():
    for name in (
        "compressive",
        "general-embedding",
        "general-graph",
        "softmax",
        "single-head",
        "one-hot",
    ):
        constant = constants()[name]
        assert constant.C > 0
        assert constant.source


def test_one_hot_constant_is_proved():
    """Hoeffding: each of C(m, 2) pairs reaches d_k/2 with probability at most exp(−d_k/8)."""
    assert constants()["one-hot"].source.startswith("proved")
    for items in (2, 10, 1000, 10**6):
        width = upper.one_hot(items).key_dim
        assert math.comb(items, 2) * math.exp(-width / 8) < 1 / 2


@quick
@given(
    items=st.integers(2, 500),
    d_model=st.integers(1, 200),
    share=st.floats(0, 1),
    degree=st.integers(1, 20),
)
def test_construction_four_grows_with_edges_and_degree(items, d_model, share, degree):
    edges = max(1, int(share * items * (items - 1)))
    more = min(edges + items, items * (items - 1))
    assert (
        upper.bounded_skew(items, edges, d_model).budget
        <= upper.bounded_skew(items, more, d_model).budget
    )
    low = -(-edges // items)
    top = min(low + degree, items, edges)
    if low <= top:
        plain = upper.bounded_skew(items, edges, d_model, low)
        assert plain.budget <= upper.bounded_skew(items, edges, d_model, top).budget
        lemma = -(-edges // d_model) + top  # the heads of Lemma B.8 and Theorem B.9
        assert upper.bounded_skew(items, edges, d_model, top).heads <= lemma


@pytest.mark.parametrize(
    "call",
    [
        lambda: upper.compressive(1, 4),
        lambda: upper.compressive(8, 0),
        lambda: upper.compressive(8, 4, constant=0),
        lambda: upper.general_embedding(8, block=9),
        lambda: upper.bounded_skew(8, 24, 4, max_degree=2),  # 24 edges on 8 items need degree 3
        lambda: upper.bounded_skew(8, 4, 4, max_degree=5),
    ],
)
def test_constructions_refuse(call):
    with pytest.raises(InputError):
        call()


def test_a_known_degree_never_costs_heads():
    unknown = upper.best_upper_bound(1000, 5000, 64)
    assert unknown is not None
    for degree in (5, 20, 79, 80, 400):
        known = upper.best_upper_bound(1000, 5000, 64, max_degree=degree)
        assert known is not None
        lemma = math.ceil(5000 / 64) + degree  # the heads of Lemma B.8 and Theorem B.9
        assert known.heads == max(unknown.heads, degree) <= lemma
