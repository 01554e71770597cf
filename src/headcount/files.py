"""Files: written whole or left as they were, and the lines of text tables."""

from __future__ import annotations

import csv
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headcount.errors import InputError

LOOP = "a symbolic link in this path leads back to itself"
MOST_COLUMNS = 2**20  # of a text table: as wide as a model may be
_LONGEST_LINE = 2**26  # characters

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`; move it over `path` only when the block succeeds.

    The temporary name keeps the suffix, so that writers which look at it do the right thing.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    path = _resolved(path)
    # An existing file keeps its permissions: a private one must not become readable by others.
    kept = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    temporary = _created(path, kept)
    mode = stat.S_IMODE(temporary.stat().st_mode) if kept is None else kept
    try:
        yield temporary
        temporary.chmod(mode)  # a writer may have made the file anew, as that of safetensors does
        with temporary.open("rb") as written:
            os.fsync(written.fileno())  # before the rename, or a crash could leave an empty file
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"{path}: cannot write ({reason}); free some space or choose another path"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _resolved(path: str | os.PathLike[str]) -> Path:
    """The file that a path leads to, refused where none can be written."""
    try:
        found = Path(path).resolve()
        if is_link_loop(found):  # Python 3.13 resolves it to itself
            raise RuntimeError
        if not found.exists() or found.is_file():
            return found
        reason = "is not a regular file"
    except RuntimeError:
        reason = LOOP
    except OSError as error:
        reason = f"cannot be followed ({error.strerror})"
    except ValueError:  # a NUL
        reason = "is not the name of a file"
    raise InputError(f"{path}: {reason}; choose another path")


def is_link_loop(path: Path) -> bool:
    """Whether symbolic links on the way to a file lead back to themselves."""
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    except ValueError:  # a NUL
        return False
    return False


def _created(path: Path, mode: int | None) -> Path:
    """A new, empty file beside `path`, with these permissions or those that the umask leaves.

    The system applies the umask. Reading it means setting it, for all threads of the process.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{path.suffix}")
    try:
        handle = os.open(
            temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666 if mode is None else mode & 0o666
        )
    except OSError as error:
        raise InputError(
            f"{path}: cannot write there ({error.strerror}); choose a writable folder that exists"
        ) from None
    os.close(handle)
    return temporary


def made_folder(path: str | os.PathLike[str]) -> Path:
    """`path` as a folder, made if need be; one that cannot be written to is refused.

    >>> made_folder("/dev/null/results")
    Traceback (most recent call last):
    headcount.errors.InputError: /dev/null/results: cannot be a folder (Not a directory); choose
    another path
    """
    folder = Path(path)
    if is_link_loop(folder):
        raise InputError(f"{folder}: {LOOP}; choose another path")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{folder}: cannot be a folder ({reason}); choose another path") from None
    if not os.access(folder, os.W_OK):
        raise InputError(f"{folder}: cannot be written to; choose another folder")
    return folder


def lock(handle: int, wait: bool = True) -> None:
    """Take the lock of an open file or folder until it is closed; Windows has no such locks.

    An OSError says that there is none to take, or, without `wait`, that another process has it.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        return
    fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def save_tensors(
    path: str | os.PathLike[str], tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a `.safetensors` file, whole or not at all.

    Tensors that share memory, as one that is passed twice, are written apart.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        try:
            save_file(_apart(tensors), temporary, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from None


def save_frame(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a Parquet file, whole or not at all, whose pages have checksums."""
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False, compression="zstd", write_page_checksum=True)


def load_frame(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a Parquet file; a ValueError says what is wrong with it."""
    import pandas as pd

    try:
        return pd.read_parquet(path, page_checksum_verification=True)
    except Exception as error:  # pandas and Arrow let out whatever a damaged footer runs into
        if isinstance(error, MemoryError):
            raise
        raise ValueError(str(error).split("\n")[0] or type(error).__name__) from None


def read_records(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV or TSV file that are not blank: number and fields."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(bounded_lines(file, path, separator), delimiter=separator)
        try:
            for fields in reader:
                if any(field.strip() for field in fields):
                    yield reader.line_num, fields
        except UnicodeDecodeError:
            raise InputError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
        except csv.Error as error:
            raise InputError(
                f"{path}, line {reader.line_num}: {error}; correct that line"
            ) from None


def bounded_lines(file: TextIO, path: Path, separator: str) -> Iterator[str]:
    """The lines of a text table; one too long to be a row is refused before it fills the memory.

    A row goes on in the next line where a quote is open.
    """
    number = columns = 0
    quoted = False
    while line := file.readline(_LONGEST_LINE):
        number += 1
        columns = line.count(separator) + (columns if quoted else 0)
        quoted ^= line.count('"') % 2 == 1
        if len(line) >= _LONGEST_LINE or columns >= MOST_COLUMNS:
            raise InputError(
                f"{path}, line {number}: has more than {MOST_COLUMNS:,} columns or "
                f"{_LONGEST_LINE:,} characters; write one line per item"
            )
        yield line


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, no two in one memory, which the format cannot express."""
    parts, seen = dict[str, "Tensor"](), set[int]()
    for name, tensor in tensors.items():
        part = tensor.detach().cpu().contiguous()
        place = part.untyped_storage().data_ptr()
        parts[name] = part.clone() if place in seen else part
        seen.add(place)
    return parts


def existing_file(path: str | os.PathLike[str]) -> Path:
    """`path` as a Path, or an InputError that says it is missing.

    >>> existing_file("no-such-file.csv")
    Traceback (most recent call last):
    headcount.errors.InputError: no-such-file.csv: no such file; check the path
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if is_link_loop(path):
        raise InputError(f"{path}: {LOOP}; check the path")
    if not path.exists():
        raise InputError(f"{path}: no such file; check the path")
    return path
