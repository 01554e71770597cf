"""Files that the explorer reads in the browser are read, or refused, as Python does it."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save

import headcount as hc
from headcount.attention.storage import _threshold

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


def read(**given: Any) -> Any:
    ready = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in given.items()
    }
    return run_node(MODULES, READ, ready)


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


def test_columns_go_by_their_titles():
    found = read(graph='source,kind,target\n0,"a, b",2\n\n1,c,0\n', table=npy(np.eye(3)))
    assert found["pairs"] == [[0, 2], [1, 0]]
    turned = read(graph="target,source\n0,2\n")
    assert turned["edges"]["pairs"] == [[2, 0]]
    named = read(graph="source_name,target_name\n0,2\n")
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
def test_bad_graphs_are_refused(graph, message):
    assert message in read(graph=graph, table=npy(np.eye(3)))


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", "<i4", "|u1", "<u2", "<u8", "|b1"])
def test_a_table_stored_by_columns_is_the_same_table(dtype):
    array = np.arange(6).reshape(3, 2).astype(dtype)
    plain = read(table=npy(array))["table"]
    assert plain["rows"] == array.ravel().tolist()
    assert read(table=npy(np.asfortranarray(array)))["table"] == plain


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (npy(np.array([[0.0, 1], [np.nan, 1]])), "table.npy, row 1: holds a NaN or infinite"),
        (npy(np.arange(4.0)), "table.npy: has 1 dimensions, and a table has two"),
        (npy(np.ones((2, 2), dtype=">f4")), 'save table.astype("<f4")'),
        (npy(np.ones((2, 2)))[:-1], "table.npy: is cut off"),
        (npy(np.ones((2, 2)))[:11], "table.npy: is cut off"),
        (npy(np.full((2, 2), 2**53)), "table.npy: holds integers of 2⁵³ or more"),
        (npy(np.ones((0, 2))), "table.npy: the table has shape 0 × 2"),
    ],
)
def test_bad_tables_are_refused(table, message):
    assert message in read(table=table)


def test_heads_have_their_widths():
    assert read(weights=weights())["weights"]["widths"] == [2, 1]


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
        (weights(threshold="0x10"), "the threshold is 0x10, not a number"),
        (weights(version="two"), "not a whole weights file"),
        (weights(version=None), "not a whole weights file"),
        (weights(notes="[]"), "not a whole weights file"),
        (weights(notes=None), "not a whole weights file"),
        (weights(torch.full((2, 3, 2), 2**60), widths="[2, 2]"), "holds integers of 2⁵³ or more"),
        (shortened(weights()), "not a whole .safetensors file"),
    ],
)
def test_bad_weights_are_refused_as_python_refuses_them(tmp_path, stored, message):
    found = read(weights=stored)
    assert found.startswith("weights.safetensors: ")
    assert message in found
    (tmp_path / "weights.safetensors").write_bytes(stored)
    with pytest.raises(hc.InputError):
        hc.load_weights(tmp_path / "weights.safetensors")


@pytest.mark.parametrize("names", ['["a", "b", "a"]', '["a", " ", "b"]', "{}"])
def test_bad_names_of_rows_are_refused_as_python_refuses_them(tmp_path, names):
    stored = save({"embeddings": torch.eye(3)}, {"names": names})
    (tmp_path / "t.safetensors").write_bytes(stored)
    assert read(table=stored, named="t.safetensors").startswith("t.safetensors")
    with pytest.raises(hc.InputError):
        hc.load_embeddings(tmp_path / "t.safetensors")


def drawn_thresholds(count: int) -> list[str]:
    """Numbers as float64 prints them, exactly, with a digit too many or changed, and otherwise."""
    generator = np.random.default_rng(0)
    texts = ["0.1", "1e400", "-1e-400", "5e-324", "2.5E+3", "1_0.5", ".5", "5.", ".", "e3", "inf"]
    texts += [
        "9" * 401,
        "0." + "1" * 401,
        str(2**53 + 1),
        f"{2**53 + 1}.0",
        "-0.0",
        " 7 ",
        "1e1000",
    ]
    while len(texts) < count:
        number = float(generator.normal() * 10.0 ** generator.integers(-30, 30))
        digits = str(generator.integers(10))
        shapes = [repr(number), str(Decimal(number)), f"{number:.17e}", f"{number:.3e}"]
        mantissa, _, power = f"{number:.20e}".partition("e")
        shapes += [f"{mantissa}{digits}e{power}", str(int(number)), f"{int(number)}.{digits}"]
        texts.append(shapes[generator.integers(len(shapes))])
    return texts


def test_thresholds_that_float64_rounds_are_refused_as_python_refuses_them():
    texts = drawn_thresholds(400)
    body = "return given.map((text) => isRounded(text) ? null : String(numberOf(text)));"
    found = run_node(["views/exact_number.js"], body, texts)
    kept = 0
    for text, number in zip(texts, found, strict=True):
        try:
            expected = _threshold(text)
        except (hc.InputError, ValueError):
            expected = float("nan")
        if expected != expected or abs(expected) == float("inf"):
            assert number is None or number in ("NaN", "Infinity", "-Infinity"), text
        else:
            assert float(number) == expected, text
            kept += 1
    assert 100 < kept < 300
    assert "which float64 rounds" in read(weights=weights(threshold="10.9" + "9" * 18))


def drawn_graphs(count: int) -> list[str]:
    """Edge lists with quotes, line breaks in them, blanks, further columns, and mistakes."""
    generator = np.random.default_rng(1)
    cells = ["0", "1", "2", " 1", "+2", "01", '"0"', '"1"', '"2\n"', '"\r\n1"', '"a,b"', '"a""b"']
    cells += ["", " ", '"', '0"', '"1" ', ' "2"', '"x\ny"', "-+1", "3", "name"]
    often = np.r_[np.ones(10), np.full(len(cells) - 10, 0.12)]
    texts = []
    for _ in range(count):
        ends = ["\n", "\r\n", "\r", "\n\n"]
        lines = [["source,target", "source,target,note"][generator.integers(2)]]
        for _ in range(generator.integers(1, 4)):
            width = generator.choice([2, 3, 1, 4], p=[0.7, 0.2, 0.05, 0.05])
            lines.append(",".join(generator.choice(cells, width, p=often / often.sum())))
        texts.append("".join(line + ends[generator.integers(4)] for line in lines))
    return texts


@pytest.mark.parametrize("names", [None, ["0", "name", "a,b"], ['a"b', "x", " 1"]])
def test_edge_lists_are_read_as_python_reads_them(tmp_path, names):
    texts = drawn_graphs(400)
    body = """
      return given.texts.map((text) => {
        try {
          const edges = readEdges(text, "graph.csv");
          return fittedEdges({ dModel: 1 }, edges, { items: 3, dModel: 1, names: given.names });
        } catch (error) {
          if (!(error instanceof BadFile)) throw error;
          return error.message;
        }
      });
    """
    found = run_node(MODULES, body, {"texts": texts, "names": names})
    kept = 0
    for text, ours in zip(texts, found, strict=True):
        expected = read_by_python(tmp_path, text, names)
        if isinstance(expected, str):
            assert isinstance(ours, str), (text, expected)
            line = re.search(r"line \d+", ours)
            assert line is None or line[0] in expected, (text, ours, expected)
        elif not expected:
            assert "holds no edges" in ours
        else:
            assert sorted(ours) == expected, text
            kept += 1
    assert kept > 20


def read_by_python(folder, text: str, names: list[str] | None) -> list[list[int]] | str:
    (folder / "graph.csv").write_bytes(text.encode())
    try:
        return hc.read_graph(folder / "graph.csv", items=3, names=names).pairs.tolist()
    except hc.InputError as error:
        return str(error)


def test_a_graph_that_is_not_text_gets_a_sentence():
    body = """
      try {
        return decoded(Uint8Array.of(...given).buffer, "graph.csv");
      } catch (error) {
        return error.message;
      }
    """
    found = run_node(MODULES, body, [0xFF, 0xFE, 0x41])
    assert found == "graph.csv: is not UTF-8 text; save it as UTF-8"
    assert run_node(MODULES, body, [0xEF, 0xBB, 0xBF, 0x41]) == "A"
