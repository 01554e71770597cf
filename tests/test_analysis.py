"""Appendix A.2: curves, thresholds and head counts, against plain formulas."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from statistics import mean, stdev

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from headcount.analysis.curves import POINT, curves
from headcount.analysis.thresholds import (
    heads_interval,
    paired_p,
    threshold,
    thresholds,
    thresholds_by_heads,
)
from headcount.errors import InputError


def runs_of(entries, items=64, d_model=16, degree=1, variant="max"):
    """A frame of runs from {(heads, key_dim): F1 by seed}."""
    point = {"items": items, "d_model": d_model, "degree": degree, "variant": variant}
    return pd.DataFrame(
        [
            point
            | {"heads": h, "key_dim": k, "budget": h * k, "seed": seed, "value": value}
            | {"diverged": 1000 if np.isnan(value) else None}
            for (h, k), values in entries.items()
            for seed, value in enumerate(values)
        ]
    )


def near(center, width=0.001, seeds=4):
    """F1 values around a mean: ± width in turn."""
    return [center + width * (-1) ** seed for seed in range(seeds)]


f1 = st.floats(0, 1).map(lambda value: round(value, 3)) | st.sampled_from([0.985, 0.99, 0.995, 1.0])
entries = st.dictionaries(
    st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 6)),
    st.lists(f1, min_size=1, max_size=4),
    min_size=1,
)


# Curves


def test_curve_is_the_t_interval_by_hand():
    values = [0.92, 0.94, 0.93]
    row = curves(runs_of({(2, 3): values})).iloc[0]
    half = 4.302652729911275 * 0.01 / sqrt(3)  # t_{0.975, 2}; s = 0.01
    assert row["mean"] == pytest.approx(0.93)
    assert (row["low"], row["high"]) == pytest.approx((0.93 - half, 0.93 + half))
    assert (row["runs"], row["budget"], row["diverged"]) == (3, 6, 0)


def test_curve_of_one_seed_has_no_interval_and_equal_seeds_one_of_no_width():
    table = curves(runs_of({(1, 4): [0.9], (1, 5): [0.99] * 3})).set_index("budget")
    assert np.isnan(table.loc[4, "low"])
    assert np.isnan(table.loc[4, "high"])
    # Exactly: 0.99 passes the level 0.99.
    assert list(table.loc[5, ["mean", "low", "high"]]) == [0.99] * 3


def test_a_diverged_run_counts_as_zero_f1_and_is_left_out_of_an_error():
    nan = float("nan")
    row = curves(runs_of({(1, 4): [1.0, nan]})).iloc[0]
    assert (row["mean"], row["runs"], row["diverged"]) == (0.5, 2, 1)
    row = curves(runs_of({(1, 4): [0.2, nan, 0.4]}, variant="value")).iloc[0]
    assert (row["mean"], row["runs"], row["diverged"]) == (pytest.approx(0.3), 3, 1)
    assert row["high"] - row["mean"] == pytest.approx(
        stats.t.ppf(0.975, 1) * stdev([0.2, 0.4]) / sqrt(2)
    )
    row = curves(runs_of({(1, 4): [nan, nan]}, variant="value")).iloc[0]
    assert np.isnan(row["mean"])


def test_an_interval_ends_where_the_metric_does():
    row = curves(runs_of({(1, 4): [0.5, 1.0]})).iloc[0]
    assert (row["low"], row["high"]) == (0.0, 1.0)
    row = curves(runs_of({(1, 4): [0.5, 1.0]}, variant="value")).iloc[0]  # an error has no end
    assert row["low"] == 0.0
    assert row["high"] > 1.0


@given(entries)
@settings(max_examples=30, deadline=None)
def test_curves_are_the_plain_statistics(table):
    found = curves(runs_of(table)).set_index(["heads", "budget"])
    assert len(found) == len(table)
    for (heads, key_dim), values in table.items():
        row = found.loc[(heads, heads * key_dim)]
        assert row["mean"] == pytest.approx(mean(values))
        if len(values) > 1:
            half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / sqrt(len(values))
            assert (row["low"], row["high"]) == pytest.approx(
                (max(mean(values) - half, 0), min(mean(values) + half, 1)), abs=1e-12
            )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda runs: runs.drop(columns="value"), "has no column value"),
        (lambda runs: runs.assign(budget=7), "budget differs from heads·key_dim at variant max"),
        (
            lambda runs: pd.concat([runs, runs]),
            "seed 0 appears twice at variant max, degree 1, items 64",
        ),
    ],
)
def test_a_wrong_frame_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        curves(change(runs_of({(1, 4): [0.9, 0.8]})))


# Thresholds


def test_threshold_takes_the_smallest_budget_of_any_head_count():
    found = threshold(
        runs_of(
            {
                (1, 20): near(0.5),
                (1, 40): near(0.6),
                (4, 4): near(0.98),
                (4, 5): near(0.995),
                (8, 3): near(1.0),
            }
        )
    )
    assert (found.central, found.heads, found.key_dim) == (20, 4, 5)
    assert found.mean == pytest.approx(0.995)


def test_three_budgets_follow_mean_low_end_and_high_end():
    found = threshold(
        runs_of(
            {
                (4, 3): near(0.97, 0.001),  # fails by every measure
                (4, 4): near(0.985, 0.01),  # only the high end passes
                (4, 5): near(0.992, 0.005),  # the mean passes, the low end does not
                (4, 6): near(0.995, 0.001),  # the low end passes
            }
        )
    )
    assert (found.optimistic, found.central, found.conservative) == (16, 20, 24)


def test_a_budget_never_reached_is_missing():
    found = thresholds(runs_of({(1, 4): near(0.5)}))
    assert (
        found.loc[0, ["central", "optimistic", "conservative", "heads", "heads_low", "mean"]]
        .isna()
        .all()
    )
    assert found.loc[0, "items"] == 64
    assert (
        thresholds_by_heads(runs_of({(1, 4): near(0.5)}))
        .loc[0, ["central", "key_dim", "mean"]]
        .isna()
        .all()
    )


def test_one_seed_gives_the_central_budget_and_no_conservative_one():
    found = threshold(runs_of({(1, 4): [0.98], (1, 5): [0.991], (1, 6): [1.0]}))
    assert (found.optimistic, found.central, found.conservative) == (5, 5, None)


def test_ties_go_to_the_larger_mean_then_to_fewer_heads():
    found = threshold(runs_of({(1, 8): near(0.991), (2, 4): near(0.996), (4, 2): near(0.993)}))
    assert (found.heads, found.key_dim) == (2, 4)
    found = threshold(runs_of({(4, 2): near(0.996), (2, 4): near(0.996)}))
    assert found.heads == 2


def test_thresholds_by_heads_judge_each_count_alone():
    found = thresholds_by_heads(
        runs_of({(1, 9): near(0.6), (2, 5): near(0.995), (2, 6): near(1.0), (4, 2): near(0.99)})
    )
    assert list(found["heads"]) == [1, 2, 4]
    assert list(found["central"].fillna(-1)) == [-1, 10, 8]
    assert list(found["key_dim"].fillna(-1)) == [-1, 5, 2]


def test_points_are_kept_apart():
    frame = pd.concat(
        [
            runs_of({(1, 5): near(1.0)}),
            runs_of({(2, 5): near(1.0)}, items=128),
            runs_of({(4, 5): near(1.0)}, degree=2),
            runs_of({(8, 5): near(1.0)}, variant="softmax"),
        ]
    )
    found = thresholds(frame).set_index(POINT)["central"]
    assert found["max", 1, 64, 16] == 5
    assert found["max", 1, 128, 16] == 10
    assert found["max", 2, 64, 16] == 20
    assert found["softmax", 1, 64, 16] == 40
    with pytest.raises(InputError, match="holds 4 points"):
        threshold(frame)


def test_a_frame_without_runs_has_no_thresholds():
    empty = runs_of({(1, 5): [0.1]}).iloc[:0]
    assert len(curves(empty)) == len(thresholds(empty)) == len(thresholds_by_heads(empty)) == 0
    assert list(thresholds(empty).columns) == list(thresholds(runs_of({(1, 5): [0.1]})).columns)


def test_value_has_no_threshold():
    with pytest.raises(InputError, match="mean squared error"):
        thresholds(runs_of({(1, 5): [0.1]}, variant="value"))


@given(entries, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_thresholds_agree_with_the_plain_definition_in_any_order(table, random):
    # A mean that meets the level to the last digit depends on its rounding, unless all seeds agree.
    assume(
        all(len(set(values)) == 1 or abs(mean(values) - 0.99) > 1e-12 for values in table.values())
    )
    frame = runs_of(table)
    order = list(range(len(frame)))
    random.shuffle(order)
    found = thresholds(frame.iloc[order])
    pd.testing.assert_frame_equal(found, thresholds(frame))
    row = found.iloc[0]
    passing = [h * k for (h, k), values in table.items() if mean(values) >= 0.99]
    assert (None if pd.isna(row["central"]) else row["central"]) == (
        min(passing) if passing else None
    )
    for smaller, larger in pairwise(("optimistic", "central", "conservative")):
        assert pd.isna(row[larger]) or row[smaller] <= row[larger]
    if passing:
        assert row["heads"] * row["key_dim"] == row["central"]
        assert row["heads_low"] <= row["heads"] <= row["heads_high"]
    by_heads = thresholds_by_heads(frame)
    for name in ("optimistic", "central", "conservative"):
        lowest = by_heads[name].min()
        assert (pd.isna(lowest) and pd.isna(row[name])) or lowest == row[name]


# The interval of h*


def test_head_counts_that_cannot_be_told_from_the_best_are_kept():
    rng = np.random.default_rng(0)
    base = 0.994 + 0.001 * rng.standard_normal(10)
    table = {
        (4, 5): base,  # h* at D_K* = 20
        (2, 10): base + 0.002 * rng.standard_normal(10),  # same budget, noise
        (1, 20): base - 0.3,  # clearly worse
        (8, 3): base,  # equal, but 24 is 20 % away
    }
    frame = runs_of(table).assign(value=lambda runs: runs["value"].clip(upper=0.9985))
    assert stats.ttest_rel(table[4, 5], table[2, 10]).pvalue > 0.05
    found = threshold(frame)
    assert (found.heads_low, found.heads, found.heads_high) == (2, 4, 4)


def test_the_pool_ends_at_ten_percent():
    assert heads_interval(
        runs_of({(2, 10): near(0.99), (11, 2): near(0.99), (1, 18): near(0.99)}), 20, 2
    ) == (1, 11)
    assert heads_interval(
        runs_of({(2, 10): near(0.99), (23, 1): near(0.99), (1, 17): near(0.99)}), 20, 2
    ) == (2, 2)


def test_the_entry_nearest_the_threshold_stands_for_a_head_count():
    # 21 beats h* clearly, 20 does not: no count is dropped for being better at a larger budget.
    frame = runs_of(
        {
            (2, 10): near(0.991),
            (1, 20): [0.990, 0.9915, 0.991, 0.9895],
            (1, 21): near(0.999, 0.0005),
        }
    )
    assert heads_interval(frame, 20, 2) == (1, 2)
    # Equally near: the larger mean.
    frame = runs_of({(2, 10): near(0.991), (1, 19): near(0.5), (1, 21): near(0.991)})
    assert heads_interval(frame, 20, 2) == (1, 2)
    with pytest.raises(InputError, match="no run has 3 heads"):
        heads_interval(frame, 20, 3)


def test_paired_p_is_scipys_and_handles_differences_without_spread():
    rng = np.random.default_rng(1)
    one, other = rng.random(8), rng.random(8)
    first = dict(enumerate(one))
    assert paired_p(first, dict(enumerate(other))) == pytest.approx(
        stats.ttest_rel(one, other).pvalue
    )
    assert paired_p(first, first) == 1
    # Rounding leaves the differences unequal in a last digit.
    assert paired_p(first, dict(enumerate(one + 0.25))) == 0
    # Only common seeds are paired: here 4 … 7, there 7 alone.
    assert paired_p(first, dict(enumerate(other, 4))) == pytest.approx(
        stats.ttest_rel(one[4:], other[:4]).pvalue
    )
    assert np.isnan(paired_p(first, dict(enumerate(other, 7))))


def test_a_candidate_without_two_common_seeds_is_not_kept():
    assert heads_interval(runs_of({(2, 10): near(0.995), (1, 20): [0.39]}), 20, 2) == (2, 2)
