"""Finished runs as rows of the store: filters, queries, and the way between a row and a result."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from numbers import Integral
from typing import TYPE_CHECKING, Any

from headcount.errors import InputError
from headcount.store.database import Database
from headcount.store.schema import BLOCK, COLUMNS, FROM_SPEC, SORTED, STORED, row_digest

if TYPE_CHECKING:
    import pandas as pd

    from headcount.block.spec import BlockResult
    from headcount.training.result import RunResult

Filter = int | Integral | str | Iterable[Any] | None  # one value, several, a range; None: all
FILTERS = (
    *("hash", "variant", "degree", "items", "d_model", "heads", "key_dim", "budget", "seed"),
    *(*FROM_SPEC, "engine", "device"),
)
OF_SPEC = (*COLUMNS[:9], *FROM_SPEC)
SCALARS = (*OF_SPEC, *COLUMNS[9:-3])  # without the JSON of spec, history and versions
_AT_ONCE = 500  # rows read by one query: others may write in between, and memory stays small
_DETAILS = ("best_validation", "best_step", "final_test", "answers", "barred_test", "loss")


def where(filters: Mapping[str, Filter]) -> tuple[str, list[Any]]:
    """The condition of a query and its values.

    >>> where({"variant": "max", "heads": range(1, 5)})[0]
    ' WHERE "variant" IN (SELECT value FROM json_each(?)) AND "heads" BETWEEN ? AND ?'
    >>> where({"items": [64, 128], "heads": range(1, 5)})[1]
    ['[64, 128]', 1, 4]
    """
    conditions, values = [], []
    for name, wanted in filters.items():
        if name not in FILTERS:
            near = get_close_matches(name, FILTERS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(FILTERS)}"
            raise InputError(f"runs cannot be filtered by {name!r}; {hint}")
        if wanted is None:
            continue
        quoted = _named([name])  # `table` is a word of SQL
        if isinstance(wanted, range) and wanted.step == 1:
            conditions.append(f"{quoted} BETWEEN ? AND ?")
            values += [wanted.start, wanted.stop - 1]
        else:  # one JSON list has no limit on its length; a list of question marks has
            several = [wanted] if isinstance(wanted, str | int | Integral) else wanted
            conditions.append(f"{quoted} IN (SELECT value FROM json_each(?))")
            plain = [item if isinstance(item, str) else int(item) for item in several]
            values.append(json.dumps(plain))
    return (" WHERE " if conditions else "") + " AND ".join(conditions), values


def _named(columns: Iterable[str]) -> str:
    """Columns as SQL."""
    return ", ".join(f'"{name}"' for name in columns)


def count(database: Database, filters: Mapping[str, Filter]) -> int:
    """How many runs pass the filters."""
    condition, values = where(filters)
    return database.read(f"SELECT count(*) FROM runs{condition}", values)[0][0]


def selected(
    database: Database, filters: Mapping[str, Filter], limit: int | None = None
) -> list[int]:
    """The ids of runs in the order of their specs, which does not depend on when they finished."""
    condition, values = where(filters)
    query = f"SELECT id FROM runs{condition} ORDER BY {SORTED} LIMIT ?"
    most = -1 if limit is None else limit  # SQLite reads a limit of −1 as none
    return [number for (number,) in database.read(query, [*values, most])]


def rows(database: Database, ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The rows of these ids as values by name, each checked against its digest."""
    names = _named([*FROM_SPEC, *STORED])
    query = f"SELECT id, {names}, digest FROM runs WHERE id IN (SELECT value FROM json_each(?))"
    for first in range(0, len(ids), _AT_ONCE):
        part = ids[first : first + _AT_ONCE]
        found = {row[0]: row[1:] for row in database.read(query, [json.dumps(part)])}
        for number in part:
            *row, digest = found[number]
            stored = row[len(FROM_SPEC) :]
            if row_digest(stored) != digest:
                raise database.damaged(f"run {stored[0]} has changed since it was stored")
            yield dict(zip((*FROM_SPEC, *STORED), row, strict=True))


def further_columns(database: Database, ids: Sequence[int]) -> list[str]:
    """Which of the columns that release 0.1.0 did not write these runs need."""
    # A spec leaves a field out at its usual value; the table of a block run is always named.
    needs = {name: f"json_type(spec, '$.{name}') IS NOT NULL" for name in FROM_SPEC}
    needs["table"] += f" AND variant != '{BLOCK}'"
    needs["details"] = "details IS NOT NULL"
    query = "SELECT EXISTS (SELECT 1 FROM runs WHERE {} AND id IN (SELECT value FROM json_each(?)))"
    wanted = [json.dumps(list(ids))]
    return [name for name, need in needs.items() if database.read(query.format(need), wanted)[0][0]]


def latest(database: Database, number: int) -> list[dict[str, Any]]:
    """The runs that were stored last, newest first, without their histories."""
    query = f"SELECT {_named(SCALARS)} FROM runs ORDER BY id DESC LIMIT ?"
    return [dict(zip(SCALARS, row, strict=True)) for row in database.read(query, [number])]


def frame(database: Database, filters: Mapping[str, Filter]) -> pd.DataFrame:
    """Scalar columns as a frame, sorted by spec."""
    import pandas as pd

    from headcount.store.frames import typed_frame

    condition, values = where(filters)
    query = f"SELECT {_named(SCALARS)} FROM runs{condition} ORDER BY {SORTED}"
    table = typed_frame(pd.DataFrame(database.read(query, values), columns=list(SCALARS)))
    finished = pd.to_datetime(table["finished_at"], utc=True, format="ISO8601")
    return table.assign(finished_at=finished.dt.as_unit("us"))


def row_of(result: RunResult | BlockResult, finished: datetime | None = None) -> tuple[Any, ...]:
    """A result as the values of STORED; NaN is NULL, as SQLite would make it."""
    from headcount.training.result import RunResult

    spec = result.spec
    values: dict[str, Any] = {
        "diverged": None if result.diverged is None else int(result.diverged),
        "engine": result.engine,
        "device": result.device,
        "seconds": _nullable(result.seconds),
        "finished_at": (finished or datetime.now(UTC)).isoformat(timespec="milliseconds"),
        "spec": spec.to_json(),
        "history": history_json(result.history),
        "versions": json.dumps(result.versions, sort_keys=True),
    }
    for name in ("hash", "items", "d_model", "heads", "key_dim", "budget", "seed"):
        values[name] = getattr(spec, name)
    if isinstance(result, RunResult):
        values |= {"variant": result.spec.variant, "degree": result.spec.degree, "details": None}
        values |= {"steps": int(result.steps), "value": _nullable(result.value)}
        values["threshold"] = _nullable(result.threshold)
    else:  # the block recalls the partner of an item under a permutation: a graph of degree 1
        values |= {"variant": BLOCK, "degree": 1, "details": _details_json(result)}
        values |= {"steps": spec.steps, "value": _nullable(result.test), "threshold": None}
    return tuple(values[name] for name in STORED)


def result_of(row: Mapping[str, Any]) -> RunResult:
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


def block_result_of(row: Mapping[str, Any]) -> BlockResult:
    """The `BlockResult` of a row whose variant is `block`."""
    from headcount.block.spec import Attention, BlockResult, BlockSpec

    details = json.loads(row["details"])
    seen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in details.pop("attention").items()
    }
    return BlockResult(
        spec=BlockSpec.from_json(row["spec"]),
        test=number_of(row["value"]),
        history=history_of(row["history"]),
        attention=Attention(**seen),
        diverged=row["diverged"],
        engine=row["engine"],
        device=row["device"],
        seconds=number_of(row["seconds"]),
        versions=json.loads(row["versions"]),
        **details,
    )


def _details_json(result: BlockResult) -> str:
    details = {name: getattr(result, name) for name in _DETAILS}
    return json.dumps(details | {"attention": vars(result.attention)}, sort_keys=True)


def number_of(stored: float | None) -> float:
    """A stored number: NULL is NaN."""
    return math.nan if stored is None else stored


def _nullable(value: float) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


def history_json(history: Iterable[tuple[int, float]]) -> str:
    """Checks as JSON; Python writes floats so that the same bits are read back."""
    return json.dumps([[int(step), float(value)] for step, value in history])


def history_of(text: str) -> tuple[tuple[int, float], ...]:
    """What `history_json` wrote."""
    return tuple((step, value) for step, value in json.loads(text))
