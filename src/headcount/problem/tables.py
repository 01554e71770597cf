"""Embedding-table files: `.npy` and `.safetensors`, never pickle."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headcount.errors import InputError
from headcount.files import existing_file, replacing, save_tensors
from headcount.problem.graph import Graph
from headcount.shapes import Float

_DEFAULT_KEY = "embeddings"


# What a call takes for a table of embeddings; an `nn.Parameter` is a tensor.
TableLike = Tensor | np.ndarray | torch.nn.Embedding


def as_table(table: object) -> Float[Tensor, "items d_model"]:
    """A table as the library computes with it: a float tensor, apart from any gradient.

    Numbers are widened as `load_embeddings` does.

    >>> as_table(np.array([[1, 2]])), as_table(torch.nn.Embedding(3, 2)).requires_grad
    (tensor([[1., 2.]], dtype=torch.float64), False)
    >>> as_table("table.npy")
    Traceback (most recent call last):
    headcount.errors.InputError: a table must be a tensor, a numpy array or an nn.Embedding, not ...
    """
    if isinstance(table, torch.nn.Embedding):
        table = table.weight
    if isinstance(table, np.ndarray):
        table = torch.from_numpy(_real(table, "the table").copy())
    if not isinstance(table, Tensor):
        raise InputError(
            "a table must be a tensor, a numpy array or an nn.Embedding, not "
            f"{type(table).__name__}; read a file with load_embeddings"
        )
    if table.is_complex():
        raise InputError("the table is complex; its entries must be real numbers")
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(f"the table has shape {tuple(table.shape)}; it must be items × d_model")
    return _widened(table.detach())


def table_for(graph: Graph, table: object) -> Float[Tensor, "items d_model"]:
    """`as_table`, refused unless it has one row for each item of the graph."""
    if not isinstance(graph, Graph):
        raise InputError(
            f"a graph must be a headcount.Graph, not {type(graph).__name__}; "
            "make one with Graph.from_edges or Graph.from_networkx"
        )
    rows = as_table(table)
    if len(rows) != graph.items:
        raise InputError(
            f"the graph has {graph.items} items, the table {len(rows)} rows; "
            "give a table with one row per item"
        )
    return rows


def save_embeddings(table: TableLike, path: str | os.PathLike[str]) -> None:
    """Write a table as `.npy`, or as `.safetensors` under the key `embeddings`."""
    table = as_table(table)
    if _suffix(path) == ".safetensors":
        save_tensors(path, {_DEFAULT_KEY: table})
        return
    with replacing(path) as temporary:
        np.save(temporary, table.cpu().numpy())


def load_embeddings(
    path: str | os.PathLike[str], key: str | None = None
) -> Float[Tensor, "items d_model"]:
    """Read a table of embeddings from a `.npy` or `.safetensors` file.

    float32 and float64 stay as stored; 32- and 64-bit integers are widened to float64, everything
    else to float32. In a `.safetensors` file the table is the tensor `key`, else `embeddings`, else
    the only one there.
    """
    path = existing_file(path)
    if _suffix(path) == ".npy":
        if key is not None:
            raise InputError(f"{path}: a .npy file holds one table; leave the key {key!r} out")
        table = torch.from_numpy(read_npy(path))
    else:
        table = _read_safetensors(path, key)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(
            f"{path}: the table has shape {tuple(table.shape)}; it must be items × d_model"
        )
    table = _widened(table)
    finite = table.isfinite().all(dim=1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        raise InputError(
            f"{path}, row {row}: holds a NaN or infinite entry; remove or replace that row"
        )
    return table


def _widened(table: Tensor) -> Tensor:
    """float32 and float64 as they are; wide integers become float64, everything else float32."""
    if table.dtype in (torch.float32, torch.float64):
        return table
    wide = table.dtype in (torch.int32, torch.int64, torch.uint32, torch.uint64)
    return table.double() if wide else table.float()


def _real(array: np.ndarray, name: object) -> np.ndarray:
    """An array of real numbers in native byte order, all of it in one piece."""
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise InputError(
            f"{name}: the entries are {array.dtype}; they must be real numbers of at most 64 bits"
        )
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in (".npy", ".safetensors"):
        raise InputError(f"{path}: unknown table format {suffix!r}; use .npy or .safetensors")
    return suffix


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """One array of real numbers from a `.npy` file, in native byte order."""
    path = existing_file(path)
    try:
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError):
        array = None
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"{path}: not a whole .npy array of numbers; write it again with numpy.save"
        )
    return _real(array, path)


def _read_safetensors(path: Path, key: str | None) -> Tensor:
    try:
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys())
            name = key or (names[0] if len(names) == 1 else _DEFAULT_KEY)
            if name not in names:
                known = ", ".join(names) or "none (it is empty)"
                others = "" if key or not names else " and more than one other"
                raise InputError(f"{path}: no tensor {name!r}{others}; choose the key from {known}")
            return file.get_tensor(name)
    except SafetensorError as error:
        raise InputError(
            f"{path}: not a whole .safetensors file ({error}); write it again"
        ) from None
