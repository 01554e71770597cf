"""Bad input to the commands: one sentence that says what is wrong, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.one_hot_files import GRAPH, TABLE, WEIGHTS, write_one_hot


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The graph, table and weights of a one-hot permutation that verifies, and many bad files."""
    path = write_one_hot(tmp_path_factory.mktemp("cli"))
    (path / "duplicate.csv").write_text("source,target\n0,1\n0,1\n")
    (path / "outside.csv").write_text("source,target\n0,1\n5,99\n")
    (path / "negative.csv").write_text("source,target\n0,-1\n")
    (path / "header.csv").write_text("from,to\n0,1\n")
    (path / "empty.csv").write_text("")
    (path / "words.csv").write_text("source,target\n0,1\none,2\n")
    (path / "fraction.csv").write_text("source,target\n0,1.5\n")
    (path / "three.csv").write_text("source,target\n0,1\n1,2,3\n")
    (path / "huge.csv").write_text("source,target\n0,99999999999999999999\n")
    table = np.load(path / "table.npy")
    np.save(path / "short.npy", table[:20])
    nan = table.copy()
    nan[7, 3] = np.nan
    np.save(path / "nan.npy", nan)
    np.save(path / "narrow.npy", table[:, :16])
    np.save(path / "flat.npy", table.ravel())
    np.save(path / "text.npy", np.array([["a", "b"]]))
    np.save(path / "objects.npy", np.array([[object()]]), allow_pickle=True)
    (path / "cut.npy").write_bytes((path / "table.npy").read_bytes()[:500])
    (path / "cut.safetensors").write_bytes((path / "weights.safetensors").read_bytes()[:300])
    save_file({"a": torch.ones(2, 2)}, path / "other.safetensors")
    metadata = {
        "format": "headcount-key-query",
        "version": "1",
        "aggregation": "max",
        "threshold": "0.0",
    }
    bad = {**metadata, "widths": "[4]", "notes": "{}"}
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 3)},
        path / "widths.safetensors",
        bad,
    )
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 2)},
        path / "shapes.safetensors",
        bad,
    )
    save_file({"queries": torch.ones(1, 2, 3)}, path / "missing.safetensors", bad)
    newer = {**bad, "version": "99"}
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 3)},
        path / "newer.safetensors",
        newer,
    )
    np.save(path / "twice.npy", np.array([[0, 1], [2, 2]]))
    (path / "wide.csv").write_text("source,target\n0,1,2\n1,2,3\n")
    (path / "logic.csv").write_text("source,target\nTrue,False\n")
    (path / "edges.csv.gz").write_bytes(b"\x1f\x8b")
    with (path / "zip.npy").open("wb") as file:
        np.savez(file, a=table)
    np.save(path / "long.npy", table.astype(np.longdouble))
    listed = {**metadata, "widths": "[3]", "notes": "[1]"}
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 3)},
        path / "notes.safetensors",
        listed,
    )
    endless = {**metadata, "widths": "[3]", "notes": "{}", "threshold": "inf"}
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 3)},
        path / "endless.safetensors",
        endless,
    )
    return path


BAD_INPUT = {
    "no file": (["verify", "none.safetensors", GRAPH, TABLE], "none.safetensors: no such file"),
    "a folder": (["verify", ".", GRAPH, TABLE], "is a folder"),
    "duplicate edge": (
        ["verify", WEIGHTS, "duplicate.csv", TABLE],
        "duplicate.csv, line 3: edge (0, 1) is in line 2 already",
    ),
    "id out of range": (["verify", WEIGHTS, "outside.csv", TABLE], "outside.csv, line 3"),
    "negative id": (["verify", WEIGHTS, "negative.csv", TABLE], "negative.csv, line 2"),
    "wrong header": (
        ["verify", WEIGHTS, "header.csv", TABLE],
        "header.csv, line 1: the header is 'from,to'",
    ),
    "empty graph file": (["verify", WEIGHTS, "empty.csv", TABLE], "empty.csv, line 1"),
    "words for ids": (["verify", WEIGHTS, "words.csv", TABLE], "words.csv, line 3: 'one,2'"),
    "fractions for ids": (["verify", WEIGHTS, "fraction.csv", TABLE], "fraction.csv, line 2"),
    "three columns": (["verify", WEIGHTS, "three.csv", TABLE], "three.csv, line 3"),
    "three columns from the first": (["verify", WEIGHTS, "wide.csv", TABLE], "wide.csv, line 2"),
    "words that pandas would take": (
        ["verify", WEIGHTS, "logic.csv", TABLE],
        "logic.csv, line 2: 'True,False'",
    ),
    "a compressed graph": (["verify", WEIGHTS, "edges.csv.gz", TABLE], "use .csv or .tsv"),
    "an archive of tables": (
        ["verify", WEIGHTS, GRAPH, "zip.npy"],
        "zip.npy: not a whole .npy array",
    ),
    "numbers beyond 64 bits": (["verify", WEIGHTS, GRAPH, "long.npy"], "at most 64 bits"),
    "notes that are none": (["show", "notes.safetensors"], "not a whole weights file"),
    "an endless threshold": (["show", "endless.safetensors"], "the threshold is inf"),
    "a picture not asked for": (["show", WEIGHTS, GRAPH, TABLE], "add --scores"),
    "a negative seed": (
        ["make", "graph", "permutation", "--items", "4", "--seed", "-1", "--out", "x.csv"],
        "seed -1",
    ),
    "too many items": (
        ["make", "graph", "permutation", "--items", "10000000000", "--out", "x.csv"],
        "too many",
    ),
    "an unknown option": (["verify", "--qqq"], "No such option: --qqq; see --help"),
    "an unknown command": (["nonsense"], "No such command 'nonsense'"),
    "a missing option": (["make", "graph", "permutation"], "Missing option '--items'"),
    "construct nothing": (["construct"], "give a graph and a table"),
    "calibrate nothing": (
        ["construct", "--trials", "3", "--method", "compressive"],
        "--trials needs",
    ),
    "both contexts and length": (
        ["verify", WEIGHTS, GRAPH, TABLE, "--contexts", "twice.npy", "--context-length", "3"],
        "exclude each other",
    ),
    "a bench of nothing": (
        ["bench", "packing", "--items", "16", "--edges", "8", "--block", "0"],
        "--block",
    ),
    "a table beyond memory": (
        ["make", "embeddings", "one-hot", "--items", "1000000000000", "--out", "x.npy"],
        "choose smaller sizes or a larger machine",
    ),
    "a width beyond numbers": (
        [
            "make",
            "embeddings",
            "gaussian",
            "--items",
            "1",
            "--d-model",
            "10000000000000000000",
            "--out",
            "x.npy",
        ],
        "choose smaller sizes or a larger machine",
    ),
    "hardly a bit": (
        ["plan", "--items", "64", "--d-model", "16", "--bits", "1e-308"],
        "1e-6 to 1e6 bits",
    ),
    "an id beyond 64 bits": (["verify", WEIGHTS, "huge.csv", TABLE], "huge.csv, line 2"),
    "too few rows": (["verify", WEIGHTS, GRAPH, "short.npy"], "graph.csv, line"),
    "a NaN row": (["verify", WEIGHTS, GRAPH, "nan.npy"], "nan.npy, row 7"),
    "another width": (["verify", WEIGHTS, GRAPH, "narrow.npy"], "the table is 16 wide"),
    "a flat table": (["verify", WEIGHTS, GRAPH, "flat.npy"], "items × d_model"),
    "text in a table": (["verify", WEIGHTS, GRAPH, "text.npy"], "must be real numbers"),
    "pickled objects": (
        ["verify", WEIGHTS, GRAPH, "objects.npy"],
        "objects.npy: not a whole .npy array",
    ),
    "a truncated table": (["verify", WEIGHTS, GRAPH, "cut.npy"], "cut.npy: not a whole .npy array"),
    "truncated weights": (
        ["verify", "cut.safetensors", GRAPH, TABLE],
        "cut.safetensors: not a whole weights file",
    ),
    "no weights inside": (["show", "other.safetensors"], "does not hold key-query weights"),
    "widths that do not fit": (["show", "widths.safetensors"], "widths (4,)"),
    "a tensor missing": (
        ["show", "missing.safetensors"],
        "missing.safetensors: not a whole weights file",
    ),
    "a newer format": (["show", "newer.safetensors"], "upgrade"),
    "unknown table format": (["verify", WEIGHTS, GRAPH, "edges.csv.gz"], "use .npy, .npz,"),
    "contexts with repeats": (
        ["verify", WEIGHTS, GRAPH, TABLE, "--contexts", "twice.npy"],
        "context 1 holds the same",
    ),
    "no samples": (["verify", WEIGHTS, GRAPH, TABLE, "--samples", "0"], "--samples 0"),
    "degree too large": (
        ["make", "graph", "regular", "--items", "8", "--degree", "8", "--out", "x.csv"],
        "degree 8 does not fit 8 items",
    ),
    "degree missing": (
        ["make", "graph", "regular", "--items", "8", "--out", "x.csv"],
        "needs --degree",
    ),
    "degree misplaced": (
        ["make", "graph", "permutation", "--items", "8", "--degree", "2", "--out", "x.csv"],
        "--degree does not apply",
    ),
    "too many edges": (
        ["make", "graph", "random", "--items", "3", "--edges", "9", "--out", "x.csv"],
        "choose 0…6",
    ),
    "no items": (["make", "graph", "permutation", "--items", "0", "--out", "x.csv"], "too few"),
    "no such folder": (
        ["make", "graph", "permutation", "--items", "4", "--out", "no/x.csv"],
        "cannot write there",
    ),
    "no width": (
        ["make", "embeddings", "gaussian", "--items", "4", "--out", "x.npy"],
        "needs --d-model",
    ),
    "bad density": (
        [
            "make",
            "embeddings",
            "binary",
            "--items",
            "4",
            "--d-model",
            "4",
            "--density",
            "2",
            "--out",
            "x.npy",
        ],
        "density 2.0",
    ),
    "a picture without a graph": (
        ["show", WEIGHTS, "--scores", "x.png"],
        "needs a graph and a table",
    ),
    "an unknown picture": (["show", WEIGHTS, GRAPH, TABLE, "--scores", "x.bmp"], "written as .png"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gets_one_sentence_and_code_2(folder, case, command_in):
    words, sentence = BAD_INPUT[case]
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    code, stdout, stderr = command_in(folder, *words)
    assert code == 2, stderr
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert sentence in stderr
    assert stdout == ""
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_weights_of_differing_shapes_are_refused(folder, command_in, unchecked):
    code, _, err = command_in(folder, "show", "shapes.safetensors")
    assert code == 2
    assert "must have one shape" in err
