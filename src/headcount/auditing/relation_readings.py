"""One relation through the layers of a model: what its heads score, and what to compare it with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm
from torch import Tensor

from headcount.auditing.channel import Channel
from headcount.auditing.model import Model
from headcount.auditing.relation_data import Relation
from headcount.auditing.relation_scores import (
    HeadScores,
    Judgement,
    RelationTest,
    p_values,
    random_sides,
)
from headcount.auditing.resampling import mean_intervals
from headcount.compiler.compile import compile
from headcount.errors import NoSolution
from headcount.shapes import Float
from headcount.theory.capacity_law import capacity_ratio
from headcount.theory.refined_law import width_ratio

_EFFECTS = ("auc", "auc_low", "auc_high", "mrr", "f1")


@dataclass
class RelationReadings:
    """The scores of a relation, head by head, and after `finish` what they are compared with.

    Permutations hold the table fixed, and a table may itself follow the relation: then random heads
    pass the permutation test more often than its level says. Heads are therefore compared with
    random heads on the same table too.
    """

    relation: Relation
    model: Model
    offsets: tuple[float, ...]
    permutations: int
    random_heads: int
    level: float
    seed: int
    _places: list[tuple[int, int, float]] = field(default_factory=list)
    _heads: list[Judgement] = field(default_factory=list)
    _random: list[Judgement] = field(default_factory=list)
    _compiled: tuple[int, int] | None = None  # D_K and heads
    _compile_seconds: float = 0.0

    @cached_property
    def _test(self) -> RelationTest:
        return RelationTest(self.relation, self._inputs, self.permutations, self.seed)

    @cached_property
    def _inputs(self) -> Float[Tensor, "items d_model"]:
        """x̂ at the first layer."""
        return self.model.inputs(self.relation.ids)

    def memory(self, heads: int) -> int:
        """Bytes that permutations, and what is kept of so many heads, take at most."""
        edges, columns = self.relation.graph.edges, self.permutations + 1
        judged = heads * len(self.offsets) + self.random_heads
        moved = 4 * edges * columns  # permuted targets, and copies while they are made and read
        return 8 * (moved + 2 * judged * (4 * columns + edges))  # a p-value copies its statistics

    def add(self, layer: int, channel: Channel) -> None:
        """Judge the heads of a layer."""
        pre_norm = bool(self.model.layout.norm)  # then every layer reads the same x̂
        inputs = self._inputs if pre_norm else self.model.inputs(self.relation.ids, layer)
        for offset in self.offsets:
            for head, (query, key) in enumerate(channel.sides(inputs, offset)):
                self._places.append((layer, head, float(offset)))
                self._heads.append(self._test.judge(query, key))

    def finish(self, compile_seconds: float) -> None:
        """Judge random heads, and look for the smallest certified weights."""
        width = self.model.sizes.key_dim
        for query, key in random_sides(self._inputs, width, self.random_heads, self.seed):
            self._random.append(self._test.judge(query, key))
        self._compile_seconds = compile_seconds
        if compile_seconds:
            graph, limit = self.relation.graph, compile_seconds
            try:
                found = compile(
                    graph, self._inputs, time_limit=limit, seed=self.seed, last_resort=False
                )
            except NoSolution:
                return
            self._compiled = found.weights.budget, found.weights.heads

    def scores(self) -> pd.DataFrame:
        """One row per head and offset."""
        frame = pd.DataFrame(self._places, columns=["layer", "head", "offset"])
        frame.insert(0, "relation", self.relation.name)
        for name in ("auc", "mrr", "f1"):
            frame[name] = [getattr(one.own, name) for one in self._heads]
        # What the largest of so many normal numbers exceeds with a chance of `level`.
        needed = float(norm.isf(self.level / len(frame)))
        for kind, prefix, verdict in (
            ("own", "", "knows"),
            ("residual", "residual_", "beyond_similarity"),
        ):
            heads, random = _of(self._heads, kind), _of(self._random, kind)
            alone, corrected = p_values(np.stack([one.statistics for one in heads]))
            aucs, others = _aucs(heads), _aucs(random)
            frame[f"{prefix}auc"] = aucs
            frame[f"{prefix}auc_low"], frame[f"{prefix}auc_high"] = self._intervals(heads)
            frame[f"{prefix}p"], frame[f"{prefix}p_corrected"] = alone, corrected
            beyond = (aucs - others.mean()) / max(float(others.std(ddof=1)), 1e-12)
            frame[f"{prefix}beyond_random"] = beyond
            frame[verdict] = (corrected <= self.level) & (beyond >= needed)
        frame["beyond_similarity"] &= frame["knows"]
        return frame

    def _intervals(self, heads: list[HeadScores]) -> tuple[np.ndarray, np.ndarray]:
        wins = np.stack([one.wins for one in heads])
        return mean_intervals(wins, self.relation.graph.sources, self.seed)

    def summary(self) -> dict[str, Any]:
        """The relation in one row."""
        graph, sizes = self.relation.graph, self.model.sizes
        scores = self.scores()
        best = scores.loc[scores["auc"].idxmax()]
        rows = torch.nn.functional.normalize(self._inputs)
        cosine, random = self._test.judge(rows, rows).own, _of(self._random, "own")
        passed = p_values(np.stack([one.statistics for one in random]))[0] <= self.level
        aucs = _aucs(random)
        low, high = np.quantile(aucs, [0.025, 0.975])
        cosine_low, cosine_high = self._intervals([cosine])
        return {
            "relation": self.relation.name,
            "words": graph.items,
            "edges": graph.edges,
            "edges_known": self.relation.known,
            "edges_given": self.relation.given,
            "best_layer": int(best["layer"]),
            "best_head": int(best["head"]),
            **{f"best_{name}": float(best[name]) for name in _EFFECTS},
            "heads_that_know": _distinct(scores, "knows"),
            "heads_beyond_similarity": _distinct(scores, "beyond_similarity"),
            **{f"cosine_{name}": getattr(cosine, name) for name in ("auc", "mrr", "f1")},
            "cosine_auc_low": float(cosine_low[0]),
            "cosine_auc_high": float(cosine_high[0]),
            "random_auc": float(aucs.mean()),
            "random_auc_low": float(low),
            "random_auc_high": float(high),
            "random_pass_permutation": float(passed.mean()),
            "head_width": sizes.key_dim,
            "head_ratio": width_ratio(graph.items, graph.edges, sizes.d_model, 1, sizes.key_dim),
            "layer_ratio": capacity_ratio(
                *(graph.items, graph.edges, sizes.d_model),
                *(sizes.heads, sizes.key_dim, sizes.kv_heads),
            ),
            **self._compiled_summary(),
        }

    def _compiled_summary(self) -> dict[str, Any]:
        """What the compiler found, as numbers and in words."""
        budget, heads = self._compiled or (None, None)
        seconds = self._compile_seconds
        text = f"none found in {seconds:g} s" if budget is None else f"{budget:,}"
        return {
            "compiled_budget": budget,
            "compiled_heads": heads,
            "compile_seconds": seconds,
            "compiled": text if seconds else "not compiled",
        }


def _of(judged: list[Judgement], kind: str) -> list[HeadScores]:
    return [getattr(one, kind) for one in judged]


def _aucs(scores: list[HeadScores]) -> Float[np.ndarray, " heads"]:
    return np.array([one.auc for one in scores])


def _distinct(scores: pd.DataFrame, column: str) -> int:
    """How many heads have a mark, at any offset."""
    places: Any = scores.loc[scores[column], ["layer", "head"]]
    return len(places.drop_duplicates())
