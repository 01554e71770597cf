"""`headcount make graph`, `headcount make embeddings` and `headcount make relations`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.common import Json, Out, Seed, emit
from headcount.cli.help import App
from headcount.errors import InputError

app = App("Make graphs, embedding tables and relations.")

Items = Annotated[int, typer.Option(help="m, the number of items.")]


class GraphKind(StrEnum):
    permutation = "permutation"
    regular = "regular"
    random = "random"
    skewed = "skewed"


class Relation(StrEnum):
    antonyms = "antonyms"
    hypernyms = "hypernyms"
    meronyms = "meronyms"
    synonyms = "synonyms"


class TableKind(StrEnum):
    gaussian = "gaussian"
    binary = "binary"
    one_hot = "one-hot"


@app.command()
def graph(
    kind: Annotated[GraphKind, typer.Argument(help="The family to draw from.")],
    items: Items,
    out: Out,
    degree: Annotated[int | None, typer.Option(help="r, for regular graphs.")] = None,
    edges: Annotated[int | None, typer.Option(help="m', for random and skewed graphs.")] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw a graph and write its edge list (CSV, or TSV by the suffix).

    \b
    Example:
      headcount make graph regular --items 128 --degree 4 --out graph.csv
    """
    from headcount.problem.edge_list import write_graph
    from headcount.problem.makers import (
        permutation_graph,
        random_graph,
        regular_graph,
        skewed_graph,
    )

    _require(kind, "--degree", degree, needed=kind is GraphKind.regular)
    _require(kind, "--edges", edges, needed=kind in (GraphKind.random, GraphKind.skewed))
    if degree is not None:
        made = regular_graph(items, degree, seed)
    elif edges is not None:
        made = (random_graph if kind is GraphKind.random else skewed_graph)(items, edges, seed)
    else:
        made = permutation_graph(items, seed)
    write_graph(made, out)
    result = {
        "file": str(out),
        "items": made.items,
        "edges": made.edges,
        "max_degree": made.max_degree,
        "seed": seed,
    }
    emit(result, json, f"{kind.value} graph")


@app.command()
def embeddings(
    kind: Annotated[TableKind, typer.Argument(help="The kind of table.")],
    items: Items,
    out: Out,
    d_model: Annotated[int | None, typer.Option(help="The width; a one-hot table has m.")] = None,
    density: Annotated[
        float | None,
        typer.Option(help="Share of ones in a binary table.", show_default="2 ln m/d_model"),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw an embedding table and write it (.npy, or .safetensors by the suffix).

    \b
    Example:
      headcount make embeddings gaussian --items 128 --d-model 32 --out table.npy
    """
    from headcount.problem.embeddings import (
        binary_embeddings,
        gaussian_embeddings,
        one_hot_embeddings,
    )
    from headcount.problem.tables import save_embeddings

    if kind is TableKind.one_hot and d_model == items:
        d_model = None
    _require(kind, "--d-model", d_model, needed=kind is not TableKind.one_hot)
    if density is not None and kind is not TableKind.binary:
        raise InputError(f"--density does not apply to a {kind.value} table; leave it out")
    if d_model is None:
        table = one_hot_embeddings(items)
    elif kind is TableKind.binary:
        table = binary_embeddings(items, d_model, seed, density)
    else:
        table = gaussian_embeddings(items, d_model, seed)
    save_embeddings(table, out)
    emit(
        {"file": str(out), "items": items, "d_model": table.shape[1], "seed": seed},
        json,
        f"{kind.value} table",
    )


@app.command()
def relations(
    kind: Annotated[Relation, typer.Argument(help="The relation.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")],
    table: Annotated[
        str | None,
        typer.Option(help="Add the words' rows: minilm, smollm2, or a file with names."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a relation among English words: WordNet 3.0's, among the words of MiniLM.

    The folder gets graph.csv, an edge list by name, names.txt with the words, and
    NOTICE.txt with WordNet's licence; with --table also table.safetensors with
    the words and their rows. The rows of minilm for antonyms come with headcount.

    \b
    Example:
      headcount make relations antonyms --table minilm --out antonyms
      headcount compile antonyms/graph.csv antonyms/table.safetensors --budget 16
    """
    from headcount.problem.relations import relations as find
    from headcount.problem.relations import write_relations

    graph, rows = (find(kind.value), None) if table is None else find(kind.value, table)
    write_relations(graph, out, rows, table)
    result = {
        "folder": str(out),
        "items": graph.items,
        "edges": graph.edges,
        "max_degree": graph.max_degree,
        "table": table,
        "d_model": None if rows is None else rows.shape[1],
    }
    emit(result, json, kind.value)


def _require(kind: StrEnum, option: str, value: int | None, needed: bool) -> None:
    if needed and value is None:
        raise InputError(f"{kind.value} needs {option}; give it a number")
    if not needed and value is not None:
        raise InputError(f"{option} does not apply to {kind.value}; leave it out")
