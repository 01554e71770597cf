"""Graphs and tables of one's own in the store: whoever opens it can go on with its runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from headcount.errors import InputError
from headcount.problem.contents import SourceFile, register_bytes, to_bytes, unregistered
from headcount.store.database import Database
from headcount.training.spec import GRAPHS, TABLES, is_content_hash

_DIGITS = 32  # of a hash
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

    def require_unchanged(self, files: Mapping[Path, SourceFile]) -> None:
        """Refuse a file that held something else when runs of this store were trained on it.

        Runs on the old and the new content have different specs and are never mixed. But a sweep
        that says the same and means another problem is most likely a mistake.
        """
        before = self._recorded()
        for path, file in self._by_path(files).items():
            # Stores written before there were digests have the hash of the content in their place.
            if path in before and before[path][0] not in {file.digest, *file.contents}:
                raise InputError(
                    f"{path}: has changed since runs in {self._database.path} were trained on "
                    "it; restore the file, or name another store"
                )

    def record(self, files: Mapping[Path, SourceFile]) -> None:
        """Note what files held, beside the first run that is stored of those trained on them."""
        before = self._recorded()
        rows = []
        for path, file in self._by_path(files).items():
            digest, *contents = before.get(path, [file.digest])
            if digest in {file.digest, *file.contents}:
                rows.append((path, " ".join([file.digest, *sorted({*contents, *file.contents})])))
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?)", rows)

    def paths(self) -> dict[str, str]:
        """The file, by its path from the store, that each graph or table was read from."""
        return {key: path for path, words in self._recorded().items() for key in words}

    def meant(self, column: str, name: str) -> list[str]:
        """What a filter of the column `graph` or `table` means by a name.

        A name is that of a family, the path of a file, its last part, or the first digits of a
        hash.
        """
        found = self._database.read(f'SELECT DISTINCT "{column}" FROM runs')
        there = {str(key) for (key,) in found if key}
        if name in there or name in {"graph": GRAPHS, "table": TABLES}[column]:
            return [name]
        used = {key for key in there if is_content_hash(key)}
        paths = {key: path for key, path in self.paths().items() if key in used}
        folder = self._database.path.resolve().parent
        given = {os.path.relpath(Path(name).resolve(), folder), os.path.normpath(name)}
        found = [key for key, path in paths.items() if path in given]
        found = found or [key for key, path in paths.items() if os.path.basename(path) == name]
        if found:
            return sorted(found)
        if re.fullmatch("[0-9a-f]{4,}", name):
            found = [key for key in used if key.startswith(name)]
            if len(found) == 1 or len(name) == _DIGITS:
                return found or [name]
            if found:
                raise InputError(
                    f"{column} {name!r} begins the hashes of {len(found)} {column}s; "
                    "write more digits"
                )
        known = ", ".join(sorted(paths.get(key, key[:8]) for key in there))
        raise InputError(
            f"{column} {name!r} is not one that runs in {self._database.path} were trained on; "
            f"they have {known or 'none'}"
        )

    def _recorded(self) -> dict[str, list[str]]:
        found = self._database.read("SELECT path, hash FROM files ORDER BY path DESC")
        return {path: words.split() for path, words in found}

    def _by_path(self, files: Mapping[Path, SourceFile]) -> dict[str, SourceFile]:
        folder = self._database.path.resolve().parent
        return {os.path.relpath(path.resolve(), folder): file for path, file in files.items()}
