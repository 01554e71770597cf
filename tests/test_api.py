"""The public API: every name loads, is documented, and the types that calls return are public."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
import typing
from functools import partial

import numpy as np
import pytest
import torch

import headcount as hc

FUNCTIONS = [name for name in hc.__all__ if inspect.isfunction(getattr(hc, name))]


@pytest.mark.parametrize("name", hc.__all__)
def test_every_name_loads_and_is_documented(name):
    found = getattr(hc, name)
    assert found.__module__.startswith("headcount.")
    assert inspect.getdoc(found)
    text = inspect.getdoc(found) or ""
    assert not (dataclasses.is_dataclass(found) and text.startswith(f"{found.__name__}("))


def test_only_public_names_are_shown():
    assert [name for name in dir(hc) if not name.startswith("__")] == sorted(hc.__all__)
    assert isinstance(hc.__version__, str)
    assert not hasattr(hc, "PairCounts")


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, headcount; print(*sorted(name.split('.')[0] for name in sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "headcount" in loaded
    assert not {"torch", "numpy", "pandas", "typer", "rich", "ast"} & set(loaded.split())


def classes_in(hint: object) -> set[type]:
    """The classes that an annotation names, those inside list[…] and … | None included."""
    if inner := typing.get_args(hint):
        return set().union(*map(classes_in, inner))
    return {hint} if isinstance(hint, type) else set()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_call_returns_is_public(name):
    returned = typing.get_type_hints(getattr(hc, name)).get("return")
    ours = {one for one in classes_in(returned) if one.__module__.startswith("headcount.")}
    assert ours <= {getattr(hc, name) for name in hc.__all__}


def test_a_sweep_runs_from_its_path(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(
        "[grid]\nitems = 16\nd_model = 8\nheads = 2\nbudget = 4\nseeds = 2\nsteps = 20\n"
    )
    assert hc.run_sweep(str(path), executor="torch").trained == 2
    assert hc.run_sweep(path, executor="torch").trained == 0  # all runs are in its store
    with hc.Store(tmp_path / "two.sqlite") as store:
        assert len(store) == 2


@pytest.mark.parametrize(
    ("options", "message"), [({"out": "x.xls"}, r"x\.xls: .*\.csv"), ({"seeds": 0}, "at least 1")]
)
def test_a_frontier_refuses_what_it_cannot_do(options, message):
    with pytest.raises(hc.InputError, match=message):
        hc.frontier([(16, 8)], time_limit=1, **options)


def test_compiled_weights_are_saved_with_their_certificate(tmp_path):
    graph, table = hc.permutation_graph(16, seed=0), hc.gaussian_embeddings(16, 8, seed=0)
    found = hc.compile(graph, table, budget=6)
    found.save(tmp_path / "w.safetensors")
    weights = hc.load_weights(tmp_path / "w.safetensors")
    assert hc.Certificate.from_notes(weights.notes) == found.certificate
    assert weights.notes["method"] == "compiled"
    assert hc.verify(weights, graph, table).margin == found.certificate.margin
    with pytest.raises(hc.InputError, match="no certificate"):
        hc.Certificate.from_notes(found.weights.notes)


def test_the_former_name_of_load_weights_warns(tmp_path):
    hc.KeyQuery(torch.ones(1, 1, 1), torch.ones(1, 1, 1), 0.5).save(tmp_path / "w.safetensors")
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match="load_weights") as warned:
            weights = hc.load(tmp_path / "w.safetensors")
        assert len(warned) == 1
        assert weights.threshold == 0.5


def test_a_store_says_where_it_is_and_how_many_runs_it_has(tmp_path):
    path = tmp_path / "some.sqlite"
    spec = hc.RunSpec(items=16, d_model=4, heads=1, key_dim=1, steps=1)
    with hc.Store(path) as store:
        store.add(hc.train([spec], engine="torch", progress=False))
        assert repr(store) == f"Store({str(path)!r}, 1 run)"
    assert repr(store) == f"Store({str(path)!r}, closed)"


def test_the_measured_runs_go_into_curves_and_thresholds():
    runs = hc.measured_runs()
    small = runs[runs["items"] == 64]
    assert "value" in set(small["variant"])
    found = hc.thresholds(small)
    assert set(found["variant"]) == set(small["variant"]) - {"value"}
    assert len(hc.curves(runs)) == len(
        runs[["variant", "degree", "items", "d_model", "heads", "budget"]].drop_duplicates()
    )
    only = hc.measured_runs(variant="max")
    assert set(only["variant"]) == {"max"}
    one = hc.thresholds(only[only["items"] == 64])
    assert one.to_dict("list") == found[found["variant"] == "max"].to_dict("list")
    only["value"] = 0.0  # a copy: the next caller gets the measured values
    assert hc.measured_runs(variant="max")["value"].max() == 1.0
    with pytest.raises(hc.InputError, match="choose one of max, softmax, sum, value"):
        hc.measured_runs(variant="min")


TABLES = {
    "float64 array": lambda rows: rows.double().numpy(),
    "float32 array": lambda rows: rows.numpy(),
    "big-endian array": lambda rows: rows.numpy().astype(">f4"),
    "read-only, reversed": lambda rows: np.flip(np.flip(rows.numpy(), 0).copy(), 0),
    "nn.Parameter": torch.nn.Parameter,
    "nn.Embedding": lambda rows: torch.nn.Embedding.from_pretrained(rows, freeze=False),
    "float64": torch.Tensor.double,
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_may_be_an_array_a_parameter_or_an_embedding(kind, tmp_path):
    graph, rows = hc.permutation_graph(16, seed=0), hc.gaussian_embeddings(16, 8, seed=0)
    table = TABLES[kind](rows)
    compiled = hc.compile(graph, table, budget=6)
    built = hc.construct(graph, table, inverse="pinv")
    for weights in (compiled.weights, built):
        assert hc.verify(weights, graph, table) == hc.verify(weights, graph, rows.double())
    assert hc.to_torch(built, graph, table).facts == hc.to_torch(built, graph, rows).facts
    assert hc.incoherence(table, block=2).leakage == pytest.approx(
        hc.incoherence(rows, block=2).leakage
    )
    assert built.plot(graph, table).to_dict()["hconcat"]
    hc.save_embeddings(table, tmp_path / "t.npy")
    assert torch.equal(hc.load_embeddings(tmp_path / "t.npy").double(), rows.double())


def test_weights_may_be_parameters(tmp_path):
    graph, rows = hc.permutation_graph(16, seed=0), hc.gaussian_embeddings(16, 8, seed=0)
    plain = hc.compile(graph, rows, budget=6).weights
    parts = {name: torch.nn.Parameter(getattr(plain, name)) for name in ("queries", "keys")}
    weights = dataclasses.replace(plain, **parts)
    assert hc.verify(weights, graph, rows) == hc.verify(plain, graph, rows)
    weights.save(tmp_path / "w.safetensors")
    assert torch.equal(hc.load_weights(tmp_path / "w.safetensors").queries, plain.queries)
    twice = hc.KeyQuery(plain.queries, plain.queries, 0.5)
    twice.save(tmp_path / "twice.safetensors")
    assert torch.equal(hc.load_weights(tmp_path / "twice.safetensors").keys, plain.queries)


def test_contexts_may_be_an_array():
    graph, rows = hc.permutation_graph(8), torch.eye(8)
    weights = hc.construct(graph, rows)
    found = hc.verify(weights, graph, rows, contexts=np.array([[0, 1, 2]]))
    assert (found.contexts, found.context_length) == (1, 3)


NO_TABLES = {
    "graph, 'table.npy'": "a numpy array or an nn.Embedding, not str; read a file",
    "graph, [[1.0]]": "not list",
    "graph, None": "not NoneType",
    "graph, torch.ones(8)": "the table has shape",
    "graph, torch.ones(7, 4)": "the table 7 rows",
    "graph, torch.ones(8, 4, dtype=torch.complex64)": "the table is complex",
    "graph, np.array([['a']])": "must be real numbers",
    "[(0, 1)], torch.ones(8, 4)": "a graph must be a headcount.Graph, not list",
}


@pytest.mark.parametrize("change", NO_TABLES)
def test_what_is_no_table_is_refused_in_a_sentence(unchecked, change):
    graph = hc.permutation_graph(8)
    weights = hc.KeyQuery(torch.ones(1, 4, 1), torch.ones(1, 4, 1), 0.5)
    given = eval(change, globals() | {"graph": graph})
    for call in (hc.compile, hc.construct, partial(hc.verify, weights)):
        with pytest.raises(hc.InputError) as refusal:
            call(*given)
        assert NO_TABLES[change] in str(refusal.value)
