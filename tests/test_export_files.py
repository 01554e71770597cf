"""The command that exports weights, its files, and what it refuses."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from headcount import (
    InputError,
    KeyQuery,
)
from headcount.attention.export import load_attention, to_torch
from headcount.problem.edge_list import write_graph
from headcount.problem.tables import save_embeddings
from tests.exported_problems import LENGTH, check_promises, drawn_contexts, embedded


@pytest.fixture
def problem_files(tmp_path):
    """weights.safetensors, graph.csv and table.npy of a permutation."""
    weights, graph, table = embedded()
    weights.save(tmp_path / "weights.safetensors")
    write_graph(graph, tmp_path / "graph.csv")
    save_embeddings(table, tmp_path / "table.npy")
    return weights, graph, table


def test_the_command_writes_what_the_function_gives(problem_files, command, tmp_path):
    weights, graph, table = problem_files
    files = ("weights.safetensors", "graph.csv", "table.npy")
    words = ("export", *files, "--context-length", LENGTH)
    code, out, err = command(*words, "--out", "some.safetensors", "--json")
    assert (code, err) == (0, "")
    wanted = to_torch(weights, graph, table, context_length=LENGTH)
    assert json.loads(out) == {**wanted.facts, "file": "some.safetensors"}
    with safe_open(tmp_path / "some.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert (
        metadata["source_sha256"]
        == hashlib.sha256((tmp_path / "weights.safetensors").read_bytes()).hexdigest()
    )
    assert {name: metadata[name] for name in wanted.facts} == {
        name: str(fact) for name, fact in wanted.facts.items()
    }
    written = load_file(tmp_path / "some.safetensors")
    assert all(torch.equal(written[name], part) for name, part in wanted.tensors.items())
    attention = load_attention(tmp_path / "some.safetensors")
    assert attention.batch_first
    check_promises(attention, graph, table, drawn_contexts(graph.items, LENGTH))
    code, out, _ = command(*words)
    assert code == 0
    assert "mha.safetensors" in out


def test_the_command_needs_no_problem_for_softmax(problem_files, command, tmp_path):
    weights, _, _ = problem_files
    KeyQuery(weights.queries, weights.keys, 0.5, "softmax").save(tmp_path / "softmax.safetensors")
    code, out, _ = command("export", "softmax.safetensors", "--json")
    assert code == 0
    assert json.loads(out)["add_bias_kv"] is False
    assert load_attention(tmp_path / "mha.safetensors").bias_k is None
    code, _, err = command("export", "softmax.safetensors", "graph.csv", "table.npy")
    assert code == 0
    assert "not needed" in err


def test_compiled_weights_are_exported_with_their_problem(problem_files, command):
    """The margin among their notes is not enough: what float32 loses of it depends on the table."""
    code, _, err = command(
        "compile", "graph.csv", "table.npy", "--budget", "16", "--out", "compiled.safetensors"
    )
    assert code == 0, err
    code, _, err = command("export", "compiled.safetensors")
    assert code == 2
    assert "add the two files: headcount export compiled.safetensors GRAPH TABLE" in err
    code, out, _ = command("export", "compiled.safetensors", "graph.csv", "table.npy", "--json")
    assert code == 0
    assert json.loads(out)["temperature"] > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("none.safetensors",), "no such file"),
        (
            ("weights.safetensors",),
            "add the two files: headcount export weights.safetensors GRAPH TABLE",
        ),
        (("weights.safetensors", "graph.csv"), "weights need the graph and the table"),
        (("weights.safetensors", "graph.csv", "narrow.npy"), "the table is 3 wide"),
        (("weights.safetensors", "empty.csv", "table.npy"), "wrongly"),
        (("weights.safetensors", "graph.csv", "table.npy", "--context-length", "0"), "is empty"),
        (
            ("weights.safetensors", "graph.csv", "table.npy", "--out", "mha.pt"),
            "give the file that suffix",
        ),
        (
            ("weights.safetensors", "graph.csv", "table.npy", "--out", "weights.safetensors"),
            "replace the weights",
        ),
    ],
)
def test_bad_input_gets_one_sentence(problem_files, command, tmp_path, words, sentence):
    np.save(tmp_path / "narrow.npy", np.ones((24, 3)))
    (tmp_path / "empty.csv").write_text("source,target\n")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    code, out, err = command("export", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_files_that_hold_no_attention_are_refused(tmp_path):
    exported = to_torch(*embedded())
    whole = tmp_path / "whole.safetensors"
    exported.save(whole)
    with safe_open(whole, framework="pt") as file:
        metadata = file.metadata()
    embedded()[0].save(tmp_path / "weights.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(whole.read_bytes()[:200])
    fewer = {name: part for name, part in exported.tensors.items() if name != "bias_v"}
    save_file(fewer, tmp_path / "fewer.safetensors", metadata)
    for name, heads in (
        ("odd", str(exported.facts["embed_dim"] + 1)),
        ("none", "0"),
        ("word", "two"),
    ):
        save_file(
            exported.tensors, tmp_path / f"{name}.safetensors", {**metadata, "num_heads": heads}
        )
    for name in ("cut", "fewer", "odd", "none", "word"):
        with pytest.raises(InputError, match=f"{name}.safetensors: not a whole attention file"):
            load_attention(tmp_path / f"{name}.safetensors")
    with pytest.raises(InputError, match="does not hold an exported attention"):
        load_attention(tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match="no such file"):
        load_attention(tmp_path / "missing.safetensors")
