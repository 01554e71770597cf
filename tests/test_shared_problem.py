"""The example that shares one problem between seeds: what is shared, and what is not."""

from __future__ import annotations

import pytest
import torch

from headcount.training.engines.native import runs
from headcount.training.engines.selection import choose_engine
from headcount.training.spec import RunSpec
from headcount.training.task import task_of
from tests.scripts import script


@pytest.fixture(scope="module")
def example():
    return script("examples/shared_problem.py")


def test_seeds_share_the_problem_and_nothing_else(example):
    choose_engine("native")
    specs = [RunSpec(16, 8, 2, 3, seed=seed, steps=500) for seed in (4, 5)]
    with example.shared_problem(4):
        one, other = (runs.task_of(spec) for spec in specs)
        assert one is other is task_of(specs[0])
        shared = example.scores(specs)
    assert runs.task_of is task_of
    own = example.scores(specs)
    assert shared[0] == own[0]  # seed 4 draws problem 4 by itself
    assert shared[1] != own[1]
    assert not torch.equal(task_of(specs[0]).rows, task_of(specs[1]).rows)


def test_a_line_of_the_table(example):
    words = example.compare((16, 8, 2), 3, 500).split()
    assert words[:5] == ["16", "8", "2", "3", "6"]
    assert len(words) == 8 + len(example.PROBLEMS)
    assert all(0 <= float(word) <= 1 for word in words[5:])
