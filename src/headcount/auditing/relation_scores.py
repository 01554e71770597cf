"""How well a head's content scores follow a relation, with p-values by permutation.

Three effect sizes, all without a fitted number:

- AUC: how often an edge (s, t) scores above a pair (s, t') with the same source that is not an
  edge, where t' is the target of some edge. Softmax compares scores within a row, and so does this.
- MRR: the mean of 1/rank of t among these.
- best F1: over all pairs at once, at the best of many thresholds. This is the paper's reading.

The p-value is of the mean standardised score over edges: each row of scores has its mean taken off
and is divided by its deviation. Targets are dealt anew among the edges (`permuted_targets`), which
keeps what a head knows about single words, such as that it prefers frequent ones, and destroys what
it knows about pairs. All heads see the same permutations. The corrected p-value compares a head
with the largest statistic over all heads under each permutation (Westfall and Young 1993), so that
the chance of any false finding among the heads is at most the level.

Related words have similar embeddings, so a head that scores similar words high follows most
relations. `judge` therefore takes a control, the rows themselves: what is left of each row of
scores after a linear fit to the cosines is judged in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headcount.auditing.relation_data import Relation
from headcount.problem.streams import generator
from headcount.shapes import Bool, Float, Int

PERMUTATIONS = 999
_THRESHOLDS = 4_096
_TILE = 2**23  # scores held at a time


@dataclass(frozen=True)
class HeadScores:
    """What one head's scores say about a relation; `statistics` has the true edges' value first."""

    auc: float
    mrr: float
    f1: float
    statistics: Float[np.ndarray, " permutations"]


@dataclass(frozen=True, eq=False)
class RelationTest:
    """A relation and its permutations, ready to judge heads."""

    relation: Relation
    permutations: int = PERMUTATIONS
    seed: int = 0

    @cached_property
    def _moved(self) -> Int[Tensor, "edges permutations"]:
        found = self.relation.permuted_targets(self.permutations + 1, self.seed)
        return torch.from_numpy(found)

    @cached_property
    def _edge_rows(self) -> Int[np.ndarray, " edges"]:
        return np.searchsorted(self.relation.sources, self.relation.graph.sources)

    @cached_property
    def _others(self) -> Bool[Tensor, "sources targets"]:
        """Pairs that are neither an edge nor a word with itself."""
        relation = self.relation
        others = torch.ones(len(relation.sources), len(relation.targets), dtype=torch.bool)
        others[self._edge_rows, self._moved[:, 0]] = False
        return others & self._kept

    @cached_property
    def _kept(self) -> Bool[Tensor, "sources targets"]:
        """All pairs but those of a word with itself."""
        return torch.from_numpy(self.relation.sources[:, None] != self.relation.targets)

    def judge(
        self,
        queries: Float[Tensor, "items key_dim"],
        keys: Float[Tensor, "items key_dim"],
        control: Float[Tensor, "items d_model"] | None = None,
    ) -> HeadScores:
        """The scores of one head, given the queries and keys of the relation's items.

        With `control`, rows of length 1, what their cosines explain is taken out first; what is
        left has no F1, since every row is standardised by itself.
        """
        columns, others = self._moved[:, 0], self._others
        rows = queries[self.relation.sources], keys[self.relation.targets]
        counts = _Thresholds((rows[0][self._edge_rows] * rows[1][columns]).sum(1))
        above = torch.zeros(len(columns))
        sums = torch.zeros(self.permutations + 1, dtype=torch.float64)
        for top, tile in self._tiles(queries, keys, control):
            bottom = top + len(tile)
            first, last = np.searchsorted(self._edge_rows, [top, bottom])
            part, rows = slice(first, last), self._edge_rows[first:last] - top
            scores, rivals = tile[rows], others[top:bottom][rows]
            own = scores.gather(1, columns[part, None])
            if control is None:
                counts.add(tile[others[top:bottom]])
            above[part] = ((scores > own) & rivals).sum(1) + ((scores == own) & rivals).sum(1) / 2
            places = torch.from_numpy(rows)[:, None] * tile.shape[1] + self._moved[part]
            standard = tile if control is not None else _standardised(tile, self._kept[top:bottom])
            sums += standard.take(places).double().sum(0)
        rivals = self._others.sum(1)[self._edge_rows].clamp(min=1)
        return HeadScores(
            auc=float((1 - above / rivals).mean()),
            mrr=float((1 / (1 + above)).mean()),
            f1=counts.best_f1() if control is None else float("nan"),
            statistics=(sums / len(columns)).numpy(),
        )

    def _tiles(
        self, queries: Tensor, keys: Tensor, control: Tensor | None
    ) -> Iterator[tuple[int, Float[Tensor, "rows targets"]]]:
        """Some rows of scores at a time, sources × targets, with the number of the first."""
        sources, targets = self.relation.sources, self.relation.targets
        step = max(1, _TILE // len(targets))
        for top in range(0, len(sources), step):
            some = sources[top : top + step]
            tile = queries[some] @ keys[targets].T
            if control is not None:
                kept = self._kept[top : top + step]
                tile = _standardised(tile, kept)
                cosines = _standardised(control[some] @ control[targets].T, kept)
                slope = (tile * cosines).sum(1, keepdim=True) / kept.sum(1, keepdim=True)
                tile -= slope * cosines
            yield top, tile


def random_sides(
    inputs: Float[Tensor, "items d_model"], key_dim: int, draws: int, seed: int = 0
) -> Iterator[tuple[Float[Tensor, "items key_dim"], Float[Tensor, "items key_dim"]]]:
    """Queries and keys of heads with Gaussian weights, on the same inputs."""
    stream, shape = generator(seed), (2, inputs.shape[1], key_dim)
    for _ in range(draws):
        query, key = torch.from_numpy(stream.standard_normal(shape, dtype=np.float32))
        yield inputs @ query, inputs @ key


def p_values(
    statistics: Float[np.ndarray, "heads permutations"],
) -> tuple[Float[np.ndarray, " heads"], Float[np.ndarray, " heads"]]:
    """One-sided p-values of each head, alone and corrected for the number of heads.

    Column 0 has the true edges' statistics. Heads are standardised over all columns, the true one
    included, so that under the null hypothesis all columns are alike.

    >>> alone, corrected = p_values(np.array([[9.0, 1.0, 2.0, 3.0], [2.0, 1.0, 3.0, 4.0]]))
    >>> alone.tolist(), corrected.tolist()
    ([0.25, 0.75], [0.25, 1.0])
    """
    spread = statistics.std(axis=1, keepdims=True)
    scaled = (statistics - statistics.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    rounded = np.round(scaled, 9)  # equal columns stay equal
    largest = rounded.max(axis=0)
    alone = (rounded >= rounded[:, :1]).mean(axis=1)
    return alone, (largest >= rounded[:, :1]).mean(axis=1)


class _Thresholds:
    """Counts of scores above thresholds between the lowest and the highest edge."""

    def __init__(self, on_edges: Float[Tensor, " edges"]) -> None:
        self._low, self._high = float(on_edges.min()), float(on_edges.max())
        self._edges, self._others = self._above(on_edges), torch.zeros(_THRESHOLDS)

    def add(self, others: Float[Tensor, " pairs"]) -> None:
        self._others = self._others + self._above(others)

    def best_f1(self) -> float:
        """The largest F1 over the thresholds; at the lowest all edges are found."""
        return float((2 * self._edges / (self._edges.max() + self._edges + self._others)).max())

    def _above(self, scores: Tensor) -> Float[Tensor, " thresholds"]:
        if self._low == self._high:  # all edges score alike: one threshold
            return (scores >= self._low).sum().double().expand(_THRESHOLDS)
        inside = torch.histc(scores, _THRESHOLDS, self._low, self._high).double()
        return inside.flip(0).cumsum(0) + float((scores > self._high).sum())


def _standardised(tile: Tensor, kept: Bool[Tensor, "rows targets"]) -> Tensor:
    """Each row with mean 0 and deviation 1; a word's score with itself counts as the mean."""
    number = kept.sum(1, keepdim=True).clamp(min=1)
    mean = (tile * kept).sum(1, keepdim=True) / number
    centred = (tile - mean) * kept
    deviation = (centred.square().sum(1, keepdim=True) / number).sqrt()
    return centred / deviation.clamp(min=1e-30)
