"""`headcount results list` and `headcount results export`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import Json, Out, emit
from headcount.errors import InputError

if TYPE_CHECKING:
    from headcount.store.database import Database
    from headcount.store.runs import Filter

app = typer.Typer(help="Look at a results store and export it.", no_args_is_help=True)


def _numbers(symbol: str) -> Any:
    return typer.Option(help=f"{symbol}: 64, or 64,128, or 10:40.", show_default=False)


StorePath = Annotated[Path, typer.Argument(help="The results store (.sqlite).", show_default=False)]
Variant = Annotated[
    str | None,
    typer.Option(help="max, softmax, value, sum, or several: max,sum.", show_default=False),
]
Degree = Annotated[str | None, _numbers("r")]
Items = Annotated[str | None, _numbers("m")]
DModel = Annotated[str | None, _numbers("d_model")]
Heads = Annotated[str | None, _numbers("h")]
KeyDim = Annotated[str | None, _numbers("d_k")]
Budget = Annotated[str | None, _numbers("D_K")]
RunSeed = Annotated[str | None, _numbers("The run's seed")]

RUN_COLUMNS = (
    "variant",
    "r",
    "m",
    "d_model",
    "h",
    "d_k",
    "D_K",
    "seed",
    "steps",
    "value",
    "seconds",
    "engine",
)
_GROUPS = (
    "variant",
    "degree",
    "items",
    "d_model",
    "heads",
    "key_dim",
    "budget",
    "seed",
    "engine",
    "device",
)


class Format(StrEnum):
    parquet = "parquet"
    csv = "csv"
    jsonl = "jsonl"


@app.command("list")
def list_runs(
    store: StorePath,
    variant: Variant = None,
    degree: Degree = None,
    items: Items = None,
    d_model: DModel = None,
    heads: Heads = None,
    key_dim: KeyDim = None,
    budget: Budget = None,
    seed: RunSeed = None,
    by: Annotated[
        str | None, typer.Option(help="Means over groups, for example heads,key_dim.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows shown; 0 shows all.")] = 20,
    json: Json = False,
) -> None:
    """Show finished runs: the test metric is micro-F1, or the mean squared error of variant value.

    \b
    Examples:
      headcount results list results.sqlite --items 64,128 --budget 10:40
      headcount results list results.sqlite --items 64 --by heads,key_dim
    """
    filters = _filters(variant, degree, items, d_model, heads, key_dim, budget, seed)
    with opened(store) as database:
        total, rows = (
            _means(database, filters, by) if by else _runs(database, filters, limit or None)
        )
    shown = rows[: limit or None]
    if json:
        emit({"file": str(store), "total": total, "rows": shown}, True)
        return
    what = "group" if by else "run"
    typer.echo(
        f"{total:,} {what}{'' if total == 1 else 's'}"
        + (f", the first {len(shown)}" * (len(shown) < total))
    )
    if shown:
        names = RUN_COLUMNS if not by else tuple(shown[0])
        cells = [[cell(value) for value in row.values()] if by else run_cells(row) for row in shown]
        typer.echo(aligned([names, *cells]))


@app.command("export")
def export_runs(
    store: StorePath,
    out: Out,
    format: Annotated[Format | None, typer.Option(show_default="by the suffix of --out")] = None,
    variant: Variant = None,
    degree: Degree = None,
    items: Items = None,
    d_model: DModel = None,
    heads: Heads = None,
    key_dim: KeyDim = None,
    budget: Budget = None,
    seed: RunSeed = None,
    json: Json = False,
) -> None:
    """Write runs to a file for other programs, with their specs, histories and every bit of their numbers.

    \b
    Example:
      headcount results export results.sqlite --out runs.csv --items 64
    """
    from headcount.store.export import export

    filters = _filters(variant, degree, items, d_model, heads, key_dim, budget, seed)
    with opened(store) as database:
        written = export(database, out, format.value if format else None, filters)
    emit({"file": str(out), "runs": written}, json, "exported")


@contextmanager
def opened(store: Path) -> Iterator[Database]:
    """The store, for reading alone."""
    from headcount.store.database import Database

    with closing(Database(store, read_only=True)) as database:
        yield database


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns under their names, numbers to the right; never cut, so that pipes get all of it.

    >>> print(aligned([("name", "runs"), ("base", "7"), ("softmax", "12")]))
    name     runs
    base        7
    softmax    12
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def run_cells(row: dict[str, Any]) -> list[str]:
    """A run in the columns RUN_COLUMNS."""
    value = f"lost at {row['diverged']:,}" if row["diverged"] is not None else cell(row["value"])
    names = ("variant", "degree", "items", "d_model", "heads", "key_dim", "budget", "seed", "steps")
    return [*(str(row[name]) for name in names), value, f"{row['seconds'] or 0:.3g}", row["engine"]]


def cell(value: Any) -> str:
    """A value in a table."""
    if value is None:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _runs(
    database: Database, filters: dict[str, Filter], limit: int | None
) -> tuple[int, list[dict[str, Any]]]:
    from headcount.store.runs import SCALARS, count, rows

    found = [{name: row[name] for name in SCALARS} for row in rows(database, filters, limit)]
    return count(database, filters), found


def _means(
    database: Database, filters: dict[str, Filter], by: str
) -> tuple[int, list[dict[str, Any]]]:
    """Runs, mean, least and greatest value of each group; a run that diverged counts as a run and has no value."""
    from headcount.store.runs import frame

    groups = by.replace("-", "_").split(",")
    for name in groups:
        if name not in _GROUPS:
            raise InputError(f"--by {name!r} is no column to group by; use {', '.join(_GROUPS)}")
    table = frame(database, filters).groupby(groups, as_index=False)
    found = table.agg(
        runs=("hash", "size"),
        diverged=("diverged", "count"),
        mean=("value", "mean"),
        least=("value", "min"),
        greatest=("value", "max"),
    )
    return len(found), [
        {str(name): _bare(value) for name, value in row.items()} for row in found.to_dict("records")
    ]


def _bare(value: Any) -> Any:
    """Python's own number: None for what is no number."""
    value = value.item() if hasattr(value, "item") else value
    return None if value != value else value


def _filters(variant: str | None, *numbers: str | None) -> dict[str, Filter]:
    names = ("degree", "items", "d_model", "heads", "key_dim", "budget", "seed")
    filters: dict[str, Filter] = {"variant": variant.split(",") if variant else None}
    return filters | {
        name: parse_numbers(name, text) for name, text in zip(names, numbers, strict=True)
    }


def parse_numbers(name: str, text: str | None) -> list[int] | range | None:
    """A filter as it is typed: numbers with commas, or a range with both ends, each of which may be left out.

    >>> parse_numbers("items", "64,128"), parse_numbers("budget", "10:40"), parse_numbers("heads", ":8")
    ([64, 128], range(10, 41), range(0, 9))
    """
    if text is None:
        return None
    try:
        if ":" not in text:
            return [int(part) for part in text.split(",")]
        low, high = text.split(":")
        return range(int(low or 0), min(int(high) + 1 if high else 2**63, 2**63))
    except ValueError:
        option = "--" + name.replace("_", "-")
        raise InputError(
            f"{option} {text!r} cannot be read; write 64, or 64,128, or a range 10:40"
        ) from None
