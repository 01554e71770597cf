"""`headcount verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.common import Json, Seed, emit
from headcount.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from headcount.attention.key_query import KeyQuery
    from headcount.problem.graph import Graph

Weights = Annotated[Path, typer.Argument(help="Weights (.safetensors) that headcount wrote.")]
GraphFile = Annotated[Path, typer.Argument(help="Edge list (.csv or .tsv) with the header source,target.")]
TableFile = Annotated[Path, typer.Argument(help="Embedding table (.npy or .safetensors).")]
TableKey = Annotated[str | None, typer.Option("--key", help="Name of the table inside a .safetensors file.")]


def read_problem(graph: Path, table: Path, key: str | None) -> tuple[Graph, Tensor]:
    """A graph on as many items as the table has rows, and the table."""
    from headcount.problem.edge_list import read_graph
    from headcount.problem.tables import load_embeddings

    rows = load_embeddings(table, key)
    return read_graph(graph, items=len(rows)), rows


def read_all(weights: Path, graph: Path, table: Path, key: str | None) -> tuple[KeyQuery, Graph, Tensor]:
    """Weights, graph and table, with their widths compared."""
    from headcount.attention.storage import load

    loaded = load(weights)
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
    samples: Annotated[int, typer.Option(help="Softmax: how many contexts to draw.")] = 2000,
    context_length: Annotated[int, typer.Option(help="Softmax: items in a drawn context.")] = 16,
    seed: Seed = 0,
    key: TableKey = None,
    json: Json = False,
) -> None:
    """Do these weights recognise this graph? Exit code 0: yes, exactly; 1: no; 2: bad input.

    Max and sum weights are checked on all ordered pairs, hence for every context of every length.
    Softmax weights are checked on contexts, drawn ones unless you give some.

    Example: headcount verify weights.safetensors graph.csv table.npy --json
    """
    from headcount.attention.verification import verify as run
    from headcount.problem.contexts import ContextSampler

    if samples < 1:
        raise InputError(f"--samples {samples} checks nothing; choose at least 1")
    loaded, read, rows = read_all(weights, graph, table, key)
    chosen = None
    if contexts is not None:
        chosen = _read_contexts(contexts)
    elif loaded.aggregation == "softmax":
        chosen = ContextSampler(read, length=context_length)
    found = run(loaded, read, rows, contexts=chosen, samples=samples, seed=seed)
    shown = found.as_dict()
    if not json:
        for name in ("lowest_edge", "highest_non_edge"):
            pair = shown[name]
            shown[name] = pair and f"{pair['score']:.6g} at ({pair['source']}, {pair['target']})"
        if not found.contexts:
            shown = {name: value for name, value in shown.items() if "contexts" not in name and "failure" not in name}
    emit(shown, json, "exact" if found.exact else "not exact")
    sys.exit(0 if found.exact else 1)


def _read_contexts(path: Path) -> Tensor:
    import numpy as np
    import torch

    from headcount.files import existing_file

    try:
        array = np.load(existing_file(path), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a whole .npy array; write it again with numpy.save") from None
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{path}: contexts must be a 2-D array of item ids, not {array.dtype} {array.shape}")
    return torch.from_numpy(array.astype(np.int64))
