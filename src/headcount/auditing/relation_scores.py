"""How well a head's content scores follow a relation, with p-values by permutation.

Three effect sizes, all without a fitted number:

- AUC: how often an edge (s, t) scores above a pair (s, t') with the same source that is not an
  edge, where t' is the target of some edge. Softmax compares scores within a row, and so does this.
  An edge without such a pair counts as chance, 0.5.
- MRR: the mean of 1/rank of t among these.
- best F1: over all pairs at once, at the best of many thresholds. This is the paper's reading.

The p-value is of the mean standardised score over edges: each row of scores has its mean taken off
and is divided by its deviation. Targets are dealt anew among the edges (`permuted_targets`), which
keeps what a head knows about single words, such as that it prefers frequent ones, and destroys what
it knows about pairs. All heads see the same permutations. The corrected p-value compares a head
with the largest statistic over all heads under each permutation (Westfall and Young 1993). If
targets are exchangeable given the table, the chance of any false finding among the heads is at most
the level, for each relation.

Related words have similar embeddings, so a head that scores similar words high follows most
relations. Therefore what is left of each row of scores after a linear fit to the cosines of the
words' rows, the residual, is judged in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

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
    """What one head's scores say about a relation; `statistics` has the true edges' value first.

    `wins` has for each edge the share of its rivals that score lower; their mean is the AUC. An
    edge without a rival says nothing about the head and counts 0.5.
    Residuals have no F1, since every row of them is standardised by itself.
    """

    auc: float
    mrr: float
    f1: float
    statistics: Float[np.ndarray, " permutations"]
    wins: Float[np.ndarray, " edges"]


class Judgement(NamedTuple):
    """A head by its own scores, and by what the cosines of the words' rows do not explain."""

    own: HeadScores
    residual: HeadScores


@dataclass(frozen=True, eq=False)
class RelationTest:
    """A relation, its permutations and the rows of its items, ready to judge heads."""

    relation: Relation
    rows: Float[Tensor, "items d_model"]
    permutations: int = PERMUTATIONS
    seed: int = 0

    def judge(
        self, queries: Float[Tensor, "items key_dim"], keys: Float[Tensor, "items key_dim"]
    ) -> Judgement:
        """One head, given the queries and keys of the relation's items."""
        sources, targets = self.relation.sources, self.relation.targets
        left, right = queries[sources], keys[targets]
        counts = _Thresholds((left[self._edge_rows] * right[self._moved[:, 0]]).sum(1))
        own, residual = _Sums(self), _Sums(self)
        for top, bottom in self._tiles:
            tile = left[top:bottom] @ right.T
            counts.add(tile)
            for pairs in (self._selves(top, bottom), self._edges(top, bottom)):
                counts.leave_out(tile[pairs])
            standard = self._standardised(tile, top, bottom)
            own.add(top, tile, standard)
            cosines = self._cosines(top, bottom)
            slope = (standard * cosines).sum(1, keepdim=True) / cosines.square().sum(
                1, keepdim=True
            )
            standard -= slope * cosines
            residual.add(top, standard, standard)
        return Judgement(own.scores(counts.best_f1()), residual.scores(float("nan")))

    @cached_property
    def _tiles(self) -> list[tuple[int, int]]:
        """First and last row of the parts in which scores are made."""
        rows, step = len(self.relation.sources), max(1, _TILE // len(self.relation.targets))
        return [(top, min(top + step, rows)) for top in range(0, rows, step)]

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
        others = torch.from_numpy(relation.sources[:, None] != relation.targets)
        others[self._edge_rows, self._moved[:, 0]] = False
        return others

    @cached_property
    def _self_columns(self) -> Int[np.ndarray, " sources"]:
        """Where a source is among the targets; −1 where it is not."""
        place = np.searchsorted(self.relation.targets, self.relation.sources)
        place = np.minimum(place, len(self.relation.targets) - 1)
        return np.where(self.relation.targets[place] == self.relation.sources, place, -1)

    def _selves(self, top: int, bottom: int) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of a word with itself, in some of the rows."""
        columns = self._self_columns[top:bottom]
        rows = np.flatnonzero(columns >= 0)
        return rows, columns[rows]

    def _edges(self, top: int, bottom: int) -> tuple[np.ndarray, Tensor]:
        part = slice(*np.searchsorted(self._edge_rows, [top, bottom]))
        return self._edge_rows[part] - top, self._moved[part, 0]

    def _standardised(self, tile: Tensor, top: int, bottom: int) -> Tensor:
        """Each row with mean 0 and deviation 1; a word's score with itself counts as the mean."""
        selves = self._selves(top, bottom)
        number = torch.full((len(tile), 1), float(tile.shape[1]))
        number[selves[0]] -= 1
        out = tile.clone()
        out[selves] = 0.0
        out -= out.sum(1, keepdim=True) / number.clamp(min=1)
        out[selves] = 0.0
        deviation = torch.linalg.vector_norm(out, dim=1, keepdim=True) / number.clamp(min=1).sqrt()
        return out.div_(deviation.clamp(min=1e-30))

    @cached_property
    def _first_cosines(self) -> Float[Tensor, "rows targets"]:
        return self._made_cosines(*self._tiles[0])

    def _cosines(self, top: int, bottom: int) -> Float[Tensor, "rows targets"]:
        """Standardised cosines; of the first tile, mostly the only one, they are kept."""
        return self._first_cosines if top == 0 else self._made_cosines(top, bottom)

    def _made_cosines(self, top: int, bottom: int) -> Tensor:
        units = torch.nn.functional.normalize(self.rows)
        tile = units[self.relation.sources[top:bottom]] @ units[self.relation.targets].T
        return self._standardised(tile, top, bottom)


class _Sums:
    """Ranks of edges within their rows, and the statistics, summed over tiles."""

    def __init__(self, test: RelationTest) -> None:
        self._test = test
        self._above = torch.zeros(len(test._moved))
        self._sums = torch.zeros(test.permutations + 1, dtype=torch.float64)

    def add(self, top: int, tile: Tensor, standard: Tensor) -> None:
        test, bottom = self._test, top + len(tile)
        part = slice(*np.searchsorted(test._edge_rows, [top, bottom]))
        rows = test._edge_rows[part] - top
        scores, rivals = tile[rows], test._others[top:bottom][rows]
        own = scores.gather(1, test._moved[part, :1])
        higher, equal = (scores > own) & rivals, (scores == own) & rivals
        self._above[part] = higher.count_nonzero(1) + equal.count_nonzero(1) / 2
        places = torch.from_numpy(rows)[:, None] * tile.shape[1] + test._moved[part]
        self._sums += standard.take(places).sum(0)

    def scores(self, f1: float) -> HeadScores:
        rivals = self._test._others.sum(1)[self._test._edge_rows]
        wins = torch.where(rivals > 0, 1 - self._above / rivals.clamp(min=1), 0.5)
        return HeadScores(
            auc=float(wins.mean()),
            mrr=float((1 / (1 + self._above)).mean()),
            f1=f1,
            statistics=(self._sums / len(self._above)).numpy(),
            wins=wins.numpy(),
        )


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
    ([0.25, 0.75], [0.25, 0.75])
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
        self._edges = self._above(on_edges)
        self._others = torch.zeros(_THRESHOLDS, dtype=torch.float64)

    def add(self, scores: Tensor) -> None:
        self._others = self._others + self._above(scores)

    def leave_out(self, scores: Tensor) -> None:
        self._others = self._others - self._above(scores)

    def best_f1(self) -> float:
        """The largest F1 over the thresholds; at the lowest all edges are found."""
        return float((2 * self._edges / (self._edges.max() + self._edges + self._others)).max())

    def _above(self, scores: Tensor) -> Float[Tensor, " thresholds"]:
        if self._low == self._high:  # all edges score alike: one threshold
            return (scores >= self._low).sum().double().expand(_THRESHOLDS)
        inside = torch.histc(scores, _THRESHOLDS, self._low, self._high).double()
        return inside.flip(0).cumsum(0) + float((scores > self._high).sum())
