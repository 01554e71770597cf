"""Results that release 0.1.0 wrote: they open, resume and export as they did then."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headcount.block.spec import BlockResult
from headcount.store.store import Store
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.file import read_sweep

RELEASED = Path(__file__).parent / "data" / "release_0_1_0"


@pytest.fixture
def released(tmp_path) -> Path:
    """A copy of everything that the release wrote."""
    return Path(shutil.copytree(RELEASED, tmp_path / "released"))


def test_its_block_runs_are_taken_over_into_a_store(released, command):
    folder = BlockFolder(released / "block")
    lines = (folder.path / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    then = [BlockResult.from_json(line) for line in lines]
    assert same(folder.results(), then)  # also before the folder is first opened for writing
    code, out, _ = command("block", released / "block.toml", "--out", folder.path, "--json")
    told = json.loads(out)
    assert (code, told["finished"], told["missing"], len(told["runs"])) == (0, 2, 0, 2)
    assert len(folder.manifest.history()) == 1  # nothing was trained
    with Store(folder.store, read_only=True) as store:
        assert same(list(store.block_results()), then)
        assert all(store.get(result.spec) == result for result in then)
    assert not (folder.path / "runs.jsonl").exists()
    assert (folder.path / "runs-0.1.0.jsonl").read_text(encoding="utf-8").splitlines() == lines
    command("block", released / "block.toml", "--out", folder.path)
    assert same(folder.results(), then)


def test_a_take_over_that_was_cut_short_is_repeated(released):
    folder = BlockFolder(released / "block")
    then = folder.results()
    with (folder.path / "runs.jsonl").open("ab") as file:
        file.write(b'{"spec": {"items"')  # a run that a crash cut short
    with Store(folder.store) as store:  # a kill came before the old file was renamed
        assert store.add(then[:1]) == 1
    with folder.opened() as store:
        assert same(list(store.block_results()), then)


def same(some: list[BlockResult], others: list[BlockResult]) -> bool:
    """Whether both have the same results, in any order."""
    by_hash = [{result.spec.hash: result for result in results} for results in (some, others)]
    return len(some) == len(others) and by_hash[0] == by_hash[1]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_its_export_is_the_same_to_the_byte(released, command):
    code, _, error = command(
        "results", "export", released / "small.sqlite", "--format", "csv", "--out", "again.csv"
    )
    assert (code, error) == (0, "")
    assert (released.parent / "again.csv").read_bytes() == (released / "small.csv").read_bytes()


def test_its_finished_runs_are_not_trained_again(released, command):
    code, out, _ = command("sweep", released / "small.toml", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["trained"], told["known"]) == (0, 29)


def test_its_sweeps_keep_its_draws_unless_the_file_names_others(released):
    for name in ("small", "long"):  # finished runs, and runs under way
        file = released / f"{name}.toml"
        sweep = read_sweep(file)
        assert {spec.draws for spec in sweep.all_runs} == {2}
        with Store(released / "small.sqlite", read_only=True) as store:
            begun = sweep.as_begun(store)
            assert [replace(spec, draws=2) for spec in begun.all_runs] == list(sweep.all_runs)
            assert {spec.draws for spec in begun.all_runs} == {1}
            assert begun.as_begun(store) == begun
            file.write_text(file.read_text().replace("seeds =", "draws = 2\nseeds ="))
            named = read_sweep(file)
            assert {spec.draws for spec in named.as_begun(store).all_runs} == {2}
    with Store(released / "new.sqlite") as store:
        assert sweep.as_begun(store) is sweep


def test_its_checkpoints_go_on_where_they_stopped(released, command):
    code, out, _ = command(
        "sweep", released / "long.toml", "--store", released / "small.sqlite", "--json"
    )
    assert code == 0
    assert json.loads(out)["steps"] == 2 * (8000 - 2500)
    command(
        "results",
        "export",
        released / "small.sqlite",
        "--format",
        "csv",
        "--seed",
        "0,1",
        "--out",
        "again.csv",
    )
    again = {row["hash"]: row for row in rows_of(released.parent / "again.csv")}
    for then in rows_of(released / "long.csv"):
        now = again[then["hash"]]
        assert now["spec"] == then["spec"]
        assert json.loads(now["history"])[:5] == json.loads(then["history"])[:5]  # up to the stop
        assert [step for step, _ in json.loads(now["history"])] == list(range(500, 8001, 500))
        assert float(now["value"]) == pytest.approx(float(then["value"]), abs=0.02)
