"""Sweeps that are killed, interrupted, or race on one store."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from headcount.store.store import Store
from headcount.sweeps.file import read_sweep
from tests.processes import forked
from tests.sweep_runs import GRID, RUNS, command, killed, on_one_core, racing, table

# --- kills, interrupts, races: real processes -----------------------------------------------------


@pytest.fixture(scope="module")
def lives(tmp_path_factory, command_in) -> tuple[Path, list[tuple[int, int]]]:
    """A folder with the stores of an undisturbed sweep and of one that is killed ten times.

    Beside it the runs and checkpoints after each kill.
    """
    path = tmp_path_factory.mktemp("killed") / "runs.toml"
    path.write_text(RUNS)
    (path.parent / "small.toml").write_text(f'engine = "native"\n{GRID}')
    command_in(path.parent, "sweep", "small.toml")  # each life finds loaded what it needs
    with forked(on_one_core, killed, str(path), 10) as process:
        code, out, err = process.end(120)
    assert code == 0, err
    return path.parent, [tuple(map(int, line.split())) for line in out.splitlines()]


@pytest.fixture
def undisturbed(lives) -> list[object]:
    """The table of RUNS."""
    return table(lives[0] / "undisturbed.sqlite")


def test_ten_kills_change_nothing(lives, undisturbed):
    folder, left = lives
    assert len(left) == 10
    assert [runs for runs, _, _ in left] == sorted(runs for runs, _, _ in left)  # nothing is lost
    kills = [runs for runs, _, signalled in left if signalled == signal.SIGKILL]
    assert kills
    assert kills[0] < len(undisturbed)
    assert len(undisturbed) == len(read_sweep(folder / "runs.toml").runs)
    assert table(folder / "runs.sqlite") == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_says_how_to_go_on(tmp_path, undisturbed, number):
    path = tmp_path / "runs.toml"
    path.write_text(RUNS.replace("steps = 6000", "steps = 200_000"))  # it ends by the signal alone
    store, deadline = path.with_suffix(".sqlite"), time.monotonic() + 120
    with forked(on_one_core, command, str(path)) as process:
        while time.monotonic() < deadline:  # until it is at work
            time.sleep(0.02)
            if store.exists():
                with Store(store, read_only=True) as opened:
                    if any(sweep.steps_taken for sweep in opened.sweeps):
                        break
        process.send_signal(number)
        code, out, err = process.end()
    assert (code, out) == (130, "")
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
    with forked(on_one_core, racing, str(path)) as process:
        code, out, err = process.end(120)
    assert code == 0, err
    assert table(path.with_suffix(".sqlite")) == undisturbed
    both = [json.loads(line) for line in out.splitlines()]
    assert len(both) == 2
    assert all(one["known"] + one["trained"] <= len(undisturbed) for one in both)
    assert both[0]["thresholds"] == both[1]["thresholds"]
