"""One SQLite file: checked before it is touched, written in whole transactions, every failure said in one sentence."""

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
from headcount.files import existing_file
from headcount.store import schema

_MAGIC = b"SQLite format 3\0"
_BUSY = 1.0  # seconds that SQLite waits for another writer before we look for an interrupt and wait again
_PATIENCE = 300.0
_WHOLE_CHECK = (
    256 * 2**20
)  # bytes; every page and row of smaller files is checked when they are opened

T = TypeVar("T")


class Database:
    """A results store as SQL: `read` for queries, `transaction` for changes; safe to share between threads.

    A missing file is created unless `read_only`; an older version is migrated (read-only: in memory). WAL lets others
    read while one writes. Each commit is synced (synchronous = FULL): it costs under a millisecond on a local disk, a
    run costs seconds, and then neither kill -9 nor a power cut takes back what was reported as stored.
    """

    def __init__(self, path: str | os.PathLike[str], read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        if not read_only and not os.path.lexists(self.path):
            _create(self.path)
        _look(existing_file(self.path), read_only)
        self._place = _place(self.path)
        with _explained(self.path):
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
        with self._lock, _explained(self.path):
            return _patiently(lambda: self._connection.execute(query, values).fetchall())

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything in the block is stored when it ends, or nothing of it; waits while another process writes."""
        with self._lock, _explained(self.path):
            if (
                _place(self.path) != self._place
            ):  # SQLite would write on into a file that no one finds
                raise InputError(
                    f"{self.path}: was removed or replaced while it was in use; start again"
                )
            _patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))
            try:
                yield self._connection
                _patiently(lambda: self._connection.execute("COMMIT"))
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends some failed transactions itself
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def damaged(self, reason: object) -> InputError:
        """What to say when something in the file cannot be true."""
        return _damaged(self.path, reason)

    def _migrate(self) -> None:
        if _patiently(lambda: schema.version_of(self._connection)) < schema.VERSION:
            with (
                self.transaction() as connection
            ):  # looks again inside: another process may have been first
                schema.migrate(connection)


def _place(path: Path) -> tuple[int, int] | None:
    """Which file lies at the path."""
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
    """A connection that cannot write, also where SQLite's helper files cannot be made (a read-only folder)."""
    connection = _connect(path, "mode=ro")
    try:
        _patiently(lambda: schema.version_of(connection))
    except sqlite3.OperationalError as error:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if _code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
        if log.exists() and log.stat().st_size:
            raise InputError(
                f"{path}: {log.name} holds newer runs; copy both to a folder you can write to"
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
        with _explained(path):
            if not path.parent.is_dir():
                raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")
            with closing(_connect(temporary, "mode=rwc")) as connection:
                schema.create(connection)
                connection.execute("PRAGMA journal_mode = WAL")
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass  # another sweep was first
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


def _look(path: Path, read_only: bool) -> None:
    """What can be said without SQLite."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); check its permissions"
        ) from None
    if not head:
        raise InputError(
            f"{path}: is empty, so it is no results store; remove it or name another file"
        )
    if head != _MAGIC:
        raise InputError(
            f"{path}: is no results store, or its beginning is damaged; name another file"
        )
    if not read_only:
        try:
            path.open("r+b").close()  # SQLite would quietly open it for reading
        except OSError:
            raise _unwritable(path) from None


def _examine(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse files of other programs, of newer versions, and damaged ones."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION:
        raise InputError(
            f"{path}: is another program's SQLite file, or its beginning is damaged; name another file"
        )
    version = schema.version_of(connection)
    if version > schema.VERSION:
        raise InputError(
            f"{path}: written by a newer headcount (version {version} of the store); upgrade this one"
        )
    if version < 1:
        raise _damaged(path, "it has no version")
    try:
        if version == schema.VERSION and not schema.shape(connection) >= schema.wanted_shape():
            raise _damaged(path, "its tables are not those of a store")
        if path.stat().st_size > _WHOLE_CHECK:
            return
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise _damaged(path, found)
        if version == schema.VERSION:
            for row in connection.execute(f"SELECT {', '.join(schema.COLUMNS)}, digest FROM runs"):
                if schema.digest(row[:-1]) != row[-1]:
                    raise _damaged(path, f"run {row[0]} has changed since it was stored")
    except sqlite3.DatabaseError as error:
        if _code(error) in (
            None,
            sqlite3.SQLITE_ERROR,
        ):  # text that is no text, a table that has lost a column
            raise _damaged(path, error) from None
        raise


def _code(error: sqlite3.Error) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)  # Python's own complaints have none
    return None if code is None else code & 0xFF


def _patiently(work: Callable[[], T]) -> T:
    """Do it as soon as other processes let us."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if (
                _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                or time.monotonic() > deadline
            ):
                raise
            time.sleep(0.01)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say what SQLite says in one sentence with a remedy."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):  # mistakes of the caller
        raise
    except UnicodeDecodeError:  # Python cannot read what SQLite says about a name that is no text
        raise _damaged(path, "a name in it is no text") from None
    except sqlite3.Error as error:
        raise _sentence(path, error) from None


def _sentence(path: Path, error: sqlite3.Error) -> InputError:
    match _code(error):
        case sqlite3.SQLITE_FULL:
            return InputError(
                f"{path}: the disk is full; free some space and start again, what is stored is kept"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return InputError(
                f"{path}: another process has kept it for {_PATIENCE:.0f} s; end it and start again"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return _unwritable(path)
        case sqlite3.SQLITE_CANTOPEN:
            return InputError(
                f"{path}: cannot be opened; choose a folder that exists and that you can write to"
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | None:
            return _damaged(path, error)
        case _:
            return InputError(
                f"{path}: cannot be read or written ({error}); check the disk and its free space"
            )


def _unwritable(path: Path) -> InputError:
    return InputError(
        f"{path}: cannot be written; check the permissions of the file and its folder, or name another"
    )


def _damaged(path: Path, reason: object) -> InputError:
    text = " ".join(str(reason).split())[:100]
    return InputError(
        f"{path}: is damaged ({text}) and was left as it is; restore a copy, or name a new store and run again"
    )
