"""The threshold search against the full grid that it saves."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from headcount.analysis.thresholds import threshold, thresholds
from headcount.errors import InputError
from headcount.sweeps.grid import paper_runs
from headcount.sweeps.search import Outcome, ThresholdSearch, ThresholdSearches, outcomes_frame
from headcount.sweeps.search_seeds import (
    Rules,
    best_case,
    falls,
    learned,
    may_pass,
    t_quantile,
    told_apart,
)
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec
from tests.measured import base_runs

Surface = dict[RunSpec, float]
VALUES = ["central", "optimistic", "conservative"]


def result(spec: RunSpec, value: float, steps: int = 1, diverged: int | None = None) -> RunResult:
    """A result made up."""
    return RunResult(spec, value, steps, 0.0, (), diverged, "none", "none", 0.0)


def grid_frame(surface: Surface) -> pd.DataFrame:
    """The full grid as the analysis takes it, with what a store adds."""
    names = ("hash", "variant", "degree", "items", "d_model", "heads", "key_dim", "budget", "seed")
    rows = [
        {name: getattr(spec, name) for name in names} | {"value": value}
        for spec, value in surface.items()
    ]
    return pd.DataFrame(rows).assign(diverged=None, steps=1)


def explore(search: ThresholdSearch, surface: Surface) -> Outcome:
    """Run a search to its end on a surface; no batch may hold a run that is known or foreign."""
    known: set[RunSpec] = set()
    while batch := search.next_batch():
        assert len(set(batch)) == len(batch)
        assert not known & set(batch)
        assert set(batch) <= set(surface)
        known |= set(batch)
        assert search.observe(result(spec, surface[spec]) for spec in batch) == len(batch)
    outcome = search.outcome()
    assert outcome.settled
    assert outcome.runs == outcome.steps == len(known)
    assert outcome.grid_runs == len(surface)
    return outcome


def search_all(
    grid: Iterable[RunSpec],
    run: Callable[[list[RunSpec]], list[RunResult]],
    known: list[RunResult] | pd.DataFrame | None = None,
) -> list[Outcome]:
    """Search every point of a grid, until all are settled or a batch brings nothing new."""
    searches = ThresholdSearches(grid)
    searches.observe([] if known is None else known)
    while batch := searches.next_batch():
        if not searches.observe(run(batch)):
            break
    return searches.outcomes()


def ladder(
    heads: int, means: list[float], seeds: int = 10, noise: float = 0.0, seed: int = 0
) -> Surface:
    """One head count whose rungs d_k = 1, 2, … have these means.

    Runs spread by a part of their distance from 1.
    """
    rng = np.random.default_rng([seed, heads])
    surface = {}
    for (row, mean), run in product(enumerate(means), range(seeds)):
        score = mean + noise * min(1 - mean, 0.1) * rng.normal()
        surface[RunSpec(32, 16, heads, row + 1, seed=run)] = float(np.clip(score, 0, 1))
    return surface


def sigmoid(rungs: int, centre: float, width: float, top: float = 1.0) -> list[float]:
    """Means that rise to a plateau."""
    return [float(top / (1 + np.exp(-(row + 1 - centre) / width))) for row in range(rungs)]


@st.composite
def risings(draw: st.DrawFn) -> Surface:
    """Surfaces that rise with D_K.

    Thresholds off both ends, plateaus below 0.99, equal head counts, some noise.
    """
    seeds, noise, seed = (
        draw(st.integers(1, 10)),
        draw(st.sampled_from([0.0, 0.1, 0.3])),
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


@settings(max_examples=40, deadline=None)
@given(risings())
def test_where_f1_rises_the_search_gives_what_the_grid_gives(surface: Surface) -> None:
    outcome = explore(ThresholdSearch(surface), surface)
    assert outcome.threshold == threshold(grid_frame(surface))


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


def test_an_interrupted_search_says_so_and_goes_on_where_it_was() -> None:
    surface = ladder(2, sigmoid(16, 7, 0.5), noise=0.2) | ladder(4, sigmoid(8, 4, 0.5), noise=0.2)
    kept: list[RunResult] = []

    def stopped(batch: list[RunSpec]) -> list[RunResult]:
        done = [result(spec, surface[spec]) for spec in batch[: max(0, 7 - len(kept))]]
        kept.extend(done)
        return done

    def whole(batch: list[RunSpec]) -> list[RunResult]:
        assert not {row.spec for row in kept} & set(batch)
        return [result(spec, surface[spec]) for spec in batch]

    (half,) = search_all(surface, stopped)
    assert (half.settled, half.runs) == (False, 7)
    (outcome,) = search_all(surface, whole, known=kept)
    assert outcome.settled
    assert outcome.threshold == threshold(grid_frame(surface))


def test_a_replay_spends_what_a_search_would() -> None:
    surface = ladder(2, sigmoid(16, 7, 0.5), noise=0.2) | ladder(4, sigmoid(8, 4, 0.5), noise=0.2)
    expected = explore(ThresholdSearch(surface), surface)
    searches = ThresholdSearches(surface)
    searches.replay(grid_frame(surface))
    assert searches.outcomes() == [expected]
    assert expected.runs < len(surface)
    half = ThresholdSearches(surface)
    half.replay(grid_frame(surface).iloc[: len(surface) // 2])
    assert not half.outcomes()[0].settled


def test_points_advance_together() -> None:
    first, second = ladder(1, sigmoid(9, 4, 0.2)), ladder(2, sigmoid(9, 6, 0.2))
    second = {replace(spec, d_model=8): value for spec, value in second.items()}
    searches = ThresholdSearches([*first, *second])
    assert {spec.d_model for spec in searches.next_batch()} == {8, 16}
    surface = first | second
    outcomes = search_all(surface, lambda batch: [result(spec, surface[spec]) for spec in batch])
    assert [item.threshold for item in outcomes] == [
        threshold(grid_frame(part)) for part in (first, second)
    ]


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(InputError, match="one point"):
        ThresholdSearch([RunSpec(32, 16, 1, 1), RunSpec(64, 16, 1, 1)])
    with pytest.raises(InputError, match="one point"):
        ThresholdSearch([])
    with pytest.raises(InputError, match="squared error"):
        ThresholdSearch([RunSpec(32, 16, 1, 1, variant="value")])
    with pytest.raises(InputError, match="no column hash"):
        ThresholdSearch([RunSpec(32, 16, 1, 1)]).observe(pd.DataFrame({"value": [1.0]}))
    for wrong in ({"first": 1}, {"growth": 1.0}, {"odds": 0.0}, {"spread": 0.0}):
        with pytest.raises(InputError):
            Rules(**wrong)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(0, 5), st.integers(0, 2**31))
def test_the_best_case_bounds_every_completion_and_is_attained(
    scores: list[float], missing: int, seed: int
) -> None:
    seeds = len(scores) + missing
    high, mean, low = best_case(scores, seeds)
    rng = np.random.default_rng(seed)
    fills = [
        *product([0.0, 1.0], repeat=missing),
        *rng.beta(0.3, 0.3, (50, missing)),
        *rng.random((50, missing)),
    ]
    full = np.array([[*scores, *fill] for fill in fills])
    assert mean == pytest.approx(full.mean(1).max())
    if seeds > 1:
        t = t_quantile(0.975, seeds - 1)

        def end(sign: int, full: np.ndarray) -> np.ndarray:
            return full.mean(-1) + sign * t * full.std(-1, ddof=1) / np.sqrt(seeds)

        assert high == pytest.approx(end(1, full).max())
        assert low >= end(-1, full).max() - 1e-9
        equal = minimize_scalar(
            lambda v: -end(-1, np.array([*scores, *[v] * missing])), bounds=(0, 1)
        )
        assert low == pytest.approx(-equal.fun, abs=1e-4)


def test_early_decisions_are_rarely_wrong() -> None:
    rng, rules = np.random.default_rng(0), Rules()
    wrong = np.zeros(3)
    for spread, mean in product([0.005, 0.02, 0.05], [0.96, 0.98, 0.99]):
        for scores in np.clip(rng.normal(mean, spread, (30, 10)), 0, 1):
            half = t_quantile(0.975, 9) * scores.std(ddof=1) / np.sqrt(10)
            passes = (
                scores.mean() + half >= 0.99,
                scores.mean() >= 0.99,
                scores.mean() - half >= 0.99,
            )
            for seen in (2, 3, 5, 8):
                may = may_pass(scores[:seen].tolist(), 10, 0.99, rules)
                wrong += [one and not other for one, other in zip(passes, may, strict=True)]
    assert wrong.max() <= 3  # of 1,080 looks


def test_the_spread_is_learned_from_failing_rungs() -> None:
    quiet, loud = [[0.95, 0.951, 0.949]] * 10, [[0.95, 0.8, 0.99]] * 10
    assert (
        learned(Rules(), quiet, 0.99).spread < Rules().spread < learned(Rules(), loud, 0.99).spread
    )
    assert learned(Rules(), [[1.0, 1.0], [0.2, 0.5], [0.9]], 0.99) == Rules()


def test_clear_gaps_are_told_from_chance() -> None:
    rules = Rules()
    assert told_apart([-0.3, -0.31], 10, rules)
    assert told_apart([0.3, 0.31], 10, rules)
    assert not told_apart([-0.01, 0.02], 10, rules)
    assert not told_apart([], 10, rules)
    assert falls([-0.3, -0.28], rules)
    assert falls([-0.4], rules)
    assert not falls([-0.01] * 10, rules)  # clear, but a ripple
    assert not falls([-0.2, 0.1], rules)
    assert not falls([], rules)


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
