"""`headcount frontier`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import CHARTS, DeviceOption, Json, Quiet, Seed, check_output, emit
from headcount.cli.tables import print_table
from headcount.errors import InputError
from headcount.progress import notice, progress_line

if TYPE_CHECKING:
    import pandas as pd

    from headcount.reproduction.frontier import FrontierPoint

_LINE_EVERY = 5.0  # seconds between plain lines
_COLUMNS = (
    "(m, d_model)",
    "compiled\nD_K",
    "h × d_k",
    "margin",
    "s",
    "trained\nD_K*",
    "con-\nstructed",
    "lower\nbound",
)


def frontier(
    items: Annotated[
        str | None, typer.Option(help="Items m of a grid, as in 64,128.", show_default="64,128")
    ] = None,
    d_model: Annotated[
        str | None, typer.Option(help="Widths of the embeddings in a grid.", show_default="16,32")
    ] = None,
    points: Annotated[
        str | None, typer.Option(help="m x d_model (x r) in place of a grid, as in 64x16,128x32x4.")
    ] = None,
    degree: Annotated[
        str, typer.Option(help="Degrees r; 1 is a permutation, others regular graphs.")
    ] = "1",
    seeds: Annotated[int, typer.Option(min=1, help="Graphs and tables at each point.")] = 1,
    seed: Seed = 0,
    time_limit: Annotated[float, typer.Option(help="Seconds for each.")] = 20.0,
    device: Annotated[DeviceOption, typer.Option(help="Where to search.")] = DeviceOption.auto,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The table (.csv): written row by row.")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Draw it (.png, .svg or .pdf).", show_default=False)
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compile graphs over a grid of sizes: the smallest certified D_K, compared with others.

    The others are the trained D_K*, the smallest exact construction, both as
    shipped with headcount, and the largest lower bound. Rows that --out holds
    are not computed again, so the same command continues after Ctrl-C.

    \b
    Examples:
      headcount frontier
      headcount frontier --points 64x16,128x32 --out frontier.csv --chart frontier.png
      headcount frontier --items 128 --d-model 32 --degree 1,4,16 --time-limit 60
    """
    from headcount.reproduction.frontier import compile_points

    if not time_limit > 0:
        raise InputError(f"--time-limit {time_limit}: leaves no time; choose more than 0")
    asked = _points(items, d_model, points, degree, seeds, seed)
    check_output(out, ".csv")
    check_output(chart, *CHARTS)
    if out is not None and out.exists():
        _tell_known(asked, time_limit, out)
    with progress_line(_LINE_EVERY, quiet) as report:
        rows = compile_points(asked, time_limit, report, out, device.value)
    if chart is not None and len(rows.dropna(subset=["budget"])):
        _draw(rows, chart)
    _show(rows, json, out, chart)
    if len(rows) < len(asked):
        kept = (
            f"; {out} has every row that is finished, and the same command continues from there"
            if out
            else ""
        )
        notice(f"interrupted{kept}")
        sys.exit(130)


def _points(
    items: str | None, d_model: str | None, points: str | None, degree: str, seeds: int, seed: int
) -> list[FrontierPoint]:
    from headcount.reproduction.frontier import frontier_points

    degrees = _numbers("--degree", degree)
    if points is None:
        widths = _numbers("--d-model", d_model or "16,32")
        grid = [(m, d) for m in _numbers("--items", items or "64,128") for d in widths]
        return frontier_points(grid, degrees, seeds, seed)
    if items is not None or d_model is not None:
        raise InputError("--points names the sizes; leave out --items and --d-model")
    found: list[FrontierPoint] = []
    for word in points.split(","):
        m, d, *r = _numbers("--points", word, "x")
        found += frontier_points([(m, d)], r or degrees, seeds, seed)
    return list(dict.fromkeys(found))


def _numbers(option: str, text: str, separator: str = ",") -> list[int]:
    example = "64x16,128x32x4" if separator == "x" else "64,128"
    try:
        numbers = [int(word) for word in text.lower().split(separator)]
    except ValueError:
        numbers = []
    if not numbers or (separator == "x" and len(numbers) not in (2, 3)):
        raise InputError(
            f"{option} {text!r}: not understood; write for instance {option} {example}"
        )
    return numbers


def _tell_known(asked: list[FrontierPoint], time_limit: float, out: Path) -> None:
    """Say how many rows the file already has, and which of them had less time."""
    from headcount.reproduction.frontier_file import KEY, read_frontier

    rows = read_frontier(out).dropna(subset=["budget"])
    known = rows.loc[[key in asked for key in rows[KEY].itertuples(index=False, name=None)]]
    if len(known):
        notice(f"{len(known)} of {len(asked)} rows are in {out}")
    if shorter := int((known["time_limit"] < time_limit).sum()):
        notice(
            f"{shorter} of them had less than {time_limit:g} s; "
            "to search these again choose another --out"
        )


def _draw(rows: pd.DataFrame, path: Path) -> None:
    from headcount.report.chart_files import specification, write_chart
    from headcount.report.figures.frontier import draw_frontier

    write_chart(specification(draw_frontier(rows)), path.with_suffix(""), [path.suffix[1:]])


def _show(table: pd.DataFrame, json: bool, out: Path | None, chart: Path | None) -> None:
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    if json:
        files = {"file": str(out) if out else None, "chart": str(chart) if chart else None}
        emit({"rows": rows, **files}, True)
        return
    if not rows:
        return
    several = len({row["seed"] for row in rows}) > 1
    print_table(
        "random permutations, and regular graphs where r is given, on Gaussian tables",
        _advice(rows),
        (*_COLUMNS, "bits/\nparam"),
        [_cells(row, several) for row in rows],
    )
    if out is None:
        notice("the table is not kept; give --out FILE.csv to keep it and continue from there")


def _cells(row: dict[str, Any], several: bool) -> list[str]:
    point = f"({row['items']:,}, {row['d_model']:,})" + (
        f", r = {row['degree']}" if row["degree"] > 1 else ""
    )
    known = [_whole(row[name]) for name in ("trained", "constructed", "lower_bound")]
    if several:
        point += f", seed {row['seed']}"
    if row["budget"] is None:
        return [point, "none", "–", "–", f"{row['seconds']:.0f}", *known, "–"]
    widths = sorted({int(width) for width in row["widths"].split()})
    split = f"{row['heads']:,} × {widths[0]}" + (f"…{widths[-1]}" if len(widths) > 1 else "")
    found = [f"{row['budget']:,}", split, f"{row['relative_margin']:.2g}", f"{row['seconds']:.0f}"]
    return [point, *found, *known, f"{row['bits_per_parameter']:.2f}"]


def _whole(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _advice(rows: list[dict[str, Any]]) -> str:
    found = [row for row in rows if row["budget"] is not None]
    if not found:
        return "No weights were certified; allow more time with --time-limit."
    best = max(found, key=lambda row: row["bits_per_parameter"])
    shares = [row["budget"] / row["trained"] for row in found if row["trained"] is not None]
    bits = f"{best['bits_per_parameter']:.2f}"
    text = f"Certified weights carry up to {bits} bits per key–query parameter"
    if shares:
        low, high = f"{min(shares):.2f}", f"{max(shares):.2f}"
        text += (
            f" and need {low}" + (f" to {high}" if high != low else "") + " times the trained D_K*"
        )
    return f"{text}."
