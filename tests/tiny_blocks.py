"""A small plan of block runs, and a folder in which they are finished."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_plan import BlockPlan, read_block_plan
from headcount.sweeps.block_runs import BlockCounts, run_blocks

TINY = """
table = "gaussian"
items = 24
d_model = 8

[[grid]]
heads = [1, 2]
budgets = [4, 8]
seeds = 2
length = 3
batch = 16
steps = 30
check_every = 10
validation = 64
test = 64

[[grid]]
control = "two-values"
heads = 1
budgets = 4
seeds = [5]
length = 3
batch = 16
steps = 30
check_every = 10
validation = 64
test = 64
"""


@pytest.fixture
def tiny(written) -> Path:
    return written(TINY, "tiny.toml")


@pytest.fixture(scope="session")
def _trained(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("tiny_blocks")
    (place / "tiny.toml").write_text(TINY, encoding="utf-8")
    quietly(read_block_plan(place / "tiny.toml"), BlockFolder(place / "out"), "all")
    return place / "out"


@pytest.fixture
def trained(_trained, tmp_path) -> BlockFolder:
    """A folder of the test's own in which the plan's runs are finished."""
    return BlockFolder(shutil.copytree(_trained, tmp_path / "out"))


def quietly(plan: BlockPlan, folder: BlockFolder, command: str, **more: Any) -> BlockCounts:
    """Train in this process, without notices."""
    return run_blocks(plan, folder, command, progress=False, **more)


def same(results: list) -> list:
    """Results without what differs from time to time."""
    return sorted(
        (replace(result, seconds=0.0) for result in results), key=lambda result: result.spec.hash
    )
