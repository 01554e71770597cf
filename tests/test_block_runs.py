"""Plans of block runs, the folder that keeps them, and the commands that make them."""

from __future__ import annotations

import itertools
import json
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from headcount.block.state import StackState
from headcount.errors import InputError
from headcount.problem.token_tables import token_table
from headcount.reproduction.shipped import MEASURED
from headcount.store.store import Store
from headcount.sweeps import block_plan
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_frame import BLOCK_COLUMNS, block_frame
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


def quietly(plan: BlockPlan, folder: BlockFolder, command: str, **more: Any) -> BlockCounts:
    """Train in this process, without notices."""
    return run_blocks(plan, folder, command, progress=False, **more)


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


def test_a_plan_may_share_keys(written, tmp_path, command):
    text = TINY.replace("heads = [1, 2]", "heads = [1, 2]\nkv_heads = [1, 2]")
    plan = read_block_plan(written(text))
    # Each g with the head counts that it divides.
    assert {(spec.heads, spec.key_heads) for spec in plan.specs} == {(2, 1), (2, 2), (1, 1)}
    code, out, _ = command("block", written(text), "--out", "mine")
    assert code == 0
    assert "budget 8, 2 heads, 1 key head  " in out
    assert "budget 8, 2 heads  " in out
    folder = BlockFolder(tmp_path / "mine")
    assert {result.spec for result in folder.results()} == set(plan.specs)
    frame = folder.frame()
    assert (frame["key_budget"] == frame["key_heads"] * frame["key_dim"]).all()
    assert sorted(frame.loc[frame["heads"] == 2, "key_heads"]) == [1] * 4 + [2] * 4
    command("results", "export", folder.store, "--out", "runs.csv")
    exported = pd.read_csv(tmp_path / "runs.csv").set_index("hash")
    for spec in plan.specs:
        assert exported.loc[spec.hash, "kv_heads"] == spec.kv_heads
    code, out, _ = command("results", "list", folder.store, "--kv-heads", "1", "--json")
    assert {row["hash"] for row in json.loads(out)["rows"]} == {
        spec.hash for spec in plan.specs if spec.kv_heads == 1
    }
    # Tables from before keys could be shared: every head has its own.
    older = BlockFolder(tmp_path / "older")
    older.path.mkdir()
    frame.drop(columns=["key_heads", "key_budget"]).to_parquet(older.path / "runs.parquet")
    assert len(older.frame()) == len(frame)
    assert (older.frame()["key_heads"] == older.frame()["heads"]).all()
    assert (older.frame()["key_budget"] == older.frame()["budget"]).all()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "length = 3\nbatch",
            "length = 3\nkv_heads = 3\nbatch",
            r"kv_heads 3 divides none of heads \[1, 2\]",
        ),
        ("budgets = [4, 8]", "budgets = [4, 9]", "2 heads do not share a budget of 9 evenly"),
        ("batch = 16", "bach = 16", "did you mean 'batch'"),
        ('table = "gaussian"', 'table = "nowhere.npy"', "nowhere.npy"),
        ('table = "gaussian"', "", "names no table"),
        ("[[grid]]", "[[gird]]", "'gird' is not a key here"),
        ("length = 3", "length = 30", "length 30 does not fit"),
    ],
)
def test_a_wrong_plan_is_one_sentence(written, old, new, says):
    with pytest.raises(InputError, match=says):
        read_block_plan(written(TINY.replace(old, new)))


def test_what_was_stopped_goes_on_and_ends_the_same(tiny, tmp_path):
    plan = read_block_plan(tiny)
    whole, parts = BlockFolder(tmp_path / "whole"), BlockFolder(tmp_path / "parts")
    assert quietly(plan, whole, "all at once").missing == 0
    asked = (
        itertools.count()
    )  # a question of the clock takes a second: each run is stopped on its way
    with patch("headcount.block.train.time.monotonic", lambda: float(next(asked))):
        made = quietly(plan, parts, "a little", time_limit=25.0)
    assert made.missing > 0
    left = [StackState.load(path) for path in (parts.path / "states").glob("*.safetensors")]
    assert any(0 < state.taken < 30 for state in left)
    assert quietly(plan, parts, "the rest").missing == 0
    assert same(parts.results()) == same(whole.results())
    assert parts.manifest.history()[-1]["command"] == "the rest"
    assert not list((parts.path / "states").glob("*"))
    before = (parts.path / "manifest.json").read_bytes()
    assert quietly(plan, parts, "again").missing == 0
    assert (parts.path / "manifest.json").read_bytes() == before  # nothing was left to do
    (parts.path / "runs.parquet").unlink()
    quietly(plan, parts, "again")
    assert len(parts.frame()) == len(plan.specs)


def test_manifests_of_release_0_1_0_and_of_other_folders_are_read(tiny, tmp_path):
    folder = BlockFolder(tmp_path / "out")
    folder.path.mkdir()
    then = {"command": "then", "trained": 4, "seconds": 1000.0}  # one number of seconds
    other = {"command": "other", "trained": 3, "seconds": {"runs": 100.0, "report": 7.0}}
    folder.manifest.write([then, other], preset="quick")
    quietly(read_block_plan(tiny), folder, "now")
    *before, entry = folder.manifest.history()
    assert before == [then, other]
    assert entry["complete"]
    assert entry["trained"] == 9
    found = folder.provenance()
    assert (found["command"], found["runs"]) == ("now", 9)
    assert found["seconds"] == pytest.approx(1100.0 + entry["seconds"]["runs"])


def test_states_of_another_plan_do_no_harm(tiny, tmp_path):
    plan, folder = read_block_plan(tiny), BlockFolder(tmp_path / "out")
    folder.path.mkdir()
    one, two, three = (
        spec for spec in plan.specs if (spec.heads == 2 and spec.key_dim == 2) or spec.two_values
    )
    for specs in ([one, two], [two], [one], [three]):
        folder.states.save(StackState.initial(specs))
    assert len(list((folder.path / "states").iterdir())) == 4
    assert [state.specs for state in folder.states.load(plan.specs)] in ([[one, two], [three]],)
    assert [set(stack) for stack in folder.states.stacks(plan.specs)] == [{one, two}, {three}]
    assert [set(state.specs) for state in folder.states.load([two])] == [{two}]
    assert quietly(plan, folder, "all").missing == 0
    assert not list((folder.path / "states").iterdir())


def test_one_folder_one_process(tiny, tmp_path):
    folder = BlockFolder(tmp_path / "out")
    with folder.opened(), pytest.raises(InputError, match="another process trains there"):
        quietly(read_block_plan(tiny), folder, "second")


def test_a_run_counts_once(tiny, tmp_path):
    plan, folder = read_block_plan(tiny), BlockFolder(tmp_path / "out")
    quietly(plan, folder, "once")
    with Store(folder.store) as store:
        assert store.add(folder.results()[:2]) == 0
    assert len(folder.results()) == len(plan.specs)


def test_a_kill_loses_no_finished_run(tiny, tmp_path):
    tiny.write_text(TINY.replace("steps = 30", "steps = 400"), encoding="utf-8")
    words = [sys.executable, "-m", "headcount", "block", str(tiny), "--out", str(tmp_path / "out")]
    folder = BlockFolder(tmp_path / "out")
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not folder.results() and time.monotonic() < deadline:
        assert process.poll() is None or folder.results()
        time.sleep(0.02)
    process.kill()
    process.wait()
    kept = folder.results()
    assert kept
    assert quietly(read_block_plan(tiny), folder, "again").missing == 0
    assert all(result in folder.results() for result in kept)
    assert len(folder.frame()) == 9


def test_a_damaged_folder_is_one_sentence(tmp_path, capsys):
    folder = BlockFolder(tmp_path)
    (tmp_path / "runs.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"runs.jsonl: holds a line that is not a run"):
        folder.results()
    (tmp_path / "manifest.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match=r"manifest.json: cannot be read .it is not a manifest"):
        folder.manifest.history()
    (tmp_path / "runs.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"runs.parquet: cannot be read"):
        folder.frame()
    states = tmp_path / "states"
    states.mkdir()
    (states / "half.safetensors").write_bytes(b"half")
    assert folder.states.load([]) == []
    assert "half.safetensors: is not a state of block runs" in capsys.readouterr().err


def test_a_state_that_has_changed_is_noticed(tiny, tmp_path, capsys):
    plan, folder = read_block_plan(tiny), BlockFolder(tmp_path)
    folder.states.save(StackState.initial(plan.specs[:1]))
    (path,) = folder.states.path.iterdir()
    assert [state.specs for state in folder.states.load(plan.specs)] == [[plan.specs[0]]]
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    assert folder.states.load(plan.specs) == []
    assert f"{path}: has changed since it was written" in capsys.readouterr().err
    assert quietly(plan, folder, "all").missing == 0  # its run begins again
    assert not list(folder.states.path.iterdir())


def test_a_state_replaces_the_earlier_one_and_those_of_release_0_1_0_are_read(tiny, tmp_path):
    specs, states = read_block_plan(tiny).specs[:1], BlockFolder(tmp_path).states
    state = StackState.initial(specs)
    states.save(state)
    (first,) = states.path.iterdir()
    first.rename(states.path / f"{first.stem.partition('-')[0]}.safetensors")
    assert [found.taken for found in states.load(specs)] == [0]
    state.taken = 10
    states.save(state)
    assert [found.taken for found in states.load(specs)] == [10]
    assert len(list(states.path.iterdir())) == 1


def test_its_store_is_like_any_other(tiny, tmp_path, command):
    folder = BlockFolder(tmp_path / "out")
    quietly(read_block_plan(tiny), folder, "all")
    code, out, _ = command("results", "list", folder.store, "--by", "heads,budget", "--json")
    means = json.loads(out)["rows"]
    assert code == 0
    assert [(row["heads"], row["budget"], row["runs"]) for row in means] == [
        (1, 4, 3), (1, 8, 2), (2, 4, 2), (2, 8, 2),
    ]  # fmt: skip
    (watched,) = json.loads(command("watch", folder.store, "--json")[1])["sweeps"]
    assert (watched["name"], watched["state"], watched["done_runs"]) == ("tiny", "finished", 9)
    assert watched["steps_taken"] == 9 * 30
    command("results", "export", folder.store, "--out", "runs.jsonl")
    lines = (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    exported = {row["hash"]: row for row in map(json.loads, lines)}
    for result in folder.results():
        row = exported[result.spec.hash]
        assert (row["variant"], row["value"], row["steps"]) == ("block", result.test, 30)
        assert row["details"]["answers"] == result.answers
        assert row["details"]["attention"]["best_own"] == result.attention.best_own


def test_a_changed_result_is_refused(tiny, tmp_path):
    folder = BlockFolder(tmp_path / "out")
    quietly(read_block_plan(tiny), folder, "all")
    with sqlite3.connect(folder.store) as connection:
        connection.execute("UPDATE runs SET details = replace(details, '0', '1') WHERE id = 3")
    connection.close()
    with pytest.raises(InputError, match="has changed since it was stored"):
        folder.results()


@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("limit", [120.0, 0.02])
def test_a_cluster_makes_the_same_runs(tiny, tmp_path, monkeypatch, limit):
    """Also where shards end early, so that states travel."""
    pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    from headcount.sweeps import block_cluster, cluster_connection

    monkeypatch.setattr(block_cluster, "SHARD_LIMIT", limit)
    plan = read_block_plan(tiny)
    here, there = BlockFolder(tmp_path / "here"), BlockFolder(tmp_path / "there")
    quietly(plan, here, "here")
    with cluster_connection.connected_cluster("local:2", print) as connected:
        executor = block_cluster.ClusterBlockExecutor(connected, "local:2", "cpu")
        run_blocks(plan, there, "some", executor, time_limit=0.01)
        assert run_blocks(plan, there, "there", executor).missing == 0
    assert same(there.results()) == same(here.results())
    assert not list(there.states.path.glob("*"))
    with Store(there.store, read_only=True) as store:
        last = list(store.sweeps)[-1]
    assert (last.state, last.settled_steps) == ("finished", last.total_steps)
    assert there.manifest.history()[-1]["device"] == "cluster local:2"


def test_the_frame_has_a_row_per_run(tiny, tmp_path):
    folder = BlockFolder(tmp_path / "out")
    quietly(read_block_plan(tiny), folder, "some")
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


def test_a_small_table_is_counted_with_null_and_the_plan_is_not_blamed(command, tmp_path):
    np.save(tmp_path / "mine.npy", np.eye(40, 8, dtype="f4") + 1)
    code, _, err = command("block", "quick", "--table", "mine.npy", "--out", "mine")
    assert code == 2
    assert err == (
        "error: table mine has 39 items beside its row for NULL, not 512; "
        "choose 1…39 items or a larger table\n"
    )


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
    assert quietly(read_block_plan("quick"), folder, "quick").missing == 0
    rows = folder.frame()
    for budget in (32, 64, 128):
        here = rows.loc[rows["budget"] == budget]
        assert (
            here.loc[here["heads"] > 1, "test"].min() > here.loc[here["heads"] == 1, "test"].max()
        )
