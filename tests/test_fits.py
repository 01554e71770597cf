"""Least-squares lines, the paper's fits, and laws with intervals made of them."""

from __future__ import annotations

from math import log, log2, sqrt
from statistics import mean, stdev

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headcount import plan
from headcount.analysis.fits import fit_line
from headcount.analysis.laws import budget_fit, feature, fit_law, heads_fit, regular_fit
from headcount.errors import InputError
from headcount.theory.laws import FEATURES, TrainedLaw


def test_line_by_hand():
    # Slope 7/5, intercept 1/2, residuals .1, -.3, .3, -.1.
    fit = fit_line([1, 2, 3, 4], [2, 3, 5, 6])
    assert (fit.slope, fit.intercept) == pytest.approx((1.4, 0.5))
    assert fit.r_squared == pytest.approx(1 - 0.2 / 10)
    assert fit.spread == pytest.approx(sqrt(0.1))


def test_line_through_the_origin_by_hand():
    x, y = np.array([1.0, 2, 3]), np.array([2.0, 4, 7])
    fit = fit_line(x, y, intercept=False)
    assert fit.slope == pytest.approx(31 / 14)
    residual = ((y - 31 / 14 * x) ** 2).sum()
    assert fit.slope_error == pytest.approx(sqrt(residual / 2 / 14))
    assert fit.r_squared == pytest.approx(1 - residual / ((y - y.mean()) ** 2).sum())
    assert (fit.intercept, fit.intercept_interval()) == (0, (0, 0))


numbers = st.lists(
    st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=4, max_size=12
).filter(lambda points: len({x for x, _ in points}) > 2 and len({y for _, y in points}) > 1)


@given(numbers)
@settings(max_examples=40, deadline=None)
def test_line_is_scipys(points):
    x, y = np.array(points, dtype=float).T
    fit, reference = fit_line(x, y), stats.linregress(x, y)
    assert fit.slope == pytest.approx(reference.slope, abs=1e-9)
    assert fit.intercept == pytest.approx(reference.intercept, abs=1e-9)
    assert fit.r_squared == pytest.approx(reference.rvalue**2, abs=1e-9)
    assert fit.slope_error == pytest.approx(reference.stderr, abs=1e-6)
    assert fit.intercept_error == pytest.approx(reference.intercept_stderr, abs=1e-6)
    half = stats.t.ppf(0.975, len(x) - 2) * reference.stderr
    assert fit.slope_interval() == pytest.approx(
        (reference.slope - half, reference.slope + half), abs=1e-5
    )


@given(numbers, st.booleans(), st.sampled_from([0.5, 2, 8]), st.permutations(range(4)))
@settings(max_examples=40, deadline=None)
def test_scaling_y_scales_the_line_and_order_does_not_matter(points, intercept, scale, order):
    x, y = np.array(points, dtype=float).T
    fit, scaled = fit_line(x, y, intercept), fit_line(x, scale * y, intercept)
    assert scaled.slope == pytest.approx(scale * fit.slope)
    assert scaled.r_squared == pytest.approx(fit.r_squared)
    assert scaled.slope_interval() == pytest.approx([scale * end for end in fit.slope_interval()])
    rows = [*order, *range(4, len(x))]
    assert fit_line(x[rows], y[rows], intercept).slope == pytest.approx(fit.slope, abs=1e-12)
    low, high = fit.slope_interval()
    assert low <= fit.slope <= high


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1, 2], [1, 2], "needs 3 points; 2 were given"),
        ([1, 2, 3], [1, 2], "two lists of one length"),
        ([2, 2, 2], [1, 2, 3], "x does not vary"),
        ([1, 2, float("nan")], [1, 2, 3], "not finite"),
    ],
)
def test_a_fit_that_cannot_be_made_is_refused(x, y, message):
    with pytest.raises(InputError, match=message):
        fit_line(x, y)


# The paper's fits and the law

BASE = [(m, d) for m in (64, 128, 256, 512) for d in (16, 32, 64)]


def table_of(values, degree=1, variant="max"):
    """A frame of thresholds from {(items, d_model): (D_K*, h*)}."""
    rows = [
        {
            "variant": variant,
            "degree": degree,
            "items": m,
            "d_model": d,
            "central": budget,
            "heads": heads,
        }
        for (m, d), (budget, heads) in values.items()
    ]
    return pd.DataFrame(rows).astype({"central": "Int64", "heads": "Int64"})


def test_named_fits_read_the_right_rows_and_features():
    found = table_of(
        {(m, d): (round(1.19 * m * log2(m) / d), round(1.65 * m / d + 7)) for m, d in BASE}
    )
    noise = table_of({(64, 16): (999, 99)}, variant="softmax")
    dense = pd.concat(
        [table_of({(128, 32): (round(0.46 * r * 28), 4 * r)}, degree=r) for r in (1, 2, 4, 8, 16)]
    )
    unreached = table_of({(1024, 32): (None, None)})
    table = pd.concat([found, noise, unreached], ignore_index=True)
    assert budget_fit(table).points == 12
    assert budget_fit(table).slope == pytest.approx(1.19, abs=0.01)
    assert budget_fit(table, wide=True).points == 9
    assert heads_fit(table).slope == pytest.approx(1.65, abs=0.02)
    assert heads_fit(table).intercept == pytest.approx(7, abs=0.3)
    assert regular_fit(dense).slope == pytest.approx(0.46, abs=0.005)


def test_features_are_those_of_the_laws():
    table = table_of(dict.fromkeys(BASE, (1, 1)), degree=3)
    for form in FEATURES:
        line = TrainedLaw("x", "budget", form, 1.0, "test")
        assert list(feature(table, form)) == pytest.approx([line(m, 3 * m, d) for m, d in BASE])


def test_law_has_the_fit_and_an_interval_of_log_ratios():
    budgets = {
        point: max(1, round(1.2 * point[0] * log(point[0]) / point[1])) + 1 for point in BASE
    }
    table = table_of({point: (budget, 1) for point, budget in budgets.items()})
    fitted = fit_law(table)
    fit = budget_fit(table)
    assert (fitted.slope, fitted.r_squared) == (fit.slope, fit.r_squared)
    ratios = [log(budget / fitted(m, m, d)) for (m, d), budget in budgets.items()]
    half = stats.t.ppf(0.975, 11) * stdev(ratios) * sqrt(1 + 1 / 12)
    assert fitted.interval == pytest.approx(
        (np.exp(mean(ratios) - half), np.exp(mean(ratios) + half))
    )
    row = next(row for row in plan(256, d_model=32, law=fitted).rows if row.name == fitted.name)
    assert row.interval == pytest.approx(
        [factor * fitted(256, 256, 32) for factor in fitted.interval or ()]
    )


def test_law_of_heads_and_refusals():
    table = table_of({(m, d): (1, max(1, round(1.65 * m / d - 0.4))) for m, d in BASE})
    fitted = fit_law(
        table, "edges/d_model", quantity="heads", intercept=True, name="ours", source="here"
    )
    assert (fitted.name, fitted.source, fitted.quantity) == ("ours", "here", "heads")
    assert fitted.slope == pytest.approx(1.65, abs=0.02)
    assert fitted.intercept == pytest.approx(-0.4, abs=0.2)
    with pytest.raises(InputError, match="more than one variant"):
        fit_law(pd.concat([table, table_of({(64, 16): (9, 1)}, variant="softmax")]))


def test_the_interval_of_a_law_covers_new_points():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(300):
        table = table_of(
            {
                (m, d): (round(1000 * m * log2(m) / d * np.exp(rng.normal(0, 0.2))), 1)
                for m, d in BASE
            }
        )
        fitted = fit_law(table)
        new = 1000 * 96 * log2(96) / 48 * np.exp(rng.normal(0, 0.2))
        low, high = fitted.interval_at(96, 96, 48) or (0, 0)
        hits += low <= new <= high
    assert 0.92 <= hits / 300 <= 0.985
