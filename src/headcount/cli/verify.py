"""`headcount verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.common import (
    DecideOption,
    GraphFile,
    Json,
    Seed,
    TableFile,
    TableKey,
    WeightsFile,
    emit,
)
from headcount.cli.items import NamesFile, add_names, in_words
from headcount.errors import InputError
from headcount.progress import notice

if TYPE_CHECKING:
    from headcount.attention.recovery import Recovery
    from headcount.problem.graph import Graph


def verify(
    weights: WeightsFile,
    graph: GraphFile,
    table: TableFile,
    contexts: Annotated[
        Path | None,
        typer.Option(
            help="Check only these contexts: rows of ids (.npy), or lines of names or ids (.csv)."
        ),
    ] = None,
    context_length: Annotated[
        int | None,
        typer.Option(help="Softmax: decide every context of this many items, not only drawn ones."),
    ] = None,
    search: Annotated[
        int, typer.Option(help="With --context-length: cases to look into before giving up.")
    ] = 20_000,
    samples: Annotated[int, typer.Option(help="Softmax: how many contexts to draw.")] = 2000,
    decide: Annotated[
        DecideOption | None,
        typer.Option(
            help="A threshold, or top: each target scores highest of its row.",
            show_default="as the weights say",
        ),
    ] = None,
    seed: Seed = 0,
    key: TableKey = None,
    names: NamesFile = None,
    json: Json = False,
) -> None:
    """Check whether weights recognise a graph. Exit code 0: yes; 1: no, or open; 2: bad input.

    Max and sum weights are checked on all ordered pairs, hence for every
    context of every length. Softmax weights are checked on drawn contexts
    of the length they were built for (16 if unknown), or on --contexts. Exit
    code 0 then means that no error was found: a sample proves no more.

    With --context-length the answer covers every context of that length:
    certified, refuted (by a context that is shown) or open.

    With --decide top no threshold takes part: every target must score above
    every other item of its row, so it is the top in every context.

    \b
    Example:
      headcount verify weights.safetensors graph.csv table.npy --json
      headcount verify softmax.safetensors graph.csv table.npy --context-length 16
      headcount verify weights.safetensors graph.csv table.npy --decide top
    """
    from headcount.attention.reading import read_weights_and_problem
    from headcount.attention.verification import verify as run
    from headcount.problem.contexts import read_contexts

    if samples < 1:
        raise InputError(f"--samples {samples} checks nothing; choose at least 1")
    if contexts is not None and context_length is not None:
        raise InputError("--contexts and --context-length exclude each other; give one of them")
    loaded, read, rows = read_weights_and_problem(weights, graph, table, key, names)
    if context_length is not None and loaded.aggregation != "softmax":
        notice(
            f"--context-length is not needed: under {loaded.aggregation} "
            "all pairs decide every context"
        )
    found = run(
        loaded,
        read,
        rows,
        contexts=None if contexts is None else read_contexts(contexts, read.names),
        context_length=context_length,
        search=search,
        samples=samples,
        seed=seed,
        decide=decide and decide.value,
    )
    if json:
        emit(add_names(found.as_dict(), read), True)
    else:
        _print(found, read)
    sys.exit(0 if found.exact or found.exact is None else 1)


def _print(found: Recovery, graph: Graph) -> None:
    certificate, shown = found.certificate, found.as_dict()
    for name in ("certificate", "verdict", "statement", "correct"):  # the title has it
        del shown[name]
    if found.exact is None:
        shown["exact"] = "not proved"
    if not found.contexts:
        shown = {
            name: value
            for name, value in shown.items()
            if "contexts" not in name and "failure" not in name
        }
    title = f"{found.heading}: {found.statement}"
    if certificate:
        shown_certificate = in_words(certificate.as_dict(), graph)
        emit(shown_certificate, False, f"{certificate.verdict}: {found.statement}")
        title = found.heading
    emit(in_words(shown, graph), False, title)
