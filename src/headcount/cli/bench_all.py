"""`headcount bench all` and `headcount bench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.bench_compile import brief
from headcount.cli.common import Json, Quiet, check_output, emit, fail
from headcount.errors import InputError
from headcount.progress import progress_line

if TYPE_CHECKING:
    from headcount.bench.comparison import BenchmarkComparison
    from headcount.bench.suite import Benchmark

Engines = Annotated[
    str | None,
    typer.Option(help="Of native, torch and triton, with commas; by default what the device runs."),
]
_KEPT = 12  # changes in the table; the page has all


def all(
    out: Annotated[Path, typer.Option("--out", "-o", help="The .json file to write.")],
    quick: Annotated[
        bool, typer.Option(help="The smallest shape only, and the main one for max.")
    ] = False,
    engines: Engines = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Timed rounds; by default 5, or 2 with --quick.")
    ] = None,
    peers: Annotated[
        bool, typer.Option(help="Time the eager PyTorch loop and JAX as well.")
    ] = True,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time every shape and variant with its peers, and write a file and a page.

    There are six shapes, and seven variants at each: max, softmax, value, sum,
    logsumexp, shared keys (a quarter of the heads) and a table of one's own.
    The file has all rounds, the machine, the versions, the commit and the load;
    the page beside it (.html) draws the ratios by shape and variant.

    The file is written after every case, so that the same command continues
    one that was interrupted. See bench engines for what is timed.

    \b
    Examples:
      headcount bench all --out bench.json
      headcount bench all --quick --out quick.json
    """
    from headcount.bench.engines import ENGINES
    from headcount.bench.suite import bench_all, read_benchmark

    check_output(out, ".json")
    chosen = None if engines is None else chosen_engines(engines, ENGINES)
    try:
        with progress_line(every=10.0, quiet=quiet) as report:
            found = bench_all(
                out, quick=quick, engines=chosen, peers=peers, repeats=repeats, report=report
            )
    except KeyboardInterrupt:
        kept = read_benchmark(out)
        done, total = len(kept.cases), len(kept.values["planned"])
        fail(f"interrupted; {out} has {done} of {total} cases; the same command continues", 130)
    if json:
        emit({**found.values, "file": str(out), "page": str(out.with_suffix(".html"))}, True)
    else:
        _print_all(found, out)


def compare(
    before: Annotated[Path, typer.Argument(help="A file of bench all.")],
    after: Annotated[Path, typer.Argument(help="Another, of the same machine at best.")],
    noise: Annotated[
        float, typer.Option(help="Share by which a median may fall without being called worse.")
    ] = 0.1,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a page (.html) with a chart.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare two files of bench all; the exit code is 1 if a ratio is worse.

    A ratio is worse when its median fell by more than --noise, and every round
    of the second file is below every round of the first.

    \b
    Example:
      headcount bench compare before.json after.json --out compare.html
    """
    from headcount.bench.comparison import compare_benchmarks

    check_output(out, ".html")
    found = compare_benchmarks(before, after, noise=noise)
    if out is not None:
        found.write_page(out)
    if json:
        emit(_summary(found, out), True)
    else:
        _print_comparison(found, out)
    if len(found.regressions):
        raise typer.Exit(1)


def chosen_engines(text: str, known: tuple[str, ...]) -> list[str]:
    """Names of engines between commas."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    for name in chosen:
        if name not in known:
            raise InputError(f"--engines: {name!r} is unknown; use {', '.join(known)}")
    if not chosen:
        raise InputError(f"--engines names none; use {', '.join(known)}")
    return chosen


def _print_all(found: Benchmark, out: Path) -> None:
    from headcount.bench.ratios import TITLES
    from headcount.cli.tables import print_table

    frame: Any = found.ratios
    rows = []
    for name in TITLES:
        own = frame[frame["ratio"] == name]
        if len(own):
            worst = own.loc[own["value"].idxmin()]
            place = f"{worst['variant']} ({worst['items']}, {worst['d_model']})"
            goal = own["target"].dropna()
            rows.append(
                [
                    TITLES[name],
                    *(brief(value) for value in (own["value"].min(), own["value"].median())),
                    brief(goal.iloc[0] if len(goal) else None),
                    place,
                ]
            )
    print_table(
        f"{len(found.cases)} cases on {found.values['machine']}",
        f"ratios by shape and variant: {out.with_suffix('.html')}",
        ["ratio", "lowest", "median", "target", "lowest at"],
        rows,
    )


def _summary(found: BenchmarkComparison, out: Path | None) -> dict[str, Any]:
    return {
        "noise": found.noise,
        "worse": len(found.regressions),
        "better": len(found.improvements),
        "notes": found.notes,
        "changes": found.changes.to_dict("records"),
        "page": None if out is None else str(out),
    }


def _print_comparison(found: BenchmarkComparison, out: Path | None) -> None:
    from headcount.bench.ratios import TITLES
    from headcount.cli.tables import print_table

    changes: Any = found.changes
    shown = changes.loc[changes["change"].abs().sort_values(ascending=False).index].head(_KEPT)
    worse, better = len(found.regressions), len(found.improvements)
    answer = (
        f"{worse} are worse and {better} better, by more than {found.noise:.0%} and in all rounds"
    )
    print_table(
        f"{len(changes)} ratios in both files; the largest changes",
        answer + (f"; see {out}" if out else ""),
        ["ratio", "variant", "m", "d", "h", "D_K", "before", "after", "change", ""],
        [
            [
                TITLES[row.ratio],
                row.variant,
                *(str(size) for size in (row.items, row.d_model, row.heads, row.budget)),
                brief(row.before),
                brief(row.after),
                f"{row.change:+.0%}",
                row.verdict,
            ]
            for row in shown.itertuples(index=False)
        ],
        [("note", note) for note in found.notes],
    )
