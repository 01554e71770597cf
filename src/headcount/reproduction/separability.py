"""Which graphs one head can label, without training: preregistrations/refined-law/README.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from headcount.analysis.separability import separable
from headcount.problem.graph import Graph
from headcount.problem.makers import graph_of_degree, random_graph, skewed_graph
from headcount.theory.capacity_law import capacity_ratio, items_at_ratio
from headcount.theory.refined_law import effective_freedom, hub_ratio

_TABLE = Path(__file__).with_name("measured") / "law" / "separability.csv"
_RANKS = ((1, "regular"), (1, "random"), (4, "random"))
_RANK_RATIOS = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)  # G
_FACTORS = (0.5, 0.6, 0.7, 0.8, 0.86, 0.92, 0.98, 1.04)  # of the items that R = 1 allows
_LARGE = (0.9, 0.94, 0.98, 1.02)


@dataclass(frozen=True)
class Case:
    """One table and graph, and the head that is to label it."""

    part: Literal["k", "l", "m"]
    graph: str
    degree: int
    items: int
    d_model: int
    key_dim: int
    seed: int

    def problem(self) -> tuple[Graph, np.ndarray]:
        """The graph and the Gaussian table."""
        edges = self.items * self.degree
        match self.graph:
            case "random":
                graph = random_graph(self.items, edges, self.seed)
            case "skewed":
                graph = skewed_graph(self.items, edges, self.seed)
            case _:
                graph = graph_of_degree(self.items, self.degree, self.seed)
        rng = np.random.default_rng(self.seed)
        return graph, rng.normal(size=(self.items, self.d_model))


def cases() -> Iterator[Case]:
    """All cases of the preregistration, in the order of its parts."""
    for key_dim in (3, 6, 12, 24):
        gain = effective_freedom(48, 1, key_dim) / (key_dim * (96 - key_dim))
        for degree, graph in _RANKS:
            for ratio in _RANK_RATIOS:
                items = round(items_at_ratio(48, 1, key_dim, ratio / gain, degree))
                for seed in range(500, 504):
                    yield Case("k", graph, degree, items, 48, key_dim, seed)
    for d_model in (20, 28):
        for graph in ("random", "skewed"):
            for degree in (1, 2, 4, 8):
                for items in _sizes(d_model, degree, _FACTORS):
                    for seed in range(500, 505):
                        yield Case("l", graph, degree, items, d_model, d_model, seed)
    for d_model, count in ((16, 16), (24, 16), (32, 6), (48, 2)):
        for items in _sizes(d_model, 1, _LARGE):
            for seed in range(500, 500 + count):
                yield Case("m", "regular", 1, items, d_model, d_model, seed)


def _sizes(d_model: int, degree: int, factors: tuple[float, ...]) -> list[int]:
    allowed = items_at_ratio(d_model, 1, d_model, 1.0, degree)
    # A skewed graph draws its edges without repetition: leave it enough pairs.
    return sorted({max(round(allowed * factor), 2 * degree + 2) for factor in factors})


def measure(case: Case) -> dict[str, object]:
    """The case with its ratios R, G and that of its hubs, and whether weights were found."""
    graph, rows = case.problem()
    size = case.items, graph.edges, case.d_model, 1, case.key_dim
    ratio = capacity_ratio(*size)
    freedom = case.key_dim * (2 * case.d_model - case.key_dim)
    return {
        **asdict(case),
        "ratio": ratio,
        "width_ratio": ratio * effective_freedom(case.d_model, 1, case.key_dim) / freedom,
        "hub_ratio": hub_ratio(graph, case.d_model),
        "separable": separable(graph, rows, case.key_dim, seed=case.seed),
    }


@cache
def measured_separability() -> pd.DataFrame:
    """What `measure` gave for all cases; treat it as read-only."""
    return pd.read_csv(_TABLE)
