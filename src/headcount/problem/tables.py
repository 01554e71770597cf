"""Embedding tables: what counts as one in Python, and its files."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.files import replacing, save_tensors
from headcount.problem.frames import frame_names, frame_rows
from headcount.problem.graph import Graph
from headcount.problem.real_numbers import real_array, real_tensor
from headcount.problem.table_files import DEFAULT_KEY, NAMES, read_table_file
from headcount.problem.vocabulary import Names, Vocabulary, as_vocabulary, names_of_rows
from headcount.shapes import Float

# What a call takes for a table of embeddings; an `nn.Parameter` is a tensor.
TableLike = Tensor | np.ndarray | torch.nn.Embedding | pd.DataFrame


def as_table(
    value: Any, source: str | os.PathLike[str] = "the table", names: Vocabulary | None = None
) -> Float[Tensor, "items d_model"]:
    """An embedding table as a tensor of items × d_model.

    `value` is a tensor, a parameter, a `torch.nn.Embedding`, a numpy array or a pandas frame.
    float32 and float64 stay as they are; 32- and 64-bit integers are widened to float64, everything
    else to float32; what that would round is refused. The table stays on its device and has no
    gradient. An error says that the table is from `source`, and names the item of a bad row by
    `names`.

    >>> as_table(np.eye(2, dtype=np.float16)).dtype
    torch.float32
    >>> as_table("table.npy")
    Traceback (most recent call last):
    headcount.errors.InputError: the table must be a tensor, a pandas frame, a numpy array or ...
    """
    table = _tensor(value, source)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(
            f"{source}: the table has shape {tuple(table.shape)}; it must be items × d_model"
        )
    finite = table.isfinite().all(dim=1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        name = "" if names is None else f" ({names[row]!r})"
        raise InputError(
            f"{source}, row {row}{name}: holds a NaN or infinite entry; remove or replace that row"
        )
    return table


def table_for(graph: Graph, table: object) -> Float[Tensor, "items d_model"]:
    """`as_table`, refused unless it has one row for each item of the graph.

    Where both have names, the rows must be in the order of the items.
    """
    if not isinstance(graph, Graph):
        raise InputError(
            f"a graph must be a headcount.Graph, not {type(graph).__name__}; make one with as_graph"
        )
    rows = as_table(table)
    if len(rows) != graph.items:
        raise InputError(
            f"the graph has {graph.items} items, the table {len(rows)} rows; "
            "give a table with one row per item"
        )
    require_same_names(graph, names_of_table(table))
    return rows


def names_of_table(table: object) -> Vocabulary | None:
    """The names of a table's rows, which of all that `as_table` takes a pandas frame alone has."""
    return frame_names(table, "the table") if isinstance(table, pd.DataFrame) else None


def require_same_names(graph: Graph, names: Vocabulary | None) -> None:
    """Refuse a graph whose items are called otherwise than the rows beside it."""
    if graph.names is None or names is None or graph.names == names:
        return
    item = next(k for k, name in enumerate(names) if graph.names[k] != name)
    raise InputError(
        f"item {item} of the graph is {graph.names[item]!r}, row {item} of the table "
        f"{names[item]!r}; number the graph by the table: as_graph(graph, names=list of its names)"
    )


def load_embeddings(
    path: str | os.PathLike[str], key: str | None = None
) -> Float[Tensor, "items d_model"]:
    """Read a table of embeddings from a file; its names, if it has any, are left out.

    Formats: `.npy`, `.npz`, `.safetensors`, `.csv`, `.tsv`, `.parquet` and `.pt`. Numbers are
    widened as `as_table` says; a text file gives float64. In a file that holds several tensors the
    table is the one called `key`, else `embeddings`, else the only one there.
    """
    return read_table(path, key)[0]


def read_table(
    path: str | os.PathLike[str],
    key: str | None = None,
    names: str | os.PathLike[str] | None = None,
) -> tuple[Float[Tensor, "items d_model"], Vocabulary | None]:
    """Read a table and the names of its rows.

    Names come from the file `names` (`read_names` says how), else from the table's own file: the
    name column of a `.csv`, `.tsv` or `.parquet` file, the array `names` of an `.npz` file, the
    names that `save_embeddings` put into a `.safetensors` file. Without any they are None.
    """
    stored, own = read_table_file(path, key)
    if names is not None:
        own = names_of_rows(names, path, len(stored) if stored.ndim else 0)
    elif own is not None and stored.ndim and len(own) != len(stored):
        raise InputError(
            f"{path}: holds {len(own):,} names for {len(stored):,} rows; give one name per row"
        )
    return as_table(stored, path, own), own


def save_embeddings(table: Any, path: str | os.PathLike[str], names: Names | None = None) -> None:
    """Write a table as `.npy`, or as `.safetensors` under the key `embeddings`, with its names.

    `table` is whatever `as_table` takes.
    """
    rows = as_table(table)
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".npy", ".safetensors"):
        raise InputError(f"{path}: unknown table format {suffix!r}; use .npy or .safetensors")
    if suffix == ".safetensors":
        listed = None if names is None else list(as_vocabulary(names, len(rows)))
        metadata = None if listed is None else {NAMES: json.dumps(listed, ensure_ascii=False)}
        save_tensors(path, {DEFAULT_KEY: rows}, metadata)
        return
    if names is not None:
        raise InputError(f"{path}: a .npy file cannot hold names; write a .safetensors file")
    with replacing(path) as temporary:
        np.save(temporary, rows.cpu().numpy())


def _tensor(value: Any, source: str | os.PathLike[str]) -> Tensor:
    if isinstance(value, torch.nn.Embedding):
        value = value.weight
    if isinstance(value, Tensor):
        return real_tensor(value, source)
    if isinstance(value, pd.DataFrame):
        value = frame_rows(value, source)
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"{source} must be a tensor, a pandas frame, a numpy array or an nn.Embedding, not "
            f"{type(value).__name__}; read a file with load_embeddings"
        )
    array = real_array(value, source)
    return real_tensor(torch.from_numpy(array if array.flags.writeable else array.copy()), source)
