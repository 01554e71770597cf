"""How a search goes on, ends, and decides early."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from headcount.analysis.thresholds import threshold
from headcount.errors import InputError
from headcount.sweeps.search import ThresholdSearch, ThresholdSearches
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
from tests.made_surfaces import explore, grid_frame, ladder, result, search_all, sigmoid


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
