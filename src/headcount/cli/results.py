"""`headcount results list`, `chart` and `export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import CHARTS, Json, Out, check_output, emit
from headcount.cli.help import App
from headcount.cli.run_lines import aligned, cell, run_lines, with_paths
from headcount.errors import InputError, NoSolution
from headcount.progress import notice

if TYPE_CHECKING:
    from headcount.store.runs import Filter
    from headcount.store.store import Store

app = App("Look at a results store, chart it and export it.")


def _numbers(symbol: str) -> Any:
    return typer.Option(help=f"{symbol}: 64, or 64,128, or 10:40.", show_default=False)


VARIANTS = ("max", "softmax", "value", "sum", "logsumexp", "block")
StorePath = Annotated[Path, typer.Argument(help="The results store (.sqlite).", show_default=False)]
Variant = Annotated[
    str | None,
    typer.Option(
        metavar=f"<{'|'.join(VARIANTS)}>", help="One, or several: max,sum.", show_default=False
    ),
]
Degree = Annotated[str | None, _numbers("r")]
Items = Annotated[str | None, _numbers("m")]
DModel = Annotated[str | None, _numbers("d_model")]
Heads = Annotated[str | None, _numbers("h")]
KeyDim = Annotated[str | None, _numbers("d_k")]
Budget = Annotated[str | None, _numbers("D_K")]
RunSeed = Annotated[str | None, _numbers("The run's seed")]
KvHeads = Annotated[str | None, _numbers("g, shared keys (0: each head its own)")]
GraphName = Annotated[
    str | None,
    typer.Option(
        "--graph",
        help="regular, random, skewed, a file or the first digits of a hash; or several.",
        show_default=False,
    ),
]
TableName = Annotated[
    str | None,
    typer.Option(
        "--table",
        help="gaussian, binary, a file or the first digits of a hash; or several.",
        show_default=False,
    ),
]


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
    graph: GraphName = None,
    table: TableName = None,
    kv_heads: KvHeads = None,
    by: Annotated[
        str | None, typer.Option(help="Means over groups, for example heads,key_dim.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows shown; 0 shows all.")] = 20,
    json: Json = False,
) -> None:
    """Show finished runs and their test metric.

    The metric is micro-F1, the mean squared error of variant value, or the accuracy of variant
    block (headcount block).

    Exit code 1: no run passes the filters.

    \b
    Examples:
      headcount results list results.sqlite --items 64,128 --budget 10:40
      headcount results list results.sqlite --items 64 --by heads,key_dim
    """
    from headcount.store.store import Store

    numbers = (degree, items, d_model, heads, key_dim, budget, seed)
    filters = _filters(variant, *numbers, graph=graph, table=table, kv_heads=kv_heads)
    with Store(store, read_only=True) as opened:
        if by:
            from headcount.store.frames import plain_rows

            means = opened.means(by.replace("-", "_").split(","), **filters)
            total, shown = len(means), plain_rows(means.head(limit or len(means)))
        else:
            total, shown = opened.count(**filters), opened.rows(limit or None, **filters)
        nothing = "" if total else _nothing(opened)
        shown = shown if json else with_paths(opened, shown)
    if json:
        emit({"file": str(store), "total": total, "rows": shown}, True)
    if nothing:
        notice(nothing)
        sys.exit(1)
    if json:
        return
    what = "group" if by else "run"
    print(
        f"{total:,} {what}{'' if total == 1 else 's'}"
        + (f", the first {len(shown)}" * (len(shown) < total))
    )
    if by:
        print(aligned([tuple(shown[0]), *([cell(value) for value in r.values()] for r in shown)]))
    else:
        print(run_lines(shown))


@app.command("chart")
def chart_runs(
    store: StorePath,
    out: Annotated[Path, typer.Option("--out", "-o", help="The chart (.png, .svg or .pdf).")],
    title: Annotated[
        str, typer.Option(help="What stands above it.", show_default="metric and store")
    ] = "",
    variant: Variant = None,
    degree: Degree = None,
    items: Items = None,
    d_model: DModel = None,
    heads: Heads = None,
    key_dim: KeyDim = None,
    budget: Budget = None,
    seed: RunSeed = None,
    graph: GraphName = None,
    table: TableName = None,
    kv_heads: KvHeads = None,
    json: Json = False,
) -> None:
    """Draw the test metric against D_K: one panel per point, one line per head count.

    Lines are means over seeds with 95 % intervals. Where the metric is F1, the
    level 0.99 and the D_K* of each panel are marked. In Python: hc.curve_chart.

    \b
    Examples:
      headcount results chart sweep.sqlite --out sweep.png
      headcount results chart sweep.sqlite --items 64 --heads 1,4 --out sweep.svg
      headcount results chart own.sqlite --graph antonyms.csv --out own.svg
    """
    from headcount.report.curve_chart import curve_chart
    from headcount.store.store import Store

    check_output(out, *CHARTS)
    numbers = (degree, items, d_model, heads, key_dim, budget, seed)
    filters = _filters(variant, *numbers, graph=graph, table=table, kv_heads=kv_heads)
    with Store(store, read_only=True) as opened:
        runs = opened.count(**filters)
        if not runs:
            raise NoSolution(_nothing(opened))
        curve_chart(opened, out, title=title, **filters)
    emit({"file": str(out), "runs": runs}, json, "drawn")


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
    graph: GraphName = None,
    table: TableName = None,
    kv_heads: KvHeads = None,
    json: Json = False,
) -> None:
    """Write runs to a file for other programs, with their specs and histories.

    Every bit of every number is kept.

    \b
    Example:
      headcount results export results.sqlite --out runs.csv --items 64
    """
    from headcount.store.store import Store

    numbers = (degree, items, d_model, heads, key_dim, budget, seed)
    filters = _filters(variant, *numbers, graph=graph, table=table, kv_heads=kv_heads)
    with Store(store, read_only=True) as opened:
        if not opened.count(**filters):
            raise NoSolution(_nothing(opened))
        written = opened.export(out, format.value if format else None, **filters)
    emit({"file": str(out), "runs": written}, json, "exported")


def _nothing(opened: Store) -> str:
    """Why a list is empty, and what there is."""
    if not len(opened):
        return f"{opened.path}: holds no finished runs yet; train some with headcount sweep"
    frame = opened.frame()
    there = [
        f"{symbol} {_few(sorted(set(frame[name])))}"
        for symbol, name in (("variant", "variant"), ("m", "items"), ("d_model", "d_model"))
    ]
    return (
        f"{opened.path}: no run passes these filters; its {len(opened):,} runs have "
        f"{', '.join(there)}: change or leave out a filter"
    )


def _few(values: Sequence[Any]) -> str:
    """Up to six values; of more, the ends."""
    return "/".join(map(str, values)) if len(values) <= 6 else f"{values[0]} … {values[-1]}"


def _filters(
    variant: str | None,
    *numbers: str | None,
    graph: str | None,
    table: str | None,
    kv_heads: str | None,
) -> dict[str, Filter]:
    names = ("degree", "items", "d_model", "heads", "key_dim", "budget", "seed")
    variants = None if variant is None else [name.strip() for name in variant.split(",")]
    for name in variants or ():
        if name not in VARIANTS:
            raise InputError(f"--variant {name!r} is not known; use {', '.join(VARIANTS)}")
    filters: dict[str, Filter] = {
        "variant": variants,
        "graph": [name.strip() for name in graph.split(",")] if graph else None,
        "table": [name.strip() for name in table.split(",")] if table else None,
        "kv_heads": parse_numbers("kv_heads", kv_heads),
    }
    return filters | {
        name: parse_numbers(name, text) for name, text in zip(names, numbers, strict=True)
    }


def parse_numbers(name: str, text: str | None) -> list[int] | range | None:
    """A filter as it is typed: numbers with commas, or a range whose ends may be left out.

    >>> parse_numbers("items", "64,128"), parse_numbers("budget", "10:40")
    ([64, 128], range(10, 41))
    >>> parse_numbers("heads", ":8")
    range(0, 9)
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
