"""What is verified are the numbers that were given: none is rounded on the way without a word."""

from __future__ import annotations

import math
from decimal import Decimal  # noqa: F401  (in expressions)
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import headcount as hc
from headcount import (
    Graph,
    InputError,
    KeyQuery,
    as_graph,
    load_embeddings,
    load_weights,
    token_table,
    verify,
)
from headcount.problem.real_numbers import is_rounded_integer
from tests.typechecker import unchecked

LARGE = 2**53
# The two rows become one when the integers are rounded to float64.
ROWS = np.array([[LARGE, 1], [LARGE + 1, 1]])
COMPLEX = torch.tensor([[1, 1], [1 + 5j, 1]], dtype=torch.complex64)
# (1, 0) and (1, 1) score 2⁵³ + 1, above τ, and the graph has no edges.
WEIGHTS = KeyQuery(
    torch.tensor([[[1.0], [0.0]]]).double(), torch.tensor([[[0.0], [1.0]]]).double(), 2.0**53
)
EMPTY = Graph.from_edges(2, [])


def frames() -> dict[str, pd.DataFrame]:
    first = ROWS[:, 0]
    return {
        "integers": pd.DataFrame(ROWS),
        "beside floats": pd.DataFrame({"a": first, "b": [1.0, 1.0]}),
        "signed beside unsigned": pd.DataFrame({"a": first.astype(np.uint64), "b": [1, 1]}),
        "nullable": pd.DataFrame(ROWS).astype("Int64"),
        "of arrow": pd.DataFrame(ROWS).astype("int64[pyarrow]"),
        "decimals of arrow": pd.DataFrame(ROWS).astype(pd.ArrowDtype(pa.decimal128(38, 0))),
        "lists": pd.DataFrame({"v": [list(row) for row in ROWS.tolist()]}),
        "mixed lists": pd.DataFrame({"v": [[LARGE, 1.0], [LARGE + 1, 1.0]]}),
        "lists of both kinds": pd.DataFrame({"v": [np.array([LARGE, 1.0]), ROWS[1]]}),
        "objects": pd.DataFrame(ROWS).astype(object),
    }


@pytest.mark.parametrize("kind", frames())
def test_frames_of_large_integers_are_refused(kind, tmp_path):
    frame = frames()[kind]
    with pytest.raises(InputError):
        verify(WEIGHTS, EMPTY, frame)
    if kind not in ("objects", "mixed lists", "lists of both kinds"):
        frame.columns = frame.columns.astype(str)
        frame.to_parquet(tmp_path / "t.parquet")
        with pytest.raises(InputError, match=r"t\.parquet"):
            load_embeddings(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "table",
    [ROWS, ROWS.astype(np.uint64), -ROWS, torch.tensor(ROWS), torch.tensor(ROWS).to_sparse()],
)
def test_arrays_of_large_integers_are_refused(table):
    with pytest.raises(InputError, match="which float64 rounds; scale them down"):
        verify(WEIGHTS, EMPTY, table)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".csv", ".tsv", ".pt"])
def test_files_of_large_integers_are_refused(suffix, tmp_path):
    path = tmp_path / f"t{suffix}"
    match suffix:
        case ".npy":
            np.save(path, ROWS)
        case ".npz":
            np.savez(path, ROWS)
        case ".safetensors":
            save_file({"embeddings": torch.tensor(ROWS)}, path)
        case ".pt":
            torch.save(torch.tensor(ROWS), path)
        case _:
            np.savetxt(path, ROWS, fmt="%d", delimiter="," if suffix == ".csv" else "\t")
    with pytest.raises(InputError, match=rf"t\{suffix}.*float64 rounds"):
        load_embeddings(path)


def test_text_may_hold_large_numbers_that_are_not_rounded(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"{2**60},1e300\n-{2**53},9007199254740993.5\n")
    assert load_embeddings(path).tolist() == [[2.0**60, 1e300], [-(2.0**53), 2.0**53 + 2]]


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".pt"])
def test_complex_tables_are_refused(suffix, tmp_path):
    path = tmp_path / f"t{suffix}"
    if suffix == ".npy":
        np.save(path, COMPLEX.numpy())
    elif suffix == ".pt":
        torch.save(COMPLEX, path)
    else:
        save_file({"embeddings": COMPLEX}, path)
    for read in (load_embeddings, token_table):
        with pytest.raises(InputError, match="real numbers"):
            read(path)
    with pytest.raises(InputError, match="real numbers"):
        verify(WEIGHTS, EMPTY, COMPLEX)
    with pytest.raises(InputError, match="real numbers"):
        verify(WEIGHTS, EMPTY, pd.DataFrame(COMPLEX.numpy()))


def test_what_goes_with_a_token_table_is_real_too(tmp_path):
    rows = {"embeddings": torch.eye(2)}
    save_file({**rows, "null": COMPLEX[1].contiguous()}, tmp_path / "null.safetensors")
    with pytest.raises(InputError, match=r"null\.safetensors, null is complex"):
        token_table(tmp_path / "null.safetensors")
    for ids in (COMPLEX[1].contiguous(), torch.tensor([0.5, 1.0])):
        save_file({**rows, "null": torch.ones(2), "token_ids": ids}, tmp_path / "ids.safetensors")
        with pytest.raises(InputError, match=r"token_ids are .* must be integers"):
            token_table(tmp_path / "ids.safetensors")


def weights_file(path, queries, threshold="1.0", notes="{}"):
    metadata = {"format": "headcount-key-query", "version": "1", "aggregation": "max"}
    metadata |= {"threshold": threshold, "widths": "[1]", "notes": notes}
    save_file({"queries": queries, "keys": queries.clone()}, path, metadata)
    return path


def outcomes(*expressions: str) -> list[str]:
    """What these come to for users, who have no check of types that would speak first."""
    whole, large = (torch.tensor([[[number], [0]]]) for number in (2**24 + 1, LARGE + 1))
    ones, graph, eye = torch.ones(1, 2, 1), hc.Graph.from_edges(4, [(0, 1)]), torch.eye(4)

    def scored(given):
        weights = hc.KeyQuery(given, given, 0.0)
        return hc.verify(weights, hc.Graph.from_edges(2, []), eye[:2, :2]).highest_non_edge.score

    def check(contexts):
        return hc.verify(hc.KeyQuery(ones, ones, 9.0), graph, eye[:, :2], contexts=contexts).f1

    names = globals() | locals()
    found = []
    with unchecked():
        for expression in expressions:
            try:
                found.append(str(eval(expression, names)))
            except InputError as error:
                found.append(f"refused: {error}")
    return found


def test_integer_weights_are_exact_or_refused(tmp_path):
    whole, large = (torch.tensor([[[number], [0]]]) for number in (2**24 + 1, LARGE + 1))
    read = load_weights(weights_file(tmp_path / "w.safetensors", whole))
    assert read.queries[0, 0].item() == 2**24 + 1  # float32 would round it
    with pytest.raises(InputError, match="queries: holds integers of 2⁵³ or more"):
        load_weights(weights_file(tmp_path / "large.safetensors", large))
    exact = str(float((2**24 + 1) ** 2))
    assert outcomes("scored(whole)", "scored(whole.numpy())") == [exact, exact]
    refused = outcomes(
        "scored(large)", "scored(large.numpy())", "scored(large.numpy().astype('u8'))"
    )
    assert all(line.startswith("refused: queries: holds integers of 2⁵³") for line in refused)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float4_e2m1fn_x2])
def test_files_of_odd_types_are_refused(dtype, tmp_path):
    odd = torch.ones(1, 2, 1, dtype=torch.uint8).view(dtype) if dtype.itemsize == 1 else None
    odd = torch.ones(1, 2, 1, dtype=dtype) if odd is None else odd
    save_file({"embeddings": odd[0]}, tmp_path / "t.safetensors")
    for read in (
        lambda: load_weights(weights_file(tmp_path / "w.safetensors", odd)),
        lambda: load_embeddings(tmp_path / "t.safetensors"),
    ):
        with pytest.raises(InputError, match=r"\.safetensors.*(real|plain) numbers"):
            read()


def test_weights_and_tables_of_odd_types_are_refused():
    odd = (
        "ones.to(torch.complex64)",
        "ones.numpy().astype(np.longdouble)",
        "ones.numpy().astype(object)",
        "ones.to('meta')",
        "ones.to_mkldnn()",
        "ones.byte().view(torch.float4_e2m1fn_x2)",
    )
    found = outcomes(*(f"scored({one})" for one in odd), *(f"hc.as_table({one})" for one in odd))
    assert len(found) == 2 * len(odd)
    assert all(line.startswith("refused: ") and " numbers" in line for line in found)


def test_a_threshold_that_float64_rounds_is_refused():
    rounded = ("2**53 + 1", "-2**53 - 1", "10**400", "Fraction(1, 3)", "np.longdouble(1) + 2**-60")
    found = outcomes(*(f"hc.KeyQuery(ones, ones, {one})" for one in rounded))
    assert len(found) == 5
    assert all("which float64 rounds; scale" in line for line in found)
    others = ("'0.5'", "None", "1j", "Decimal('0.5')")
    found = outcomes(*(f"hc.KeyQuery(ones, ones, {one})" for one in others))
    assert all(line.endswith("; give a number") for line in found)
    assert outcomes("hc.KeyQuery(ones, ones, Fraction(1, 4)).threshold") == ["0.25"]


def test_a_threshold_in_a_file_is_not_rounded_either(tmp_path):
    path = tmp_path / "w.safetensors"
    with pytest.raises(InputError, match=r"w\.safetensors: the threshold is .* float64 rounds"):
        load_weights(weights_file(path, torch.ones(1, 2, 1), str(LARGE + 1)))
    assert load_weights(weights_file(path, torch.ones(1, 2, 1), str(LARGE))).threshold == LARGE


def test_ids_and_contexts_of_more_than_63_bits_are_refused():
    with pytest.raises(InputError, match="an id of 22 digits"):
        as_graph([[0, 2**70]])
    graphs = "hc.as_graph(np.array([[0, 2**63]], dtype=np.uint64))"
    assert outcomes(graphs)[0].startswith("refused: a graph has 1 to")
    odd = (
        "np.array([[0, 2**63]], dtype=np.uint64)",
        "torch.tensor([[0, 1 + 1j]])",
        "torch.ones(1, 2, dtype=torch.bool)",
        "[[0, 0.5]]",
        "'contexts'",
    )
    assert all(line.startswith("refused: ") for line in outcomes(*(f"check({one})" for one in odd)))
    assert outcomes("check([[2, 3]])") == ["1.0"]


@settings(deadline=None, max_examples=200)
@given(st.integers(-(2**64), 2**64) | st.integers(-(10**30), 10**30))
def test_which_integers_float64_rounds(number):
    assert is_rounded_integer(number) == (int(float(number)) != number)
    assert is_rounded_integer(f" {number} ") == is_rounded_integer(number)
    assert is_rounded_integer(f"{number}.00") == is_rounded_integer(number)


@settings(deadline=None, max_examples=300)
@given(st.integers(-(10**20), 10**20), st.integers(0, 20), st.integers(-25, 310))
def test_which_numbers_with_an_exponent_float64_rounds(digits, places, exponent):
    sign, text = "-" * (digits < 0), str(abs(digits)).zfill(places + 1)
    point = len(text) - places
    written = f"{sign}{text[:point]}.{text[point:]}e{exponent}"
    exact = Fraction(digits) * Fraction(10) ** (exponent - places)
    nearest = float(written)
    kept = math.isfinite(nearest) and exact in (Fraction(nearest), Fraction(repr(nearest)))
    assert is_rounded_integer(written) == (exact.denominator == 1 and not kept)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_float64_prints_is_not_refused(number):
    text = f"{number!r}"
    if "e" in text or abs(number) < 2**53:
        assert not is_rounded_integer(text)


@pytest.mark.parametrize("entry", ["9007199254740993e0", "9007199254740.993E+3", "1e309"])
def test_an_integer_with_an_exponent_is_not_rounded_in_a_text_table(entry, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"a,b\n.5,1e22\n{entry},1\n")
    with pytest.raises(InputError, match=r"t\.csv, line 3, a: float64 rounds .*; scale it down"):
        load_embeddings(path)
    path.write_text("a,b\n.5,1e22\n1e+23,9007199254740992e0\n")
    assert load_embeddings(path).tolist() == [[0.5, 1e22], [1e23, 2.0**53]]
