"""The tensors of a model's files, read one at a time: safetensors folders and files, and GGUF.

A reader keeps names and shapes alone. Every read opens its file anew and closes it, so that the
memory of one tensor is free before the next is read.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headcount.errors import InputError
from headcount.shapes import Float

_INDEX = "model.safetensors.index.json"
_TYPES = ("F16", "BF16", "F32", "F64")  # of numbers that stand for themselves
_ENTRIES = 2**24  # numbers of a table read at a time


class ModelTensors(ABC):
    """Named tensors in files; `shapes` has those of all of them, in torch's order."""

    path: Path
    shapes: Mapping[str, tuple[int, ...]]

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def read(self, name: str, shape: tuple[int, ...] | None = None) -> Float[Tensor, ...]:
        """One tensor as float32; another shape than the given one is refused."""
        self.require(name, shape)
        return self._finite(name, self._read(name, None))

    def rows(self, name: str, ids: np.ndarray) -> Float[Tensor, "rows width"]:
        """Some rows of a table as float32, read a part of the table at a time."""
        self.require(name)
        items, width = self.shapes[name]
        found, step = torch.empty(len(ids), width), max(_ENTRIES // width, 1)
        for first in range(0, items, step):
            wanted = (ids >= first) & (ids < first + step)
            if wanted.any():
                part = self._read(name, (first, min(first + step, items)))
                found[torch.from_numpy(wanted)] = part[ids[wanted] - first]
        return self._finite(name, found)

    def require(self, name: str, shape: tuple[int, ...] | None = None) -> None:
        """Refuse a tensor that is missing, or of another shape."""
        if name not in self:
            raise InputError(
                f"{self.path}: has no tensor {name!r}; the file is incomplete or of another "
                "architecture than its configuration says"
            )
        if shape is not None and self.shapes[name] != shape:
            raise InputError(
                f"{self.path}: {name} has shape {self.shapes[name]}, and the model's sizes ask "
                f"for {shape}; use the configuration that belongs to these weights"
            )

    def _finite(self, name: str, tensor: Tensor) -> Tensor:
        if not tensor.isfinite().all():
            raise InputError(
                f"{self.path}: {name} holds a NaN or infinite entry; fetch the file again"
            )
        return tensor

    @abstractmethod
    def _read(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        """The tensor, or its rows from one number up to another, as float32."""


class SafetensorsFiles(ModelTensors):
    """One `.safetensors` file, or all that an index or a folder names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._homes: dict[str, Path] = {}
        self._types: dict[str, str] = {}
        self.shapes = {}
        for file in _shards(path):
            for name, shape, kind in _listed(file):
                self._homes[name], self.shapes[name], self._types[name] = file, shape, kind

    def require(self, name: str, shape: tuple[int, ...] | None = None) -> None:
        """Refuse also numbers that need scales from elsewhere, as those of 8 bits do."""
        if name in self and self._types[name] not in _TYPES:
            raise InputError(
                f"{self._homes[name]}: {name} is of type {self._types[name]}; quantized weights "
                f"are not read, only {', '.join(_TYPES)}; give the unquantized model"
            )
        super().require(name, shape)

    def _read(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        file = self._homes[name]
        try:
            with safe_open(file, framework="pt") as opened:
                if rows is None:
                    return opened.get_tensor(name).float()
                return opened.get_slice(name)[rows[0] : rows[1]].float()
        except SafetensorError as error:
            raise _damaged(file, error) from None


class GGUFFile(ModelTensors):
    """A GGUF file, its blocks dequantized by the package `gguf`; `fields` are its metadata."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if find_spec("gguf") is None:
            raise InputError(
                f"{path}: a GGUF file needs the package gguf; install it with: pip install gguf"
            )
        self._gguf: Any = import_module("gguf")
        try:
            self._reader = self._gguf.GGUFReader(path)
        except Exception as error:  # struct, numpy and gguf each have their own for a short file
            if isinstance(error, MemoryError):
                raise
            reason = str(error).split("\n")[0][:100]
            raise InputError(f"{path}: not a whole GGUF file ({reason}); fetch it again") from None
        self._parts = {part.name: part for part in self._reader.tensors}
        # GGUF lists the fastest dimension first.
        self.shapes = {
            name: tuple(int(size) for size in reversed(part.shape))
            for name, part in self._parts.items()
        }

    def field(self, name: str) -> Any:
        """The value of a metadata field; None where there is none."""
        found = self._reader.get_field(name)
        return None if found is None else found.contents()

    @cached_property
    def architecture(self) -> str:
        """The model's family, which begins the names of its fields."""
        return str(self.field("general.architecture"))

    def size(self, name: str, default: int | None = None) -> int:
        """A whole number of the family's own fields."""
        key = f"{self.architecture}.{name}"
        found = self.field(key)
        if isinstance(found, list) and len(set(found)) == 1:  # one number per layer, all equal
            found = found[0]
        found = default if found is None else found
        if not isinstance(found, int) or found < 1:
            raise InputError(
                f"{self.path}: {key} = {found!r}: not a positive whole number; convert the model "
                "again"
            )
        return found

    def _read(self, name: str, rows: tuple[int, int] | None) -> Tensor:
        part = self._parts[name]
        data = part.data if rows is None else part.data[rows[0] : rows[1]]
        try:
            numbers = self._gguf.dequantize(data, part.tensor_type)
        except NotImplementedError:
            raise InputError(
                f"{self.path}: {name} is quantized as {part.tensor_type.name}, which gguf cannot "
                "read; convert the model to another type"
            ) from None
        return torch.from_numpy(np.array(numbers, dtype=np.float32))


def _shards(path: Path) -> list[Path]:
    """The files of a model: those of its index, else all in the folder, else the file itself."""
    if path.is_file():
        return [path]
    index = path / _INDEX
    if not index.exists():
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise InputError(f"{path}: holds no .safetensors file; name a folder with weights")
        return files
    try:
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted({path / str(file) for file in named.values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{index}: not an index of weights ('weight_map'); fetch the model again"
        ) from None
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: the index names this file, and it is missing; fetch it")
    return files


def _listed(file: Path) -> Iterator[tuple[str, tuple[int, ...], str]]:
    try:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (an opened file is not a dictionary)
                part = opened.get_slice(name)
                yield name, tuple(part.get_shape()), str(part.get_dtype())
    except SafetensorError as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, error: SafetensorError) -> InputError:
    return InputError(f"{file}: not a whole .safetensors file ({error}); fetch it again")
