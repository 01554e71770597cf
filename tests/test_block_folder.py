"""The folder that keeps block runs: its results, states, tables and manifests."""

from __future__ import annotations

import json
import sqlite3

import pandas as pd
import pytest

from headcount.block.state import StackState
from headcount.errors import InputError
from headcount.reproduction.shipped import MEASURED
from headcount.store.store import Store
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_frame import BLOCK_COLUMNS, block_frame
from headcount.sweeps.block_plan import read_block_plan
from tests.tiny_blocks import quietly


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


def test_a_run_counts_once(trained):
    with Store(trained.store) as store:
        assert store.add(trained.results()[:2]) == 0
    assert len(trained.results()) == 9


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


def test_its_store_is_like_any_other(trained, tmp_path, command):
    code, out, _ = command("results", "list", trained.store, "--by", "heads,budget", "--json")
    means = json.loads(out)["rows"]
    assert code == 0
    assert [(row["heads"], row["budget"], row["runs"]) for row in means] == [
        (1, 4, 3), (1, 8, 2), (2, 4, 2), (2, 8, 2),
    ]  # fmt: skip
    (watched,) = json.loads(command("watch", trained.store, "--json")[1])["sweeps"]
    assert (watched["name"], watched["state"], watched["done_runs"]) == ("tiny", "finished", 9)
    assert watched["steps_taken"] == 9 * 30
    command("results", "export", trained.store, "--out", "runs.jsonl")
    lines = (tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    exported = {row["hash"]: row for row in map(json.loads, lines)}
    for result in trained.results():
        row = exported[result.spec.hash]
        assert (row["variant"], row["value"], row["steps"]) == ("block", result.test, 30)
        assert row["details"]["answers"] == result.answers
        assert row["details"]["attention"]["best_own"] == result.attention.best_own


def test_a_changed_result_is_refused(trained):
    with sqlite3.connect(trained.store) as connection:
        connection.execute("UPDATE runs SET details = replace(details, '0', '1') WHERE id = 3")
    connection.close()
    with pytest.raises(InputError, match="has changed since it was stored"):
        trained.results()


def test_the_frame_has_a_row_per_run(trained):
    frame, results = trained.frame(), trained.results()
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
