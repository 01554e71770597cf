"""Processes that are killed, interrupted, or race: forks of this one, which has torch already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headcount.cli import main


class Forked:
    """A process that is at work, and what it says."""

    def __init__(self, process: Any, out: int, err: int):
        self._process = process
        self.stdout, self.stderr = (
            os.fdopen(out, encoding="utf-8"),
            os.fdopen(err, encoding="utf-8"),
        )

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def end(self, seconds: float = 60.0) -> tuple[int, str, str]:
        """Wait; gives exit code, standard output and standard error, which must fit into a pipe."""
        self._process.join(seconds)
        self.kill()  # if it has not ended
        return self._process.exitcode, self.stdout.read(), self.stderr.read()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@contextmanager
def forked(
    work: Callable[..., Any], *arguments: Any, folder: Path | None = None
) -> Iterator[Forked]:
    """A process that does this work in a folder; it is killed where the block ends."""
    (out, own_out), (err, own_err) = os.pipe(), os.pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_work, args=(own_out, own_err, folder or Path.cwd(), work, arguments)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside pytest-xdist's thread
        process.start()
    os.close(own_out)
    os.close(own_err)
    made = Forked(process, out, err)
    with made.stdout, made.stderr:
        try:
            yield made
        finally:
            made.kill()


def headcount(*words: object) -> None:
    """The command line, as a work."""
    sys.argv = ["headcount", *map(str, words)]
    main()


def _work(
    out: int, err: int, folder: Path, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for end, number in ((out, 1), (err, 2)):
        os.dup2(end, number)
        os.close(end)
    # In place of pytest's own.
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False)
    os.chdir(folder)
    work(*arguments)
