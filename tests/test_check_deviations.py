"""The checks behind docs/deviations.md, on sizes that take a second."""

from __future__ import annotations

import re
import warnings

import pytest

from tests.scripts import ROOT, script


@pytest.fixture(scope="module")
def tool():
    return script("tools/check_deviations.py")


def test_a_table_that_knows_the_graph_needs_one_fixed_head(tool):
    lines = list(tool.learned_tables(items=64, constant=20, graphs=2))
    assert len(lines) == 2
    assert all("exact, 0 false positives" in line for line in lines)


def test_fixed_points_break_algorithm_1_and_a_random_permutation_does_not(tool):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fixed points are what it warns of
        lines = list(tool.fixed_points(items=256, d_model=192, key_dim=2048))
    assert all("not exact" in line for line in lines if "swapped" in line)
    assert all(": exact" in line for line in lines if "random" in line)


def test_bernoulli_signatures_fail_where_rademacher_ones_are_exact(tool):
    bernoulli, rademacher = tool.bernoulli_signatures(items=2048, key_dim=256)
    assert "not exact" in bernoulli
    assert "rademacher: exact" in rademacher


def test_the_worst_set_leaks_more_than_a_fixed_one(tool):
    lines = tool.worst_sets(128, 32, blocks=(1, 8))
    ratios = [float(re.findall(r"is (.*) times", line)[0]) for line in lines]
    assert min(ratios) > 3


def test_every_check_is_named_where_its_item_is(tool):
    text = " ".join((ROOT / "docs" / "deviations.md").read_text().split())
    named = re.search(r"check_deviations.py ITEM` \(items ([\d, and]+)\)", text)
    assert named is not None
    assert re.findall(r"\d+", named[1]) == list(tool.CHECKS)
