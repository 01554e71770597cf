"""Greedy removal of heads: what is left against how many heads are kept (Section 2.1).

Of weights that decide a graph, the F1 over all pairs is what is left. A real layer has no graph of
its own; there it is the share of its choices: of all pairs of a word and the word that some head
scores highest for it, those that a kept head still chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.compiler.compile import compile
from headcount.errors import NoSolution
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph
from headcount.problem.tables import TableLike, table_for
from headcount.shapes import Float, Int
from headcount.training.spec import RunSpec
from headcount.training.train import train

RATIOS = (1.0, 1.5, 2.0)  # D_K/D_K*
# The study's problem: permutations of 256 items on Gaussian tables of width 32. D_K* is where
# training passes with 8 heads (docs/reproduction.md), and the smallest D_K that was compiled.
ITEMS, D_MODEL, STEPS = 256, 32, 20_000
THRESHOLDS = {"trained": (56, 7), "compiled": (36, 6)}  # D_K* and the width of a head
_MEASURED = Path(__file__).with_name("measured") / "removal.csv"

Left = Callable[[list[int]], float]


def greedy_removal(heads: int, left: Left) -> list[float]:
    """What is left with 1, 2, … h heads, when each step removes the head that costs least.

    >>> sizes = [1, 5, 2]
    >>> greedy_removal(3, lambda kept: sum(sizes[head] for head in kept))
    [5, 7, 8]
    """
    kept, found = list(range(heads)), [left(list(range(heads)))]
    while len(kept) > 1:
        options = [[head for head in kept if head != out] for out in kept]
        values = [left(option) for option in options]
        best = int(np.argmax(values))
        kept, found = options[best], [values[best], *found]
    return found


def removal_of_weights(weights: KeyQuery, graph: Graph, table: TableLike) -> list[float]:
    """F1 over all pairs under max, at the weights' own threshold, with 1, 2, … h heads kept."""
    rows = table_for(graph, table).to(weights.queries.dtype)
    above = weights.detached().scores(rows, rows) > weights.threshold
    edges = torch.zeros(graph.items, graph.items, dtype=torch.bool)
    edges[graph.sources.copy(), graph.targets.copy()] = True

    def f1(kept: list[int]) -> float:
        decided = above[kept].any(0)
        return 2 * int((decided & edges).sum()) / int(decided.sum() + edges.sum())

    return greedy_removal(weights.heads, f1)


def choices(
    sides: Sequence[tuple[Float[Tensor, "items key_dim"], Float[Tensor, "items key_dim"]]],
) -> Int[Tensor, "heads items"]:
    """For every head and word the word that it scores highest."""
    return torch.stack([(query @ key.T).argmax(1) for query, key in sides])


def removal_of_choices(chosen: Int[Tensor, "heads items"]) -> list[float]:
    """The share of a layer's choices that 1, 2, … h heads keep."""
    items = chosen.shape[1]
    codes = (chosen + torch.arange(items) * items).numpy()
    everything = len(np.unique(codes))
    return greedy_removal(len(chosen), lambda kept: len(np.unique(codes[kept])) / everything)


def removal_study(seeds: int = 3) -> pd.DataFrame:
    """Removal from trained and from compiled weights at D_K/D_K* = 1, 1.5 and 2.

    One row per kind, ratio, seed and number of heads kept; `left` is the F1 over all pairs.
    """
    rows = []
    for kind, (threshold, width) in THRESHOLDS.items():
        for ratio in RATIOS:
            heads = ceil(ratio * threshold / width)
            for seed in range(seeds):
                found = _weights(kind, heads, width, seed)
                if found is None:
                    continue
                left = removal_of_weights(*found)
                rows += [
                    {"kind": kind, "ratio": ratio, "seed": seed, "heads": heads, "kept": kept}
                    | {"left": value}
                    for kept, value in enumerate(left, 1)
                ]
    return pd.DataFrame(rows)


def measured_removal() -> pd.DataFrame:
    """The shipped study: `removal_study()`, mean over seeds."""
    runs: Any = pd.read_csv(_MEASURED)
    return runs.groupby(["kind", "ratio", "heads", "kept"], as_index=False)["left"].mean()


def _weights(kind: str, heads: int, width: int, seed: int) -> tuple[KeyQuery, Graph, Tensor] | None:
    """Weights of one seed's permutation and table; None where nothing is certified in a minute."""
    graph, table = permutation_graph(ITEMS, seed), gaussian_embeddings(ITEMS, D_MODEL, seed)
    if kind == "trained":
        spec = RunSpec.on(graph, table, heads=heads, key_dim=width, seed=seed, steps=STEPS)
        (result,) = train([spec], weights=True, progress=False)
        assert result.weights is not None
        return result.weights, graph, table
    try:
        found = compile(graph, table, budget=heads * width, heads=heads, seed=seed, time_limit=60)
    except NoSolution:
        return None
    return found.weights, graph, table
