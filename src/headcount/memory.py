"""How much memory is free, so that what does not fit is refused before it is allocated.

Linux grants more memory than there is and kills a process that uses it: nothing is reported then.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from headcount.errors import InputError

_GROUP = Path("/sys/fs/cgroup")  # where a container finds its own limits


def require_memory(size: float, what: str) -> None:
    """Refuse work that takes so many bytes, if they are not there.

    >>> require_memory(2.0**60, "a table of 2⁵⁷ numbers")
    Traceback (most recent call last):
    headcount.errors.InputError: a table of 2⁵⁷ numbers takes about 1,073,741,824.0 GiB of ...
    """
    free = free_memory()
    if size > free:
        raise InputError(
            f"{what} takes about {size / 2**30:,.1f} GiB of memory, and {free / 2**30:,.1f} GiB "
            "are free; choose smaller sizes or a larger machine"
        )


def free_memory() -> float:
    """Bytes that this process may still take: of the machine, its container and its own limit."""
    return min(_of_machine(), _of_group(), _of_process())


def _of_machine() -> float:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    return float("inf")


def _of_group() -> float:
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            # A limit of "max" is not a number. Files that were read count as used, but give way.
            stat = (_GROUP / limit).with_name("memory.stat").read_text().split()
            cached = int(stat[stat.index("inactive_file") + 1])
            return int((_GROUP / limit).read_text()) - int((_GROUP / used).read_text()) + cached
    return float("inf")


def _of_process() -> float:
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return float("inf")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    with suppress(OSError, ValueError):
        return limit - resource.getpagesize() * int(Path("/proc/self/statm").read_text().split()[0])
    return float(limit)


def peak_memory() -> float:
    """The most bytes that this process has held at once; NaN on Windows."""
    try:
        import resource
    except ModuleNotFoundError:
        return float("nan")
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
