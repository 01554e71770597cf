"""Graphs and tables of one's own, known by a hash of their content.

A run's spec names them by that hash, so that it stays a few words however large they are. Whoever
reads or makes one registers it here; training looks it up. Stores keep the contents too, and a
cluster's workers are sent what they lack.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Float

Content = Graph | Tensor

_registered: dict[str, Content] = {}


@dataclass(frozen=True)
class SourceFile:
    """What was in a file: a digest of its bytes, and the hashes of what was read from it.

    A file may hold several tables, and a file of names holds neither graph nor table.
    """

    digest: str
    contents: frozenset[str] = frozenset()

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """A file from which nothing has been read yet."""
        with path.open("rb") as file:
            return cls(hashlib.file_digest(file, "sha256").hexdigest())


def content_hash(content: Content) -> str:
    """The same for equal graphs, and for tables with equal float32 rows, on any machine."""
    found = hashlib.blake2b(digest_size=16)
    if isinstance(content, Graph):
        found.update(f"graph {content.items}\n".encode())
        found.update(content.pairs.astype("<i8").tobytes())
    else:
        rows = _rows(content)
        found.update(f"table {rows.shape[0]} {rows.shape[1]}\n".encode())
        found.update(rows.numpy().astype("<f4").tobytes())
    return found.hexdigest()


def register(content: Content) -> str:
    """Make a graph or a table known to this process; returns its hash.

    A table is rounded to float32, in which runs are trained.
    """
    key = content_hash(content)
    _registered.setdefault(key, content if isinstance(content, Graph) else _rows(content).clone())
    return key


def registered_graph(key: str) -> Graph:
    """The graph with this hash."""
    found = _registered.get(key)
    if not isinstance(found, Graph):
        raise _unknown("graph", key)
    return found


def registered_table(key: str) -> Float[Tensor, "items d_model"]:
    """The table with this hash."""
    found = _registered.get(key)
    if not isinstance(found, Tensor):
        raise _unknown("table", key)
    return found


def unregistered(keys: Iterable[str]) -> set[str]:
    """Those of the hashes whose content this process does not know."""
    return set(keys) - set(_registered)


def to_bytes(key: str) -> bytes:
    """A registered content, for a store or a worker."""
    found = _registered[key]
    if isinstance(found, Graph):
        return save({"items": torch.tensor([found.items]), "pairs": torch.tensor(found.pairs)})
    return save({"rows": found.contiguous()})


def register_bytes(key: str, data: bytes) -> None:
    """Register what `to_bytes` wrote; anything else is refused."""
    try:
        parts = load(data)
        content = parts.get("rows")
        if content is None:
            content = Graph.from_edges(int(parts["items"]), parts["pairs"].numpy())
        if register(content) == key:
            return
    except (SafetensorError, KeyError, ValueError, InputError):
        pass
    raise InputError(f"the graph or table {key} is damaged; give its file again")


def _rows(table: Tensor) -> Float[Tensor, "items d_model"]:
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(
            f"a table must be items × d_model finite numbers; this one is {tuple(table.shape)}"
        )
    rows = table.detach().cpu().float()
    finite = rows.isfinite().all(dim=1)
    if not finite.all():
        raise InputError(
            f"row {int((~finite).nonzero()[0])} of the table: holds an entry that is not a finite "
            "number in float32, in which runs are trained; scale the table down or correct the row"
        )
    return rows


def _unknown(kind: str, key: str) -> InputError:
    return InputError(
        f"no {kind} with the content hash {key} is known here; read its file, or run the sweep "
        "whose store has it"
    )
