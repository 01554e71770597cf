"""Read a problem, a graph and its embedding table, from files."""

from __future__ import annotations

import os

from torch import Tensor

from headcount.problem.edge_list import read_graph
from headcount.problem.graph import Graph
from headcount.problem.tables import load_embeddings


def read_problem(
    graph: str | os.PathLike[str], table: str | os.PathLike[str], key: str | None = None
) -> tuple[Graph, Tensor]:
    """Read an embedding table, and a graph with one item per row of the table.

    `key` names the table inside a .safetensors file that holds several tensors.
    """
    rows = load_embeddings(table, key)
    return read_graph(graph, items=len(rows)), rows
