"""Processes of their own that start at once: forked from one that has imported the libraries.

A new interpreter takes two seconds of processor time to import torch and pandas. One process does
that here, when the first test asks, and is forked for each.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from traceback import format_exc
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.preloaded"])
ERRORS = "stderr.txt"  # in the folder of a command


def started(folder: Path, *words: object, changed: dict[str, Any] | None = None) -> BaseProcess:
    """A `headcount` command that runs in a folder and leaves its standard error there.

    `changed` gives names of modules other values: `{"headcount.sweeps.writer.BEAT": 0.1}`.
    """
    arguments = (folder, [str(word) for word in words], changed or {})
    process = _SERVER.Process(target=_command, args=arguments, daemon=True)
    process.start()
    return process


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


def _command(folder: Path, words: list[str], changed: dict[str, Any]) -> None:
    os.chdir(folder)
    for stream, name in ((1, os.devnull), (2, ERRORS)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, value in changed.items():
        module, _, last = name.rpartition(".")
        setattr(import_module(module), last, value)
    sys.argv = ["headcount", *words]
    from headcount.cli import main

    main()


def _code(answer: Connection, code: str, arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments]
    for name in [name for name in sys.modules if name.partition(".")[0] == "headcount"]:
        del sys.modules[name]
    out, error = StringIO(), ""
    try:
        with redirect_stdout(out):
            exec(code, {"__name__": "__main__"})
    except BaseException:
        error = format_exc()
    answer.send((out.getvalue(), error))
