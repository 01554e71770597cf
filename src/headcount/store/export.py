"""Runs as files for other programs: parquet, CSV and JSON lines, with every bit of every number."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from headcount.errors import InputError
from headcount.files import replacing
from headcount.store import runs as run_table
from headcount.store.database import Database
from headcount.store.runs import Filter, number_of
from headcount.store.schema import COLUMNS, FROM_SPEC

Format = Literal["parquet", "csv", "jsonl"]
Rows = Iterator[dict[str, Any]]
_NUMBERS = ("value", "threshold", "seconds")
_JSON = COLUMNS[-3:]
_NESTED = (*_JSON, "details")


def export(
    database: Database,
    out: str | os.PathLike[str],
    form: str | None = None,
    filters: Mapping[str, Filter] | None = None,
) -> int:
    """Write the runs that pass the filters, in the order of their specs; returns how many.

    The file is written whole or not at all. The format is that of the suffix unless given. Floats
    have the digits that give the same bits back (pandas below 3.1 needs
    `float_precision="round_trip"` to read them). Specs, histories and versions are JSON in CSV and
    parquet. `graph`, `table` and `kv_heads` are columns where one of the runs has another than the
    usual kind; runs of the transformer block have `details` besides.
    """
    helpers = [database.path, *(f"{database.path}{end}" for end in ("-wal", "-shm", "-journal"))]
    if os.path.realpath(out) in map(os.path.realpath, helpers):
        raise InputError(f"{out}: belongs to the store itself; name another file")
    form = _format(out, form)
    ids = run_table.selected(database, filters or {})
    more = run_table.further_columns(database, ids)
    columns = (*COLUMNS[:-3], *(name for name in FROM_SPEC if name in more), *_JSON)
    columns += ("details",) * ("details" in more)
    rows = ({name: row[name] for name in columns} for row in run_table.rows(database, ids))
    with replacing(out) as temporary:
        return {"parquet": _parquet, "csv": _csv, "jsonl": _jsonl}[form](rows, columns, temporary)


def _format(out: str | os.PathLike[str], form: str | None) -> str:
    chosen = form or Path(out).suffix.removeprefix(".").lower()
    if chosen not in get_args(Format):
        raise InputError(f"{out}: unknown format {chosen!r}; choose {', '.join(get_args(Format))}")
    return chosen


def _jsonl(rows: Rows, columns: tuple[str, ...], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for count, row in enumerate(rows, 1):  # noqa: B007
            nested = {name: json.loads(row[name]) for name in _NESTED if row.get(name)}
            file.write(json_text(row | nested) + "\n")
    return count


def _csv(rows: Rows, columns: tuple[str, ...], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for count, row in enumerate(map(_flat, rows), 1):  # noqa: B007
            writer.writerow(row.values())  # the module writes floats by repr, and None as nothing
    return count


def _parquet(rows: Rows, columns: tuple[str, ...], path: Path) -> int:
    import pandas as pd

    table = pd.DataFrame(list(map(_flat, rows)), columns=list(columns))
    table.astype({"diverged": "Int64"} | dict.fromkeys(_NUMBERS, "float64")).to_parquet(
        path, index=False
    )
    return len(table)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose numbers are numbers and whose JSON every reader takes."""
    numbers = {name: number_of(row[name]) for name in _NUMBERS}
    texts = {
        name: json_text(json.loads(row[name])) for name in ("history", "details") if row.get(name)
    }
    return row | numbers | texts


def json_text(value: Any) -> str:
    """JSON in ASCII that every reader takes: NaN is null, infinity a number too large for a float.

    >>> json_text({"value": math.nan, "history": [[500, math.inf], [1000, -0.0]]})
    '{"value":null,"history":[[500,1e999],[1000,-0.0]]}'
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:  # such a number is somewhere in it
        pass
    match value:
        case dict():
            items = (f"{json_text(name)}:{json_text(item)}" for name, item in value.items())
            return "{" + ",".join(items) + "}"
        case list() | tuple():
            return "[" + ",".join(map(json_text, value)) + "]"
        case float() if math.isnan(value):
            return "null"
        case float() if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case _:
            raise TypeError(f"{value!r} is not a plain value")
