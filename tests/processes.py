"""Processes of their own, which start at once: a new interpreter takes seconds to import torch.

`forked` is for what is killed, interrupted, or races: a fork of this process. `printed` is for code
that must not find headcount imported: a fork of a server that has imported the libraries alone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import format_exc
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["altair", "pandas", "scipy.stats", "torch", "typer", "vl_convert"])


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

    def kill(self) -> int:
        """Kill it where it has not ended; gives the exit code."""
        self._process.kill()
        self._process.join()
        return self._process.exitcode


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
    """What `forked` takes to run the command line."""
    from headcount.cli import main

    sys.argv = ["headcount", *map(str, words)]
    main()


def printed(code: str, *arguments: object) -> str:
    """What Python code prints in a process that has imported nothing of headcount."""
    ours, theirs = _SERVER.Pipe(duplex=False)
    given = (theirs, code, [str(word) for word in arguments])
    process = _SERVER.Process(target=_code, args=given, daemon=True)
    process.start()
    theirs.close()
    with ours:
        assert ours.poll(600), "the process takes more than ten minutes"
        text, error = ours.recv()
    process.join()
    assert not error, error
    return text


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


def _code(answer: Connection, code: str, arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments]
    assert "headcount" not in sys.modules
    out, error = StringIO(), ""
    try:
        with redirect_stdout(out):
            exec(code, {"__name__": "__main__"})
    except BaseException:
        error = format_exc()
    answer.send((out.getvalue(), error))
