"""What the commands share: options, and how results and errors are printed."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from headcount.cli.streams import prints_unicode
from headcount.errors import InputError
from headcount.files import LOOP, is_link_loop
from headcount.progress import UNSEEN, in_one_line, notice, printable

if TYPE_CHECKING:
    from headcount.training.engines.base import Engine

TABLE_HELP = "Embedding table (.npy, .npz, .safetensors, .csv, .tsv, .parquet or .pt)."
CHARTS = (".png", ".svg", ".pdf")  # what a chart is written as

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The file to write.")]
WeightsFile = Annotated[Path, typer.Argument(help="Weights (.safetensors) that headcount wrote.")]
GraphFile = Annotated[
    Path, typer.Argument(help="Edge list (.csv or .tsv) of ids or names; header source,target.")
]
TableFile = Annotated[Path, typer.Argument(help=TABLE_HELP)]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress; warnings and errors remain.")
]
TableKey = Annotated[
    str | None, typer.Option("--key", help="Name of the table in a file that holds several.")
]


class EngineOption(StrEnum):
    auto = "auto"
    torch = "torch"
    native = "native"
    triton = "triton"


class DeviceOption(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class DecideOption(StrEnum):
    """What tells edges: a score above τ, or the top of a row."""

    threshold = "threshold"
    top = "top"


def emit(result: Mapping[str, Any], as_json: bool, title: str = "") -> None:
    """Print a result: one JSON object, or aligned `name value` lines under a title."""
    if as_json:
        _print_json(result)
        return
    if title:
        print(printable(title))
    width = max(len(name) for name in result) + 2
    for name, value in result.items():
        print(f"  {in_one_line(name).replace('_', ' '):<{width}}{in_one_line(_readable(value))}")


def fail(text: str, code: int = 2) -> NoReturn:
    """Print one sentence and end with `code`; with --json, standard output has it as JSON."""
    if "--json" in sys.argv[1:]:
        _print_json({"error": text})
    notice(f"error: {text}")
    sys.exit(code)


def _print_json(result: Mapping[str, Any]) -> None:
    # One write with its line end: commands that share an unbuffered stream do not mix their lines.
    text = json.dumps(_plain(result), ensure_ascii=not prints_unicode())
    # JSON allows in texts what terminals take for commands; its codes say the same.
    print(UNSEEN.sub(_json_code, text) + "\n", end="")


def _json_code(found: re.Match[str]) -> str:
    """The character as JSON writes it in ASCII: `\\u` and four digits, or two such halves."""
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


def check_output(path: Path | None, *suffixes: str) -> None:
    """Refuse a file that cannot be written, before the work that it is for."""
    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        known = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise InputError(f"{path}: this is written as {known}; give the file that suffix")
    if is_link_loop(path):
        raise InputError(f"{path}: {LOOP}; choose another path")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"{path}: its folder does not exist; make it or choose another path")
    if not os.access(folder, os.W_OK):
        raise InputError(f"{path}: its folder cannot be written to; choose another path")


def _readable(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return ", ".join(_readable(item) for item in value)
        case _:
            return str(value)


def _plain(value: Any) -> Any:
    """Numbers JSON can hold: an infinite or undefined one becomes null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def chosen_engine(name: Any) -> Engine:
    """The engine; that a faster one is missing is a line for the user, not a Python warning."""
    from headcount.training.engines.selection import SlowerEngine, choose_engine

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SlowerEngine)
        chosen = choose_engine(name)
    for warning in caught:
        notice(str(warning.message))
    return chosen
