"""Bootstrap intervals of an audit: against a plain computation, and their coverage."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.auditing.resampling import mean_intervals


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=20)
def test_intervals_are_those_of_a_plain_bootstrap_of_source_words(seed):
    rng = np.random.default_rng(seed)
    sources, values = np.sort(np.r_[0:8, rng.integers(0, 8, 9)]), rng.random((2, 17))
    low, high = mean_intervals(values, sources, seed, resamples=50)
    words = np.unique(sources)
    drawn = np.random.default_rng(seed).multinomial(len(words), [1 / len(words)] * len(words), 50)
    means = [
        np.repeat(values, [count[words == source][0] for source in sources], axis=1).mean(1)
        for count in drawn
    ]
    np.testing.assert_allclose(low, np.quantile(means, 0.025, axis=0), atol=1e-12)
    np.testing.assert_allclose(high, np.quantile(means, 0.975, axis=0), atol=1e-12)


def test_intervals_hold_the_mean_at_their_rate():
    """Edges of one word are alike, so that taking them for independent would be too narrow."""
    covered = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        sources = np.repeat(np.arange(60), 4)
        low, high = mean_intervals(rng.standard_normal((1, 60))[:, sources], sources, seed, 200)
        covered += bool(low[0] <= 0 <= high[0])
    assert 265 <= covered <= 297


def test_few_source_words_give_no_interval():
    """Samples of one word are all alike: an interval of no width would claim certainty."""
    values = np.random.default_rng(0).random((3, 9))
    for words in (1, 7):
        low, high = mean_intervals(values, np.arange(9) % words)
        assert np.isnan(low).all()
        assert np.isnan(high).all()
    low, high = mean_intervals(values, np.arange(9) % 8)
    assert (low < high).all()
