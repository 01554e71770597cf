"""Read weights together with the problem that they are for."""

from __future__ import annotations

import os

from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.storage import load_weights
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.reading import read_problem


def read_weights_and_problem(
    weights: str | os.PathLike[str],
    graph: str | os.PathLike[str],
    table: str | os.PathLike[str],
    key: str | None = None,
    names: str | os.PathLike[str] | None = None,
) -> tuple[KeyQuery, Graph, Tensor]:
    """Read weights, a graph and a table; a table of another width than the weights is refused."""
    loaded = load_weights(weights)
    read, rows = read_problem(graph, table, key, names)
    if rows.shape[1] != loaded.d_model:
        raise InputError(
            f"{table}: the table is {rows.shape[1]} wide, {weights} takes {loaded.d_model}; "
            "use a pair that fits"
        )
    return loaded, read, rows
