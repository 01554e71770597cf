"""The timed steps of tools/native_phases.py are those of the native engine."""

from __future__ import annotations

import shutil

import pytest
import torch

from headcount.bench.cases import Case
from headcount.errors import InputError
from headcount.training.engines.native.engine import NativeEngine
from headcount.training.engines.native.library import levels
from tests.scripts import script

STEPS = 40


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """The tool, its compiled library and a level."""
    tool = script("tools/native_phases.py")
    try:
        runnable = [level for level in tool.LEVELS if level in levels()]
    except InputError as missing:
        pytest.skip(str(missing))
    if not runnable or not shutil.which(tool.COMPILER[0]):
        pytest.skip("no level with a clock, or no compiler")
    return tool, tool.timed_library(runnable[-1], tmp_path_factory.mktemp("timed")), runnable[-1]


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["max", "softmax", "value", "sum", "shared keys"])
def test_it_times_the_steps_of_the_engine(timed, variant):
    tool, found, level = timed
    case = Case(48, 12, 4, 20, variant)
    fleet = NativeEngine(1, level).fleet(case.specs(1))
    fleet.launch(STEPS)
    run = tool.TimedRun(found, case, level)
    assert all(ticks > 0 for ticks in run.steps(STEPS))
    assert run.check() > 0
    (expected,) = fleet.states([0])
    assert run.state().taken == expected.taken == STEPS
    for part in ("weights", "first", "second", "threshold"):
        torch.testing.assert_close(
            getattr(run.state(), part), getattr(expected, part), rtol=0, atol=1e-6
        )
