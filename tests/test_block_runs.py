"""Plans of block runs, the folder that keeps them, and `headcount block` and `reproduce --only fig7` as a user runs
them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest

from headcount.block.state import StackState
from headcount.errors import InputError
from headcount.problem.token_tables import token_table
from headcount.reproduction.shipped import MEASURED
from headcount.sweeps import block_plan
from headcount.sweeps.block_folder import BLOCK_COLUMNS, BlockFolder, block_frame
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.block_runs import run_blocks

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


def same(results: list) -> list:
    """Results without what differs from time to time."""
    return sorted(
        (replace(result, seconds=0.0) for result in results), key=lambda result: result.spec.hash
    )


def test_a_plan_is_the_product_of_its_grids(tiny):
    plan = read_block_plan(tiny)
    assert plan.name == "tiny"
    assert len(plan.specs) == 9
    assert {(spec.heads, spec.budget) for spec in plan.specs} == {(1, 4), (2, 4), (1, 8), (2, 8)}
    assert {spec.table_hash for spec in plan.specs} == {token_table("gaussian", 24, 8).hash}
    assert [spec.seed for spec in plan.specs if spec.two_values] == [5]


def test_the_paper_preset_is_figure_7(monkeypatch):
    rows = token_table("gaussian", 6144, 768)
    monkeypatch.setattr(block_plan, "token_table", lambda *asked: rows)
    specs = read_block_plan("paper").specs
    assert len(specs) == 4 * 4 * 7
    assert {(spec.items, spec.length, spec.steps, spec.weight_decay) for spec in specs} == {
        (6144, 16, 100_000, 0.01)
    }
    assert {(spec.heads, spec.key_dim) for spec in specs} >= {(1, 512), (8, 8)}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("budgets = [4, 8]", "budgets = [4, 9]", "2 heads do not share a budget of 9 evenly"),
        ("batch = 16", "bach = 16", "did you mean 'batch'"),
        ('table = "gaussian"', 'table = "nowhere.npy"', "nowhere.npy"),
        ('table = "gaussian"', "", "names no table"),
        ("[[grid]]", "[[gird]]", "'gird' is no key here"),
        ("length = 3", "length = 30", "length 30 does not fit"),
    ],
)
def test_a_wrong_plan_is_one_sentence(written, old, new, says):
    with pytest.raises(InputError, match=says):
        read_block_plan(written(TINY.replace(old, new)))


def test_what_was_stopped_goes_on_and_ends_the_same(tiny, tmp_path):
    plan = read_block_plan(tiny)
    whole, parts = BlockFolder(tmp_path / "whole"), BlockFolder(tmp_path / "parts")
    assert run_blocks(plan, whole, "all at once", progress=False).missing == 0
    asked = (
        itertools.count()
    )  # a question of the clock takes a second: each run is stopped on its way
    with patch("headcount.block.train.time.monotonic", lambda: float(next(asked))):
        made = run_blocks(plan, parts, "a little", progress=False, time_limit=25.0)
    assert made.missing > 0
    left = [StackState.load(path) for path in (parts.path / "states").glob("*.safetensors")]
    assert any(0 < state.taken < 30 for state in left)
    assert run_blocks(plan, parts, "the rest", progress=False).missing == 0
    assert same(parts.results()) == same(whole.results())
    assert parts.made()[-1]["command"] == "the rest"
    assert not list((parts.path / "states").glob("*"))
    before = (parts.path / "manifest.json").read_bytes()
    assert run_blocks(plan, parts, "again", progress=False).missing == 0
    assert (parts.path / "manifest.json").read_bytes() == before  # nothing was left to do
    (parts.path / "runs.parquet").unlink()
    run_blocks(plan, parts, "again", progress=False)
    assert len(parts.frame()) == len(plan.specs)


def test_states_of_another_plan_do_no_harm(tiny, tmp_path):
    plan, folder = read_block_plan(tiny), BlockFolder(tmp_path / "out")
    folder.path.mkdir()
    one, two, three = (
        spec for spec in plan.specs if (spec.heads == 2 and spec.key_dim == 2) or spec.two_values
    )
    for specs in ([one, two], [two], [one], [three]):
        folder.keep(StackState.initial(specs))
    assert len(list((folder.path / "states").iterdir())) == 4
    assert [state.specs for state in folder.under_way(plan.specs)] in ([[one, two], [three]],)
    assert [set(state.specs) for state in folder.under_way([two])] == [{two}]
    assert run_blocks(plan, folder, "all", progress=False).missing == 0
    assert not list((folder.path / "states").iterdir())


def test_one_folder_one_process(tiny, tmp_path):
    folder = BlockFolder(tmp_path / "out")
    with folder.held(), pytest.raises(InputError, match="another process trains there"):
        run_blocks(read_block_plan(tiny), folder, "second", progress=False)


def test_a_run_counts_once(tiny, tmp_path):
    plan, folder = read_block_plan(tiny), BlockFolder(tmp_path / "out")
    run_blocks(plan, folder, "once", progress=False)
    folder.add(folder.results()[:2])
    assert len(folder.results()) == len(plan.specs)


def test_a_kill_loses_no_finished_run(tiny, tmp_path):
    tiny.write_text(TINY.replace("steps = 30", "steps = 400"), encoding="utf-8")
    words = [sys.executable, "-m", "headcount", "block", str(tiny), "--out", str(tmp_path / "out")]
    lines = tmp_path / "out" / "runs.jsonl"
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (lines.exists() and lines.read_bytes().count(b"\n")) and time.monotonic() < deadline:
        assert process.poll() is None or lines.exists()
        time.sleep(0.02)
    process.kill()
    process.wait()
    folder = BlockFolder(tmp_path / "out")
    kept = folder.results()
    assert kept
    with lines.open("ab") as file:
        file.write(b'{"spec": {"items"')  # as if the kill had come in the middle of a line
    assert folder.results() == kept
    assert run_blocks(read_block_plan(tiny), folder, "again", progress=False).missing == 0
    assert folder.results()[: len(kept)] == kept
    assert len(folder.frame()) == 9


def test_a_damaged_folder_is_one_sentence(tmp_path, capsys):
    folder = BlockFolder(tmp_path)
    (tmp_path / "runs.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"runs.jsonl: holds a line that is no run"):
        folder.results()
    (tmp_path / "manifest.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match=r"manifest.json: is no manifest"):
        folder.made()
    (tmp_path / "runs.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"runs.parquet: cannot be read"):
        folder.frame()
    states = tmp_path / "states"
    states.mkdir()
    (states / "half.safetensors").write_bytes(b"half")
    assert folder.under_way([]) == []
    assert "half.safetensors: is not a state of block runs" in capsys.readouterr().err


def test_the_frame_has_a_row_per_run(tiny, tmp_path):
    folder = BlockFolder(tmp_path / "out")
    run_blocks(read_block_plan(tiny), folder, "some", progress=False)
    frame, results = folder.frame(), folder.results()
    assert tuple(frame.columns) == BLOCK_COLUMNS
    pd.testing.assert_frame_equal(frame, block_frame(results), check_dtype=False)
    for row, result in zip(frame.to_dict("records"), results, strict=True):
        assert row["hash"] == result.spec.hash
        assert row["budget"] == result.spec.heads * result.spec.key_dim
        assert row["test"] == result.test
        assert row["target_mean"] == pytest.approx(sum(result.attention.target) / result.spec.heads)
        assert [step for step, _ in json.loads(row["history"])] == [10, 20, 30]
    assert block_frame([]).empty
    assert tuple(block_frame([]).columns) == BLOCK_COLUMNS


def test_the_command_says_what_it_found(tiny, command):
    code, out, err = command("block", tiny, "--out", "mine", "--json")
    told = json.loads(out)
    assert code == 0
    assert (told["finished"], told["missing"], len(told["runs"])) == (9, 0, 9)
    assert "24 rows of 8" in err
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
        (["quick", "--device", "tpu"], "device 'tpu' is unknown"),
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


def test_the_runs_that_came_with_it_are_figure_7():
    shipped = MEASURED.block
    plain = shipped.frame().query(
        "control == 'none' and scale == 1 and table == 'mpnet-base-top6144'"
    )
    assert len(plain) == 4 * 4 * 7
    assert plain["hash"].is_unique
    assert set(plain["d_model"]) == {768}
    assert plain["test"].between(0, 1).all()
    assert (
        plain[[name for name in plain if name.startswith("answer_")]].sum(axis=1) - 1
    ).abs().max() < 1e-6
    assert shipped.provenance()["device"] == "NVIDIA H200"


@pytest.mark.slow
def test_the_quick_preset_shows_the_advantage_of_several_heads(tmp_path):
    folder = BlockFolder(tmp_path)
    assert run_blocks(read_block_plan("quick"), folder, "quick", progress=False).missing == 0
    rows = folder.frame()
    for budget in (32, 64, 128):
        here = rows.loc[rows["budget"] == budget]
        assert (
            here.loc[here["heads"] > 1, "test"].min() > here.loc[here["heads"] == 1, "test"].max()
        )
