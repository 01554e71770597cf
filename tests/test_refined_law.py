"""Narrow heads and hubs: the formulas against random matrices and linear programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import headcount as hc
from headcount import InputError
from headcount.analysis.separability import separable
from headcount.problem.graph import Graph
from headcount.reproduction.refined_verdicts import transitions
from headcount.reproduction.separability import Case, cases, measure, measured_separability
from headcount.theory.capacity_law import capacity_ratio, degrees_of_freedom, gardner_capacity
from headcount.theory.refined_law import effective_freedom, hub_ratio, width_ratio

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("key_dim", [1, 4, 16, 40, 64])
def test_the_effective_freedom_is_that_of_the_largest_singular_values(key_dim):
    rng = np.random.default_rng(0)
    values = [np.linalg.svd(rng.normal(size=(64, 64)), compute_uv=False) for _ in range(12)]
    width = np.mean([np.sqrt((one[:key_dim] ** 2).sum()) for one in values])
    assert effective_freedom(64, 1, key_dim) == pytest.approx(width**2, rel=0.03)


@given(st.integers(1, 300), st.integers(1, 8), st.integers(1, 400))
def test_the_effective_freedom_is_between_once_and_twice_the_degrees(d_model, heads, key_dim):
    freedom = degrees_of_freedom(d_model, heads, key_dim)
    assert freedom * (1 - 1e-9) <= effective_freedom(d_model, heads, key_dim) <= 2 * freedom


def test_at_full_width_the_refined_law_is_the_law():
    assert width_ratio(90, 180, 16, 2, 16) == capacity_ratio(90, 180, 16, 2, 16)


def test_a_hub_is_judged_by_its_own_edges_in_either_direction():
    out = Graph.from_edges(40, [(0, j) for j in range(1, 13)])
    back = Graph.from_edges(40, [(j, 0) for j in range(1, 13)])
    expected = 8 * min(gardner_capacity(12 / 40), gardner_capacity(1 / 40)) / 40
    assert hub_ratio(out, 8) == hub_ratio(back, 8) == pytest.approx(expected)
    assert hub_ratio(out, 8, heads=3) == pytest.approx(3 * expected)
    with pytest.raises(InputError, match="all edges or none"):
        hub_ratio(Graph.from_edges(2, [(0, 0), (0, 1), (1, 0), (1, 1)]), 8)


def by_linear_program(graph: Graph, rows: np.ndarray) -> bool:
    """Whether y(x_i W x_jᵀ − θ) ≥ 1 has a solution."""
    items = len(rows)
    sign = np.full((items, items), -1.0)
    sign[graph.sources, graph.targets] = 1.0
    patterns = np.einsum("ia,jb->ijab", rows, rows).reshape(items**2, -1)
    patterns = np.hstack([patterns, np.full((items**2, 1), -1.0)]) * sign.reshape(-1, 1)
    width = patterns.shape[1]
    found = linprog(np.zeros(width), -patterns, -np.ones(items**2), bounds=(None, None))
    return found.status == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(8, 24), st.sampled_from([1, 3]), st.integers(0, 1000), st.booleans())
def test_full_width_agrees_with_a_linear_program(items, degree, seed, skewed):
    make = hc.skewed_graph if skewed else hc.random_graph
    graph = make(items, degree * items, seed=seed)
    rows = np.random.default_rng(seed).normal(size=(items, 6))
    assert separable(graph, rows) == by_linear_program(graph, rows)


def test_narrow_heads_are_found_where_they_exist():
    rows = np.random.default_rng(0).normal(size=(15, 8))
    graph = hc.permutation_graph(15)
    found = [separable(graph, rows, key_dim) for key_dim in (1, 2, 7)]
    assert found == sorted(found)  # a wider head can do whatever a narrower one can
    assert found[-1]
    assert not found[0]


def test_wide_tables_are_decided_by_descent():
    rows = np.random.default_rng(0).normal(size=(80, 44))
    assert separable(hc.permutation_graph(80), rows)


@pytest.mark.parametrize(
    ("graph", "sentence"),
    [
        (hc.permutation_graph(5), "5 items, the table 4 rows"),
        (Graph.from_edges(4, []), "at least one edge"),
    ],
)
def test_bad_problems_get_a_sentence(graph, sentence):
    with pytest.raises(InputError, match=sentence):
        separable(graph, np.eye(4))


def test_the_shipped_computations_are_those_of_the_preregistration():
    table = measured_separability()
    columns = list(Case.__dataclass_fields__)
    shipped = set(table[columns].itertuples(index=False, name=None))
    assert shipped == {tuple(getattr(case, name) for name in columns) for case in cases()}
    assert len(table) == len(shipped)


def test_some_shipped_computations_again():
    table = measured_separability()
    quick = table[(table["d_model"] == 20) & (table["degree"] == 8)].sample(6, random_state=0)
    for row in quick.to_dict("records"):
        case = Case(**{name: row[name] for name in Case.__dataclass_fields__})
        assert measure(case) == {
            **row,
            **{n: pytest.approx(row[n], abs=1e-5) for n in row if "ratio" in n},
        }


def test_narrow_heads_turn_at_one_width_ratio_and_at_many_ratios():
    """The finding of part k: G is nearly constant where R is not (k = 6, 12 and 24 of 48)."""
    keys = [(k, graph, r, 48) for k in (6, 12, 24) for graph, r in (("regular", 1), ("random", 4))]
    width, plain = (
        [transitions("k", name)[key] for key in keys] for name in ("width_ratio", "ratio")
    )
    assert max(width) / min(width) < 1.06
    assert max(plain) / min(plain) > 1.25


def test_the_law_reads_a_graph():
    reading = hc.law(hc.permutation_graph(128), 64, key_dim=4)
    assert reading.ratio == pytest.approx(capacity_ratio(128, 128, 64, 1, 4))
    assert reading.ratio < 1 < reading.width_ratio
    assert reading.possible  # and compiled weights of this width are shipped
    assert not hc.law(hc.skewed_graph(91, 182), 32).possible
