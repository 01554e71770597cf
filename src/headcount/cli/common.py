"""What the commands share: options, and how results and errors are printed."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from headcount.progress import notice

if TYPE_CHECKING:
    from headcount.training.engines.base import Engine

TABLE_HELP = "Embedding table (.npy, .npz, .safetensors, .csv, .tsv, .parquet or .pt)."

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The file to write.")]
WeightsFile = Annotated[Path, typer.Argument(help="Weights (.safetensors) that headcount wrote.")]
GraphFile = Annotated[
    Path, typer.Argument(help="Edge list (.csv or .tsv) of ids or names; header source,target.")
]
TableFile = Annotated[Path, typer.Argument(help=TABLE_HELP)]
TableKey = Annotated[
    str | None, typer.Option("--key", help="Name of the table in a file that holds several.")
]


class EngineOption(StrEnum):
    auto = "auto"
    torch = "torch"
    native = "native"
    triton = "triton"


def emit(result: Mapping[str, Any], as_json: bool, title: str = "") -> None:
    """Print a result: one JSON object, or aligned `name value` lines under a title."""
    if as_json:
        typer.echo(json.dumps(_plain(result), ensure_ascii=False))
        return
    if title:
        typer.echo(title)
    width = max(len(name) for name in result) + 2
    for name, value in result.items():
        typer.echo(f"  {name.replace('_', ' '):<{width}}{_readable(value)}")


def fail(text: str, code: int = 2) -> NoReturn:
    """Print one sentence and end with `code`."""
    notice(f"error: {text}")
    sys.exit(code)


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
