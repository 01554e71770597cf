"""Tables in data frames: columns of numbers, or one column of lists, and a column of names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headcount.errors import InputError
from headcount.files import bounded_lines, read_records
from headcount.memory import require_memory
from headcount.problem.real_numbers import is_rounded_integer, require_exact_integers
from headcount.problem.vocabulary import Vocabulary

_NAME = "name"
_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def frame_names(frame: pd.DataFrame, source: str | os.PathLike[str]) -> Vocabulary | None:
    """The names of the rows: the column `name`, else the only column of texts, else a text index.

    None where there is none of these.
    """
    column = _name_column(frame, source)
    if column is not None:
        names = frame[column]
    elif _holds(frame.index.to_series(), str):
        names = frame.index.to_series()
    else:
        return None
    return Vocabulary.of(map(_as_text, names), source, "row")


def frame_rows(
    frame: pd.DataFrame, source: str | os.PathLike[str], key: str | None = None
) -> np.ndarray:
    """The numbers: the column of lists (`key` where there are several), else all other columns."""
    lists = [column for column in frame if _holds(frame[column], (list, tuple, np.ndarray))]
    if key is not None or lists:
        return _stacked(frame[_chosen(lists, key, source)], source)
    names = _name_column(frame, source)
    numbers = frame.drop(columns=[] if names is None else [names])
    if not len(numbers.columns):
        raise InputError(f"{source}: no column holds numbers; give one column per dimension")
    for column in numbers:
        dtype = numbers[column].dtype
        if not pd.api.types.is_numeric_dtype(dtype) or dtype.kind == "O":  # "O": decimals
            raise InputError(
                f"{source}, column {column!r}: holds {dtype}, not numbers; leave it out"
            )
        if dtype.kind in "iu":  # pandas rounds them where another column has floats
            require_exact_integers(
                numbers[column].dropna().to_numpy(np.dtype(dtype.kind + "8")), source
            )
    if any(pd.api.types.is_extension_array_dtype(dtype) for dtype in numbers.dtypes):
        return numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers.to_numpy()


def read_frame(path: Path) -> pd.DataFrame:
    """Read a `.csv`, `.tsv` or `.parquet` file; names stay as written, numbers are float64."""
    return _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_text(path)


def _name_column(frame: pd.DataFrame, source: str | os.PathLike[str]) -> object | None:
    if _NAME in frame.columns:
        return _NAME
    texts = [column for column in frame if _holds(frame[column], str)]
    if len(texts) > 1:
        listed = ", ".join(map(str, texts))
        raise InputError(
            f"{source}: the columns {listed} all hold texts; call the one with the names 'name' "
            "and leave the others out"
        )
    return texts[0] if texts else None


def _holds(column: Any, kind: type | tuple[type, ...]) -> bool:
    """Whether the first entry of a column is of a kind; columns of numbers are not searched."""
    if pd.api.types.is_numeric_dtype(column):
        return False
    first = next(iter(column.dropna()), None)
    return isinstance(first, kind)


def _as_text(entry: Any) -> Any:
    """An entry of a name column: a whole number is its digits, anything else stays."""
    return str(entry) if isinstance(entry, int | np.integer) else entry


def _chosen(lists: list, key: str | None, source: str | os.PathLike[str]) -> object:
    if key is None and len(lists) == 1:
        return lists[0]
    if key not in lists:
        known = ", ".join(map(str, lists)) or "none"
        asked = "more than one column holds lists" if key is None else f"no column {key!r} of lists"
        raise InputError(f"{source}: {asked}; choose the key from {known}")
    return key


def _stacked(column: Any, source: str | os.PathLike[str]) -> np.ndarray:
    rows = [np.asarray(entry) for entry in column]
    for place, (row, entry) in enumerate(zip(rows, column, strict=True)):
        require_exact_integers(row, source)
        if row.dtype.kind == "f" and isinstance(entry, list | tuple):  # numpy rounds a mixed list
            for number in entry:
                if is_rounded_integer(number):
                    raise InputError(
                        f"{source}, row {place}: float64 rounds {number}; scale it down"
                    )
        if row.shape != rows[0].shape or row.ndim != 1:
            raise InputError(
                f"{source}, row {place}: has a list of shape {row.shape}, the first row "
                f"{rows[0].shape}; give all rows one length"
            )
    return np.stack(rows)


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file, pq.ParquetFile(file) as opened:
            about = opened.metadata
            groups = [about.row_group(place) for place in range(about.num_row_groups)]
            # A few bytes can stand for millions of equal numbers.
            cells = sum(
                part.column(k).num_values for part in groups for k in range(part.num_columns)
            )
            require_memory(16 * cells, f"{path}: reading its {cells:,} entries")
            return opened.read().to_pandas()
    except Exception as error:  # Arrow and pandas let out whatever a damaged footer runs into
        if isinstance(error, InputError | MemoryError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: not a whole Parquet file ({reason}); write it again") from None


def _read_text(path: Path) -> pd.DataFrame:
    """Columns whose first entry is not a number are texts, all others must be numbers."""
    separator = _SEPARATORS[path.suffix.lower()]
    require_memory(4 * path.stat().st_size, f"{path}: reading it")
    first, second = _first_records(path)
    header = _is_header(first, path)
    if header and not second:
        raise InputError(f"{path}: has a header alone; write one line of numbers per item")
    example = second if header else first
    names = first if header else [f"column {place + 1}" for place in range(len(first))]
    names = [name.strip() for name in names]
    if header and "" in names:
        raise InputError(
            f"{path}, line 1: column {names.index('') + 1} has no title; give it one, or write "
            "the file without the index"
        )
    if len(set(names)) < len(names):
        raise InputError(f"{path}, line 1: two columns have one title; rename one of them")
    texts = {name for name, entry in zip(names, example, strict=False) if not _is_number(entry)}
    texts |= {_NAME} & set(names)
    numbers = [place for place, name in enumerate(names) if name not in texts]
    words = _words(path, names, texts, header) if texts else {}
    try:
        # Not pandas: its numbers are exact in some releases only.
        with path.open(encoding="utf-8-sig") as file:
            rows = np.loadtxt(
                (
                    line
                    for line in bounded_lines(file, path, separator)
                    if line.strip(f"{separator} \t\n")  # as in `read_records`
                ),
                delimiter=separator,
                skiprows=int(header),
                usecols=numbers if texts else None,
                comments=None,
                quotechar='"',
                ndmin=2,
            )
    except ValueError:
        raise InputError(_bad_entry(path, names, texts, header)) from None
    if rows.shape[1] != len(numbers) or any(len(column) != len(rows) for column in words.values()):
        raise InputError(_bad_entry(path, names, texts, header))
    if (np.abs(rows) >= 2.0**53).any():
        _require_exact(path, names, texts, header)
    return pd.DataFrame({**words, **{names[place]: rows[:, k] for k, place in enumerate(numbers)}})


def _words(path: Path, names: list[str], texts: set[str], header: bool) -> dict[str, list[str]]:
    """The columns of texts."""
    columns = {name: [] for name in names if name in texts}
    for place, (line, record) in enumerate(read_records(path, _SEPARATORS[path.suffix.lower()])):
        if header and place == 0:
            continue
        if len(record) != len(names):
            raise InputError(_wrong_length(path, line, record, names))
        for name, entry in zip(names, record, strict=True):
            if name in texts:
                columns[name].append(entry)
    return columns


def _wrong_length(path: Path, line: int, record: list[str], names: list[str]) -> str:
    return (
        f"{path}, line {line}: has {len(record)} entries, not {len(names)}; "
        "give all lines one length"
    )


def _first_records(path: Path) -> tuple[list[str], list[str]]:
    records = read_records(path, _SEPARATORS[path.suffix.lower()])
    first = next(records, None)
    if first is None:
        raise InputError(f"{path}: is empty; write one line of numbers per item")
    return first[1], next(records, (0, []))[1]


def _is_header(fields: list[str], path: Path) -> bool:
    """Whether the first line holds titles: no numbers at all, or the title `name` among them."""
    numbers = [field for field in fields if _is_number(field)]
    if not numbers or _NAME in (field.strip() for field in fields):
        return True
    if [field.strip() for field in numbers] == [str(place) for place in range(len(numbers))]:
        raise InputError(
            f"{path}, line 1: could be a row or the titles 0, 1, …; give the columns titles that "
            "are not numbers"
        )
    return False


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    # To `float`, "nan" and "infinity" are numbers; first in a column, they are words.
    return any(letter.isdigit() for letter in field)


def _bad_entry(path: Path, names: list[str], texts: set[str], header: bool) -> str:
    """What is wrong with the first entry that is not a number."""
    try:
        for line, name, entry in _entries(path, names, texts, header):
            try:
                float(entry)
            except ValueError:
                return f"{path}, line {line}, {name}: {entry[:40]!r} is not a number; correct it"
    except InputError as error:
        return str(error)
    return f"{path}: cannot be read as a table; write it as UTF-8 text, one line per item"


def _require_exact(path: Path, names: list[str], texts: set[str], header: bool) -> None:
    """Refuse integers that float64 rounds, with an exponent too; fractions are rounded anyway."""
    for line, name, entry in _entries(path, names, texts, header):
        if is_rounded_integer(entry):
            raise InputError(
                f"{path}, line {line}, {name}: float64 rounds {entry.strip()[:40]}; scale it down"
            )


def _entries(
    path: Path, names: list[str], texts: set[str], header: bool
) -> Iterator[tuple[int, str, str]]:
    """Line, column and text of every number: slow, and only where the fast way is not enough."""
    for place, (line, record) in enumerate(read_records(path, _SEPARATORS[path.suffix.lower()])):
        if header and place == 0:
            continue
        if len(record) != len(names):
            raise InputError(_wrong_length(path, line, record, names))
        for name, entry in zip(names, record, strict=True):
            if name not in texts:
                yield line, name, entry
