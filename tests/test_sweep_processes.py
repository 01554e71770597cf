"""Sweeps that are killed, interrupted, or race on one store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headcount.store.store import Store
from headcount.sweeps.file import read_sweep
from tests.sweep_runs import RUNS, table

# --- kills, interrupts, races: real processes -----------------------------------------------------


def script(*words: object, **options) -> subprocess.Popen[str]:
    """tests/sweep_runs.py as a process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.sweep_runs", *map(str, words)],
        cwd=Path(__file__).parents[1], env=environment, text=True, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> tuple[Path, list[tuple[int, int]]]:
    """A folder with the stores of an undisturbed sweep and of one that is killed ten times.

    Beside it the runs and checkpoints after each kill.
    """
    path = tmp_path_factory.mktemp("killed") / "runs.toml"
    path.write_text(RUNS)
    process = script("killed", path, 10, stdout=subprocess.PIPE)
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0
    return path.parent, [(int(line.split()[0]), int(line.split()[1])) for line in lines]


@pytest.fixture
def undisturbed(killed) -> list[object]:
    """The table of RUNS."""
    return table(killed[0] / "undisturbed.sqlite")


def test_ten_kills_change_nothing(killed, undisturbed):
    folder, lives = killed
    assert len(lives) == 10
    assert [runs for runs, _ in lives] == sorted(
        runs for runs, _ in lives
    )  # nothing finished is lost
    assert lives[0][0] < len(undisturbed)  # kills came before the end
    assert len(undisturbed) == len(read_sweep(folder / "runs.toml").runs)
    assert table(folder / "runs.sqlite") == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_says_how_to_go_on(tmp_path, undisturbed, number):
    path = tmp_path / "runs.toml"
    path.write_text(RUNS)
    process = script("plain", path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    store, deadline = path.with_suffix(".sqlite"), time.monotonic() + 120
    while time.monotonic() < deadline:  # until it is at work
        time.sleep(0.05)
        if store.exists():
            with Store(store, read_only=True) as opened:
                if any(sweep.steps_taken for sweep in opened.sweeps):
                    break
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1].startswith("interrupted: ")
    assert err.endswith(
        f"of {len(undisturbed)} runs are stored in {store}; the same command continues from there\n"
    )
    with Store(store, read_only=True) as opened:
        assert next(iter(opened.sweeps)).state == "interrupted"
        assert len(opened) < len(undisturbed)
        assert len(opened.checkpoints) > 0


def test_two_sweeps_on_one_store(tmp_path, undisturbed):
    path = tmp_path / "runs.toml"
    path.write_text(RUNS)
    process = script("racing", path, stdout=subprocess.PIPE)
    out = process.communicate()[0]
    assert process.returncode == 0
    assert table(path.with_suffix(".sqlite")) == undisturbed
    both = [json.loads(line) for line in out.splitlines()]
    assert len(both) == 2
    assert all(one["known"] + one["trained"] <= len(undisturbed) for one in both)
    assert both[0]["thresholds"] == both[1]["thresholds"]
