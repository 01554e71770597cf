"""Read a problem, a graph and its embedding table, from files."""

from __future__ import annotations

import os

from torch import Tensor

from headcount.problem.edge_list import read_graph
from headcount.problem.graph import Graph
from headcount.problem.tables import read_table


def read_problem(
    graph: str | os.PathLike[str],
    table: str | os.PathLike[str],
    key: str | None = None,
    names: str | os.PathLike[str] | None = None,
) -> tuple[Graph, Tensor]:
    """Read an embedding table, and a graph with one item per row of the table.

    The graph has names where the table has them, or the file `names`; its edges may then be given
    by name. `key` names the table inside a file that holds several tensors.
    """
    rows, vocabulary = read_table(table, key, names)
    return read_graph(graph, items=len(rows), names=vocabulary), rows
