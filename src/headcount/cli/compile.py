"""`headcount compile`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli import sizes
from headcount.cli.common import (
    TABLE_HELP,
    DecideOption,
    DeviceOption,
    Json,
    Quiet,
    Seed,
    TableKey,
    check_output,
    emit,
)
from headcount.cli.items import NamesFile
from headcount.progress import duration, notice, progress_line

if TYPE_CHECKING:
    from headcount.compiler.certificate import Certificate
    from headcount.compiler.search import Compiled
    from headcount.problem.graph import Graph


def compile(
    graph: Annotated[Path, typer.Argument(help="Edge list (.csv or .tsv).", show_default=False)],
    table: Annotated[Path, typer.Argument(help=TABLE_HELP, show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the weights here (.safetensors).")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="D_K, at most.", show_default="the smallest that is found")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="h.", show_default="the best that is found")
    ] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="Keys g that heads share; g divides h.", show_default="h")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="The least margin to accept, as a share of τ.")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds.", show_default="none")] = None,
    bits: Annotated[
        int | None, typer.Option(help="Round the weights to b bits, 2…8.", show_default="none")
    ] = None,
    variant: Annotated[
        sizes.Variant, typer.Option(help="How heads are joined.")
    ] = sizes.Variant.max,
    context_length: Annotated[int | None, typer.Option(help="ℓ, for --variant softmax.")] = None,
    decide: Annotated[
        DecideOption,
        typer.Option(help="A threshold, or top: each target scores highest of its row."),
    ] = DecideOption.threshold,
    seed: Seed = 0,
    device: Annotated[
        DeviceOption, typer.Option(help="Where to search; softmax runs on the CPU.")
    ] = DeviceOption.auto,
    key: TableKey = None,
    names: NamesFile = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Find the smallest weights that decide every pair of a graph correctly, and certify them.

    The certificate is a verification of all pairs, so the weights are correct in
    every context. Without --budget the first weights have an ample one, and
    smaller ones follow while there is time. --out is written whenever smaller
    weights are found, so nothing is lost when the search is ended.

    With --bits the weights are on a grid, one scale for each matrix of each
    head, and are verified after rounding. With --variant softmax the
    certificate covers every context of --context-length items.

    With --decide top no threshold takes part: every target scores above every
    other item of its row, so it is the top in every context that holds it.

    Exit code 0: certified; 1: nothing found, and how far it got; 2: bad input.

    \b
    Examples:
      headcount compile graph.csv table.npy --out weights.safetensors
      headcount compile graph.csv table.npy --budget 40 --time-limit 60
      headcount compile graph.csv table.npy --bits 8 --out weights.safetensors
      headcount compile graph.csv table.npy --variant softmax --context-length 16
      headcount compile graph.csv table.npy --decide top --out weights.safetensors
    """
    from headcount.compiler.compile import compile as run
    from headcount.compiler.grid import bit_account
    from headcount.problem.reading import read_problem

    check_output(out, ".safetensors")
    read, rows = read_problem(graph, table, key, names)
    if out is None and not (json or quiet):
        notice("the weights are not written; give --out FILE.safetensors to keep them")
    began = time.monotonic()
    with progress_line(every=2.0, quiet=quiet) as report:

        def tell(line: str) -> None:
            left = 0.0 if time_limit is None else began + time_limit - time.monotonic()
            report(line if left <= 0 else f"{line}, at most {duration(left)} left")

        found = run(
            read,
            rows,
            budget=budget,
            heads=heads,
            margin=margin,
            time_limit=time_limit,
            seed=seed,
            device=device.value,
            progress=tell,
            bits=bits,
            variant=variant.value,
            context_length=context_length,
            decide=decide.value,
            kv_heads=kv_heads,
            improved=None if out is None else lambda found: found.save(out),
        )
    seconds = time.monotonic() - began
    account = bit_account(found.weights, read, bits) if bits is not None else {}
    emit(_result(found, read, seconds, out, json) | account, json, _title(found))


def _title(found: Compiled) -> str:
    pairs, length = (
        f"all {found.certificate.pairs:,} pairs are correct",
        found.certificate.context_length,
    )
    if found.certificate.decide == "top":
        return "certified: every target is the top of its row in every context that holds it"
    return f"certified: {pairs}" + (f" in every context of {length} items" if length else "")


def _result(
    found: Compiled, graph: Graph, seconds: float, out: Path | None, whole: bool
) -> dict[str, Any]:
    certificate = found.certificate
    widths = found.weights.widths
    attempts = [asdict(attempt) for attempt in found.frontier]
    return {
        "budget": found.weights.budget,
        "heads": found.weights.heads,
        **({"kv_heads": found.weights.kv_heads} if found.weights.kv_heads < len(widths) else {}),
        **({"key_dim": widths[0]} if len(set(widths)) == 1 else {"widths": list(widths)}),
        "margin": certificate.margin,
        "relative_margin": certificate.relative_margin,
        "threshold": certificate.threshold,
        "dtype": certificate.dtype,
        "score_error": certificate.score_error,
        **_extremes(certificate, graph, whole),
        "attempts": attempts if whole else len(attempts),
        "seconds": seconds,
        **(
            {"graph_hash": certificate.graph_hash, "table_hash": certificate.table_hash}
            if whole
            else {}
        ),
        "file": str(out) if out else None,
    }


def _extremes(certificate: Certificate, graph: Graph, whole: bool) -> dict[str, Any]:
    """The pairs that bind, as score, source and target; JSON has ids, and names beside them."""
    shown: dict[str, Any] = {}
    for key in ("lowest_edge", "highest_non_edge"):
        extreme = getattr(certificate, key)
        if extreme is None:
            shown[key] = None
            continue
        names = [graph.name(extreme.source), graph.name(extreme.target)]
        shown[key] = list(asdict(extreme).values()) if whole else [extreme.score, *names]
        if whole and graph.names is not None:
            shown[f"{key}_names"] = names
    return shown
