"""Graphs and tables named in commands and sweep files: families to draw from, or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from headcount.errors import InputError
from headcount.problem.contents import SourceFile, register
from headcount.problem.edge_list import read_graph
from headcount.problem.graph import Graph
from headcount.problem.reading import read_problem
from headcount.problem.tables import load_embeddings
from headcount.problem.vocabulary import read_names
from headcount.training.spec import GRAPHS, TABLES, is_content_hash

_Content = TypeVar("_Content", Graph, Tensor)


class ProblemFiles:
    """Reads graph and table files by their names, relative to a folder; each content once.

    `files` has every file read so far, those of names included.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path()
        self.files: dict[Path, SourceFile] = {}
        self._read = lru_cache(maxsize=None)(self._from_files)

    def contents(
        self,
        graph: str,
        table: str,
        items: int | None = None,
        key: str | None = None,
        names: str | None = None,
    ) -> tuple[Graph | str, Tensor | str]:
        """What two names stand for: a content that was read, or the family's name as it is.

        A graph has one item per row of the table it goes with. Beside a table that is drawn it has
        `items` of them, by default as many as its edges name. `key` names the table inside a file
        that holds several tensors, `names` a file of the items' names.
        """
        graph_file = self._file(graph, GRAPHS)
        table_file = self._file(table, TABLES)
        words = None if names is None else self._folder / names
        return self._read(graph_file or graph, table_file or table, items, key, words)

    def is_graph(self, name: str) -> bool:
        """Whether a name stands for a graph file."""
        return self._file(name, GRAPHS) is not None

    def is_table(self, name: str) -> bool:
        """Whether a name stands for a table file."""
        return self._file(name, TABLES) is not None

    def require_used(
        self, graphs: Sequence[str], tables: Sequence[str], key: str | None, names: str | None
    ) -> None:
        """Refuse a key without a table file, and a file of names without a graph file."""
        if key is not None and not any(map(self.is_table, tables)):
            raise InputError(
                f"key {key!r} names a table inside a file, and the table {', '.join(tables)} is "
                "drawn; give a table file, or leave the key out"
            )
        if names is not None and not any(map(self.is_graph, graphs)):
            raise InputError(
                f"names {names} belong to the items of a graph file, and the graph "
                f"{', '.join(graphs)} is drawn; give a graph file, or leave the names out"
            )

    def _from_files(
        self,
        graph: Path | str,
        table: Path | str,
        items: int | None,
        key: str | None,
        names: Path | None,
    ) -> tuple[Graph | str, Tensor | str]:
        if isinstance(graph, Path) and isinstance(table, Path):
            found = read_problem(graph, table, key, names)
            if names is not None:
                self._noted(names)
            return self._note(graph, found[0]), self._note(table, found[1])
        if isinstance(graph, Path):
            if names is not None:
                found = read_graph(graph, items, read_names(names))
                self._noted(names)
            else:
                found = _with_items(graph, items)
            return self._note(graph, found), str(table)
        if isinstance(table, Path):
            return graph, self._note(table, load_embeddings(table, key))
        return graph, table

    def _note(self, path: Path, content: _Content) -> _Content:
        before = self._noted(path)
        self.files[path] = replace(before, contents=before.contents | {register(content)})
        return content

    def _noted(self, path: Path) -> SourceFile:
        if path not in self.files:
            self.files[path] = SourceFile.of(path)
        return self.files[path]

    def _file(self, name: str, families: tuple[str, ...]) -> Path | None:
        """The path, unless the name is a family's or, by its looks, meant to be one."""
        path = self._folder / name
        if name in families or is_content_hash(name):
            return None
        return path if path.suffix or path.exists() else None


def _with_items(path: Path, items: int | None) -> Graph:
    """A graph of at least as many items as its edges name; further ones leave it without names."""
    found = read_graph(path)
    if items is None or items == found.items or (found.names is not None and items < found.items):
        return found  # that a number does not fit names, the spec says
    if found.names is None:
        return read_graph(path, items)
    return Graph.from_arrays(items, found.sources, found.targets)
