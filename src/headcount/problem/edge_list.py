"""Graph files: CSV or TSV edge lists with the header `source,target`, read and written in blocks."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from headcount.errors import InputError
from headcount.files import existing_file, replacing
from headcount.problem.graph import Graph

_BLOCK = 1_000_000  # edges held as text at a time
_HEADER = ["source", "target"]


def write_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write the edge list; `.tsv` separates by tabs, anything else by commas."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file, delimiter=_separator(path), lineterminator="\n").writerow(_HEADER)
        for first in range(0, graph.edges, _BLOCK):
            block = pd.DataFrame(graph.pairs[first : first + _BLOCK])
            block.to_csv(file, sep=_separator(path), header=False, index=False)


def read_graph(path: str | os.PathLike[str], items: int | None = None) -> Graph:
    """Read an edge list; `items` is the number of rows of the table it goes with (default: largest id + 1).

    Every error names the file and the line.
    """
    path = existing_file(path)
    _check_header(path)
    try:
        blocks = [block.to_numpy() for block in _blocks(path)]
    except (ValueError, OverflowError, pd.errors.ParserError):
        raise InputError(_bad_line(path)) from None
    pairs = np.concatenate(blocks) if blocks else np.empty((0, 2), dtype=np.int64)
    if items is None:
        items = int(pairs.max(initial=0)) + 1
    outside = ((pairs < 0) | (pairs >= items)).any(axis=1)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"{path}, line {row + 2}: edge {tuple(pairs[row].tolist())} has an id outside 0…{items - 1}; "
            "correct it or use a table with more rows"
        )
    try:
        return Graph.from_edges(items, pairs)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _separator(path: str | os.PathLike[str]) -> str:
    return "\t" if Path(path).suffix.lower() == ".tsv" else ","


def _check_header(path: Path) -> None:
    wanted = _separator(path).join(_HEADER)
    with path.open("rb") as file:
        first = file.readline(200).decode(errors="replace").strip().lstrip("\ufeff")
    if first != wanted:
        raise InputError(f"{path}, line 1: the header is {first[:40]!r}; it must be {wanted!r}")


def _blocks(path: Path) -> Iterator[pd.DataFrame]:
    yield from pd.read_csv(
        path,
        sep=_separator(path),
        header=0,
        names=_HEADER,
        index_col=False,
        dtype=np.int64,
        chunksize=_BLOCK,
        skip_blank_lines=False,
        encoding_errors="replace",
        on_bad_lines="error",
    )


def _bad_line(path: Path) -> str:
    """Find the first line that is not two integers: the slow way, and only after the fast one failed."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip("\n").split(_separator(path))
            if number > 1 and (len(fields) != 2 or not all(_is_id(field) for field in fields)):
                return f"{path}, line {number}: {line.strip()[:40]!r} is not two integer ids; write source and target"
    return f"{path}: cannot be read as an edge list; write lines of two integer ids under the header"


def _is_id(field: str) -> bool:
    try:
        return -(2**63) <= int(field) < 2**63
    except ValueError:
        return False
