"""The search for thresholds against the whole grid, on any surface of F1."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.analysis.thresholds import threshold, thresholds
from headcount.sweeps.grid import paper_runs
from headcount.sweeps.search import ThresholdSearch, outcomes_frame
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec
from tests.made_surfaces import Surface, explore, grid_frame, ladder, result, search_all, sigmoid
from tests.measured import base_runs

VALUES = ["central", "optimistic", "conservative"]


@st.composite
def risings(draw: st.DrawFn, noises: Sequence[float] = (0.0,)) -> Surface:
    """Surfaces that rise with D_K.

    Thresholds off both ends, plateaus below 0.99, equal head counts.
    """
    seeds, noise, seed = (
        draw(st.integers(1, 10)),
        draw(st.sampled_from(noises)),
        draw(st.integers(0, 2**31)),
    )
    surface: Surface = {}
    for heads in draw(
        st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=4, unique=True)
    ):
        rungs = draw(st.integers(1, 16))
        centre, width = draw(st.floats(-20, 20)), draw(st.floats(0.05, 1.5))
        top = draw(st.sampled_from([1.0, 1.0, 0.9995, 0.992, 0.98, 0.7]))
        surface |= ladder(heads, sigmoid(rungs, centre, width, top), seeds, noise, seed)
    return surface


@st.composite
def anything(draw: st.DrawFn) -> Surface:
    """Surfaces without order: every run has a score of its own, many near 0.99."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    seeds = draw(st.integers(1, 6))
    surface: Surface = {}
    for heads in draw(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True)):
        for key_dim, seed in product(range(1, draw(st.integers(2, 9))), range(seeds)):
            score = rng.choice([0.0, 0.5, 0.9, 0.98, 0.989, 0.99, 0.991, 1.0, rng.uniform()])
            surface[RunSpec(32, 16, heads, key_dim, seed=seed)] = float(score)
    return surface


@settings(max_examples=20, deadline=None)
@given(risings())
def test_where_f1_rises_the_search_gives_what_the_grid_gives(surface: Surface) -> None:
    outcome = explore(ThresholdSearch(surface), surface)
    assert outcome.threshold == threshold(grid_frame(surface))


# The same surfaces each time: where runs scatter, a rung may be given up wrongly, with small odds.
@settings(max_examples=30, deadline=None, derandomize=True)
@given(risings(noises=(0.1, 0.3)))
def test_where_runs_scatter_it_does_too(surface: Surface) -> None:
    outcome = explore(ThresholdSearch(surface), surface)
    assert outcome.threshold == threshold(grid_frame(surface))


def test_two_seeds_far_apart_may_hide_an_optimistic_value() -> None:
    """An interval of two seeds may reach 0.99 by its width alone: 12.7 standard errors."""
    surface = {
        RunSpec(32, 16, heads, row + 1, seed=seed): score
        for (heads, seed), scores in {
            (2, 0): [0.40, 0.54, 0.62, 0.675, 0.69, 0.67, 0.66, 0.68, 0.66, 0.74],
            (2, 1): [0.36, 0.46, 0.615, 0.68, 0.64, 0.73, 0.70, 0.72, 0.63, 0.63],
            (8, 0): [0.68, 0.83, 0.917, 0.96, 0.976],
            (8, 1): [0.73, 0.87, 0.915, 0.98, 0.967],
        }.items()
        for row, score in enumerate(scores)
    }
    assert threshold(grid_frame(surface)).optimistic == 4
    assert explore(ThresholdSearch(surface), surface).threshold.optimistic == 8


@settings(max_examples=30, deadline=None)
@given(anything())
def test_on_any_surface_no_value_is_below_the_grids_and_each_is_witnessed(surface: Surface) -> None:
    found, full = (
        explore(ThresholdSearch(surface), surface).threshold,
        threshold(grid_frame(surface)),
    )
    for name in VALUES:
        value, least = getattr(found, name), getattr(full, name)
        assert value is None or (least is not None and value >= least)
    if found.central:
        assert found.optimistic is not None
        assert found.optimistic <= found.central <= (found.conservative or 10**9)
        scores = [
            v for s, v in surface.items() if (s.heads, s.budget) == (found.heads, found.central)
        ]
        assert np.mean(scores) == pytest.approx(found.mean)


@settings(max_examples=20, deadline=None)
@given(anything(), st.randoms(use_true_random=False))
def test_the_next_batch_depends_on_what_is_known_alone(surface: Surface, random) -> None:
    search, rows = ThresholdSearch(surface), []
    for _ in range(random.randrange(6)):
        batch = search.next_batch()
        rows += [result(spec, surface[spec]) for spec in batch]
        search.observe(rows)  # old rows again: they are known
    random.shuffle(rows)
    other = ThresholdSearch(sorted(surface, key=lambda spec: spec.hash))
    for row in rows:
        assert other.observe([row]) == 1
    stored = ThresholdSearch(surface)
    frame = grid_frame(surface)
    stored.observe(frame[frame["hash"].isin([row.spec.hash for row in rows])])
    assert search.next_batch() == other.next_batch() == stored.next_batch()
    assert search.outcome() == other.outcome() == stored.outcome()


@settings(max_examples=15, deadline=None)
@given(anything())
def test_a_known_grid_is_not_run_again(surface: Surface) -> None:
    def never(batch: list[RunSpec]) -> list[RunResult]:
        raise AssertionError(batch)

    (outcome,) = search_all(surface, never, known=grid_frame(surface))
    assert outcome.threshold == threshold(grid_frame(surface))


@settings(max_examples=12, deadline=None)
@given(half=st.integers(2, 10), data=st.data(), other=st.booleans())
def test_where_f1_falls_the_search_falls_back_to_the_grid(
    half: int, data: st.DataObject, other: bool
) -> None:
    first = data.draw(st.integers(0, half - 1))
    surface = ladder(2, [0.6] * first + [1.0] * (half - first) + [0.6] * half, noise=0.02)
    surface |= ladder(4, sigmoid(2 * half, half if other else 50, 0.2), noise=0.02)
    outcome = explore(ThresholdSearch(surface), surface)
    assert outcome.fallback == (2,)
    assert outcome.threshold == threshold(grid_frame(surface))
    assert outcome.threshold.central == 2 * (first + 1)


def test_a_ripple_is_no_fall() -> None:
    surface = ladder(1, [0.2, 0.5, 0.8, 0.97, 0.999, 0.995, 0.999, 0.994, 0.999, 0.998], noise=0.2)
    outcome = explore(ThresholdSearch(surface), surface)
    assert outcome.fallback == ()
    assert outcome.threshold == threshold(grid_frame(surface))


def test_equal_budgets_are_decided_by_the_larger_mean() -> None:
    surface = (
        ladder(1, [0.3] * 7 + [0.9925] * 4)
        | ladder(2, [0.3] * 3 + [0.996] * 3)
        | ladder(4, [0.3, 0.994, 1.0])
    )
    found = explore(ThresholdSearch(surface), surface).threshold
    assert (found.central, found.heads, found.key_dim) == (8, 2, 4)
    assert found == threshold(grid_frame(surface))


def test_hopeless_head_counts_are_abandoned() -> None:
    surface = ladder(1, sigmoid(20, 8, 0.3))
    for heads in (2, 4, 8):
        surface |= ladder(heads, [0.3] * 20)
    outcome = explore(ThresholdSearch(surface), surface)
    assert outcome.threshold.heads == 1
    assert outcome.runs < 0.08 * outcome.grid_runs


def test_nothing_passes() -> None:
    surface = ladder(1, [0.3] * 12) | ladder(2, [0.4] * 12)
    outcome = explore(ThresholdSearch(surface), surface)
    assert (
        outcome.threshold.central is outcome.threshold.optimistic is outcome.threshold.heads is None
    )
    assert outcome.runs < 20
    assert outcomes_frame([outcome])["central"].isna().all()


def test_a_diverged_run_counts_as_nothing_recovered_and_does_not_end_a_rung() -> None:
    surface = ladder(1, sigmoid(9, 4, 0.2))
    lost = RunSpec(32, 16, 1, 5, seed=0)
    search = ThresholdSearch(surface)
    while batch := search.next_batch():
        search.observe(
            result(spec, float("nan"), diverged=7) if spec == lost else result(spec, surface[spec])
            for spec in batch
        )
    frame = grid_frame(surface | {lost: 0.0})
    assert search.outcome().threshold == threshold(frame)
    assert search.outcome().threshold.optimistic == 5


@pytest.fixture(scope="module")
def base_grid() -> pd.DataFrame:
    """The base grid's runs, as measured (the file's first line says how)."""
    return base_runs()


def test_the_base_grid_is_found_with_a_tenth_of_its_run_steps(base_grid: pd.DataFrame) -> None:
    key = ["items", "d_model", "heads", "key_dim", "seed"]
    rows = zip(*(base_grid[name].tolist() for name in [*key, "value", "steps"]), strict=True)
    measured = {tuple(at): (value, steps) for *at, value, steps in rows}
    grid = paper_runs("base")
    assert len(grid) == len(measured)

    def replay(batch: list[RunSpec]) -> list[RunResult]:
        return [
            result(spec, *measured[tuple(getattr(spec, name) for name in key)]) for spec in batch
        ]

    found = outcomes_frame(search_all(grid, replay)).sort_values(
        ["items", "d_model"], ignore_index=True
    )
    full = pd.DataFrame(thresholds(base_grid))
    pd.testing.assert_frame_equal(
        found[full.columns.tolist()], full
    )  # within no grid step: the same
    assert found["settled"].all()
    assert found["steps"].sum() <= 0.11 * base_grid["steps"].sum()
    small, few = base_grid["items"] <= 256, found["items"] <= 256
    assert (
        found[few]["steps"].sum() <= 0.12 * base_grid[small]["steps"].sum()
    )  # a quarter is what was asked for
