"""One SQLite file: checked before it is used, and written in whole transactions."""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from headcount.errors import InputError
from headcount.files import LOOP, existing_file, is_link_loop
from headcount.store import schema
from headcount.store.sqlite_errors import PATIENCE, code_of, damaged, explained, unwritable

_MAGIC = b"SQLite format 3\0"
# Seconds that SQLite itself waits for another writer. It is short because Python handles Ctrl-C
# only between two calls; `_patiently` then tries again.
_BUSY = 1.0
_WHOLE_CHECK = 256 * 2**20  # bytes; every page and row of a smaller file is checked on opening

T = TypeVar("T")


class Database:
    """A results store as SQL: `read` for queries, `transaction` for changes; safe between threads.

    A missing file is created unless `read_only`; an older version is migrated (read-only: in
    memory). WAL lets others read while one process writes. Each commit is synced
    (synchronous = FULL): it costs under a millisecond on a local disk while a run costs seconds,
    and then neither kill -9 nor a power cut takes back what was reported as stored.
    """

    def __init__(self, path: str | os.PathLike[str], read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        if not read_only and not os.path.lexists(self.path):
            _create(self.path)
        _check_header(existing_file(self.path), read_only)
        self._identity = _identity(self.path)
        with explained(self.path):
            # Opened for reading first: a file that is refused must stay exactly as it is, and a
            # connection that can write already changes a file in WAL mode.
            self._connection = _open_to_read(self.path)
            try:
                _examine(self._connection, self.path)
                if not read_only:
                    self._connection.close()
                    self._connection = _open_to_write(self.path)
                    self._migrate()
                elif schema.version_of(self._connection) < schema.VERSION:
                    self._connection = _migrated_copy(self._connection)
            except BaseException:
                self._connection.close()
                raise

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._lock, explained(self.path):
            return _patiently(lambda: self._connection.execute(query, values).fetchall())

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Store everything in the block when it ends, or nothing; waits for other writers."""
        with self._lock, explained(self.path):
            # SQLite would keep writing to a deleted file, where no one finds the results.
            if _identity(self.path) != self._identity:
                raise InputError(
                    f"{self.path}: was removed or replaced while it was in use; start again"
                )
            # IMMEDIATE takes the write lock at once. A transaction that reads first and upgrades
            # later could find that another process has written in between, and would have to fail.
            _patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))
            try:
                yield self._connection
                _patiently(lambda: self._connection.execute("COMMIT"))
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends some failed transactions itself
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def damaged(self, reason: object) -> InputError:
        """The error for content that cannot be right."""
        return damaged(self.path, reason)

    def _migrate(self) -> None:
        if _patiently(lambda: schema.version_of(self._connection)) < schema.VERSION:
            with self.transaction() as connection:
                schema.migrate(connection)  # looks again: another process may have been first


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is at the path."""
    with suppress(OSError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{path.resolve().as_uri()}?{mode}"
    return sqlite3.connect(
        address, uri=True, timeout=_BUSY, isolation_level=None, check_same_thread=False
    )


def _open_to_write(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "mode=rw")
    for setting in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "secure_delete = OFF",
        f"journal_size_limit = {2**26}",
    ):
        _patiently(lambda setting=setting: connection.execute(f"PRAGMA {setting}"))
    return connection


def _open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that cannot write.

    In a folder that cannot be written, SQLite's helper files (-wal, -shm) cannot be made. The file
    is then opened as immutable, unless a log beside it holds newer rows that this would miss.
    """
    connection = _connect(path, "mode=ro")
    try:
        _patiently(lambda: schema.version_of(connection))
    except sqlite3.OperationalError as error:
        connection.close()
        file = path.resolve()  # SQLite follows links, and keeps its log beside the file itself
        log = file.with_name(f"{file.name}-wal")
        if code_of(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        if log.exists() and log.stat().st_size:
            raise InputError(
                f"{path}: {log} holds newer runs; copy {file.name} and {log.name} to a folder that "
                "you can write to"
            ) from None
        return _connect(path, "immutable=1")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrated_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with closing(connection):
        connection.backup(copy)
    schema.migrate(copy)
    return copy


def _create(path: Path) -> None:
    """Make an empty store elsewhere and link it into place: no one ever sees half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.new")
    try:
        with explained(path):
            if is_link_loop(path):
                raise InputError(f"{path}: {LOOP}; name another store")
            if not path.parent.is_dir():
                raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")
            with closing(_connect(temporary, "mode=rwc")) as connection:
                schema.create(connection)
                connection.execute("PRAGMA journal_mode = WAL")
        try:
            os.link(temporary, path)  # unlike a rename, never replaces a store
        except FileExistsError:
            pass  # another process was first
        except OSError:  # a file system without links
            with suppress(FileExistsError), path.open("xb") as file:
                file.write(temporary.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path}: cannot write there ({error.strerror}); choose a writable folder that exists"
        ) from None
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{temporary}{suffix}")


def _check_header(path: Path, read_only: bool) -> None:
    """Refuse what is not an SQLite file, or cannot be written, before SQLite sees it."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); check its permissions"
        ) from None
    if not head:
        raise InputError(
            f"{path}: is empty and not a results store; remove it or name another file"
        )
    if head != _MAGIC:
        raise InputError(
            f"{path}: is not a results store, or its beginning is damaged; name another file"
        )
    if not read_only:
        try:
            path.open("r+b").close()  # SQLite would quietly open it for reading
        except OSError:
            raise unwritable(path) from None


def _examine(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse files of other programs, of newer versions, and damaged ones."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION:
        raise InputError(
            f"{path}: is another program's SQLite file, or its beginning is damaged; "
            "name another file"
        )
    version = schema.version_of(connection)
    if version > schema.VERSION:
        raise InputError(
            f"{path}: written by a newer headcount (version {version} of the store); "
            "upgrade this one"
        )
    if version < 1:
        raise damaged(path, "it has no version")
    try:
        if version == schema.VERSION and not schema.shape(connection) >= schema.wanted_shape():
            raise damaged(path, "its tables are not those of a store")
        if path.stat().st_size > _WHOLE_CHECK:
            return  # rows are then checked as they are read
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise damaged(path, found)
        for key in schema.changed_rows(connection):
            raise damaged(path, f"run {key} has changed since it was stored")
    except sqlite3.DatabaseError as error:
        # Text that is not text, or a table that has lost a column.
        if code_of(error) in (None, sqlite3.SQLITE_ERROR):
            raise damaged(path, error) from None
        raise


def _patiently(work: Callable[[], T]) -> T:
    """Do it as soon as other processes let us."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            busy = code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
