"""The tables of a results store, and the steps from older versions to this one."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from typing import Any

APPLICATION = 0x48434E54  # "HCNT", kept in the file's header: other programs' files are refused
VERSION = 6

# What every finished run has, in the order of its digest.
COLUMNS = (
    *("hash", "variant", "degree", "items", "d_model", "heads", "key_dim", "budget", "seed"),
    *("steps", "value", "diverged", "threshold", "engine", "device", "seconds", "finished_at"),
    *("spec", "history", "versions"),
)
# What SQLite reads from the spec, with the value that all runs of release 0.1.0 had: specs leave it
# out there. The digest has it in the spec.
FROM_SPEC = {"graph": "regular", "table": "gaussian", "kv_heads": 0}
STORED = (*COLUMNS, "details")  # JSON: what only runs of the transformer block have, else NULL
BLOCK = "block"  # the variant of those runs
SORTED = "variant, degree, items, d_model, heads, key_dim, seed, hash"

# `value`, `threshold` and `seconds` have no type: a REAL column would turn −0.0 into 0.0.
_RUNS = """CREATE TABLE runs (
    id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, variant TEXT NOT NULL,
    degree INTEGER NOT NULL, items INTEGER NOT NULL, d_model INTEGER NOT NULL,
    heads INTEGER NOT NULL, key_dim INTEGER NOT NULL, budget INTEGER NOT NULL,
    seed INTEGER NOT NULL, steps INTEGER NOT NULL, value, diverged INTEGER, threshold,
    engine TEXT NOT NULL, device TEXT NOT NULL, seconds, finished_at TEXT NOT NULL,
    spec TEXT NOT NULL, history TEXT NOT NULL, versions TEXT NOT NULL,
    digest TEXT NOT NULL, details TEXT{more})"""
_OF_SPEC = {
    name: f""""{name}" {"INTEGER" if isinstance(usual, int) else "TEXT"} AS
    (CASE WHEN json_valid(spec) THEN coalesce(json_extract(spec, '$.{name}'), {usual!r}) END)"""
    for name, usual in FROM_SPEC.items()
}
_CHECKPOINTS = """CREATE TABLE checkpoints (
    hash TEXT PRIMARY KEY, taken INTEGER NOT NULL, engine TEXT NOT NULL, device TEXT NOT NULL,
    seconds, history TEXT NOT NULL, state BLOB NOT NULL, digest TEXT NOT NULL)"""
# Graphs and tables of one's own, in parts: SQLite's blobs hold up to a gigabyte.
_CONTENTS = """CREATE TABLE contents (
    hash TEXT NOT NULL, part INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (hash, part))"""
# What a file, by its path from the store, held when runs were first trained on it: the digest of
# its bytes, then the hashes of the graphs and tables that were read from it, with blanks between.
_FILES = "CREATE TABLE files (path TEXT PRIMARY KEY, hash TEXT NOT NULL)"
_INDEX = f"CREATE INDEX runs_sorted ON runs ({SORTED})"
_SWEEPS = """CREATE TABLE sweeps (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, pid INTEGER NOT NULL,
    host TEXT NOT NULL, started REAL NOT NULL, updated REAL NOT NULL, known_runs INTEGER NOT NULL,
    total_runs INTEGER NOT NULL, total_steps INTEGER NOT NULL, done_runs INTEGER NOT NULL,
    steps_taken INTEGER NOT NULL, settled_steps INTEGER NOT NULL, rate REAL NOT NULL)"""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of this version in an empty file."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    runs = _RUNS.format(more="".join(f", {column}" for column in _OF_SPEC.values()))
    for statement in (runs, _CHECKPOINTS, _INDEX, _SWEEPS, _CONTENTS, _FILES):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def version_of(connection: sqlite3.Connection) -> int:
    """The version that the file was written with."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Bring an older file to this version, inside the caller's transaction."""
    for version in range(version_of(connection), VERSION):
        _STEPS[version](connection)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def shape(connection: sqlite3.Connection) -> set[tuple[Any, ...]]:
    """Columns and indexes of every table, without their order: migrated stores differ in it."""
    found: set[tuple[Any, ...]] = set()
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    for (table,) in tables:
        columns = connection.execute(f"PRAGMA table_xinfo('{table}')")
        found |= {(table, *row[1:4], row[5]) for row in columns}
        for _, name, *kind in connection.execute(f"PRAGMA index_list('{table}')").fetchall():
            indexed = connection.execute(f"PRAGMA index_info('{name}')").fetchall()
            found.add((table, *kind, *(column for _, _, column in indexed)))
    return found


@cache
def wanted_shape() -> frozenset[tuple[Any, ...]]:
    """The shape of a new store."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        create(connection)
        return frozenset(shape(connection))


def digest(values: Sequence[Any]) -> str:
    """A short hash of values: SQLite itself does not notice a flipped bit inside a value.

    Nor one in a value's type, which turns a text into bytes.
    """
    text = json.dumps(list(values), default=repr)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def row_digest(row: Sequence[Any]) -> str:
    """The digest of the values of STORED.

    Without details it is that of version 2: such rows keep their digests, and stay sealed by what
    their writer computed, when a store is migrated.
    """
    return digest(row if row[-1] is not None else row[:-1])


def changed_rows(connection: sqlite3.Connection) -> Iterator[str]:
    """The hashes of runs that have changed since they were stored."""
    version = version_of(connection)
    if version < 2:  # had no digests
        return
    details = "details" if version > 2 else "NULL"
    for row in connection.execute(f"SELECT {', '.join(COLUMNS)}, {details}, digest FROM runs"):
        if row_digest(row[:-1]) != row[-1]:
            yield row[0]


def _from_1(connection: sqlite3.Connection) -> None:
    """Version 1 had permutations only, and no software versions, digests or record of sweeps."""
    connection.execute("ALTER TABLE runs ADD COLUMN degree INTEGER NOT NULL DEFAULT 1")
    for name, default in (("versions", "{}"), ("digest", "")):
        connection.execute(f"ALTER TABLE runs ADD COLUMN {name} TEXT NOT NULL DEFAULT '{default}'")
    connection.execute("UPDATE runs SET degree = json_extract(spec, '$.degree')")
    for row in connection.execute(f"SELECT id, {', '.join(COLUMNS)} FROM runs").fetchall():
        connection.execute("UPDATE runs SET digest = ? WHERE id = ?", (digest(row[1:]), row[0]))
    connection.execute("DROP TABLE checkpoints")  # without a digest; those runs begin again
    connection.execute(_CHECKPOINTS)
    connection.execute(_INDEX)
    connection.execute(_SWEEPS)


def _from_2(connection: sqlite3.Connection) -> None:
    """Version 2 had no runs of the transformer block."""
    connection.execute("ALTER TABLE runs ADD COLUMN details TEXT")


def _from_3(connection: sqlite3.Connection) -> None:
    """Version 3 had no columns of the problem."""
    for name in ("graph", "table"):
        connection.execute(f"ALTER TABLE runs ADD COLUMN {_OF_SPEC[name]}")


def _from_4(connection: sqlite3.Connection) -> None:
    """Version 4 had no graphs and tables of one's own."""
    connection.execute(_CONTENTS)
    connection.execute(_FILES)


def _from_5(connection: sqlite3.Connection) -> None:
    """Version 5 had no shared keys."""
    connection.execute(f"ALTER TABLE runs ADD COLUMN {_OF_SPEC['kv_heads']}")


_STEPS = {1: _from_1, 2: _from_2, 3: _from_3, 4: _from_4, 5: _from_5}
