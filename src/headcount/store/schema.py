"""The tables of a results store, and the steps from older versions to this one."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from typing import Any

APPLICATION = 0x48434E54  # "HCNT", kept in the file's header: other programs' files are refused
VERSION = 2

# What a finished run is, in the order of its digest.
COLUMNS = (
    *("hash", "variant", "degree", "items", "d_model", "heads", "key_dim", "budget", "seed"),
    *("steps", "value", "diverged", "threshold", "engine", "device", "seconds", "finished_at"),
    *("spec", "history", "versions"),
)
SORTED = "variant, degree, items, d_model, heads, key_dim, seed, hash"

# `value`, `threshold` and `seconds` have no type: a REAL column would turn −0.0 into 0.0.
_TABLES = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE,
        variant TEXT NOT NULL, degree INTEGER NOT NULL, items INTEGER NOT NULL, d_model INTEGER NOT NULL,
        heads INTEGER NOT NULL, key_dim INTEGER NOT NULL, budget INTEGER NOT NULL, seed INTEGER NOT NULL,
        steps INTEGER NOT NULL, value, diverged INTEGER, threshold, engine TEXT NOT NULL, device TEXT NOT NULL,
        seconds, finished_at TEXT NOT NULL, spec TEXT NOT NULL, history TEXT NOT NULL,
        versions TEXT NOT NULL, digest TEXT NOT NULL)""",
    """CREATE TABLE checkpoints (
        hash TEXT PRIMARY KEY, taken INTEGER NOT NULL, engine TEXT NOT NULL, device TEXT NOT NULL, seconds,
        history TEXT NOT NULL, state BLOB NOT NULL, digest TEXT NOT NULL)""",
)
_INDEX = f"CREATE INDEX runs_sorted ON runs ({SORTED})"
_SWEEPS = """CREATE TABLE sweeps (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
        started REAL NOT NULL, updated REAL NOT NULL, known_runs INTEGER NOT NULL,
        total_runs INTEGER NOT NULL, total_steps INTEGER NOT NULL,
        done_runs INTEGER NOT NULL, steps_taken INTEGER NOT NULL, settled_steps INTEGER NOT NULL, rate REAL NOT NULL)"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of this version in an empty file."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    for statement in (*_TABLES, _INDEX, _SWEEPS):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def version_of(connection: sqlite3.Connection) -> int:
    """The version that the file was written with."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Bring an older file to this version, inside the transaction of the caller."""
    for version in range(version_of(connection), VERSION):
        _STEPS[version](connection)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def shape(connection: sqlite3.Connection) -> set[tuple[Any, ...]]:
    """Columns and indexes of every table, in no order: an older store that was migrated has the same as a new one."""
    found: set[tuple[Any, ...]] = set()
    for (table,) in connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table'"
    ).fetchall():
        found |= {
            (table, *row[1:4], row[5])
            for row in connection.execute(f"PRAGMA table_info('{table}')")
        }
        for _, name, *kind in connection.execute(f"PRAGMA index_list('{table}')").fetchall():
            columns = connection.execute(f"PRAGMA index_info('{name}')").fetchall()
            found.add((table, *kind, *(column for _, _, column in columns)))
    return found


@cache
def wanted_shape() -> frozenset[tuple[Any, ...]]:
    """The shape of a new store."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create(connection)
        return frozenset(shape(connection))


def digest(values: Sequence[Any]) -> str:
    """A short hash of a row: SQLite itself does not notice a flipped bit inside a value."""
    return hashlib.blake2b(json.dumps(list(values)).encode(), digest_size=8).hexdigest()


def _from_1(connection: sqlite3.Connection) -> None:
    """Version 1 had permutations only, and neither software versions, digests nor a record of sweeps."""
    connection.execute("ALTER TABLE runs ADD COLUMN degree INTEGER NOT NULL DEFAULT 1")
    for name, default in (("versions", "{}"), ("digest", "")):
        connection.execute(f"ALTER TABLE runs ADD COLUMN {name} TEXT NOT NULL DEFAULT '{default}'")
    connection.execute("UPDATE runs SET degree = json_extract(spec, '$.degree')")
    for row in connection.execute(f"SELECT id, {', '.join(COLUMNS)} FROM runs").fetchall():
        connection.execute("UPDATE runs SET digest = ? WHERE id = ?", (digest(row[1:]), row[0]))
    connection.execute("DROP TABLE checkpoints")  # without a digest; those runs begin again
    connection.execute(_TABLES[1])
    connection.execute(_INDEX)
    connection.execute(_SWEEPS)


_STEPS = {1: _from_1}
