"""Bounds table: constructions are exact where it says so, and never below the lower bounds."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    InputError,
    construct,
    gaussian_embeddings,
    permutation_graph,
    regular_graph,
    verify,
)
from headcount.errors import NoSolution, PreconditionWarning
from headcount.reproduction.bounds_table import COLUMNS, bounds_table, with_lower_bounds
from headcount.reproduction.frontier import FrontierPoint, known_budgets
from headcount.reproduction.frontier_file import read_frontier
from headcount.reproduction.shipped import MEASURED
from headcount.theory.lower_bounds import lower_bounds


def is_exact(row, key_dim: int, seed: int) -> bool:
    """Build a row's construction anew at some width, and verify it."""
    graph = (
        permutation_graph(row.items, seed)
        if row.degree == 1
        else regular_graph(row.items, row.degree, seed)
    )
    table = gaussian_embeddings(row.items, row.d_model, seed)
    method = "compressive" if row.degree == 1 else "general-graph"
    how = ("transpose", "paper") if row.name == "as printed" else ("pinv", "midpoint")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PreconditionWarning)
        weights = construct(
            graph,
            table,
            method,
            key_dim=key_dim,
            heads=row.heads,
            inverse=how[0],
            threshold=how[1],
            seed=seed,
        )
    return verify(weights, graph, table).exact


def constructions(frame: pd.DataFrame) -> list:
    """The rows of constructions that were found."""
    found = frame[(frame["kind"] == "construction") & frame["budget"].notna()]
    return list(found.astype(object).itertuples(name="Ceiling"))


@settings(deadline=None, max_examples=20)
@given(st.integers(4, 20), st.integers(4, 20), st.integers(1, 3), st.integers(0, 99))
def test_a_construction_is_exact_at_its_budget_and_not_just_below(items, d_model, degree, seed):
    frame = bounds_table([(items, d_model)], [degree], seed)
    assert list(frame.columns) == list(COLUMNS)
    built = constructions(frame)
    assert "pseudo-inverse" in {row.name for row in built}
    for row in built:
        assert row.budget == row.heads * row.key_dim
        assert is_exact(row, row.key_dim, seed)
        assert row.key_dim == 1 or not is_exact(row, row.key_dim - 1, seed)
        assert row.name == "as printed" or row.budget <= items * degree
    floors = frame.loc[frame["kind"] == "lower bound", "budget"]
    assert floors.max() <= min(row.budget for row in built)


def test_the_printed_construction_where_it_works():
    row = next(row for row in constructions(bounds_table([(256, 512)])) if row.name == "as printed")
    assert row.heads == 1
    assert is_exact(row, row.key_dim, 0)
    assert not is_exact(row, row.key_dim - 1, 0)


def test_points_and_degrees_are_crossed_and_repeat():
    points, degrees = [(32, 16), (24, 32)], (1, 2)
    frame = bounds_table(points, degrees, seed=3)
    pd.testing.assert_frame_equal(frame, bounds_table(points, degrees, seed=3))
    assert len(frame) == 4 * 5
    assert not frame.duplicated(["items", "d_model", "degree", "name"]).any()
    bounds = frame[
        (frame["items"] == 32) & (frame["degree"] == 2) & (frame["kind"] == "lower bound")
    ]
    expected = lower_bounds(32, 64, 16, family="regular", max_degree=2)
    assert list(zip(bounds["name"], bounds["budget"], strict=True)) == [
        (b.name, b.budget) for b in expected
    ]
    assert bounds[["heads", "key_dim"]].isna().all(axis=None)


def test_what_is_not_found_is_missing():
    lines = []
    printed = bounds_table([(64, 16)], progress=lines.append).set_index("name").loc["as printed"]
    assert printed[["heads", "key_dim", "budget"]].isna().all()
    assert any(line.startswith("4 heads × ") for line in lines)


def test_the_printed_construction_has_the_heads_of_its_algorithm():
    """⌈m/d_model⌉ in Algorithm 1, and ⌈m'/d_model⌉ + Δ in Algorithm 5."""
    for degree, heads in ((1, 2), (2, 6), (3, 9)):
        lines = []
        bounds_table([(24, 12)], [degree], progress=lines.append)
        assert lines[0].startswith(f"{heads} heads × ")


def test_a_search_stays_within_its_budget():
    graph, table = permutation_graph(64), gaussian_embeddings(64, 64)
    assert construct(graph, table, inverse="pinv", budget=14).budget == 14
    with pytest.raises(NoSolution, match="1 × 13"):
        construct(graph, table, inverse="pinv", budget=13)
    with pytest.raises(InputError, match="budget limits a search"):
        construct(graph, table, key_dim=3, budget=9)


def test_lower_bounds_of_an_earlier_release_are_replaced():
    """They are functions of the sizes; what is shipped must be today's."""
    table = MEASURED.bounds()
    assert table is not None
    stale = table.assign(budget=table["budget"].where(table["name"] != "margin", 1))
    pd.testing.assert_frame_equal(with_lower_bounds(stale), table)
    rows = table.set_index(["items", "d_model", "degree", "name"])["budget"]
    assert (rows[256, 32, 1, "margin"], rows[512, 16, 1, "margin"]) == (6, 25)
    columns = ["items", "d_model", "degree", "lower_bound"]
    compiled = read_frontier(MEASURED.path / "frontier.csv")[columns].to_numpy(dtype=int).tolist()
    known = known_budgets([FrontierPoint(*size) for *size, _ in compiled])
    for items, d_model, degree, least in compiled:
        assert known[items, d_model, degree]["lower_bound"] == least
