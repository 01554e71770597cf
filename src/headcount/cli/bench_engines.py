"""`headcount bench engines`: the training engines against each other, their peers and the machine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from headcount.cli.common import Json, emit
from headcount.errors import InputError
from headcount.progress import progress_line


class Shapes(StrEnum):
    main = "main"
    all = "all"


def engines(
    engines: Annotated[
        str | None,
        typer.Option(
            help="Of native, torch and triton, with commas; by default what the device runs."
        ),
    ] = None,
    shapes: Annotated[
        Shapes, typer.Option(help="main is (m, d_model, h, D_K) = (256, 32, 8, 64).")
    ] = Shapes.main,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds; the median counts.")] = 5,
    peers: Annotated[
        bool, typer.Option(help="Time the eager PyTorch loop and JAX as well.")
    ] = True,
    json: Json = False,
) -> None:
    """Time the training engines in µs per run-step, and their peers in the same run.

    All take turns: one untimed round, then --repeats timed ones. Engines are
    timed as train drives them: 500 steps with the drawing of their contexts,
    then the check on 500 validation contexts.

    The peers get less to do. eager is one run as a researcher would write it
    (nn.Module, autograd, torch.optim.AdamW); jax is vmap over runs and scan
    over steps, jitted, with float32 products in full precision, on one core
    or on the CUDA device. Both have their contexts predrawn and do no check.

    Runs at a time: 80 on a core at the main shape, fewer at larger ones; 560
    on a CUDA device, and 4,000 at the main shape.

    matmul is the machine's own float32 rate: bare square products on one
    thread, or on the CUDA device without TF32. gflops counts projections,
    scores and their gradients at ℓ = 16; Adam's work is not counted.

    \b
    Examples:
      headcount bench engines
      headcount bench engines --engines native --shapes all --no-peers --json
    """
    from headcount.bench import engines as compare
    from headcount.bench.shapes import MAIN, SHAPES
    from headcount.provenance import cores, machine, versions

    chosen = _chosen(engines, compare.ENGINES) if engines is not None else compare.default_engines()
    rows: list[dict[str, Any]] = []
    with progress_line() as report:
        for shape in SHAPES if shapes is Shapes.all else (MAIN,):
            rows += compare.compare(compare.lineup(shape, chosen, peers), repeats, report)
    places = list(dict.fromkeys(_shape(row) for row in rows))
    by_shape = {
        place: compare.ratios([row for row in rows if _shape(row) == place]) for place in places
    }
    result = {
        "machine": machine(),
        "cores": cores(),
        "versions": versions(),
        "repeats": repeats,
        "rows": rows,
        "ratios": by_shape[MAIN],
        "ratios_by_shape": [
            {
                **dict(zip(MAIN._fields, place, strict=True)),
                **{name: ratio["value"] for name, ratio in found.items()},
            }
            for place, found in by_shape.items()
        ],
    }
    if json:
        emit(result, True)
    else:
        _print(result)


def _chosen(text: str, known: tuple[str, ...]) -> list[str]:
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    for name in chosen:
        if name not in known:
            raise InputError(f"--engines: {name!r} is unknown; use {', '.join(known)}")
    if not chosen:
        raise InputError(f"--engines names none; use {', '.join(known)}")
    return chosen


def _shape(row: dict[str, Any]) -> tuple[int, int, int, int]:
    return row["items"], row["d_model"], row["heads"], row["budget"]


def _print(result: dict[str, Any]) -> None:
    from headcount.cli.tables import print_table

    missing = {row["engine"]: row["missing"] for row in result["rows"] if row["missing"]}
    print_table(
        f"{result['machine']}, {result['cores']} cores; medians of {result['repeats']} rounds",
        "µs per run-step; check and draw are the shares of it that validation and the drawing of contexts take",
        ["engine", "m", "d", "h", "D_K", "runs", "µs", "GFLOP/s", "check", "draw"],
        [_cells(row) for row in result["rows"]],
        list(missing.items()),
    )
    typer.echo("ratios at (m, d_model, h, D_K) = (256, 32, 8, 64)")
    for name, ratio in result["ratios"].items():
        goal = f"  (target {_short(ratio['target'])})" if ratio["target"] else ""
        typer.echo(f"  {name.replace('_', ' '):<24}{_short(ratio['value']):>8}{goal}")


def _cells(row: dict[str, Any]) -> list[str]:
    from headcount.bench.engines import named

    return [
        named(row["engine"], row["device"], row["threads"]),
        *(str(part) for part in _shape(row)),
        _short(row["runs"]),
        _short(row["us_per_run_step"]),
        _short(row["gflops"]),
        *(
            "–" if row[name] is None else f"{row[name]:.0%}"
            for name in ("share_evaluation", "share_drawing")
        ),
    ]


def _short(value: float | None) -> str:
    """Three digits, or all that stand before the point.

    >>> _short(0.05512), _short(7.1), _short(20000.0), _short(None)
    ('0.0551', '7.1', '20,000', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
