"""Run the code blocks of a document, and compare what they print with what it shows.

Blocks marked `python` or `bash` run in order, in one folder. The Python blocks of a document share
their names, as the cells of a notebook do. A `text` block right below is what the block prints;
`...` in it stands for anything.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from io import StringIO
from pathlib import Path

CommandIn = Callable[..., tuple[int, str, str]]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A code block, and what the document says that it prints."""

    language: str
    code: str
    shown: str
    line: int


def blocks(text: str) -> list[Block]:
    return [
        Block(found[1], found[2], found[3] or "", text.count("\n", 0, found.start()) + 1)
        for found in BLOCK.finditer(text)
    ]


def run_document(path: Path, command_in: CommandIn, instead: Mapping[str, str] = {}) -> None:
    """Run the blocks of a document in the current folder, and check what they print.

    Words of Python blocks are replaced by what is there to run `instead`.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        place = f"{path.name}, line {block.line}"
        if block.language == "python":
            out, code = StringIO(), block.code
            for words, others in instead.items():
                code = code.replace(words, others)
            with redirect_stdout(out):
                exec(compile(code, place, "exec"), names)
            printed = out.getvalue()
        else:
            printed = _shell(block.code, command_in, place)
        if block.shown:
            checker, flags = OutputChecker(), ELLIPSIS | NORMALIZE_WHITESPACE
            assert checker.check_output(block.shown, printed, flags), f"{place} prints:\n{printed}"


def _shell(code: str, command_in: CommandIn, place: str) -> str:
    """What a block of commands prints. Those of headcount run here: a process costs seconds."""
    lines = list(_commands(code))
    if any(words[0] != "headcount" for words in lines) or "<<" in code:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", code],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{place}: {done.stdout}\n{done.stderr}"
        return done.stdout
    printed = ""
    for words in lines:
        code_of_end, out, err = command_in(Path.cwd(), *words[1:])
        assert code_of_end == 0, f"{place}: {shlex.join(words)}\n{out}\n{err}"
        printed += out
    return printed


def _commands(code: str) -> Iterator[list[str]]:
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def unknown_words(words: Sequence[str]) -> list[str]:
    """Of the words after `headcount`: a command or options that it does not have."""
    from headcount.cli.app import commands

    command = commands()
    rest = list(words)
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return rest[:1]
        command = command.commands[rest.pop(0)]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    given = [word.partition("=")[0].rstrip(".,;:)") for word in rest if word.startswith("-")]
    return [word for word in given if word not in known | {"--help", "-h"}]
