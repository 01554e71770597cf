"""What SQLite reports, as one sentence with a remedy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headcount.errors import InputError

PATIENCE = 300.0  # seconds to wait for another process that writes


def code_of(error: sqlite3.Error) -> int | None:
    """SQLite's primary error code; None for errors that Python's module raises itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF  # the upper bits hold the extended code


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into an InputError that names the file and the remedy."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):  # mistakes of the caller
        raise
    except UnicodeDecodeError:  # SQLite quotes a name that is not text
        raise damaged(path, "a name in it is not text") from None
    except sqlite3.Error as error:
        raise _sentence(path, error) from None


def _sentence(path: Path, error: sqlite3.Error) -> InputError:
    match code_of(error):
        case sqlite3.SQLITE_FULL:
            return InputError(
                f"{path}: the disk is full; free some space and start again, what is stored is kept"
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return InputError(
                f"{path}: another process has kept it for {PATIENCE:.0f} s; end it and start again"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return unwritable(path)
        case sqlite3.SQLITE_CANTOPEN:
            return InputError(
                f"{path}: cannot be opened; choose a folder that exists and that you can write to"
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB | None:
            return damaged(path, error)
        case _:
            return InputError(
                f"{path}: cannot be read or written ({error}); check the disk and its free space"
            )


def unwritable(path: Path) -> InputError:
    """The error for a store that can be read only."""
    return InputError(
        f"{path}: cannot be written; check the permissions of the file and its folder, "
        "or name another"
    )


def damaged(path: Path, reason: object) -> InputError:
    """The error for a store whose content cannot be right."""
    text = " ".join(str(reason).split())[:100]
    return InputError(
        f"{path}: is damaged ({text}) and was left as it is; restore a copy, "
        "or name a new store and run again"
    )
