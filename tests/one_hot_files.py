"""The files of a small problem for the commands: its graph, its table, and weights that verify."""

from __future__ import annotations

from pathlib import Path

import headcount as hc

WEIGHTS, GRAPH, TABLE = "weights.safetensors", "graph.csv", "table.npy"


def write_one_hot(folder: Path) -> Path:
    """A permutation of 32 items with one-hot rows."""
    graph, one_hot = hc.permutation_graph(32), hc.one_hot_embeddings(32)
    hc.write_graph(graph, folder / GRAPH)
    hc.save_embeddings(one_hot, folder / TABLE)
    hc.construct(graph, one_hot, "one-hot", key_dim=64).save(folder / WEIGHTS)
    return folder
