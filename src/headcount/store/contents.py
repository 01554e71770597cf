"""Graphs and tables of one's own in the store: whoever opens it can go on with its runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from headcount.errors import InputError
from headcount.problem.contents import register_bytes, to_bytes, unregistered
from headcount.store.database import Database

_PART = 2**26  # bytes of a content in one row


class Contents:
    """The contents that runs of this store are trained on, and the files they came from."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def share(self, keys: Iterable[str]) -> None:
        """Store what the store lacks of these contents, and register what this process lacks."""
        wanted = set(keys)
        missing = unregistered(wanted)
        stored = {key for (key,) in self._database.read("SELECT DISTINCT hash FROM contents")}
        for key in missing & stored:
            self._register(key)
        for key in wanted - missing - stored:
            data = to_bytes(key)
            rows = [(key, n, data[n * _PART :][:_PART]) for n in range(-(-len(data) // _PART))]
            with self._database.transaction() as connection:
                connection.executemany("INSERT OR IGNORE INTO contents VALUES (?, ?, ?)", rows)

    def _register(self, key: str) -> None:
        query = "SELECT data FROM contents WHERE hash = ? ORDER BY part"
        parts = [data for (data,) in self._database.read(query, [key])]
        try:
            register_bytes(key, b"".join(parts))
        except InputError as error:
            raise self._database.damaged(error) from None

    def require_unchanged(self, files: Mapping[Path, str]) -> None:
        """Refuse a file that held something else when runs of this store were trained on it.

        Runs on the old and the new content have different specs and are never mixed. But a sweep
        that says the same and means another problem is most likely a mistake.
        """
        folder = self._database.path.resolve().parent
        now = {os.path.relpath(path.resolve(), folder): key for path, key in files.items()}
        with self._database.transaction() as connection:
            before = dict(connection.execute("SELECT path, hash FROM files"))
            for path, key in now.items():
                if before.get(path, key) != key:
                    raise InputError(
                        f"{path}: has changed since runs in {self._database.path} were trained on "
                        "it; restore the file, or name another store"
                    )
            connection.executemany("INSERT OR IGNORE INTO files VALUES (?, ?)", now.items())
