"""Plans for shared keys: what is advised reaches its chance, fits the cache and is in range."""

from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import InputError, advise, plan_key_cache
from headcount.analysis.shared_keys import planned_errors
from headcount.reproduction.shared_key_verdicts import shared_key_runs, shared_key_thresholds
from headcount.theory.key_cache import (
    ERRORS,
    FEWEST,
    _chance,
    predicted_threshold,
    threshold_spread,
)
from headcount.theory.key_width import random_key_width
from headcount.theory.shared_keys import shared_width

POINTS = st.sampled_from([(64, 16), (100, 16), (128, 32), (256, 32), (500, 64), (1024, 128)])
few = settings(deadline=None, max_examples=20)


@given(POINTS, st.sampled_from([20_000, 50_000, 100_000]), st.floats(6, 400))
@few
def test_a_plan_fits_the_cache_with_the_fewest_parameters(point, steps, most):
    items, d_model = point
    free = plan_key_cache(items, d_model=d_model, steps=steps)
    answer = plan_key_cache(items, d_model=d_model, steps=steps, key_cache_bytes=most)
    assert free.split is not None
    assert free.split.cache_bytes == min(choice.cache_bytes for choice in free.choices)
    if answer.split is None:
        assert free.split.cache_bytes > most
        assert "the smallest key cache is" in answer.text
        return
    split = answer.split
    assert split.cache_bytes == 2 * split.kv_heads * split.key_dim <= most
    assert split.chance >= 0.95
    assert split.heads % split.kv_heads == 0
    assert split.parameters == d_model * (split.query_columns + split.key_columns) + 1
    assert split.parameters <= free.split.parameters
    if split.kv_heads < split.heads:
        assert split.key_columns >= random_key_width(items)
    assert split.interval[0] < split.interval[1]
    assert answer.text.startswith("Measured: ")


def test_keys_of_their_own_are_planned_like_the_adviser_does():
    ours = plan_key_cache(256, d_model=32, kv_heads=8, heads=8).split
    theirs = advise(256, 256, 32, heads=8).split
    assert ours is not None
    assert theirs is not None
    assert (ours.key_dim, ours.steps) == (theirs.key_dim, theirs.steps)
    assert ours.chance == pytest.approx(theirs.chance)


@given(POINTS, st.sampled_from([4, 8, 16]), st.integers(0, 4))
@few
def test_thresholds_are_those_of_equal_degrees_of_freedom(point, heads, power):
    (items, d_model), keys = point, min(heads, 2**power)
    own = predicted_threshold(items, items, d_model, heads, heads, 20_000)
    shared = predicted_threshold(items, items, d_model, heads, keys, 20_000)
    if 1 < own < d_model and shared < d_model:
        assert shared == pytest.approx(shared_width(own, d_model, heads, keys), rel=1e-4)


@pytest.mark.parametrize(
    ("parts", "count", "steps"), [(("main", "regular"), 40, 20_000), (("longer",), 21, 200_000)]
)
def test_the_error_of_thresholds_is_that_of_the_shipped_runs(parts, count, steps):
    known = shared_key_thresholds()
    errors = planned_errors(known[known["part"].isin(parts)], shared_key_runs())
    assert len(errors) == count
    assert (errors.mean(), errors.std()) == pytest.approx(ERRORS[steps], abs=1e-3)


@pytest.mark.parametrize(
    ("part", "steps"), [("main", 20_000), ("longer", 50_000), ("longer", 100_000)]
)
def test_what_would_be_advised_passed(part, steps):
    """Configurations with a chance of 95 % and enough key columns: nearly all of their runs."""
    runs = shared_key_runs()
    runs = runs[(runs["part"] == part) & (runs["heads"] > runs["kv_heads"])]
    enough = runs["kv_heads"] * runs["key_dim"] >= FEWEST * runs["items"].map(random_key_width)
    reached = runs["reached"].between(1, steps)
    sizes = ["items", "d_model", "heads", "kv_heads", "key_dim"]
    found = runs.assign(reached=reached)[enough].groupby(sizes)["reached"].mean()
    spreads = [threshold_spread(m, m, *split, steps) for m, *split, _ in found.index]
    wide = [
        log(width) > mean + 1.645 * deviation
        for (*_, width), (mean, deviation) in zip(found.index, spreads, strict=True)
    ]
    chances = [_chance(m, m, *rest, steps) for m, *rest in found.index]
    advised = found[[chance >= 0.95 and ok for chance, ok in zip(chances, wide, strict=True)]]
    assert len(advised) > 50
    assert advised.mean() > 0.99


def test_bytes_per_number_scale_the_cache_and_nothing_else():
    two, one = (
        plan_key_cache(256, d_model=32, kv_heads=1, bytes_per_number=size).split for size in (2, 1)
    )
    assert two is not None
    assert one is not None
    assert (two.heads, two.key_dim) == (one.heads, one.key_dim)
    assert two.cache_bytes == 2 * one.cache_bytes


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((4096, None, 512), "items 4,096; measured: 64 to 1,024"),
        ((256, 256 * 8, 32), "edges per item 8"),
        ((64, None, 64), "items per dimension 1"),
    ],
)
def test_outside_the_measured_range_no_split_is_advised(sizes, words):
    items, edges, d_model = sizes
    answer = plan_key_cache(items, edges, d_model=d_model)
    assert answer.split is None
    assert answer.outside is not None
    assert words in answer.outside
    assert "By the capacity law alone, D_Q + D_KV must exceed" in answer.text


def test_bad_requests_get_a_sentence():
    for asked, words in (
        ({"kv_heads": 3, "heads": 8}, "kv_heads = 3: does not divide 8 heads"),
        ({"heads": 0}, "heads = 0"),
        ({"bytes_per_number": 0}, "bytes_per_number = 0"),
        ({"key_cache_bytes": 1}, "less than one number"),
        ({"chance": 2.0}, "chance = 2"),
        ({"steps": -1}, "steps = -1"),
    ):
        with pytest.raises(InputError, match=words):
            plan_key_cache(64, d_model=16, **asked)


def test_head_counts_beyond_those_measured_are_not_advised():
    """With 64 heads of width 10 on one key none of ten runs reached 0.99."""
    answer = plan_key_cache(1024, d_model=128, heads=64, kv_heads=1, steps=100_000)
    assert answer.split is None
    assert "heads 64; measured: 4 to 16" in answer.text


def test_five_keys_are_planned_for_multiples_of_five():
    answer = plan_key_cache(256, d_model=32, kv_heads=5)
    assert answer.split is not None
    assert answer.split.heads % 5 == 0


@pytest.mark.parametrize("steps", [20_000, 50_000, 100_000])
def test_the_chance_and_the_interval_agree(steps):
    """A width with a chance of 98 % is at or above the upper end of the interval."""
    split = plan_key_cache(256, d_model=32, kv_heads=1, steps=steps, chance=0.98).split
    assert split is not None
    assert split.key_dim > split.interval[1] - 0.1
