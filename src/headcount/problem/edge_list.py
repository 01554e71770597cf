"""Graph files: CSV or TSV edge lists of ids or of names, under a header."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from headcount.errors import InputError
from headcount.files import existing_file, read_records, replacing
from headcount.memory import require_memory
from headcount.problem.graph import MOST_ITEMS, Graph
from headcount.problem.vocabulary import Names, Vocabulary, as_vocabulary
from headcount.shapes import Int

_BLOCK = 1_000_000  # edges held as text at a time
_HEADER = ["source", "target"]
_NAMED = ["source_name", "target_name"]  # titles under which numbers are names too
_ID = re.compile(r"[+-]?\d+")

Record = tuple[int, str, str]  # line number, source, target


class _Columns(NamedTuple):
    """Where source and target are, how many columns the header has, and what it says of ends."""

    source: int
    target: int
    width: int
    by_name: bool


def write_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write the edge list, by name where the items have names.

    A `.csv` file separates by commas, a `.tsv` file by tabs. The columns are `source` and `target`,
    or `source_name` and `target_name` where all names are numbers, which would be read as ids.
    """
    separator = _separator(path)
    names = graph.names
    numbers = names is not None and all(_is_id(names[item]) for item in np.unique(graph.pairs))
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator="\n")
        writer.writerow(_NAMED if numbers else _HEADER)
        if names is not None:
            writer.writerows((names[source], names[target]) for source, target in graph.pairs)
            return
        for first in range(0, graph.edges, _BLOCK):
            block = pd.DataFrame(graph.pairs[first : first + _BLOCK])
            block.to_csv(file, sep=separator, header=False, index=False)


def read_graph(
    path: str | os.PathLike[str], items: int | None = None, names: Names | None = None
) -> Graph:
    """Read an edge list from a `.csv` or `.tsv` file.

    The header has the columns `source` and `target`; further columns and blank lines are skipped.
    Edges are pairs of ids 0 … items−1. Where some are not numbers they are pairs of names out of
    `names`, the names of the items; under the titles `source_name` and `target_name` they always
    are, and numbers that could be both are refused under other titles. `items` is the number of
    rows of the table that the graph goes with. Without both, the file decides: the items are the
    ids up to the largest, or the names in the order in which they first occur.
    Every error names the file and the line.
    """
    path = existing_file(path)
    columns = _columns(path)
    vocabulary = None if names is None else as_vocabulary(names, items)
    if vocabulary is not None:
        items = len(vocabulary)
    plain = columns == (0, 1, 2, False) and not any(map(_is_id, vocabulary or ()))
    pairs = _plain_ids(path) if plain else None
    if pairs is None:
        require_memory(10 * path.stat().st_size, f"{path}: reading it")
        records = list(_records(path, columns))
        odd = next(iter(records), None) if columns.by_name else _first_name(records)
        if odd is None:
            pairs = _ids(path, records)
            if vocabulary is not None:
                _require_ids(path, records, vocabulary)
        else:
            vocabulary = vocabulary or _own_names(path, records, odd, items, columns.by_name)
            items = len(vocabulary)
            pairs = _named_ids(path, records, vocabulary)
    return _checked(path, columns, pairs, items, vocabulary)


def _checked(
    path: Path,
    columns: _Columns,
    pairs: Int[np.ndarray, "edges 2"],
    items: int | None,
    names: Vocabulary | None,
) -> Graph:
    """The graph of the pairs, or an error that names the line of the first bad one."""
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
            f"{path}, line {_line(path, columns, row)}: edge {tuple(pairs[row].tolist())} has an "
            f"id outside 0…{items - 1}; correct it or use a table with more rows"
        )
    codes = pairs[:, 0] * items + pairs[:, 1]  # fits 64 bits: items ≤ MOST_ITEMS
    order = np.argsort(codes, kind="stable")
    twice = np.flatnonzero(codes[order[1:]] == codes[order[:-1]])
    if twice.size:
        first, second = sorted(order[twice[0] : twice[0] + 2].tolist())
        source, target = (item if names is None else names[item] for item in pairs[first].tolist())
        raise InputError(
            f"{path}, line {_line(path, columns, second)}: edge ({source}, {target}) is in line "
            f"{_line(path, columns, first)} already; keep it once"
        )
    return Graph.from_edges(items, pairs[order], names)


def _separator(path: str | os.PathLike[str]) -> str:
    separators = {".csv": ",", ".tsv": "\t"}
    suffix = Path(path).suffix.lower()
    if suffix not in separators:
        raise InputError(f"{path}: unknown graph format {suffix!r}; use .csv or .tsv")
    return separators[suffix]


def _columns(path: Path) -> _Columns:
    separator = _separator(path)
    with path.open("rb") as file:
        text = file.readline(1 << 16).decode(errors="replace").lstrip("\ufeff")
    first = text.partition("\r")[0].strip()  # some programs end lines by \r alone
    titles = [title.strip() for title in next(csv.reader([first], delimiter=separator), [])]
    for header in (_HEADER, _NAMED):
        if all(titles.count(title) == 1 for title in header):
            source, target = map(titles.index, header)
            return _Columns(source, target, len(titles), header is _NAMED)
    raise InputError(
        f"{path}, line 1: the header is {first[:40]!r}; it must be "
        f"{separator.join(_HEADER)!r}, or have these two among its columns"
    )


def _plain_ids(path: Path) -> Int[np.ndarray, "edges 2"] | None:
    """The fast way, for files of two columns of digits alone; None for all others."""
    allowed = np.zeros(256, dtype=bool)
    allowed[np.frombuffer(f"0123456789+-{_separator(path)}\r\n ".encode(), dtype=np.uint8)] = True
    separators, lines = 0, 1
    with path.open("rb") as file:
        file.readline()
        while block := file.read(1 << 24):
            counts = np.bincount(np.frombuffer(block, dtype=np.uint8), minlength=256)
            separators += counts[ord(_separator(path))]
            lines += counts[ord("\n")] + counts[ord("\r")]
            if counts[~allowed].any() or separators > lines:
                return None
    try:
        blocks = pd.read_csv(
            path,
            sep=_separator(path),
            skiprows=1,
            header=None,
            dtype=np.int64,
            chunksize=_BLOCK,
            compression=None,
        )
        pairs = [block.to_numpy() for block in blocks]
    except pd.errors.EmptyDataError:
        return np.empty((0, 2), dtype=np.int64)
    except (ValueError, OverflowError, pd.errors.ParserError):
        return None
    return np.concatenate(pairs) if all(part.shape[1] == 2 for part in pairs) else None


def _records(path: Path, columns: _Columns) -> Iterator[Record]:
    """Line number, source and target of every edge, in the order of the file."""
    source, target, width, _ = columns
    for place, (line, fields) in enumerate(read_records(path, _separator(path))):
        if place == 0:  # the header, also where a title in quotes goes on in the next line
            continue
        ends = [fields[place] for place in (source, target) if place < len(fields)]
        if len(fields) > width or len(ends) < 2 or not all(map(str.strip, ends)):
            raise InputError(
                f"{path}, line {line}: {_shown(fields)} does not fit the header; "
                "write source and target, and further columns only under a title"
            )
        yield line, ends[0], ends[1]


def _line(path: Path, columns: _Columns, row: int) -> int:
    """The line of an edge: slow, and only for an error."""
    for place, (line, _, _) in enumerate(_records(path, columns)):
        if place == row:
            return line
    raise AssertionError(f"{path} has changed while it was read")


def _first_name(records: list[Record]) -> Record | None:
    """The first edge that is not two ids; None where all are."""
    return next((one for one in records if not (_is_id(one[1]) and _is_id(one[2]))), None)


def _require_ids(path: Path, records: list[Record], names: Vocabulary) -> None:
    """Refuse numbers that are all names as well, and other items as names than as ids."""
    different = None
    for record in records:
        found = [(int(end), names.find(end)) for end in record[1:]]
        if any(item is None for _, item in found):
            return
        if different is None and any(number != item for number, item in found):
            different = record
    if different is not None:
        line, *ends = different
        raise InputError(
            f"{path}, line {line}: {_shown(ends)} could be ids or names; title the columns "
            "source_name,target_name where they are names, or write ids beside rows without names"
        )


def _own_names(
    path: Path, records: list[Record], odd: Record, items: int | None, by_name: bool
) -> Vocabulary:
    """The names in a file of names that goes with no others."""
    line, *ends = odd
    if items is not None:
        raise InputError(
            f"{path}, line {line}: {_shown(ends)} is not two ids, and the items have no names; "
            "write ids, or name the rows of the table (--names FILE)"
        )
    numbers = [one for one in records if _is_id(one[1]) or _is_id(one[2])]
    if numbers and not by_name:  # a slip among ids, or a number among names
        line, *ends = odd if records[0] in numbers else numbers[0]
        raise InputError(
            f"{path}, line {line}: {_shown(ends)} mixes names with ids; write one kind, or give "
            "the names of the items"
        )
    own = dict.fromkeys(name.strip() for _, *ends in records for name in ends)
    return Vocabulary.of(own, path)


def _ids(path: Path, records: list[Record]) -> Int[np.ndarray, "edges 2"]:
    pairs = []
    for line, *ends in records:
        # Python refuses to read thousands of digits; 20 characters are enough for 64 bits.
        short = all(len(end.strip()) <= 20 for end in ends)
        pair = tuple(map(int, ends)) if short else (2**63,)
        if max(map(abs, pair)) >= 2**63:
            raise InputError(
                f"{path}, line {line}: {_shown(ends)} has an id of more than 64 bits; "
                "number the items from 0"
            )
        pairs.append(pair)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _named_ids(path: Path, records: list[Record], names: Vocabulary) -> Int[np.ndarray, "edges 2"]:
    pairs = [(names.find(source), names.find(target)) for _, source, target in records]
    for (line, *ends), found in zip(records, pairs, strict=True):
        for name, item in zip(ends, found, strict=True):
            if item is None:
                raise InputError(
                    f"{path}, line {line}: {names.unknown(name)}; correct it or add its row to "
                    "the table"
                )
    return np.array(pairs, dtype=np.int64)


def _shown(fields: list[str]) -> str:
    return repr(",".join(fields)[:40])


def _is_id(field: str) -> bool:
    return _ID.fullmatch(field.strip()) is not None
