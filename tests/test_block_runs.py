"""Block runs: stopped, killed, and by their commands."""

from __future__ import annotations

import itertools
import json
import signal
import time
from unittest.mock import patch

import pytest

from headcount.block.state import StackState
from headcount.sweeps import block_plan
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_plan import read_block_plan
from tests.processes import forked, headcount
from tests.tiny_blocks import TINY, quietly, same


def test_what_was_stopped_goes_on_and_ends_the_same(tiny, tmp_path, trained):
    plan, parts = read_block_plan(tiny), BlockFolder(tmp_path / "parts")
    # A question of the clock takes a second: each run is stopped on its way.
    asked = itertools.count()
    with patch("headcount.block.train.time.monotonic", lambda: float(next(asked))):
        made = quietly(plan, parts, "a little", time_limit=25.0)
    assert made.missing > 0
    left = [StackState.load(path) for path in (parts.path / "states").glob("*.safetensors")]
    assert any(0 < state.taken < 30 for state in left)
    assert quietly(plan, parts, "the rest").missing == 0
    assert same(parts.results()) == same(trained.results())
    assert parts.manifest.history()[-1]["command"] == "the rest"
    assert not list((parts.path / "states").glob("*"))
    before = (parts.path / "manifest.json").read_bytes()
    assert quietly(plan, parts, "again").missing == 0
    assert (parts.path / "manifest.json").read_bytes() == before  # nothing was left to do
    (parts.path / "runs.parquet").unlink()
    quietly(plan, parts, "again")
    assert len(parts.frame()) == len(plan.specs)


def test_a_kill_loses_no_finished_run(tiny, tmp_path):
    tiny.write_text(TINY.replace("steps = 30", "steps = 50"), encoding="utf-8")
    folder = BlockFolder(tmp_path / "out")
    words = ("block", tiny, "--out", "out", "--device", "cpu")
    with forked(headcount, *words, folder=tmp_path) as process:
        deadline = time.monotonic() + 120
        while not folder.results() and time.monotonic() < deadline:
            assert process.running or folder.results()
            time.sleep(0.01)
        assert process.kill() == -signal.SIGKILL
    kept = folder.results()
    assert kept
    assert quietly(read_block_plan(tiny), folder, "again").missing == 0
    assert all(result in folder.results() for result in kept)
    assert len(folder.frame()) == 9


def test_the_command_says_what_it_found(tiny, command):
    code, out, err = command("block", tiny, "--out", "mine", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["finished"], told["missing"], len(told["runs"])) == (9, 0, 9)
    assert "24 items and NULL, 8 wide" in err
    code, out, _ = command("block", tiny, "--out", "mine")
    assert code == 0
    assert "budget 4, 1 head, two-values" in out
    code, out, _ = command("block", tiny, "--out", "other", "--time-limit", "1e-9", "--json")
    assert code == 1
    assert json.loads(out)["missing"] > 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "nothing: is neither a file nor one of quick, paper"),
        (["quick", "--table", "nowhere.safetensors"], "nowhere.safetensors"),
        (["quick", "--device", "tpu"], "'--device': 'tpu' is not one of 'auto', 'cpu', 'cuda'"),
    ],
)
def test_bad_input_is_one_sentence(command, words, says):
    code, out, err = command("block", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert "Traceback" not in err


def test_reproduce_runs_figure_7_where_it_is_asked_for(tiny, command, tmp_path, monkeypatch):
    monkeypatch.setattr(block_plan, "_FOLDER", tmp_path)
    (tmp_path / "quick.toml").write_text(TINY, encoding="utf-8")
    code, _, _ = command("reproduce", "--only", "fig7", "--out", "here", "--json")
    assert code == 0
    assert len(BlockFolder(tmp_path / "here" / "block").results()) == 9
    assert (tmp_path / "here" / "figures" / "fig7.png").stat().st_size > 1000
    manifest = json.loads((tmp_path / "here" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["made"][0]["only"] == ["fig7"]
    assert "block runs" in manifest["made"][0]["seconds"]


@pytest.mark.slow
def test_the_quick_preset_shows_the_advantage_of_several_heads(tmp_path):
    folder = BlockFolder(tmp_path)
    assert quietly(read_block_plan("quick"), folder, "quick").missing == 0
    rows = folder.frame()
    for budget in (32, 64, 128):
        here = rows.loc[rows["budget"] == budget]
        assert (
            here.loc[here["heads"] > 1, "test"].min() > here.loc[here["heads"] == 1, "test"].max()
        )
