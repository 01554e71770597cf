"""Readers of table files, by suffix: none of them runs code that a file holds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from json import loads
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headcount.errors import InputError
from headcount.files import existing_file
from headcount.memory import require_memory
from headcount.problem.frames import frame_names, frame_rows, read_frame
from headcount.problem.real_numbers import real_array
from headcount.problem.vocabulary import Vocabulary

DEFAULT_KEY = "embeddings"
NAMES = "names"  # of an array in .npz files, and of a JSON list in the metadata of .safetensors

Read = tuple[Tensor | np.ndarray, Vocabulary | None]


def read_table_file(path: str | os.PathLike[str], key: str | None) -> Read:
    """The numbers in a file, as they are stored, and the names of its rows where it has them."""
    path = existing_file(path)
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise InputError(
            f"{path}: unknown table format {suffix!r}; use {', '.join(list(READERS)[:-1])} or "
            f"{list(READERS)[-1]}"
        )
    return READERS[suffix](path, key)


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """One array of real numbers from a `.npy` file, in native byte order."""
    path = existing_file(path)
    try:
        with path.open("rb") as file:
            array = np.load(file, allow_pickle=False)
    except MemoryError:
        raise _too_large(path) from None
    except Exception as error:  # numpy lets out whatever a damaged header runs into
        what = _objects(path) if "pickle" in str(error) else ""
        array = None
    else:
        what = ""
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"{path}: not a whole .npy array of numbers{what}; write it again with numpy.save"
        )
    return real_array(array, path)


def _npy(path: Path, key: str | None) -> Read:
    if key is not None:
        raise InputError(f"{path}: a .npy file holds one table; leave the key {key!r} out")
    return read_npy(path), None


def _npz(path: Path, key: str | None) -> Read:
    try:
        # numpy leaves a file that it opens itself open when it fails.
        with path.open("rb") as opened, np.lib.npyio.NpzFile(opened, allow_pickle=False) as file:
            arrays = [name for name in file.files if name != NAMES]
            name = _chosen(arrays, key, path, "array")
            members = file.zip.infolist() if file.zip else []
            held = {member.filename: member.file_size for member in members}
            size = sum(held.get(f"{part}.npy", 0) for part in (name, NAMES))
            require_memory(2 * size, f"{path}: unpacking it")  # zeros pack to a thousandth
            array = file[name]
            names = file[NAMES] if NAMES in file.files else None
    except InputError:
        raise
    except MemoryError:
        raise _too_large(path) from None
    except Exception as error:
        what = " of numbers" + _objects(path) if "pickle" in str(error) else ""
        raise InputError(
            f"{path}: not a whole .npz file{what}; write it again with numpy.savez"
        ) from None
    if not isinstance(array, np.ndarray):  # a member that is no .npy file comes as bytes
        raise InputError(f"{path}: holds something else than arrays; write it again")
    if names is not None and (
        not isinstance(names, np.ndarray) or names.dtype.kind != "U" or names.ndim != 1
    ):
        raise InputError(f"{path}: the array 'names' is not a list of texts; leave it out")
    vocabulary = None if names is None else Vocabulary.of(names.tolist(), path, "row")
    return real_array(array, path), vocabulary


def _too_large(path: Path) -> InputError:
    return InputError(
        f"{path}: its header says more numbers than fit into memory; write it again, smaller"
    )


def _objects(path: Path) -> str:
    return (
        " (it holds Python objects, which could run code when loaded; nothing was loaded)"
        if path.stat().st_size
        else ""
    )


def _safetensors(path: Path, key: str | None) -> Read:
    try:
        with safe_open(path, framework="pt") as file:
            table = file.get_tensor(_chosen(sorted(file.keys()), key, path, "tensor"))
            listed = (file.metadata() or {}).get(NAMES)
    except SafetensorError as error:
        raise InputError(
            f"{path}: not a whole .safetensors file ({error}); write it again"
        ) from None
    names = None
    if listed is not None:
        with suppress(ValueError, RecursionError):
            names = loads(listed)
        if not isinstance(names, list):
            raise InputError(f"{path}: its metadata 'names' is not a JSON list; write it again")
    return table, None if names is None else Vocabulary.of(names, path, "row")


def _frame(path: Path, key: str | None) -> Read:
    if key is not None and path.suffix.lower() != ".parquet":
        raise InputError(f"{path}: a text file holds one table; leave the key {key!r} out")
    frame = read_frame(path)
    return real_array(frame_rows(frame, path, key), path), frame_names(frame, path)


def _pt(path: Path, key: str | None) -> Read:
    """A tensor, or a dictionary of tensors such as a state dict."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is wrong with the file, an error says below
            # Only tensors and plain containers: anything else in the pickle is refused, not run.
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError:
        raise InputError(
            f"{path}: holds more than tensors, and loading it could run code; nothing was run, "
            "save the tensor alone with torch.save"
        ) from None
    except MemoryError:
        raise _too_large(path) from None
    except Exception as error:
        reason = str(error).split("\n")[0][:100]
        raise InputError(
            f"{path}: not a whole file of torch.save ({reason}); write it again"
        ) from None
    if isinstance(loaded, Tensor):
        if key is not None:
            raise InputError(f"{path}: holds one tensor; leave the key {key!r} out")
        return loaded.detach(), None
    if not isinstance(loaded, dict):
        raise InputError(
            f"{path}: holds a {type(loaded).__name__}; save a tensor, or a dictionary of tensors"
        )
    tensors: dict[str, Any] = {
        str(name): part for name, part in loaded.items() if isinstance(part, Tensor)
    }
    return tensors[_chosen(tensors, key, path, "tensor")].detach(), None


def _chosen(known: Iterable[str], key: str | None, path: Path, kind: str) -> str:
    """The table among several: `key`, else `embeddings`, else the only one."""
    names = sorted(known)
    name = key or (names[0] if len(names) == 1 else DEFAULT_KEY)
    if name not in names:
        listed = ", ".join(names) or "none (it is empty)"
        others = "" if key or not names else " and more than one other"
        raise InputError(f"{path}: no {kind} {name!r}{others}; choose the key from {listed}")
    return name


READERS: dict[str, Callable[[Path, str | None], Read]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".csv": _frame,
    ".tsv": _frame,
    ".parquet": _frame,
    ".pt": _pt,
}
