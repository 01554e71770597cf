"""Finished runs as rows: filters, the frame, and the way between a row and a `RunResult`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from numbers import Integral
from typing import TYPE_CHECKING, Any

from headcount.errors import InputError
from headcount.store.database import Database
from headcount.store.schema import COLUMNS, SORTED, digest

if TYPE_CHECKING:
    import pandas as pd

Filter = int | Integral | str | Iterable[Any] | None  # one value, several, a range; None: all
FILTERS = (
    "hash",
    "variant",
    "degree",
    "items",
    "d_model",
    "heads",
    "key_dim",
    "budget",
    "seed",
    "engine",
    "device",
)
SCALARS = COLUMNS[:-3]  # without the JSON of spec, history and versions
_BLOCK = 500  # rows read at once
_TYPES = {"value": "float64", "threshold": "float64", "seconds": "float64", "diverged": "Int64"}
_TEXTS = ("hash", "variant", "engine", "device")


def where(filters: Mapping[str, Filter]) -> tuple[str, list[Any]]:
    """The condition of a query and its values.

    >>> where({"items": [64, 128], "budget": range(10, 41)})
    (' WHERE items IN (SELECT value FROM json_each(?)) AND budget BETWEEN ? AND ?', ['[64, 128]', 10, 40])
    """
    conditions, values = [], []
    for name, wanted in filters.items():
        if name not in FILTERS:
            near = get_close_matches(name, FILTERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(FILTERS)}"
            raise InputError(f"runs cannot be filtered by {name!r}; {hint}")
        if wanted is None:
            continue
        if isinstance(wanted, range) and wanted.step == 1:
            conditions.append(f"{name} BETWEEN ? AND ?")
            values += [wanted.start, wanted.stop - 1]
        else:  # one JSON list has no limit on its length; a list of question marks has
            several = [wanted] if isinstance(wanted, str | int | Integral) else wanted
            conditions.append(f"{name} IN (SELECT value FROM json_each(?))")
            values.append(
                json.dumps([item if isinstance(item, str) else int(item) for item in several])
            )
    return (" WHERE " if conditions else "") + " AND ".join(conditions), values


def count(database: Database, filters: Mapping[str, Filter]) -> int:
    """How many runs pass the filters."""
    condition, values = where(filters)
    return database.read(f"SELECT count(*) FROM runs{condition}", values)[0][0]


def rows(
    database: Database, filters: Mapping[str, Filter], limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """Rows by name in the order of their specs, which does not depend on the order in which they were finished."""
    condition, values = where(filters)
    # SQLite reads a limit of −1 as none.
    query = f"SELECT id FROM runs{condition} ORDER BY {SORTED} LIMIT ?"
    order = [
        number for (number,) in database.read(query, [*values, -1 if limit is None else limit])
    ]
    names = ", ".join(COLUMNS)
    for first in range(0, len(order), _BLOCK):
        block = order[first : first + _BLOCK]
        query = f"SELECT id, {names}, digest FROM runs WHERE id IN (SELECT value FROM json_each(?))"
        found = {row[0]: row[1:] for row in database.read(query, [json.dumps(block)])}
        for number in block:
            *row, seal = found[number]
            if digest(row) != seal:
                raise database.damaged(f"run {row[0]} has changed since it was stored")
            yield dict(zip(COLUMNS, row, strict=True))


def latest(database: Database, number: int) -> list[dict[str, Any]]:
    """The runs that were stored last, newest first, without their histories."""
    found = database.read(
        f"SELECT {', '.join(SCALARS)} FROM runs ORDER BY id DESC LIMIT ?", [number]
    )
    return [dict(zip(SCALARS, row, strict=True)) for row in found]


def frame(database: Database, filters: Mapping[str, Filter]) -> pd.DataFrame:
    """Scalar columns as a frame, sorted by spec."""
    import pandas as pd

    condition, values = where(filters)
    found = database.read(
        f"SELECT {', '.join(SCALARS)} FROM runs{condition} ORDER BY {SORTED}", values
    )
    table = pd.DataFrame(found, columns=list(SCALARS))
    whole = [name for name in SCALARS if name not in (*_TYPES, *_TEXTS, "finished_at")]
    table = table.astype(_TYPES | dict.fromkeys(whole, "int64") | dict.fromkeys(_TEXTS, "str"))
    finished = pd.to_datetime(table["finished_at"], utc=True, format="ISO8601")
    return table.assign(finished_at=finished.dt.as_unit("us"))


def row_of(result: Any) -> tuple[Any, ...]:
    """A `RunResult` as the values of COLUMNS; a number that is not one is NULL, as SQLite would make it."""
    spec = result.spec
    values: dict[str, Any] = {name: getattr(spec, name) for name in COLUMNS[:9]} | {
        "steps": int(result.steps),
        "diverged": None if result.diverged is None else int(result.diverged),
        "engine": result.engine,
        "device": result.device,
        "finished_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "spec": spec.to_json(),
        "history": history_json(result.history),
        "versions": json.dumps(result.versions, sort_keys=True),
    }
    for name in ("value", "threshold", "seconds"):
        number = float(getattr(result, name))
        values[name] = None if math.isnan(number) else number
    return tuple(values[name] for name in COLUMNS)


def result_of(row: Mapping[str, Any]) -> Any:
    """The `RunResult` of a row; its weights are not stored."""
    from headcount.training.result import RunResult
    from headcount.training.spec import RunSpec

    return RunResult(
        spec=RunSpec.from_json(row["spec"]),
        value=number_of(row["value"]),
        steps=row["steps"],
        threshold=number_of(row["threshold"]),
        history=history_of(row["history"]),
        diverged=row["diverged"],
        engine=row["engine"],
        device=row["device"],
        seconds=number_of(row["seconds"]),
        versions=json.loads(row["versions"]),
    )


def number_of(stored: float | None) -> float:
    """NULL is a number that is not one."""
    return math.nan if stored is None else stored


def history_json(history: Iterable[tuple[int, float]]) -> str:
    """Checks as JSON; Python writes floats so that the same bits are read back."""
    return json.dumps([[int(step), float(value)] for step, value in history])


def history_of(text: str) -> tuple[tuple[int, float], ...]:
    """What `history_json` wrote."""
    return tuple((step, value) for step, value in json.loads(text))
