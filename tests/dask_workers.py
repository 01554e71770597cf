"""Schedulers and workers of dask, forked from a process that has imported what they need."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def dask(kind: str, *words: object) -> Iterator[Any]:
    """A scheduler or a worker as a process of its own, ended with -9."""
    process = multiprocessing.get_context("forkserver").Process(
        target=_dask, args=(kind, [*map(str, words), "--no-dashboard"])
    )
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _dask(kind: str, words: list[str]) -> None:
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    import_module(f"distributed.cli.dask_{kind}").main(words)


def workers_of(process: int) -> list[int]:
    """Process numbers of the dask workers below a process."""
    import psutil

    found = list[int]()
    for child in psutil.Process(process).children(recursive=True):
        words = " ".join(child.cmdline())
        server = "forkserver" in words and child.ppid() == process
        if not server and ("spawn_main" in words or "forkserver" in words):
            found.append(child.pid)
    return found
