"""The native engine's compiled library: where it is, its types, and calls that can be stopped.

torch is imported by type checkers alone: `headcount --version` asks here for the levels.
"""

from __future__ import annotations

import _thread
import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from headcount.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from headcount.shapes import Int

# Beside this file and nowhere else: wheels bring it, an editable install builds it here.
LIBRARY = Path(__file__).with_name("_native.dll" if sys.platform == "win32" else "_native.so")


class Run(ctypes.Structure):
    """`struct Run` of run.h, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("rows", "messages", "targets", "starts")),
        *((name, ctypes.c_void_p) for name in ("weights", "first", "second")),
        *((name, ctypes.c_void_p) for name in ("threshold", "scales")),
        *((name, ctypes.c_void_p) for name in ("contexts", "counts")),
        ("context_count", ctypes.c_int64),
        *((name, ctypes.c_uint64) for name in ("key", "chosen")),
        *((name, ctypes.c_int64) for name in ("taken", "diverged", "columns")),
        ("tally", ctypes.c_double * 2),
        *((name, ctypes.c_int32) for name in ("items", "width", "depth", "heads", "key_dim")),
        *((name, ctypes.c_int32) for name in ("share", "degree", "length", "variant", "stride")),
        *((name, ctypes.c_float) for name in ("sharpness", "temperature")),
    )


_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_FUNCTIONS = {  # of fleet.cpp: arguments, result
    "headcount_levels": ((), _INT),
    "headcount_level_name": ((_INT,), ctypes.c_char_p),
    "headcount_run_size": ((), _INT),
    "headcount_width": ((_INT,), _INT),
    "headcount_bytes": ((_INT, _POINTER), _LONG),
    "headcount_count": ((_POINTER, _POINTER), None),
    "headcount_contexts": ((_INT, _POINTER, _LONG, _POINTER, _POINTER), None),
    "headcount_run": ((_INT, _POINTER, _INT, _LONG, _INT, _POINTER, _LONG, _POINTER), _INT),
}


@cache
def library() -> ctypes.CDLL:
    """The library that CMake built, or an error that says how to get it."""
    if not LIBRARY.exists():
        raise InputError(
            "the native engine was not built; install a C++ compiler (g++ or clang) and reinstall "
            "headcount."
        )
    try:
        return _declared(ctypes.CDLL(str(LIBRARY)))
    except OSError as error:
        raise InputError(
            f"the native engine cannot be loaded ({error}); reinstall headcount."
        ) from error


@cache
def levels() -> tuple[str, ...]:
    """The levels that this machine runs, in the order of the library's table: the last is fastest.

    `plain` is C++ without vector types. `baseline` (SSE2), `avx2` and `avx512` are for x86-64,
    `neon` is for 64-bit ARM.
    """
    count = library().headcount_levels()
    return tuple(library().headcount_level_name(level).decode() for level in range(count))


def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    """The library with the types of its functions, if it was built from these sources."""
    same = all(hasattr(found, name) for name in _FUNCTIONS)
    # A struct of another size would have the kernels write past it.
    if not same or found.headcount_run_size() != ctypes.sizeof(Run):
        raise InputError("the native engine was built from other sources; reinstall headcount.")
    for name, (arguments, result) in _FUNCTIONS.items():
        getattr(found, name).argtypes = arguments
        getattr(found, name).restype = result
    return found


def run_steps(
    level: int,
    runs: ctypes.Array[Run],
    steps: int,
    scratch: Int[Tensor, "threads bytes"],
    held: object,
    stop: ctypes.c_int32 | None = None,
) -> None:
    """Take `steps` steps of every run and evaluate it; an interrupt ends both within a few steps.

    There are as many threads as rows of scratch. `stop` is given by a caller on another thread than
    Python's main thread: who sets it to 1 interrupts the call.
    """
    if stop is not None:
        code = _call(level, runs, steps, scratch, stop)
        if stop.value:
            raise KeyboardInterrupt
    else:
        code = _call_interruptibly(level, runs, steps, scratch, held)
    if code != 0:
        raise MemoryError(
            "the native engine ran out of memory; train fewer or smaller runs at a time"
        )


def _call(
    level: int,
    runs: ctypes.Array[Run],
    steps: int,
    scratch: Int[Tensor, "threads bytes"],
    stop: ctypes.c_int32,
) -> int:
    memory = (len(scratch), scratch.data_ptr(), scratch.shape[1])
    work = (level, runs, len(runs), steps)
    return library().headcount_run(*work, *memory, ctypes.byref(stop))


def _call_interruptibly(
    level: int,
    runs: ctypes.Array[Run],
    steps: int,
    scratch: Int[Tensor, "threads bytes"],
    held: object,
) -> int:
    """The call from a thread of its own.

    Python's main thread handles no signal while it waits for C. The other thread holds `held`, all
    that the runs point at: an interrupt may free the caller's references while the kernels still
    write.
    """
    # Plain locks, each released once, and not `Thread` and `Event`: these hold locks of their own
    # in Python code, and an interrupt there would leave one taken for ever.
    stop, codes, finished = ctypes.c_int32(0), [], []
    begun, ended = _thread.allocate_lock(), _thread.allocate_lock()
    begun.acquire()
    ended.acquire()

    def call(held: object = held) -> None:
        begun.release()
        try:
            codes.append(_call(level, runs, steps, scratch, stop))
        finally:
            finished.append(True)
            ended.release()

    try:
        _thread.start_new_thread(call, ())
        ended.acquire()
    except BaseException:
        stop.value = 1
        # A thread that has not begun by then will find `stop` set.
        if begun.acquire(timeout=0.2) and not finished:
            ended.acquire()
        raise
    return codes[0] if codes else 1
