"""Graphs and tables named in commands and sweep files: families to draw from, or files."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from headcount.problem.contents import register
from headcount.problem.edge_list import read_graph
from headcount.problem.graph import Graph
from headcount.problem.reading import read_problem
from headcount.problem.tables import load_embeddings
from headcount.training.spec import GRAPHS, TABLES, is_content_hash

_Content = TypeVar("_Content", Graph, Tensor)


class ProblemFiles:
    """Reads graph and table files by their names, relative to a folder; each content once.

    `hashes` has the content hash of every file read so far. `key` names the table inside a
    .safetensors file that holds several tensors.
    """

    def __init__(self, folder: Path | None = None, key: str | None = None) -> None:
        self._folder, self._key = folder or Path(), key
        self.hashes: dict[Path, str] = {}
        self._read = lru_cache(maxsize=None)(self._from_files)

    def contents(
        self, graph: str, table: str, items: int | None = None
    ) -> tuple[Graph | str, Tensor | str]:
        """What two names stand for: a content that was read, or the family's name as it is.

        A graph has one item per row of the table it goes with. Beside a table that is drawn it has
        `items` of them, by default as many as its edges name.
        """
        graph_file = self._file(graph, GRAPHS)
        table_file = self._file(table, TABLES)
        return self._read(graph_file or graph, table_file or table, items)

    def _from_files(
        self, graph: Path | str, table: Path | str, items: int | None
    ) -> tuple[Graph | str, Tensor | str]:
        if isinstance(graph, Path) and isinstance(table, Path):
            found = read_problem(graph, table, self._key)
            return self._note(graph, found[0]), self._note(table, found[1])
        if isinstance(graph, Path):
            return self._note(graph, read_graph(graph, items)), str(table)
        if isinstance(table, Path):
            return graph, self._note(table, load_embeddings(table, self._key))
        return graph, table

    def _note(self, path: Path, content: _Content) -> _Content:
        self.hashes[path] = register(content)
        return content

    def _file(self, name: str, families: tuple[str, ...]) -> Path | None:
        """The path, unless the name is a family's or, by its looks, meant to be one."""
        path = self._folder / name
        if name in families or is_content_hash(name):
            return None
        return path if path.suffix or path.exists() else None
