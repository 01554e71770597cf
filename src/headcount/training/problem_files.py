"""Graphs and tables named in commands and sweep files: families to draw from, or files."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from torch import Tensor

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
            words = None
            if names is not None:
                words = read_names(names)
                self._noted(names)
            return self._note(graph, read_graph(graph, items, words)), str(table)
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
