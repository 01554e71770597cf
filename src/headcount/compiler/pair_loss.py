"""The loss over all pairs and its slope, in one pass, for one trial: what L-BFGS descends.

A non-edge must stay below τ − μ in every head, where μ is a margin. An edge must exceed τ + μ in
one; its cost is the least over heads, softened: −T ln Σ_h exp(−cost_h/T), so that early on heads
share an edge and later one owns it. The loss is the sum of the squared violations. Where rows are
decided by their top, each row i has a level t_i of its own in place of τ; only their mean is fixed,
which keeps the scores from shrinking to nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.attention.key_query import per_head
from headcount.compiler.fused_pass import pass_for
from headcount.compiler.layout import Layout
from headcount.compiler.trial import Weights
from headcount.compiler.whitened import WhitenedProblem
from headcount.shapes import Bool, Float, Int

_HEAVIEST = 1e8  # a pair's weight grows no further


@dataclass(frozen=True)
class Look:
    """How a point does: exact if `gap` is positive.

    `lows` and `highs` are each row's lowest edge and highest non-edge, `wrong` counts the pairs on
    the wrong side of the level. `missed` and `above` are the wrong edges and the places of the
    wrong non-edges.
    """

    lows: Float[Tensor, " items"]
    highs: Float[Tensor, " items"]
    top: bool
    wrong: int
    missed: Bool[Tensor, " edges"]
    above: Int[Tensor, " places"]

    @property
    def extremes(self) -> tuple[float, float]:
        """The lowest edge and the highest non-edge; by top, of the row where they are closest."""
        if not self.top:
            return float(self.lows.min()), float(self.highs.max())
        closest = (self.lows - self.highs).argmin()
        return float(self.lows[closest]), float(self.highs[closest])

    @property
    def gap(self) -> float:
        low, high = self.extremes
        return low - high

    @property
    def relative_gap(self) -> float:
        """(low − high)/(|low| + |high|): half the gap as a share of the level in its middle."""
        low, high = self.extremes
        return (low - high) / (abs(low) + abs(high) or 1.0)


class PairLoss:
    """The loss of one problem in heads of a given layout, as a function of one flat vector.

    The vector holds W_Q and W_K in whitened coordinates, a shared key once, and the rows' levels
    where rows are decided by their top.
    """

    def __init__(self, problem: WhitenedProblem, layout: Layout) -> None:
        self.problem, self.layout, self.top = problem, layout, layout.top
        self.matrix = problem.rank, max(layout.widths)
        self.sizes = [count * math.prod(self.matrix) for count in (layout.heads, layout.keys)]
        self.parameters = sum(self.sizes)
        self.passes = pass_for(problem, layout)
        self.edge_weight = problem.points.new_ones(problem.edges)
        self._pressed = problem.sources.new_empty(0), problem.points.new_empty(0)  # places, weights

    def start(self, weights: Weights) -> Float[Tensor, " parameters"]:
        """The vector of given weights, all levels equal; heads that share take the first key."""
        parts = [weights.queries.flatten(), weights.keys[:: self.layout.sharing].flatten()]
        if self.top:
            parts.append(parts[0].new_full((self.problem.items,), self.problem.level))
        return torch.cat(parts)

    def weights(self, at: Float[Tensor, " parameters"]) -> Weights:
        """Weights with a key for each head, equal where heads share."""
        queries, keys = self._matrices(at)
        return Weights(queries, per_head(keys, self.layout.heads))

    def scaled(self, at: Float[Tensor, " parameters"], factor: float) -> Tensor:
        """Scores, and with them the levels, times `factor`."""
        moved = at * factor**0.5
        moved[self.parameters :] *= factor**0.5
        return moved

    def centred(self, at: Float[Tensor, " parameters"]) -> Float[Tensor, " parameters"]:
        """The same weights with the levels in the middle of the gaps, scaled to the problem's."""
        found = self.look(at)
        low, high = found.lows, found.highs
        if self.top:
            both = (low - high).isfinite()
            levels = torch.where(both, (low + high) / 2, high)
            levels = torch.where(levels.isfinite(), levels, self.problem.level)
            middle = float(levels[both].mean()) if bool(both.any()) else 0.0
            at = torch.cat([at[: self.parameters], levels])
        else:
            middle = float(low.min() + high.max()) / 2
        usable = middle * self.problem.level > 0
        return self.scaled(at, self.problem.level / middle) if usable else at

    def value_and_slope(
        self, at: Float[Tensor, " parameters"], margin: float, temperature: float
    ) -> tuple[float, Float[Tensor, " parameters"], bool]:
        """The loss, its slope, and whether the point is exact as far as TF32 can tell."""
        problem = self.problem
        queries, keys, levels = self._projected(at)
        wanted = levels[problem.sources] + margin
        edge_scores = _edge_scores(problem, queries, keys)
        short = (wanted - edge_scores).clamp_min_(0)
        cost, share = _shared(short.square(), temperature)
        loss = (self.edge_weight * cost).sum()
        pull = share.mul_(short).mul_(self.edge_weight)
        found = self.passes.violations(queries, keys, margin - levels, pull)
        loss += found.loss
        key_slope = found.key_slopes
        if self.layout.sharing > 1:
            key_slope = key_slope.unflatten(0, (-1, self.layout.sharing)).sum(1)
        slope, across = torch.empty_like(at), 2 * problem.points.T
        for part, of in zip(self._matrices(slope), (found.query_slopes, key_slope), strict=True):
            torch.matmul(across, of, out=part)
        if self.top:
            by_row = -2 * found.sums
            slope[self.parameters :] = by_row - by_row.mean()
        exact = self._separates(edge_scores.amax(0), levels, found.peaks - margin)
        return float(loss), slope, exact

    def look(self, at: Float[Tensor, " parameters"]) -> Look:
        """One pass without a slope, in full precision."""
        problem = self.problem
        queries, keys, levels = self._projected(at)
        best = _edge_scores(problem, queries, keys).amax(0)
        missed = best <= levels[problem.sources]
        found = self.passes.sifted(queries, keys, levels)
        low = torch.full_like(levels, torch.inf)
        low.scatter_reduce_(0, problem.sources, best, "amin")
        wrong = int(missed.sum()) + found.count
        return Look(low, found.highs, self.top, wrong, missed, found.above)

    def press(self, found: Look, factor: float) -> None:
        """Raise the weight of every pair that was found wrong, unless they are too many to list."""
        if found.wrong > int(found.missed.sum()) + len(found.above):
            return
        raised = (self.edge_weight * factor).clamp_max_(_HEAVIEST)
        self.edge_weight = torch.where(found.missed, raised, self.edge_weight)
        places, weights = self._pressed
        every, which = torch.unique(torch.cat([places, found.above]), return_inverse=True)
        grown = weights.new_ones(len(every))
        grown[which[: len(places)]] = weights
        grown[which[len(places) :]] *= factor
        self._pressed = every, grown.clamp_max_(_HEAVIEST)
        self.passes.press(*self._pressed)

    def _separates(
        self,
        best: Float[Tensor, " edges"],
        levels: Float[Tensor, " items"],
        over: Float[Tensor, " items"],
    ) -> bool:
        """Whether edges exceed non-edges: all of them, or those of the same row."""
        lead = best - levels[self.problem.sources]
        if self.top:
            return bool((lead > over[self.problem.sources]).all())
        return bool(lead.min() > over.max())

    def _matrices(self, at: Float[Tensor, " parameters"]) -> tuple[Tensor, Tensor]:
        """W_Q and W_K as parts of the vector: [heads, rank, d_k] and [keys, rank, d_k]."""
        queries, keys = at[: self.parameters].split(self.sizes)
        return queries.view(-1, *self.matrix), keys.view(-1, *self.matrix)

    def _projected(self, at: Tensor) -> tuple[Tensor, Tensor, Float[Tensor, " items"]]:
        queries, keys = (self.problem.points @ part for part in self._matrices(at))
        keys = per_head(keys, self.layout.heads)
        if self.top:
            return queries, keys, at[self.parameters :]
        return queries, keys, at.new_full((self.problem.items,), self.problem.level)


def _edge_scores(problem: WhitenedProblem, queries: Tensor, keys: Tensor) -> Tensor:
    """Each edge's score in each head."""
    return (queries[:, problem.sources] * keys[:, problem.targets]).sum(2)


def _shared(
    costs: Float[Tensor, "heads edges"], temperature: float
) -> tuple[Float[Tensor, " edges"], Float[Tensor, "heads edges"]]:
    """The softened least cost of each edge, and each head's share in it.

    At temperature 0 one head owns it all.
    """
    if temperature <= 0:
        least, owner = costs.min(0)
        return least, torch.zeros_like(costs).scatter_(0, owner.unsqueeze(0), 1.0)
    logits = costs / -temperature
    return logits.logsumexp(0).mul_(-temperature), logits.softmax(0)
