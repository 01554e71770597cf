"""Graphs and tables of several kinds in the store, the analysis, sweeps and commands."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas as pd
import pytest
import torch

from headcount import (
    Store,
    binary_embeddings,
    curves,
    fit_law,
    load_weights,
    random_graph,
    read_graph,
    skewed_graph,
    thresholds,
)
from headcount.analysis.thresholds import threshold, thresholds_by_heads
from headcount.errors import InputError
from headcount.sweeps.file import read_sweep
from headcount.sweeps.search import ThresholdSearches
from headcount.training.spec import RunSpec
from headcount.training.task import task_of
from tests.store_writers import result_of
from tests.sweep_runs import changed

SPEC = RunSpec(32, 8, 2, 3, seed=4, degree=2)


def test_the_seed_draws_what_the_makers_draw():
    task = task_of(replace(SPEC, graph="random", table="binary"))
    assert task.graph == random_graph(32, 64, seed=4)
    assert torch.equal(task.rows, binary_embeddings(32, 8, seed=4))
    assert task_of(replace(SPEC, graph="skewed")).graph == skewed_graph(32, 64, seed=4)
    assert task_of(replace(SPEC, heads=5, graph="skewed", variant="sum")) is task_of(
        replace(SPEC, graph="skewed")
    )


def stored(path) -> Store:
    store = Store(path)
    kinds = [("regular", "gaussian"), ("random", "gaussian"), ("random", "binary")]
    store.add(
        replace(result_of(n), spec=replace(SPEC, graph=graph, table=table, seed=n % 2))
        for n, (graph, table) in enumerate(kinds * 2)
    )
    return store


def test_the_store_filters_by_graph_and_table(tmp_path):
    with stored(tmp_path / "s.sqlite") as store:
        assert store.count(graph="random") == 4
        assert store.count(graph=["regular", "skewed"], table="gaussian") == 2
        frame = store.frame(table="binary")
        assert frame[["graph", "table"]].values.tolist() == [["random", "binary"]] * 2
        assert {result.spec.table for result in store.results(table="binary")} == {"binary"}
        assert store.rows(1, graph="random")[0]["graph"] == "random"
        means = store.means(["graph", "table"])
        assert means["runs"].tolist() == [2, 2, 2]
        with pytest.raises(InputError, match="did you mean 'graph'"):
            store.count(graphs="random")


def test_exports_name_graph_and_table_where_runs_need_it(tmp_path):
    with stored(tmp_path / "s.sqlite") as store:
        store.export(tmp_path / "all.csv")
        store.export(tmp_path / "usual.csv", graph="regular")
        store.export(tmp_path / "graphs.parquet", table="gaussian")
    found = pd.read_csv(tmp_path / "all.csv")
    assert sorted(map(tuple, found[["graph", "table"]].drop_duplicates().values.tolist())) == [
        ("random", "binary"),
        ("random", "gaussian"),
        ("regular", "gaussian"),
    ]
    assert not {"graph", "table"} & set(pd.read_csv(tmp_path / "usual.csv"))
    graphs = pd.read_parquet(tmp_path / "graphs.parquet")
    assert ("graph" in graphs, "table" in graphs) == (True, False)


def two_kinds() -> pd.DataFrame:
    """Runs that pass at 20 on a regular graph and at 24 on a random one."""
    point = {"variant": "max", "degree": 1, "items": 64, "d_model": 16, "table": "gaussian"}
    return pd.DataFrame(
        [
            point
            | {"graph": graph, "heads": 4, "key_dim": budget // 4, "budget": budget}
            | {"seed": seed, "value": 1.0 if budget >= passing else 0.9, "diverged": None}
            for graph, passing in (("random", 24), ("regular", 20))
            for budget in (16, 20, 24)
            for seed in range(2)
        ]
    )


def test_the_analysis_keeps_graphs_apart():
    runs = two_kinds()
    found = thresholds(runs)
    assert found[["graph", "central"]].values.tolist() == [["random", 24], ["regular", 20]]
    assert "table" not in found
    assert thresholds_by_heads(runs)["central"].tolist() == [24, 20]
    assert len(curves(runs)) == 6
    with pytest.raises(InputError, match="holds 2 points"):
        threshold(runs)
    one = runs[runs["graph"] == "random"]
    assert threshold(one).central == 24
    pd.testing.assert_frame_equal(thresholds(one), thresholds(one.drop(columns=["graph", "table"])))


def test_a_law_describes_one_kind_of_graph():
    found = thresholds(two_kinds())
    with pytest.raises(InputError, match="more than one graph; a law describes one"):
        fit_law(found)


def test_sweep_files_take_graphs_and_tables(written):
    lines = {"graph": '["random", "skewed"]', "table": '"binary"'}
    runs = read_sweep(written(changed(**lines))).runs
    assert {(spec.graph, spec.table) for spec in runs} == {
        ("random", "binary"),
        ("skewed", "binary"),
    }
    assert len(runs) == 24
    with pytest.raises(InputError, match=r"\[grid\]: graph 'grid' is unknown; use regular"):
        read_sweep(written(changed(graph='"grid"')))
    searched = changed(graph='["random", "skewed"]').replace("[grid]", "[search]")
    (part,) = read_sweep(written(searched)).searches
    assert len(ThresholdSearches(part.runs).points) == 2


def test_a_sweep_over_graphs_has_a_column_for_them(written, command):
    text = 'engine = "torch"\n' + changed(graph='["regular", "random"]', heads="1", seeds="2")
    code, out, _ = command("sweep", written(text), "--json")
    assert code == 0
    rows = json.loads(out)["thresholds"]
    assert [row["graph"] for row in rows] == ["random", "regular"]


TINY = [
    *("--items", "16", "--d-model", "8", "--heads", "2", "--key-dim", "3"),
    *("--steps", "40", "--engine", "torch"),
]


def test_the_command_trains_on_other_graphs_and_tables(command, tmp_path):
    kinds = ["--graph", "skewed", "--table", "binary", "--degree", "2", "--seeds", "1"]
    code, out, _ = command("train", *TINY, *kinds, "--out", "weights", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["graph"], found["table"], found["degree"]) == ("skewed", "binary", 2)
    assert load_weights(tmp_path / "weights" / "seed-0.safetensors").heads == 2
    code, _, error = command("train", *TINY, "--graph", "cyclic")
    assert code == 2
    assert "cyclic" in error


def test_make_draws_a_skewed_graph(command, tmp_path):
    asked = ["make", "graph", "skewed", "--items", "32", "--edges", "64", "--seed", "4"]
    assert command(*asked, "--out", "hubs.csv")[0] == 0
    assert read_graph(tmp_path / "hubs.csv", items=32) == skewed_graph(32, 64, seed=4)


def test_results_are_listed_by_graph(command, tmp_path):
    stored(tmp_path / "s.sqlite").close()
    asked = ["results", "list", "s.sqlite", "--graph", "random", "--table", "binary", "--json"]
    found = json.loads(command(*asked)[1])
    assert found["total"] == 2
    assert {row["table"] for row in found["rows"]} == {"binary"}
