"""Graphs from what other libraries hold: networkx, scipy, pandas, arrays and lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.vocabulary import Names, Vocabulary, as_vocabulary


def as_graph(value: Any, items: int | None = None, names: Names | None = None) -> Graph:
    """A graph from a `Graph`, a networkx graph, a scipy sparse matrix, a pandas frame or pairs.

    Pairs are (source, target), of ids or of names, in a list or an array of two columns. A frame
    has the columns `source` and `target`, or only two. A sparse matrix has an edge where an entry
    is not zero. `items` allows more items than occur in an edge, and `names` names them; without
    it, names are numbered in the order in which they first occur.

    >>> graph = as_graph([("hot", "cold"), ("cold", "hot"), ("hot", "cool")])
    >>> graph.items, graph.pairs.tolist(), graph.name(2)
    (3, [[0, 1], [0, 2], [1, 0]], 'cool')
    """
    if isinstance(value, Graph):
        graph = value
    elif hasattr(value, "nodes") and hasattr(value, "to_directed"):
        graph = Graph.from_networkx(value)
    elif hasattr(value, "tocoo"):
        graph = _from_sparse(value)
    else:
        return _from_pairs(_columns(value), items, names)
    if names is not None and graph.names is not None:
        return _renamed(graph, as_vocabulary(names, items))
    if items is not None and items != graph.items:
        if items < graph.items or graph.names is not None:
            raise InputError(
                f"the graph has {graph.items} items, not {items}; leave the number out"
            )
        graph = Graph.from_arrays(items, graph.sources, graph.targets)
    return graph if names is None else graph.with_names(as_vocabulary(names))


def _renamed(graph: Graph, names: Vocabulary) -> Graph:
    """The graph on the items that `names` numbers, each found by its own name."""
    assert graph.names is not None
    place = np.array([names.id(name) for name in graph.names])
    return Graph.from_arrays(len(names), place[graph.sources], place[graph.targets], names=names)


def _from_sparse(matrix: Any) -> Graph:
    rows, columns = matrix.shape
    if rows != columns:
        raise InputError(
            f"the matrix is {rows} × {columns}; an adjacency matrix has one row and one column "
            "per item"
        )
    entries = matrix.tocsr().tocoo()  # in CSR, entries given twice are summed
    kept = entries.data != 0
    return Graph.from_arrays(rows, entries.row[kept], entries.col[kept])


def _columns(value: Any) -> np.ndarray:
    """The (source, target) pairs as an array of two columns."""
    if isinstance(value, pd.DataFrame):
        named = {"source", "target"} <= set(value.columns)
        if not named and len(value.columns) != 2:
            raise InputError(
                "the frame has no columns source and target; rename its columns, or keep two"
            )
        value = (value[["source", "target"]] if named else value).to_numpy()
    elif isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    elif not isinstance(value, np.ndarray):
        value = _listed(value)
    if value.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if value.ndim != 2 or value.shape[1] != 2:
        raise InputError(
            f"edges of shape {value.shape} are not (source, target) pairs; give two columns"
        )
    return value


def _listed(value: Any) -> np.ndarray:
    try:
        pairs = [tuple(pair) for pair in value]
    except TypeError:
        pairs = [()]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError(
            f"a {type(value).__name__} is not a graph; give (source, target) pairs, or a networkx, "
            "scipy or pandas object"
        )
    return np.array(pairs, dtype=object)  # or numpy would turn numbers beside texts into texts


def _from_pairs(pairs: np.ndarray, items: int | None, names: Names | None) -> Graph:
    vocabulary = None if names is None else as_vocabulary(names, items)
    if pairs.dtype.kind in "OUT":
        kinds = {isinstance(end, str) for end in pairs.ravel()}
        if len(kinds) > 1:
            odd = next(tuple(pair) for pair in pairs if not all(isinstance(e, str) for e in pair))
            raise InputError(f"edge {odd} mixes names with ids; write one kind")
        if kinds == {True}:
            if vocabulary is None:
                own = Vocabulary.of(dict.fromkeys(pairs.ravel().tolist()))
                vocabulary = as_vocabulary(own, items)
            pairs = np.array([vocabulary.id(str(end)) for end in pairs.ravel()]).reshape(-1, 2)
        elif all(isinstance(end, int | np.integer) for end in pairs.ravel()):
            largest = max(map(abs, pairs.ravel().tolist()))
            if largest >= 2**63:
                raise InputError(
                    f"an id of {len(str(largest))} digits is none; number items from 0"
                )
            pairs = pairs.astype(np.int64)
    if pairs.dtype.kind not in "iu":
        raise InputError("edges must be (source, target) pairs of integers or of names")
    if vocabulary is not None:
        items = len(vocabulary)
    elif items is None:
        items = int(pairs.max(initial=0)) + 1
    return Graph.from_edges(items, pairs, vocabulary)
