"""Graph files: CSV or TSV edge lists with the header `source,target`, handled in blocks."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from headcount.errors import InputError
from headcount.files import existing_file, replacing
from headcount.problem.graph import MOST_ITEMS, Graph

_BLOCK = 1_000_000  # edges held as text at a time
_HEADER = ["source", "target"]


def write_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write the edge list; a `.csv` file separates by commas, a `.tsv` file by tabs."""
    separator = _separator(path)
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file, delimiter=separator, lineterminator="\n").writerow(_HEADER)
        for first in range(0, graph.edges, _BLOCK):
            block = pd.DataFrame(graph.pairs[first : first + _BLOCK])
            block.to_csv(file, sep=separator, header=False, index=False)


def read_graph(path: str | os.PathLike[str], items: int | None = None) -> Graph:
    """Read an edge list from a `.csv` or `.tsv` file.

    `items` is the number of rows of the table it goes with, by default the largest id + 1. Every
    error names the file and the line.
    """
    path = existing_file(path)
    _check_header(path)
    try:
        if not _only_numbers(path):
            raise ValueError
        blocks = [block.to_numpy() for block in _blocks(path)]
    except (ValueError, OverflowError, pd.errors.ParserError, pd.errors.ParserWarning):
        raise InputError(_bad_line(path)) from None
    pairs = np.concatenate(blocks) if blocks else np.empty((0, 2), dtype=np.int64)
    if items is None:
        items = int(pairs.max(initial=0)) + 1
    if items > MOST_ITEMS:
        raise InputError(
            f"{path}: {items} items are more than {MOST_ITEMS}; number the items from 0"
        )
    outside = ((pairs < 0) | (pairs >= items)).any(axis=1)
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"{path}, line {row + 2}: edge {tuple(pairs[row].tolist())} has an id outside "
            f"0…{items - 1}; correct it or use a table with more rows"
        )
    codes = pairs[:, 0] * items + pairs[:, 1]  # fits 64 bits: items ≤ MOST_ITEMS
    order = np.argsort(codes, kind="stable")
    twice = np.flatnonzero(codes[order[1:]] == codes[order[:-1]])
    if twice.size:
        first, second = sorted(order[twice[0] : twice[0] + 2].tolist())
        edge = tuple(pairs[first].tolist())
        raise InputError(
            f"{path}, line {second + 2}: edge {edge} is in line {first + 2} already; keep it once"
        )
    return Graph.from_edges(items, pairs[order])


def _separator(path: str | os.PathLike[str]) -> str:
    separators = {".csv": ",", ".tsv": "\t"}
    suffix = Path(path).suffix.lower()
    if suffix not in separators:
        raise InputError(f"{path}: unknown graph format {suffix!r}; use .csv or .tsv")
    return separators[suffix]


def _only_numbers(path: Path) -> bool:
    """Whether everything below the header is made of digits, signs, separators and line ends."""
    allowed = np.zeros(256, dtype=bool)
    allowed[np.frombuffer(f"0123456789+-{_separator(path)}\r\n ".encode(), dtype=np.uint8)] = True
    with path.open("rb") as file:
        file.readline()
        while block := file.read(1 << 24):
            if not allowed[np.frombuffer(block, dtype=np.uint8)].all():
                return False
    return True


def _check_header(path: Path) -> None:
    wanted = _separator(path).join(_HEADER)
    with path.open("rb") as file:
        first = file.readline(200).decode(errors="replace").strip().lstrip("\ufeff")
    if first != wanted:
        raise InputError(f"{path}, line 1: the header is {first[:40]!r}; it must be {wanted!r}")


def _blocks(path: Path) -> Iterator[pd.DataFrame]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # more columns than names
        yield from pd.read_csv(
            path,
            sep=_separator(path),
            header=0,
            names=_HEADER,
            index_col=False,
            dtype=np.int64,
            chunksize=_BLOCK,
            skip_blank_lines=_blank_end(path),
            encoding_errors="replace",
            on_bad_lines="error",
            compression=None,
        )


def _blank_end(path: Path) -> bool:
    """Whether the only blank lines are at the end, as editors leave them; any other is an error."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        ended = file.read().replace(b"\r", b"").endswith(b"\n\n")
    return ended and b"\n\n" not in path.read_bytes().replace(b"\r", b"").rstrip()


def _bad_line(path: Path) -> str:
    """Find the first line that is not two integers: slow, and only after the fast way failed."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip("\n").split(_separator(path))
            if number > 1 and (len(fields) != 2 or not all(_is_id(field) for field in fields)):
                return (
                    f"{path}, line {number}: {line.strip()[:40]!r} is not two integer ids; "
                    "write source and target"
                )
    return (
        f"{path}: cannot be read as an edge list; write lines of two integer ids under the header"
    )


def _is_id(field: str) -> bool:
    digits = field.strip().removeprefix("-").removeprefix("+")
    return digits.isdecimal() and int(digits) < 2**63
