"""`headcount verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import Json, Seed, emit
from headcount.errors import InputError
from headcount.progress import notice

if TYPE_CHECKING:
    from torch import Tensor

    from headcount.attention.key_query import KeyQuery
    from headcount.attention.recovery import Recovery
    from headcount.problem.graph import Graph

Weights = Annotated[Path, typer.Argument(help="Weights (.safetensors) that headcount wrote.")]
GraphFile = Annotated[
    Path, typer.Argument(help="Edge list (.csv or .tsv) with the header source,target.")
]
TableFile = Annotated[Path, typer.Argument(help="Embedding table (.npy or .safetensors).")]
TableKey = Annotated[
    str | None, typer.Option("--key", help="Name of the table inside a .safetensors file.")
]


def read_problem(graph: Path, table: Path, key: str | None) -> tuple[Graph, Tensor]:
    """A graph on as many items as the table has rows, and the table."""
    from headcount.problem.edge_list import read_graph
    from headcount.problem.tables import load_embeddings

    rows = load_embeddings(table, key)
    return read_graph(graph, items=len(rows)), rows


def read_all(
    weights: Path, graph: Path, table: Path, key: str | None
) -> tuple[KeyQuery, Graph, Tensor]:
    """Weights, graph and table, with their widths compared."""
    from headcount.attention.storage import load_weights

    loaded = load_weights(weights)
    read, rows = read_problem(graph, table, key)
    if rows.shape[1] != loaded.d_model:
        raise InputError(
            f"{table}: the table is {rows.shape[1]} wide, {weights} takes {loaded.d_model}; use a pair that fits"
        )
    return loaded, read, rows


def verify(
    weights: Weights,
    graph: GraphFile,
    table: TableFile,
    contexts: Annotated[
        Path | None, typer.Option(help="Check only these contexts: .npy, a row of item ids each.")
    ] = None,
    context_length: Annotated[
        int | None,
        typer.Option(help="Softmax: decide every context of this many items, not only drawn ones."),
    ] = None,
    search: Annotated[
        int, typer.Option(help="With --context-length: cases to look into before giving up.")
    ] = 20_000,
    samples: Annotated[int, typer.Option(help="Softmax: how many contexts to draw.")] = 2000,
    seed: Seed = 0,
    key: TableKey = None,
    json: Json = False,
) -> None:
    """Do these weights recognise this graph? Exit code 0: yes, exactly; 1: no, or open; 2: bad input.

    Max and sum weights are checked on all ordered pairs, hence for every
    context of every length. Softmax weights are checked on drawn contexts
    of the length they were built for (16 if unknown), or on --contexts.

    With --context-length the answer covers every context of that length:
    certified, refuted (by a context that is shown) or open.

    \b
    Example:
      headcount verify weights.safetensors graph.csv table.npy --json
      headcount verify softmax.safetensors graph.csv table.npy --context-length 16
    """
    from headcount.attention.verification import verify as run

    if samples < 1:
        raise InputError(f"--samples {samples} checks nothing; choose at least 1")
    if contexts is not None and context_length is not None:
        raise InputError("--contexts and --context-length exclude each other; give one of them")
    loaded, read, rows = read_all(weights, graph, table, key)
    if context_length is not None and loaded.aggregation != "softmax":
        notice(
            f"--context-length is not needed: under {loaded.aggregation} "
            "all pairs decide every context"
        )
    found = run(
        loaded,
        read,
        rows,
        contexts=None if contexts is None else _read_contexts(contexts),
        context_length=context_length,
        search=search,
        samples=samples,
        seed=seed,
    )
    if json:
        emit(found.as_dict(), True)
    else:
        _print(found)
    sys.exit(0 if found.exact else 1)


def _print(found: Recovery) -> None:
    certificate, shown = found.certificate, found.as_dict()
    del shown["certificate"], shown["verdict"]  # printed before the rest
    if not found.contexts:
        shown = {
            name: value
            for name, value in shown.items()
            if "contexts" not in name and "failure" not in name
        }
    if certificate:
        title = {
            "certified": "certified: every pair is decided correctly in every context of this length",
            "refuted": "refuted: the counterexample is a context in which a pair is decided wrongly",
            "open": "open: neither proof nor counterexample; a larger --search may decide",
        }
        emit(_readable_pairs(certificate.as_dict()), False, title[certificate.verdict])
    emit(_readable_pairs(shown), False, "exact" if found.exact else "not exact")


def _readable_pairs(shown: dict[str, Any]) -> dict[str, Any]:
    return {
        name: f"{value['score']:.6g} at ({value['source']}, {value['target']})"
        if isinstance(value, dict)
        else value
        for name, value in shown.items()
    }


def _read_contexts(path: Path) -> Tensor:
    import numpy as np
    import torch

    from headcount.problem.tables import read_npy

    array = read_npy(path)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise InputError(
            f"{path}: contexts must be a 2-D array of item ids, not {array.dtype} {array.shape}"
        )
    return torch.from_numpy(array.astype(np.int64))
