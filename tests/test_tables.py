"""Embedding tables: what Python holds, and every file format."""

from __future__ import annotations

import json
import pickle
import zipfile
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.torch import save_file

from headcount import InputError, RunSpec, as_table, load_embeddings, read_names, save_embeddings
from headcount.problem.tables import read_table

ROWS = np.array([[1.5, -2.0, 0.25], [0.1, 3.0, -0.0]])
FLOATS = st.sampled_from(["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])


def written(path, rows):
    """`rows` in the format of the path's suffix."""
    match path.suffix:
        case ".npy":
            np.save(path, rows)
        case ".npz":
            np.savez(path, rows)
        case ".safetensors":
            save_file({"x": torch.tensor(rows)}, path)
        case ".csv":
            np.savetxt(path, rows, delimiter=",", fmt="%.17g")
        case ".tsv":
            pd.DataFrame(rows, columns=["a", "b", "c"]).to_csv(path, sep="\t", index=False)
        case ".parquet":
            pd.DataFrame(rows, columns=["a", "b", "c"]).to_parquet(path)
        case ".pt":
            torch.save(torch.nn.Parameter(torch.tensor(rows)), path)
    return path


SUFFIXES = [".npy", ".npz", ".safetensors", ".csv", ".tsv", ".parquet", ".pt"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_gives_the_same_numbers(tmp_path, suffix):
    found = load_embeddings(written(tmp_path / f"t{suffix}", ROWS))
    assert found.dtype == torch.float64
    assert np.array_equal(found.numpy(), ROWS)


@settings(deadline=None, max_examples=60)
@given(FLOATS.flatmap(lambda dtype: hnp.arrays(dtype, (3, 2), elements={"allow_nan": False})))
def test_every_width_and_byte_order_is_read_exactly(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("tables")
    np.save(folder / "t.npy", rows)
    np.savez(folder / "t.npz", embeddings=rows, other=np.zeros(3))
    for value in (folder / "t.npy", folder / "t.npz", rows, rows[::-1][::-1]):
        read = load_embeddings if isinstance(value, type(folder)) else as_table
        if not np.isfinite(rows).all():
            with pytest.raises(InputError, match="NaN or infinite"):
                read(value)
            continue
        found = read(value)
        assert found.dtype in (torch.float32, torch.float64)
        assert np.array_equal(found.double().numpy(), rows.astype(np.float64))


@settings(deadline=None, max_examples=40)
@given(hnp.arrays(np.float64, (2, 3), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_written_as_text_are_read_exactly(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tables") / "t.csv"
    frame = pd.DataFrame(rows, columns=["a", "b", "c"]).assign(name=["null", "nan"])
    frame.to_csv(path, index=False)
    found, names = read_table(path)
    assert np.array_equal(found.numpy(), rows)
    assert list(names) == ["null", "nan"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_narrow_floats(tmp_path, dtype):
    rows = torch.tensor([[1.0, -2.5], [0.5, 3.0]]).to(dtype)
    torch.save({"embeddings": rows, "step": 3}, tmp_path / "t.pt")
    save_file({"embeddings": rows}, tmp_path / "t.safetensors")
    for found in (as_table(rows), *(load_embeddings(tmp_path / f"t{s}") for s in SUFFIXES[2::4])):
        assert found.dtype == torch.float32
        assert torch.equal(found, rows.float())


def test_bfloat16_of_numpy_is_known_by_its_two_bytes(tmp_path):
    """As `ml_dtypes` writes it."""
    rows = torch.tensor([[1.0, -2.5], [0.5, 3.0]])
    raw = rows.bfloat16().view(torch.int16).numpy().view("V2")
    np.save(tmp_path / "t.npy", raw)
    assert torch.equal(load_embeddings(tmp_path / "t.npy"), rows)


def test_what_torch_holds_is_a_table():
    embedding = torch.nn.Embedding(3, 2)
    for value in (embedding, embedding.weight, embedding.weight.detach().to_sparse()):
        found = as_table(value)
        assert torch.equal(found, embedding.weight.detach())
        assert not found.requires_grad
    frozen = np.eye(2)
    frozen.setflags(write=False)
    assert torch.equal(as_table(frozen), torch.eye(2).double())
    assert as_table(pd.DataFrame({"name": ["a", "b"], "x": [1, 2]})).tolist() == [[1.0], [2.0]]
    assert as_table(torch.ones(1, 1, dtype=torch.int64)).dtype == torch.float64


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (np.ones(3), r"shape \(3,\); it must be items × d_model"),
        (torch.ones(0, 3), r"shape \(0, 3\)"),
        ([[1.0, 2.0]], "the table must be a tensor, .* not list"),
        (np.array([["a", "b"]]), "must be real numbers"),
        (np.ones((1, 2), dtype=complex), "must be real numbers"),
        (torch.ones(1, 2, dtype=torch.complex64), "the table is complex"),
        ("table.npy", "not str; read a file with load_embeddings"),
        (np.ones((1, 2), dtype=object), "must be real numbers"),
        (np.array([[2**53 + 1, 1]]), "integers of 2⁵³ or more"),
        (torch.tensor([[1.0], [float("nan")]]), "the table, row 1: holds a NaN"),
        (pd.DataFrame({"x": [1.0], "when": pd.to_datetime(["2026-01-01"])}), "column 'when'"),
        (None, "not NoneType"),
    ],
)
def test_what_is_not_a_table_is_refused(value, sentence):
    with pytest.raises(InputError, match=sentence):
        as_table(value)


def test_names_come_with_the_table(tmp_path):
    words = ["hot", "cold"]
    np.savez(tmp_path / "t.npz", embeddings=ROWS, names=np.array(words))
    save_embeddings(ROWS, tmp_path / "t.safetensors", names=words)
    frame = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    frame.assign(word=words).to_csv(tmp_path / "t.csv", index=False)
    np.savetxt(tmp_path / "bare.csv", np.c_[words, ROWS], delimiter=",", fmt="%s")
    frame.assign(word=pd.Categorical(words)).to_parquet(tmp_path / "t.parquet")
    frame.set_axis(words).to_parquet(tmp_path / "index.parquet")
    pd.DataFrame({"token": words, "vector": list(ROWS)}).to_parquet(tmp_path / "lists.parquet")
    for name in (
        *("t.npz", "t.safetensors", "t.csv", "bare.csv", "t.parquet", "index.parquet"),
        "lists.parquet",
    ):
        rows, names = read_table(tmp_path / name)
        assert np.array_equal(rows.numpy(), ROWS), name
        assert list(names) == words, name
    for name in ("t.csv", "t.parquet"):
        assert list(read_names(tmp_path / name)) == words


class Trap:
    """Unpickling one would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_pickles_are_refused_and_not_run(tmp_path):
    trap = Trap(tmp_path / "sprung")
    torch.save({"embeddings": torch.ones(2, 2), "more": trap}, tmp_path / "t.pt")
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(trap))
    np.savez(tmp_path / "t.npz", embeddings=np.array([[trap]], dtype=object))
    np.save(tmp_path / "t.npy", np.array([[trap]], dtype=object), allow_pickle=True)
    for name, sentence in (
        ("t.pt", "loading it could run code; nothing was run"),
        ("bare.pt", "loading it could run code; nothing was run"),
        ("t.npz", r"not a whole \.npz file of numbers \(it holds Python objects"),
        ("t.npy", r"not a whole \.npy array of numbers \(it holds Python objects"),
    ):
        with pytest.raises(InputError, match=sentence):
            load_embeddings(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


BAD_TEXT = {
    "a word among numbers": ("a,b\n1,2\n3,x\n", "line 3, b: 'x' is not a number"),
    "a gap": ("a,b\n1,2\n3,\n", "line 3, b: '' is not a number"),
    "a short line": ("a,b\n1,2\n3\n", "line 3: has 1 entries, not 2"),
    "a long line": ("w,a\nhot,2\ncold,3,4\n", "line 3: has 3 entries, not 2"),
    "titles that could be a row": ("0,1\n1,2\n", "line 1: could be a row or the titles"),
    "an index": (",a\n0,1\n", "line 1: column 1 has no title"),
    "two text columns": ("w,pos,a\nhot,adj,1\n", "columns w, pos all hold texts"),
    "a name twice": ("w,a\nhot,1\nhot,2\n", "row 1: the name 'hot' is in row 0 already"),
    "a bad row": ("w,a\nhot,1\ncold,nan\n", r"row 1 \('cold'\): holds a NaN"),
    "nothing": ("", "is empty"),
    "only a header": ("a,b\n", "has a header alone"),
    "only names": ("name\nhot\n", "no column holds numbers"),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_text_tables_are_refused(tmp_path, case):
    text, sentence = BAD_TEXT[case]
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=sentence) as refused:
        load_embeddings(tmp_path / "t.csv")
    assert "t.csv" in str(refused.value)


def test_other_bad_files_are_refused(tmp_path):
    for suffix in SUFFIXES:
        if suffix in (".csv", ".tsv"):
            continue
        path = written(tmp_path / f"whole{suffix}", ROWS)
        cut = tmp_path / f"cut{suffix}"
        cut.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(InputError, match=rf"cut\{suffix}: not a whole"):
            load_embeddings(cut)
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, tmp_path / "two.pt")
    save_file({"e": torch.ones(2, 2)}, tmp_path / "n.safetensors", {"names": "{"})
    save_file({"e": torch.ones(2, 2)}, tmp_path / "m.safetensors", {"names": json.dumps(["a"])})
    pd.DataFrame({"v": [[1.0], [1.0, 2.0]]}).to_parquet(tmp_path / "ragged.parquet")
    for name, sentence in (
        ("list.pt", "holds a list; save a tensor"),
        ("two.pt", "choose the key from a, b"),
        ("n.safetensors", "is not a JSON list"),
        ("m.safetensors", "holds 1 names for 2 rows"),
        ("ragged.parquet", r"row 1: has a list of shape \(2,\)"),
    ):
        with pytest.raises(InputError, match=sentence):
            load_embeddings(tmp_path / name)
    assert load_embeddings(tmp_path / "two.pt", key="b").sum() == 4
    with pytest.raises(InputError, match=r"a \.npy file cannot hold names"):
        save_embeddings(ROWS, tmp_path / "t.npy", names=["a", "b"])


@settings(deadline=None, max_examples=150)
@given(st.sampled_from([".npy", ".npz", ".pt", ".parquet", ".safetensors"]), st.data())
def test_a_damaged_file_gets_a_sentence(tmp_path_factory, suffix, data):
    path = written(tmp_path_factory.mktemp("tables") / f"t{suffix}", ROWS)
    found = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        found[data.draw(st.integers(0, len(found) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(found[: data.draw(st.sampled_from([len(found), len(found) // 2]))])
    with suppress(InputError):  # and nothing else
        assert load_embeddings(path).isfinite().all()


@pytest.mark.parametrize("name", ["embeddings", "names.npy"])
def test_a_member_that_is_no_array_is_refused(tmp_path, name):
    np.savez(tmp_path / "t.npz", x=ROWS)
    with zipfile.ZipFile(tmp_path / "t.npz", "a") as file:
        file.writestr(name, b"just text")
    key = "embeddings" if name == "embeddings" else "x"
    with pytest.raises(InputError, match=r"t\.npz: (holds something else|the array 'names' is)"):
        read_table(tmp_path / "t.npz", key)


@pytest.mark.filterwarnings("ignore:Sparse CS")
def test_sparse_tables_of_every_layout():
    rows = torch.tensor(ROWS)
    for sparse in (rows.to_sparse(), rows.to_sparse_csr(), rows.to_sparse_csc()):
        assert torch.equal(as_table(sparse), rows)


def test_a_table_beyond_float32_is_not_trained():
    rows = torch.ones(4, 2, dtype=torch.float64)
    rows[2, 1] = 1e39
    with pytest.raises(InputError, match=r"row 2 of the table: holds an entry .* in float32"):
        RunSpec.on("regular", rows, heads=1, key_dim=1, length=2)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_blank_lines_of_a_table_are_skipped(tmp_path, end):
    lines = ["", "name,x,y", "  ", "hot,1,2", ",,", "", "cold,3,4", " , , "]
    (tmp_path / "t.csv").write_text(end.join(lines), newline="")
    rows, names = read_table(tmp_path / "t.csv")
    assert (rows.tolist(), list(names)) == ([[1, 2], [3, 4]], ["hot", "cold"])
