"""The record of the files that a store's runs were trained on."""

from __future__ import annotations

import json

import numpy as np
import pytest

from headcount import Graph, InputError, Store, curve_chart, thresholds
from headcount.problem.contents import registered_graph
from headcount.sweeps.file import read_sweep
from headcount.sweeps.runner import run_sweep
from tests.sweep_runs import OWN
from tests.test_own_problems import folder, written_over  # noqa: F401  (a fixture)

SHORT = OWN.replace("6000", "20").replace("seeds = 4", "seeds = 1")
SHORT = SHORT.replace("native", "torch")


@pytest.fixture
def words(folder):  # noqa: F811
    """A sweep whose items have names in a file of their own."""
    (folder / "words.txt").write_text("".join(f"word{n}\n" for n in range(44)))
    return written_over(folder, SHORT + 'names = "words.txt"\n')


def test_each_table_of_a_file_is_watched(folder):  # noqa: F811
    """Two grids on one .npz file: the record is of the file, whichever table was read last."""
    one, other = np.random.default_rng(1).standard_normal((2, 44, 8))
    np.savez(folder / "data" / "t.npz", one=one, other=other)
    grid = SHORT.split("\n", 1)[1].replace("t.npy", "t.npz").replace("[grid]", "[[grid]]")
    path = written_over(folder, f'engine = "torch"\n{grid}key = "one"\n{grid}key = "other"\n')
    run_sweep(path)
    assert run_sweep(path).trained == 0
    np.savez(folder / "data" / "t.npz", one=one + 1, other=other)
    with pytest.raises(InputError, match=r"data/t\.npz: has changed since runs in"):
        run_sweep(path)


def test_another_key_of_the_same_file_is_no_change(folder):  # noqa: F811
    one, other = np.random.default_rng(1).standard_normal((2, 44, 8))
    np.savez(folder / "data" / "t.npz", one=one, other=other)
    text = SHORT.replace("t.npy", "t.npz")
    run_sweep(written_over(folder, text + 'key = "one"\n'))
    assert run_sweep(written_over(folder, text + 'key = "other"\n')).trained == 4
    with Store(folder / "own.sqlite") as store:
        paths = store.contents.paths()
        assert {paths[row["table"]] for row in store.rows()} == {"data/t.npz"}
        assert {paths[row["graph"]] for row in store.rows()} == {"data/g.csv"}


def test_a_changed_file_of_names_is_refused(words, command_in):
    run_sweep(words)
    listed = words.parent / "words.txt"
    listed.write_text("".join(f"word{n}\n" for n in reversed(range(44))))
    with pytest.raises(InputError, match=r"words\.txt: has changed since runs in"):
        run_sweep(words)
    code, _, error = command_in(words.parent, "sweep", words, "--dry-run")
    assert (code, "words.txt: has changed since runs in" in error) == (2, True)


def test_a_file_that_nothing_was_trained_on_is_not_recorded(folder, monkeypatch):  # noqa: F811
    path = written_over(folder, SHORT)
    with monkeypatch.context() as patched:

        def fail(*_, **__):
            raise KeyboardInterrupt

        patched.setattr("headcount.sweeps.runner.train", fail)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(path)
    np.save(folder / "data" / "t.npy", np.random.default_rng(2).standard_normal((44, 8)))
    assert run_sweep(path).trained == 4


def test_a_store_from_before_digests_is_checked_by_content(folder):  # noqa: F811
    path = written_over(folder, SHORT)
    run_sweep(path)
    with Store(folder / "own.sqlite") as store, store._database.transaction() as connection:
        for name, words in store.contents._recorded().items():
            connection.execute("UPDATE files SET hash = ? WHERE path = ?", [words[1], name])
    assert run_sweep(path).trained == 0
    np.save(folder / "data" / "t.npy", np.random.default_rng(2).standard_normal((44, 8)))
    with pytest.raises(InputError, match="has changed"):
        run_sweep(path)


# --- options and sizes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--items", "20", "--names", "words.txt"], "names words.txt belong to the items of a gr"),
        (["--items", "20", "--key", "x"], "key 'x' names a table inside a file, and the table gau"),
        (["--items", "9"], "--context-length 16 does not fit; choose 1…9"),
    ],
)
def test_options_that_say_nothing_are_refused(words, says, command_in, tmp_path):
    asked = ["train", *words, "--d-model", "4", "--heads", "1", "--key-dim", "2"]
    code, _, error = command_in(tmp_path, *asked)
    assert (code, says in error) == (2, True)


def test_few_words_of_ones_own_make_shorter_contexts(command_in, tmp_path):
    (tmp_path / "g.csv").write_text("source,target\nhot,cold\nwet,dry\ncold,hot\n")
    asked = ["train", "--graph", "g.csv", "--d-model", "8", "--heads", "1", "--key-dim", "4"]
    code, out, _ = command_in(tmp_path, *asked, "--steps", "500", "--json")
    assert code == 0
    assert json.loads(out)["items"] == 4


@pytest.mark.parametrize("line", ['key = "x"', 'names = "words.txt"'])
def test_a_sweep_refuses_them_too(folder, line):  # noqa: F811
    drawn = "[grid]\nitems = 20\nd_model = 4\nheads = 1\nkey_dim = 2\nseeds = 1\n"
    with pytest.raises(InputError, match=r"\[grid\]: (key|names) .* is drawn; give a"):
        read_sweep(written_over(folder, drawn + line))


@pytest.mark.parametrize("edges", ["0,1\n1,2\n", "hot,cold\ncold,cool\n"])
def test_a_sweep_over_the_items_of_a_graph_file(folder, edges):  # noqa: F811
    (folder / "g.csv").write_text("source,target\n" + edges)
    text = '[grid]\ngraph = "g.csv"\nitems = [3, 20]\nd_model = 4\nheads = 1\nkey_dim = 2\n'
    runs = read_sweep(written_over(folder, text + "seeds = 1\nlength = 2\n")).runs
    assert [spec.items for spec in runs] == [3, 20]
    for spec in runs:
        assert registered_graph(spec.graph) == Graph.from_edges(spec.items, [(0, 1), (1, 2)])
    with pytest.raises(InputError, match=r"items 2 is not that of the file, 3|outside 0…1"):
        read_sweep(written_over(folder, text.replace("[3, 20]", "2") + "seeds = 1\nlength = 2\n"))


def test_lists_call_own_problems_by_their_files(folder, command_in):  # noqa: F811
    run_sweep(written_over(folder, SHORT))
    code, out, _ = command_in(folder, "results", "list", "own.sqlite")
    assert code == 0
    title, *lines = out.splitlines()[1:]
    assert title.split()[-2:] == ["graph", "table"]
    assert {tuple(line.split()[-2:]) for line in lines} == {("data/g.csv", "data/t.npy")}
    grouped = command_in(folder, "results", "list", "own.sqlite", "--by", "graph,heads")[1]
    assert grouped.count("data/g.csv") == 2
    with Store(folder / "own.sqlite") as store, store._database.transaction() as connection:
        connection.execute("DELETE FROM files")
        key = store.rows()[0]["graph"]
    out = command_in(folder, "results", "list", "own.sqlite")[1]
    assert (out.count(key[:8]), key in out) == (4, False)
    chart = ["results", "chart", "own.sqlite", "--graph", key, "--out", "c.svg", "--json"]
    assert '"runs": 4' in command_in(folder, *chart)[1]
    assert command_in(folder, *chart[:4], "random", *chart[5:])[0] == 1


@pytest.fixture
def two_graphs(folder):  # noqa: F811
    """A store of runs on two graph files with equally many items and edges."""
    edges = [f"{n},{(n + 1) % 44}" for n in range(30)]
    (folder / "data" / "ring.csv").write_text("\n".join(["source,target", *edges, ""]))
    (folder / "data" / "back.csv").write_text("\n".join(["target,source", *edges, ""]))
    text = SHORT.replace('"data/g.csv"', '["data/ring.csv", "data/back.csv"]')
    assert "ring" in text
    run_sweep(written_over(folder, text + "items = 44\n"))
    return folder


def test_filters_call_own_problems_by_file_name_or_digits(two_graphs, command_in):
    with Store(two_graphs / "own.sqlite", read_only=True) as store:
        (half,) = {store.count(graph=name) for name in ("data/ring.csv", "back.csv")}
        assert 2 * half == len(store) == store.count(graph=["ring.csv", "back.csv", "random"])
        graphs = set(store.frame(graph="ring.csv")["graph"])
        assert graphs == {key for key in graphs if store.contents.paths()[key] == "data/ring.csv"}
        (key,) = graphs
        assert store.count(graph=key[:8]) == store.count(graph=key) == half
        assert len(list(store.results(table="t.npy", graph=key[:6]))) == half
        assert store.count(graph="f" * 32) == 0
        for name in ("other.csv", "elsewhere/ring.csv", key[:3], "ring"):
            with pytest.raises(InputError, match=r"they have data/back\.csv, data/ring\.csv"):
                store.count(graph=name)
    listed = ("results", "list", "own.sqlite", "--json")
    code, out, _ = command_in(two_graphs, *listed, "--graph", "ring.csv,data/back.csv")
    assert (code, json.loads(out)["total"]) == (0, 2 * half)
    # A path is taken from where the command runs, as any other path is.
    code, out, _ = command_in(two_graphs / "data", *listed[:2], "../own.sqlite", "--json",
                              "--graph", "ring.csv", "--table", "t.npy")  # fmt: skip
    assert (code, json.loads(out)["total"]) == (0, half)
    code, out, err = command_in(two_graphs, *listed[:3], "--table", "u.npy")
    assert (code, out) == (2, "")
    assert "table 'u.npy' is not one that runs in own.sqlite were trained on" in err
    export = ("results", "export", "own.sqlite", "--out", "x.csv", "--graph", "ring.csv", "--json")
    assert json.loads(command_in(two_graphs, *export)[1])["runs"] == half


def test_digits_that_begin_two_hashes_are_refused(tmp_path, monkeypatch):
    with Store(tmp_path / "s.sqlite") as store:
        read = {"SELECT DISTINCT": [("abcd" + n * 28,) for n in "12"], "SELECT path,": []}
        monkeypatch.setattr(
            store._database, "read", lambda query, *_: read[" ".join(query.split()[:2])]
        )
        with pytest.raises(InputError, match="begins the hashes of 2 graphs; write more digits"):
            store.contents.meant("graph", "abcd")
        assert store.contents.meant("graph", "abcd1") == ["abcd" + "1" * 28]


def test_a_chart_has_a_panel_per_graph(two_graphs, command_in):
    with Store(two_graphs / "own.sqlite", read_only=True) as store:
        rows = next(iter(curve_chart(store).to_dict()["datasets"].values()))
        assert {row["panel"] for row in rows} == {
            f"m = 44, d_model = 8, data/{name}.csv" for name in ("ring", "back")
        }
        assert len(rows) == store.frame().groupby(["graph", "heads", "budget"]).ngroups
        assert " at m = 44, d_model = 8 (" in str(
            curve_chart(store, graph="ring.csv").to_dict()["title"]["text"]
        )
        frame = store.frame()
    rows = next(iter(curve_chart(frame).to_dict()["datasets"].values()))
    digits = {row["panel"].rsplit(", ", 1)[1] for row in rows}
    assert digits == {key[:8] for key in frame["graph"]}
    assert {"graph"} <= set(
        thresholds(frame, level=0.0).plot().to_dict()["datasets"].popitem()[1][0]
    )
    out = command_in(two_graphs, "sweep", "own.toml")[1]
    assert "data/ring.csv" in out
    assert not set(frame["graph"]) & set(out.split())
