"""What is too large is refused at once, and in words: before it fills the memory."""

from __future__ import annotations

import time
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from headcount import InputError, as_table, load_embeddings, memory, permutation_graph
from headcount.problem.edge_list import read_graph
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.file import read_sweep

GRID = "items = 16\nd_model = 8\nheads = 1\n"
LISTED = ", ".join(map(str, range(1, 1200)))


@pytest.fixture
def hurried():
    """No test here may take long: counting comes before making."""
    began = time.process_time()
    yield
    assert time.process_time() - began < 5


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    "words",
    [
        ("train", "--items", 16, "--d-model", 8, "--heads", 1, "--key-dim", 1, "--seeds", 10**12),
        ("noise", "--items", 10**9),
        ("noise", "--items", 4096, "--d-model", 8, "--key-dim", 10**9),
        ("make", "graph", "permutation", "--items", 3 * 10**9, "--out", "g.csv"),
        ("make", "graph", "random", "--items", 10**6, "--edges", 9 * 10**11, "--out", "g.csv"),
        ("make", "graph", "skewed", "--items", 10**6, "--edges", 5 * 10**11, "--out", "g.csv"),
        ("make", "graph", "regular", "--items", 10**6, "--degree", 999_000, "--out", "g.csv"),
        ("make", "embeddings", "gaussian", "--items", 10**8, "--d-model", 10**5, "--out", "t.npy"),
        ("make", "embeddings", "one-hot", "--items", 10**8, "--out", "t.npy"),
    ],
)
def test_commands_that_ask_for_too_much(words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = command(*words)
    assert code == 2, err
    assert "choose" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    "text",
    [
        f"[grid]\n{GRID}key_dim = 1\nseeds = 1000000000000",
        f"[grid]\n{GRID}key_dim = 1\nseeds = {10**30}",
        f"[grid]\nitems = 16\nd_model = 8\nheads = [{LISTED}]\nkey_dim = [{LISTED}]\n",
        f"[grid]\nitems = 16\nd_model = 8\nheads = [{LISTED}]\nbudgets = [{LISTED}]\nseeds = 999\n",
        f"[grid]\nitems = [{LISTED}]\nd_model = [{LISTED}]\nheads = 1\nkey_dim = 1\n",
        f"[[grid]]\n{GRID}key_dim = 1\nseeds = 2\n[[grid]]\n{GRID}key_dim = 1\nseeds = 999999\n",
    ],
)
def test_sweeps_that_ask_for_too_much(text, tmp_path):
    path = tmp_path / "large.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"large\.toml.* too many"):
        read_sweep(path)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("seeds", ["5000000", f"[{LISTED}]\nlearning_rate = [{LISTED}]"])
def test_block_files_that_ask_for_too_much(seeds, tmp_path):
    path = tmp_path / "large.toml"
    path.write_text(f'table = "sample"\n[[grid]]\nheads = 1\nbudgets = 8\nseeds = {seeds}\n')
    with pytest.raises(InputError, match=r"large\.toml: \[\[grid\]\] number 1: .* too many"):
        read_block_plan(path)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 50_000, "too deeply"),
        ("a = " + "9" * 5000, "a number too long"),
        ("#" * 2**22 + "\n", "is longer than 4,194,304 bytes"),
    ],
)
def test_odd_sweep_files(text, says, tmp_path):
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=rf"odd\.toml: .*{says}"):
        read_sweep(path)


@pytest.mark.usefixtures("hurried")
def test_rows_of_millions_of_columns_are_refused(tmp_path):
    row = ",".join(["1"] * 3_000_000) + "\n"
    (tmp_path / "t.csv").write_text(row)
    with pytest.raises(InputError, match=r"t\.csv, line 1: has more than 1,048,576 columns"):
        load_embeddings(tmp_path / "t.csv")
    (tmp_path / "g.csv").write_text("source,target\n" + row)
    with pytest.raises(InputError, match=r"g\.csv, line 2: has more than 1,048,576 columns"):
        read_graph(tmp_path / "g.csv")


def test_an_id_of_thousands_of_digits_names_the_file(tmp_path):
    (tmp_path / "g.csv").write_text(f"source,target\n0,1\n0,{'9' * 5000}\n")
    with pytest.raises(InputError, match=r"g\.csv, line 3: .* has an id of more than 64 bits"):
        read_graph(tmp_path / "g.csv")
    (tmp_path / "g.csv").write_text("source,target\n-9223372036854775808,1\n")
    with pytest.raises(InputError, match=r"g\.csv, line 2: "):
        read_graph(tmp_path / "g.csv")


def test_files_that_unpack_to_more_than_there_is(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "t.npz", np.zeros((1000, 1000)))
    table = pa.table({"a": np.zeros(10**6), "b": np.zeros(10**6)})
    pq.write_table(table, tmp_path / "t.parquet")
    assert all((tmp_path / name).stat().st_size < 50_000 for name in ("t.npz", "t.parquet"))
    monkeypatch.setattr(memory, "free_memory", lambda: 8e6)
    for name in ("t.npz", "t.parquet"):
        with pytest.raises(InputError, match=rf"{name}: .* takes about 0\.0 GiB of memory"):
            load_embeddings(tmp_path / name)


def test_a_header_that_claims_more_than_there_is_names_the_file(tmp_path):
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 1000)}"
    text = header.ljust(117).encode() + b"\n"
    (tmp_path / "t.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(InputError, match=r"t\.npy: "):
        load_embeddings(tmp_path / "t.npy")
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as file:
        file.write(tmp_path / "t.npy", "embeddings.npy")
    with pytest.raises(InputError, match=r"t\.npz: "):
        load_embeddings(tmp_path / "t.npz")


def test_one_row_that_stands_for_many(tmp_path):
    with pytest.raises(InputError, match="the table with all its rows takes about"):
        as_table(torch.ones(1, 1).expand(10**6, 10**8))
    torch.save(torch.ones(1, 1).expand(10**6, 10**8), tmp_path / "t.pt")
    with pytest.raises(InputError, match=r"t\.pt with all its rows takes about"):
        load_embeddings(tmp_path / "t.pt")
    small = torch.ones(1, 3).expand(4, 3)
    assert as_table(small).tolist() == [[1.0] * 3] * 4


def test_free_memory_is_the_least_of_all_limits(tmp_path, monkeypatch):
    assert 0 < memory.free_memory() < float("inf")
    permutation_graph(1000)
    for name, text in {
        "memory.max": "1000",
        "memory.current": "700",
        "memory.stat": "anon 5\ninactive_file 100\n",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.free_memory() == 400
    (tmp_path / "memory.max").write_text("max")
    assert memory.free_memory() > 400


def test_frames_are_not_refused_for_their_names():
    assert as_table(pd.DataFrame({"name": ["a"], "x": [2**52]})).tolist() == [[2.0**52]]
