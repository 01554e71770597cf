"""Files that the explorer reads in the browser are read, or refused, as Python does it."""

from __future__ import annotations

import base64
import io
import json
import struct
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

import headcount as hc

from .javascript import run_node

MODULES = ["views/edge_file.js", "views/table_file.js"]
READ = """
  const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64")).buffer;
  const { weights, graph, table } = given;
  try {
    const read = {};
    if (weights) read.weights = readWeights(bytes(weights), "weights.safetensors");
    if (table) read.table = readTable(bytes(table), given.named ?? "table.npy");
    if (graph !== undefined) read.edges = readEdges(graph, "graph.csv");
    if (read.edges && read.table) {
      read.pairs = fittedEdges({ dModel: read.table.dModel }, read.edges, read.table);
    }
    return read;
  } catch (error) {
    if (!(error instanceof BadFile)) throw error;
    return error.message;
  }
"""


def read(folder, **given: Any) -> Any:
    ready = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in given.items()
    }
    return run_node(MODULES, READ, ready, folder)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def weights(queries: torch.Tensor | None = None, **changed: str | None) -> bytes:
    """Two heads, the second of one column, as `KeyQuery.save` writes them."""
    both = torch.ones(2, 3, 2)
    both[1, :, 1] = 0
    metadata = {
        "format": "headcount-key-query",
        "version": "1",
        "aggregation": "max",
        "threshold": "0.5",
        "widths": "[2, 1]",
        "notes": "{}",
        **changed,
    }
    kept = {name: text for name, text in metadata.items() if text is not None}
    return save({"queries": both if queries is None else queries, "keys": both.clone()}, kept)


def test_columns_go_by_their_titles(tmp_path):
    found = read(tmp_path, graph='source,kind,target\n0,"a, b",2\n\n1,c,0\n', table=npy(np.eye(3)))
    assert found["pairs"] == [[0, 2], [1, 0]]
    turned = read(tmp_path, graph="target,source\n0,2\n")
    assert turned["edges"]["pairs"] == [[2, 0]]
    named = read(tmp_path, graph="source_name,target_name\n0,2\n")
    assert named["edges"]["named"]


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("0,1\n1,2\n", "graph.csv, line 1: the header is “0,1”"),
        ("source,target\n0,1,2\n", "graph.csv, line 2: “0,1,2” is not a pair"),
        ("source,target\n0,1\n1,2\n0,01\n", "line 4: edge (0, 1) is in line 2 already"),
        ("source,target\n0,-1\n", "an edge names item -1"),
    ],
)
def test_bad_graphs_are_refused(tmp_path, graph, message):
    assert message in read(tmp_path, graph=graph, table=npy(np.eye(3)))


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "<i4", "|u1"])
def test_a_table_stored_by_columns_is_the_same_table(tmp_path, dtype):
    array = np.arange(6).reshape(3, 2).astype(dtype)
    plain = read(tmp_path, table=npy(array))["table"]
    assert plain["rows"] == array.ravel().tolist()
    assert read(tmp_path, table=npy(np.asfortranarray(array)))["table"] == plain


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (npy(np.array([[0.0, 1], [np.nan, 1]])), "table.npy, row 1: holds a NaN or infinite"),
        (npy(np.arange(4.0)), "table.npy: has 1 dimensions, and a table has two"),
        (npy(np.ones((2, 2), dtype=">f4")), 'save table.astype("<f4")'),
        (npy(np.ones((2, 2)))[:-1], "table.npy: is cut off"),
        (npy(np.ones((2, 2)))[:11], "table.npy: is cut off"),
    ],
)
def test_bad_tables_are_refused(tmp_path, table, message):
    assert message in read(tmp_path, table=table)


def test_heads_have_their_widths(tmp_path):
    assert read(tmp_path, weights=weights())["weights"]["widths"] == [2, 1]


def shortened(stored: bytes) -> bytes:
    """The file with offsets of `queries` that end before its shape does."""
    [size] = struct.unpack("<Q", stored[:8])
    header = json.loads(stored[8 : 8 + size])
    header["queries"]["data_offsets"][1] -= 4
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + stored[8 + size :]


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (weights(threshold=None), "the threshold is missing"),
        (weights(threshold="nan"), "the threshold is nan"),
        (weights(widths=None), "the widths of the heads are missing"),
        (weights(widths="[1, 1]"), "head 0 is 1 wide but has non-zero columns beyond"),
        (weights(widths="[2, 3]"), "must be 2 numbers in 1…2"),
        (weights(version="3"), "written by a newer headcount"),
        (weights(torch.full((2, 3, 2), torch.inf), widths="[2, 2]"), "holds a NaN or infinite"),
        (shortened(weights()), "not a whole .safetensors file"),
    ],
)
def test_bad_weights_are_refused_as_python_refuses_them(tmp_path, stored, message):
    found = read(tmp_path, weights=stored)
    assert found.startswith("weights.safetensors: ")
    assert message in found
    (tmp_path / "weights.safetensors").write_bytes(stored)
    with pytest.raises(hc.InputError):
        hc.load_weights(tmp_path / "weights.safetensors")
