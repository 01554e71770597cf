"""`headcount bench compile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import DeviceOption, Json, Quiet, emit
from headcount.errors import InputError
from headcount.progress import progress_line

if TYPE_CHECKING:
    from headcount.bench.compile import CompilePoint


def compile(
    against: Annotated[
        Path | None,
        typer.Option(help="The src folder of another release's checkout.", show_default=False),
    ] = None,
    points: Annotated[
        str | None,
        typer.Option(
            help="m x d_model x D_K (x r), as in 64x16x12,128x32x24x4.",
            show_default="the table of docs/compiler.md",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Graphs and tables at each point.")] = 5,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 20,
    time_limit: Annotated[float, typer.Option(help="Seconds for each.")] = 120.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each process.")] = 1,
    device: Annotated[DeviceOption, typer.Option(help="Where to compile.")] = DeviceOption.cpu,
    bits: Annotated[
        int | None, typer.Option(help="Round the weights to b bits, 2…8.", show_default="none")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time `compile` at given budgets, and another release in turns with it.

    Each release compiles in a process of its own; every result is
    checked in float64, apart from its certificate. Ratios above 1 mean that this
    release is faster. CPU seconds suffer less from other work on the machine.

    \b
    Examples:
      headcount bench compile --points 64x16x12,256x32x24 --seeds 3
      headcount bench compile --points 256x32x36 --bits 4
      headcount bench compile --against ../headcount-0.1.0/src --json
      headcount bench compile --points 50257x768x768 --seeds 1 --device cuda
    """
    from headcount.bench.compile import POINTS, compile_speed

    if not time_limit > 0:
        raise InputError(f"--time-limit {time_limit}: leaves no time; choose more than 0")
    with progress_line(quiet=quiet) as report:
        rows = compile_speed(
            POINTS if points is None else _compile_points(points),
            against=against,
            seeds=range(first_seed, first_seed + seeds),
            time_limit=time_limit,
            threads=threads,
            device=device,
            bits=bits,
            report=report,
        )
    if json:
        emit({"rows": rows}, True)
    else:
        _print_compile(rows)


def _compile_points(text: str) -> list[CompilePoint]:
    from headcount.bench.compile import CompilePoint

    try:
        found = [[int(word) for word in point.lower().split("x")] for point in text.split(",")]
    except ValueError:
        found = [[]]
    if not all(len(point) in (3, 4) and min(point) > 0 for point in found):
        raise InputError(f"--points {text!r}: not understood; write for instance 64x16x12")
    return [CompilePoint(*point) for point in found]


def _print_compile(rows: list[dict[str, Any]]) -> None:
    from headcount.cli.tables import print_table

    compared = "ratio" in rows[0]
    print_table(
        f"medians of {rows[0]['seeds']} seeds; exact: how many were solved",
        "seconds of the whole call, wall and CPU; the other release in the same run",
        ["(m, d_model)", "D_K", "exact", "s", "CPU s", "slowest"]
        + (["other\nexact", "other\ns", "other\nCPU s", "ratio", "CPU\nratio"] if compared else []),
        [_compile_cells(row, compared) for row in rows],
    )


def _compile_cells(row: dict[str, Any], compared: bool) -> list[str]:
    point = f"({row['items']}, {row['d_model']})"
    if row["degree"] > 1:
        point += f", r = {row['degree']}"
    cells = [point, str(row["budget"])]
    for name, times in (
        ("ours", ("seconds", "cpu_seconds", "slowest")),
        ("other", ("seconds", "cpu_seconds")),
    ):
        if name == "ours" or compared:
            cells += [str(row[f"{name}_exact"]), *(brief(row[f"{name}_{one}"]) for one in times)]
    return cells + ([brief(row["ratio"]), brief(row["cpu_ratio"])] if compared else [])


def brief(value: float | None) -> str:
    """Three digits, or all those before the decimal point.

    >>> brief(0.05512), brief(7.1), brief(20000.0), brief(None)
    ('0.0551', '7.1', '20,000', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
