"""Graphs and tables of one's own: every engine and variant, sweep files, stores."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from headcount import Graph, InputError, RunSpec, Store, train
from headcount.problem import contents
from headcount.problem.edge_list import write_graph
from headcount.problem.makers import skewed_graph
from headcount.sweeps.file import read_sweep
from headcount.sweeps.plans import GridPlan
from headcount.sweeps.runner import run_sweep
from headcount.training import task as training_task
from headcount.training.task import task_of
from tests.made_engines import follow_the_reference
from tests.processes import forked
from tests.strategies import graphs
from tests.sweep_runs import OWN, command, table, write_own_sweep

GRAPH = Graph.from_edges(30, [(0, j) for j in range(1, 14)] + [(5, 0), (6, 0), (6, 7), (7, 7)])
ROWS = torch.from_numpy(np.random.default_rng(0).standard_normal((30, 9)) / 3)
SMALL = {"validation": 4, "test": 4, "length": 7}


@pytest.fixture
def forgotten(monkeypatch):
    """Registers nothing but what a test registers: a process that has just begun."""

    def forget() -> None:
        monkeypatch.setattr(contents, "_registered", {})

    forget()
    return forget


# --- contents and specs ---------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(graphs(max_items=9), graphs(max_items=9))
def test_graphs_have_one_hash_exactly_if_they_are_equal(one, other):
    assert (contents.content_hash(one) == contents.content_hash(other)) == (one == other)
    key = contents.register(one)
    contents.register_bytes(key, contents.to_bytes(key))
    assert contents.registered_graph(key) == one


def test_tables_are_known_by_their_float32_rows(forgotten):
    key = contents.register(ROWS)
    assert contents.register(ROWS.float()) == key
    assert contents.content_hash(ROWS.T.contiguous()) != key
    assert contents.registered_table(key).dtype == torch.float32
    data = contents.to_bytes(key)
    forgotten()
    assert contents.unregistered([key]) == {key}
    contents.register_bytes(key, data)
    assert torch.equal(contents.registered_table(key), ROWS.float())
    for wrong in (data[:-4] + b"abcd", b"", data[:40]):
        with pytest.raises(InputError, match=f"{key} is damaged"):
            contents.register_bytes(key, wrong)


def test_a_spec_takes_its_sizes_from_the_content():
    spec = RunSpec.on(GRAPH, ROWS, heads=2, key_dim=3, seed=1)
    assert (spec.items, spec.d_model, spec.degree) == (30, 9, 1)
    assert spec.contents == {spec.graph, spec.table}
    assert RunSpec.from_json(spec.to_json()) == spec
    drawn = RunSpec.on(GRAPH, "binary", d_model=5, heads=2, key_dim=3)
    assert (drawn.items, drawn.table, drawn.contents) == (30, "binary", {spec.graph})
    assert RunSpec.on("regular", ROWS, heads=1, key_dim=1, degree=3).degree == 3
    assert RunSpec.on("regular", items=64, d_model=16, heads=4, key_dim=5, seed=3) == RunSpec(
        64, 16, 4, 5, seed=3
    )


def test_graphs_and_tables_come_in_any_form():
    spec = RunSpec.on(GRAPH, ROWS, heads=2, key_dim=3)
    for graph in (GRAPH.pairs.tolist(), GRAPH.to_networkx()):
        for rows in (ROWS.numpy(), torch.nn.Embedding.from_pretrained(ROWS.float())):
            assert RunSpec.on(graph, rows, heads=2, key_dim=3) == spec


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"items": 31}, "items 31 is not that of the graph or table, 30; leave it out"),
        ({"degree": 2}, "degree 2 is not that of the graph or table, 1"),
        ({"length": 40}, "length 40 does not fit; choose 1…30"),
    ],
)
def test_a_spec_that_contradicts_its_content_is_refused(fields, says):
    with pytest.raises(InputError, match=says):
        RunSpec.on(GRAPH, ROWS, heads=2, key_dim=3, **fields)


def test_a_graph_and_a_table_must_fit(forgotten):
    with pytest.raises(InputError, match="the graph has 30 items, the table 9 rows"):
        RunSpec.on(GRAPH, ROWS.T, heads=1, key_dim=1)
    with pytest.raises(InputError, match="row 0: holds a NaN or infinite entry"):
        RunSpec.on(GRAPH, ROWS / 0, heads=1, key_dim=1)
    spec = RunSpec.on(GRAPH, ROWS, heads=1, key_dim=1, steps=2, seed=91)
    with pytest.raises(InputError, match=r"d_model 8 is not that of the .* 9; make the spec with"):
        train([replace(spec, d_model=8)], "torch", progress=False)
    forgotten()
    with pytest.raises(InputError, match=f"no graph with the content hash {spec.graph} is known"):
        train([replace(spec, seed=92)], "torch", progress=False)


def test_seeds_share_the_problem_and_nothing_else():
    one, other = (RunSpec.on(GRAPH, ROWS, heads=2, key_dim=3, seed=seed) for seed in (1, 2))
    assert task_of(one).graph is task_of(other).graph
    assert task_of(one).rows is task_of(other).rows
    for name in ("validation", "test", "messages"):
        assert not torch.equal(getattr(task_of(one), name), getattr(task_of(other), name))


@pytest.mark.parametrize("variant", ["max", "softmax", "value", "sum", "logsumexp"])
def test_every_engine_trains_every_variant(engine, variant):
    spec = RunSpec.on(GRAPH, ROWS, heads=3, key_dim=4, variant=variant, **SMALL)
    follow_the_reference(engine, spec, 0, steps=3)


def test_an_own_permutation_is_weighted_by_its_positives():
    """ℓ − 1 belongs to the family of permutations (A.1); a graph of one's own has Eq. (30)."""
    ring = Graph.from_edges(16, [(i, (i + 1) % 16) for i in range(16)])
    spec = RunSpec.on(ring, d_model=4, heads=1, key_dim=2)
    assert not spec.is_permutation


# --- sweep files, the store -----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path) -> Path:
    """A sweep file, own.toml, and beside it a graph and a table in a folder."""
    return write_own_sweep(tmp_path).parent


def test_a_sweep_file_names_files_relative_to_itself(folder):
    sweep = read_sweep(folder / "own.toml")
    assert len(sweep.runs) == 16
    (graph,), (rows,) = ({getattr(s, n) for s in sweep.runs} for n in ("graph", "table"))
    pairs = skewed_graph(40, 60, seed=5).pairs
    # One item per row of the table, four of which no edge names.
    assert contents.registered_graph(graph) == Graph.from_edges(44, pairs)
    assert {path: file.contents for path, file in sweep.files.items()} == {
        folder / "data" / "g.csv": {graph},
        folder / "data" / "t.npy": {rows},
    }
    assert {(spec.items, spec.d_model, spec.degree) for spec in sweep.runs} == {(44, 8, 1)}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ({"items": "64"}, r"\[grid\]: items 64 is not that of the file, 44; leave it out"),
        ({"degree": "[1, 2]"}, r"degree \[1, 2\] is not that of the file, 1"),
        ({"points": "[[44, 8]]"}, "points do not go with a graph or table file"),
        ({"graph": '"no.csv"'}, "no.csv: no such file"),
        ({"graph": '"data/t.npy"'}, "unknown graph format"),
        (
            {"table": '"ternary"', "d_model": "8"},
            "table 'ternary' is unknown; use gaussian, binary, or a file",
        ),
        ({"table": '"gaussian"'}, "d_model is missing"),
    ],
)
def test_a_wrong_sweep_is_refused(folder, lines, says):
    kept = dict(line.split(" = ", 1) for line in OWN.splitlines()[2:]) | lines
    text = "[grid]\n" + "".join(f"{name} = {value}\n" for name, value in kept.items())
    (folder / "own.toml").write_text(text)
    with pytest.raises(InputError, match=says):
        read_sweep(folder / "own.toml")


def test_a_sweep_on_a_csv_of_names(folder):
    words = [f"word{n}" for n in range(44)]
    (folder / "words.txt").write_text("\n".join(words) + "\n")
    pairs = skewed_graph(40, 60, seed=5).pairs
    by_name = "".join(f"{words[s]},{words[t]}\n" for s, t in pairs.tolist())
    (folder / "data" / "g.csv").write_text("source,target\n" + by_name)
    path = written_over(folder, OWN + 'names = "words.txt"\n')
    (key,) = {spec.graph for spec in read_sweep(path).runs}
    assert key == contents.content_hash(Graph.from_edges(44, pairs))
    (folder / "data" / "g.csv").write_text("source,target\n" + by_name + "word1,wrd2\n")
    with pytest.raises(InputError, match="wrd2"):
        read_sweep(path)


def test_own_and_drawn_problems_in_one_sweep(folder):
    text = OWN.replace('"data/t.npy"', '["data/t.npy", "binary"]') + "d_model = 8\n"
    runs = read_sweep(written_over(folder, text)).runs
    assert {(spec.table == "binary", spec.items) for spec in runs} == {(False, 44), (True, 40)}
    text = OWN.replace('"data/g.csv"', '"random"') + "degree = [1, 3]\n"
    runs = read_sweep(written_over(folder, text)).runs
    assert {(spec.graph, spec.items, spec.degree) for spec in runs} == {
        ("random", 44, 1),
        ("random", 44, 3),
    }


def written_over(folder: Path, text: str) -> Path:
    (folder / "own.toml").write_text(text)
    return folder / "own.toml"


def test_a_changed_file_is_refused(folder, command_in):
    path = written_over(folder, OWN.replace("6000", "20"))
    assert command_in(folder, "sweep", path)[0] == 0
    assert command_in(folder, "sweep", path)[0] == 0
    write_graph(skewed_graph(40, 60, seed=6), folder / "data" / "g.csv")
    code, _, error = command_in(folder, "sweep", path)
    assert code == 2
    assert "data/g.csv: has changed since runs in" in error
    assert "restore the file, or name another store" in error
    assert command_in(folder, "sweep", path, "--store", "other.sqlite")[0] == 0
    with Store(folder / "own.sqlite") as store:
        assert len(store) == 16
    write_graph(skewed_graph(40, 60, seed=5), folder / "data" / "g.csv")
    assert json.loads(command_in(folder, "sweep", path, "--json")[1])["trained"] == 0


def test_a_search_on_own_files_gives_a_threshold(folder, command_in):
    text = OWN.replace("[grid]", "[search]").replace("6000", "60")
    code, out, _ = command_in(
        folder, "sweep", written_over(folder, text + "level = 0.2\n"), "--json"
    )
    assert code == 0
    (found,) = json.loads(out)["searches"]
    assert (found["items"], found["d_model"], found["settled"]) == (44, 8, True)


def test_a_store_has_what_its_runs_need(tmp_path, forgotten):
    specs = [RunSpec.on(GRAPH, ROWS, heads=1, key_dim=2, seed=s, steps=10) for s in range(3)]
    with Store(tmp_path / "s.sqlite") as store:
        run_sweep(GridPlan(specs[:1]), store, "torch")
    forgotten()
    training_task._task.cache_clear()
    with Store(tmp_path / "s.sqlite") as store:
        assert run_sweep(GridPlan(specs), store, "torch").trained == 2
        (parts,) = store._database.read("SELECT count(*) FROM contents")[0]
        assert parts == 2
        with store._database.transaction() as connection:
            connection.execute("UPDATE contents SET data = x'00' WHERE hash = ?", [specs[0].graph])
        forgotten()
        with pytest.raises(InputError, match="damaged"):
            store.contents.share({specs[0].graph})


def test_a_killed_sweep_goes_on_bit_for_bit(folder):
    """Killed for good in the middle; the next process reads the files again."""
    path = folder / "own.toml"
    run_sweep(path, folder / "undisturbed.sqlite")
    with forked(command, str(path)) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.running:
            time.sleep(0.02)
            if (folder / "own.sqlite").exists():
                with Store(folder / "own.sqlite", read_only=True) as store:
                    if any(sweep.steps_taken for sweep in store.sweeps):
                        break
        assert process.kill() == -signal.SIGKILL
    run_sweep(path)
    assert table(folder / "own.sqlite") == table(folder / "undisturbed.sqlite")


# --- the command ----------------------------------------------------------------------------------


def test_the_command_trains_on_files(folder, command_in):
    asked = ["train", "--graph", "data/g.csv", "--table", "data/t.npy", "--heads", "2"]
    asked += ["--key-dim", "3", "--seeds", "2", "--steps", "40", "--engine", "torch", "--json"]
    code, out, _ = command_in(folder, *asked)
    assert code == 0
    found = json.loads(out)
    assert (found["items"], found["d_model"], found["degree"]) == (44, 8, 1)
    graph, rows = (contents._registered[found[name]] for name in ("graph", "table"))
    specs = [RunSpec.on(graph, rows, heads=2, key_dim=3, seed=s, steps=40) for s in (0, 1)]
    expected = [result.value for result in train(specs, "torch", progress=False)]
    assert [run["value"] for run in found["runs"]] == expected


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--graph", "data/g.csv"], "--d-model is missing; give it, or files"),
        (["--table", "data/t.npy", "--items", "9"], "items 9 is not that of the graph or table"),
        (["--graph", "no.csv", "--d-model", "4"], "no.csv: no such file"),
        (["--graph", "ring", "--items", "9", "--d-model", "4"], "graph 'ring' is unknown"),
    ],
)
def test_wrong_files_get_a_sentence(folder, command_in, words, says):
    code, _, error = command_in(folder, "train", *words, "--heads", "1", "--key-dim", "2")
    assert code == 2
    assert says in error
