"""Verdicts on shared keys: the rules, on runs made up to follow or break them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.analysis.shared_keys import beside_own, split_thresholds, threshold
from headcount.errors import InputError
from headcount.reproduction.shared_key_verdicts import (
    exponent,
    least_widths,
    shared_key_runs,
    shared_key_verdicts,
    verdicts,
)
from headcount.theory.refined_law import squared_width
from headcount.theory.shared_keys import own_width, shared_width

POINTS = {(64, 16): 5.0, (128, 32): 6.0, (256, 32): 7.0, (512, 64): 9.0, (1024, 128): 10.0}
MAIN = [(4, 4), (4, 2), (4, 1), (8, 8), (8, 4), (8, 2), (8, 1), (16, 16), (16, 4), (16, 1)]
SOFTMAX = [(8, 8), (8, 4), (8, 2), (8, 1), (16, 16), (16, 4), (16, 2), (16, 1)]
REGULAR = [(4, 4), (4, 1), (8, 8), (8, 4), (8, 2), (8, 1), (16, 16), (16, 1)]
ANTONYMS = [(4, 4), (4, 2), (4, 1), (8, 8), (8, 2), (8, 1)]


def by_sum(own, d_model, heads, kv_heads):
    return own * 2 * heads / (heads + kv_heads)


def runs_at(part, point, split, critical, seeds=10):
    """Runs whose error falls as (k/k*)^−6 through 0.01, with a little noise from seed to seed."""
    heads, kv_heads = split
    rng = np.random.default_rng(heads * 100 + kv_heads)
    widths = np.unique(np.round(critical * 2 ** np.linspace(-1.2, 1.2, 14)).clip(1)).astype(int)
    return [
        {
            "part": part, "items": point[0], "d_model": point[1], "heads": heads,
            "kv_heads": kv_heads, "key_dim": width, "seed": seed, "diverged": 0,
            "value": 1 - min(0.9, 0.01 * (width / critical) ** -6 * np.exp(0.1 * rng.normal())),
        }
        for width in widths
        for seed in range(seeds)
    ]  # fmt: skip


def made(law=by_sum, control=1.0):
    """All parts, with thresholds of shared keys by a law."""
    plan = [("main", point, MAIN) for point in POINTS]
    plan += [("softmax", point, SOFTMAX) for point in list(POINTS)[:3]]
    plan += [("longer", point, MAIN) for point in list(POINTS)[:4]]
    plan += [("regular", (128, 32), REGULAR), ("antonyms", (1149, 384), ANTONYMS)]
    rows = []
    for part, point, splits in plan:
        for heads, keys in splits:
            own = POINTS.get(point, 12.0) * (8 / heads) ** 0.3
            rows += runs_at(part, point, (heads, keys), law(own, point[1], heads, keys))
    for point in list(POINTS)[:2]:
        for heads, keys in [(4, 1), (8, 2), (8, 1)]:
            own = POINTS[point] * (8 / heads) ** 0.3
            width = control * law(own, point[1], heads, keys)
            rows += runs_at("queries", point, (heads, keys), width)
    return pd.DataFrame(rows)


def verdicts_of(runs):
    return {one.part: one for one in verdicts(runs)}


def test_a_threshold_is_where_the_error_crosses_one_in_a_hundred():
    widths = np.array([4.0, 5.0, 6.0, 8.0])
    scores = 1 - 0.01 * (widths / 5.5) ** -7
    assert threshold(widths, scores) == pytest.approx(5.5)
    assert np.isnan(threshold(widths, np.full(4, 0.999)))  # the smallest width passes already
    assert np.isnan(threshold(widths, np.full(4, 0.5)))
    both = threshold(widths, np.stack([scores, np.full(4, 0.5)]))
    assert both[0] == pytest.approx(5.5)
    assert np.isnan(both[1])
    exact = threshold(widths, np.array([0.9, 0.99, 1.0, 1.0]))
    assert exact == pytest.approx(5.0)


def test_thresholds_are_found_again_from_made_runs():
    found = split_thresholds(made().query("items == 256"))
    one = found.query("part == 'main' and items == 256 and heads == 8 and kv_heads == 2")
    critical = by_sum(7.0, 32, 8, 2)
    assert one["threshold"].item() == pytest.approx(critical, rel=0.05)
    assert one["low"].item() <= one["threshold"].item() <= one["high"].item()
    assert one["columns"].item() == pytest.approx(10 * one["threshold"].item())
    assert one["least"].item() >= one["threshold"].item() - 1e-9


def test_a_run_that_diverged_counts_as_nothing():
    runs = pd.DataFrame(runs_at("main", (64, 16), (4, 1), 8.0))
    worse = runs.assign(diverged=(runs["seed"] == 0).astype(int))
    assert np.isnan(split_thresholds(worse)["threshold"].item())


def test_widths_at_which_a_run_is_missing_are_left_out():
    """Where time ran out only runs that stopped early are there, which all succeeded."""
    runs = pd.DataFrame(runs_at("main", (64, 16), (4, 1), 8.0))
    early = runs[(runs["key_dim"] > 8) | (runs["seed"] == 3)]
    assert np.isnan(split_thresholds(early)["threshold"].item())
    none = split_thresholds(runs[runs["seed"] + runs["key_dim"] == 12])
    assert np.isnan(none["threshold"].item())
    assert none["least"].item() == 0


def test_where_the_sum_counts_it_is_confirmed():
    found = verdicts_of(made())
    for part in ("sum", "softmax", "regular", "antonyms", "longer", "left-out", "queries"):
        assert found[part].verdict == "confirmed", found[part]
    assert found["freedom"].verdict == "confirmed"
    known = beside_own(split_thresholds(made(), resamples=0)).query("part == 'main'")
    assert exponent(known) == pytest.approx(1.0, abs=0.03)


def test_the_law_that_made_the_runs_wins():
    for measure, verdict in (("R", "confirmed"), ("G", "refuted")):
        runs = made(lambda own, d, h, g, m=measure: shared_width(own, d, h, g, m))
        assert verdicts_of(runs)["rival"].verdict == verdict


def test_keys_that_may_not_be_shared_refute_the_sum():
    """If only keys counted, g·k would be constant."""
    found = verdicts_of(made(lambda own, d, h, g: own * h / g))
    for part in ("sum", "freedom", "softmax", "regular", "antonyms", "longer"):
        assert found[part].verdict == "refuted", found[part]


def test_a_control_that_differs_is_refuted_and_missing_thresholds_leave_it_open():
    assert verdicts_of(made(control=1.4))["queries"].verdict == "refuted"
    runs = made()
    few = runs[(runs["part"] != "softmax") | (runs["items"] == 64)]
    assert verdicts_of(few)["softmax"].verdict == "open"
    assert verdicts_of(few)["sum"].verdict == "confirmed"


def test_the_smallest_key_decides_the_floor():
    runs = made()
    # 16 heads at (64, 16): 5·(8/16)^0.3·32/17 = 7.6; at (1024, 128): 15.3.
    assert [least_widths(runs)[point] for point in ((64, 16), (1024, 128))] == [8, 16]
    found = verdicts_of(runs)
    assert found["floor"].verdict == "confirmed"
    assert found["random keys"].verdict == "refuted"  # three are 1.6 times as wide or more
    narrow = [pd.DataFrame(runs_at("narrow", point, (64, 1), 1.6)) for point in list(POINTS)[:2]]
    assert verdicts_of(pd.concat([runs, narrow[0]]))["floor"].verdict == "partly"
    assert verdicts_of(pd.concat([runs, *narrow]))["floor"].verdict == "refuted"


def test_bad_splits_get_a_sentence():
    with pytest.raises(InputError, match="kv_heads = 3: does not divide 8 heads"):
        shared_width(4, 32, 8, 3)


@given(
    st.integers(2, 300), st.integers(1, 8), st.integers(1, 8), st.floats(0.05, 0.999),
    st.sampled_from(["R", "G"]),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_widths_worth_the_same_have_the_same_ratio(d_model, groups, by, share, measure):
    own, heads = share * d_model, groups * by
    width = shared_width(own, d_model, heads, groups, measure)
    assert own * (1 - 1e-9) <= width <= d_model
    if measure == "R":
        freedom = d_model * (heads + groups) * width - groups * width**2
        assert freedom == pytest.approx(heads * own * (2 * d_model - own), rel=1e-6)
        assert own_width(width, d_model, heads, groups) == pytest.approx(own, rel=1e-4)
    else:
        ours = groups * squared_width(by * d_model, d_model, width)
        assert ours == pytest.approx(heads * squared_width(d_model, d_model, own), rel=1e-6)


def test_the_page_states_every_verdict_and_the_shipped_runs_are_those_of_the_manifest():
    root = Path(__file__).parent.parent
    page = (root / "docs" / "shared-keys.md").read_text(encoding="utf-8")
    for one in shared_key_verdicts().itertuples():
        assert f"| {one.part} | {one.hypothesis} | {one.verdict} | {one.numbers} |" in page
    folder = root / "src" / "headcount" / "reproduction" / "measured" / "shared-keys"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    runs = shared_key_runs()
    assert manifest["runs"] == len(runs)
    assert manifest["run_steps"] == runs["steps"].sum()
    assert f"{len(runs):,} preregistered runs" in page
    per_configuration = runs.groupby(
        ["part", "items", "degree", "heads", "kv_heads", "key_dim", "variant"]
    ).size()
    assert (per_configuration == 10).all()
