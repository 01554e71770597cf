"""How many graphs of a family there are, against exact counts."""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.theory.counting import log2_graphs

quick = settings(deadline=None, max_examples=60)


@pytest.mark.parametrize("items", [2, 3, 10, 171, 1000])
def test_permutations_are_counted_exactly(items):
    assert log2_graphs(items) == pytest.approx(math.log2(math.factorial(items)), rel=1e-13)


@quick
@given(items=st.integers(2, 60), share=st.floats(0, 1))
def test_graphs_are_counted_exactly(items, share):
    pairs = items * (items - 1)
    edges = max(1, round(share * pairs))
    assert log2_graphs(items, edges, "graph") == pytest.approx(
        math.log2(math.comb(pairs, edges)), rel=1e-13, abs=1e-12
    )


@pytest.mark.parametrize(
    ("items", "edges"), [(10**7, 1), (10**7, 2), (10**7, 17), (10**7, 3000), (3000, 9000)]
)
def test_large_binomials_lose_no_digits(items, edges):
    exact = math.log2(math.comb(items * (items - 1), edges))
    assert log2_graphs(items, edges, "graph") == pytest.approx(exact, rel=1e-14)


def _regular_graphs(items: int, degree: int) -> int:
    """Count by rows: 0/1 matrices with zero diagonal and all row and column sums `degree`."""
    choices = [
        list(combinations([j for j in range(items) if j != i], degree)) for i in range(items)
    ]

    @cache
    def count(row: int, left: tuple[int, ...]) -> int:
        if row == items:
            return int(not any(left))
        return sum(
            count(row + 1, tuple(free - (j in chosen) for j, free in enumerate(left)))
            for chosen in choices[row]
            if all(left[j] for j in chosen)
        )

    return count(0, (degree,) * items)


@pytest.mark.parametrize(("items", "degree"), [(m, r) for m in range(2, 7) for r in range(1, m)])
def test_regular_count_is_a_lower_bound(items, degree):
    bound = log2_graphs(items, degree * items, "regular")
    exact = math.log2(_regular_graphs(items, degree))
    assert 0.7 * exact - 0.5 <= bound <= exact + 1e-12


def _bounded_graphs(items: int, edges: int, degree: int) -> int:
    """Count by rows: 0/1 matrices, zero diagonal, `edges` ones, no line sum above `degree`."""
    others = [[j for j in range(items) if j != i] for i in range(items)]

    @cache
    def count(row: int, missing: int, left: tuple[int, ...]) -> int:
        if row == items:
            return int(missing == 0)
        return sum(
            count(
                row + 1, missing - size, tuple(free - (j in chosen) for j, free in enumerate(left))
            )
            for size in range(min(degree, missing) + 1)
            for chosen in combinations(others[row], size)
            if all(left[j] for j in chosen)
        )

    return count(0, edges, (degree,) * items)


@pytest.mark.parametrize(
    ("items", "edges", "degree"),
    [(m, e, r) for m in (3, 4, 5) for r in range(1, m) for e in range(r, r * m + 1)],
)
def test_bounded_count_is_a_lower_bound(items, edges, degree):
    bound = log2_graphs(items, edges, "bounded", max_degree=degree)
    exact = math.log2(_bounded_graphs(items, edges, degree))
    assert 0.6 * exact - 0.5 <= bound <= exact + 1e-12


def test_bounded_counts_by_hand_and_between_their_neighbours():
    partial = math.comb(1000, 999) ** 2 * math.factorial(999)  # loops allowed
    assert (
        math.log2(partial) - 2
        < log2_graphs(1000, 999, "bounded", max_degree=1)
        < math.log2(partial)
    )
    every = log2_graphs(1000, 5000, "graph")
    found = [
        log2_graphs(1000, 5000, "bounded", max_degree=degree) for degree in (5, 6, 10, 40, 400, 999)
    ]
    assert found == sorted(found)
    assert found[0] == pytest.approx(log2_graphs(1000, 5000, "regular"))
    assert found[-1] == pytest.approx(every)
    assert all(bits > 0.85 * every for bits in found[2:])
    assert log2_graphs(10**7, 10**8, "bounded", max_degree=10**6) < log2_graphs(
        10**7, 10**8, "graph"
    )


def test_regular_count_is_close_for_large_graphs():
    degree, items = 8, 1024  # O'Neil's asymptotic count
    asymptotic = math.lgamma(degree * items + 1) - 2 * items * math.lgamma(degree + 1)
    asymptotic = (asymptotic - (degree - 1) ** 2 / 2 - degree) / math.log(2)
    assert 0.95 * asymptotic < log2_graphs(items, degree * items, "regular") < asymptotic
