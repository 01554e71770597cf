"""Embedding-table files: `.npy` and `.safetensors`, never pickle."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headcount.errors import InputError
from headcount.files import existing_file, replacing
from headcount.shapes import Float

_DEFAULT_KEY = "embeddings"


def save_embeddings(table: Float[Tensor, "items d_model"], path: str | os.PathLike[str]) -> None:
    """Write a table as `.npy`, or as `.safetensors` under the key `embeddings`."""
    suffix = _suffix(path)
    with replacing(path) as temporary:
        if suffix == ".npy":
            np.save(temporary, table.cpu().numpy())
        else:
            save_file({_DEFAULT_KEY: table.cpu().contiguous()}, temporary)


def load_embeddings(path: str | os.PathLike[str], key: str | None = None) -> Float[Tensor, "items d_model"]:
    """Read a table: float32 or float64 as stored, half precision and integers widened to float32.

    In a `.safetensors` file the table is the tensor `key`, else `embeddings`, else the only one there.
    """
    path = existing_file(path)
    if _suffix(path) == ".npy":
        if key is not None:
            raise InputError(f"{path}: a .npy file holds one table; leave the key {key!r} out")
        table = _read_npy(path)
    else:
        table = _read_safetensors(path, key)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(f"{path}: the table has shape {tuple(table.shape)}; it must be items × d_model")
    if table.dtype not in (torch.float32, torch.float64):
        table = table.float()
    finite = table.isfinite().all(dim=1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        raise InputError(f"{path}, row {row}: holds a NaN or infinite entry; remove or replace that row")
    return table


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in (".npy", ".safetensors"):
        raise InputError(f"{path}: unknown table format {suffix!r}; use .npy or .safetensors")
    return suffix


def _read_npy(path: Path) -> Tensor:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise InputError(f"{path}: not a whole .npy array of numbers; write it again with numpy.save") from None
    if not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating) or array.dtype == bool):
        raise InputError(f"{path}: the entries are {array.dtype}; they must be real numbers")
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.ascontiguousarray(native))


def _read_safetensors(path: Path, key: str | None) -> Tensor:
    try:
        with safe_open(path, framework="pt") as file:
            names = sorted(file.keys())
            name = key or (_DEFAULT_KEY if _DEFAULT_KEY in names else names[0] if len(names) == 1 else None)
            if name is None or name not in names:
                wanted = f"no tensor {name!r}" if name else f"no tensor {_DEFAULT_KEY!r} and more than one other"
                raise InputError(f"{path}: {wanted}; choose the key from {', '.join(names) or 'none (it is empty)'}")
            return file.get_tensor(name)
    except SafetensorError as error:
        raise InputError(f"{path}: not a whole .safetensors file ({error}); write it again") from None
