"""The loss over all pairs: squared violations of a margin μ around τ, head by head, tile by tile.

A non-edge must stay below τ − μ in every head. An edge must exceed τ + μ in one; its cost is the
least over heads, softened: −T ln Σ_h exp(−cost_h/T), so that early on heads share an edge and later
one owns it. Given those shares a violation depends on one head alone, so the Gauss–Newton model
falls into one block per head. No more than a tile of scores (some heads × some rows × all columns)
exists at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.compiler.curvature import Direct, Iterative, Tile, model_of, solve_together
from headcount.compiler.whitened import WhitenedProblem
from headcount.shapes import Bool, Float, Int

_TILE = {"cpu": 2**20, "cuda": 2**25}  # scores held at a time
_ROWS = 128  # but no fewer rows at a time than this
_HEAVIEST = 1e8  # a pair's weight grows no further


@dataclass(frozen=True)
class Weights:
    """A stack of trials: W_Q, W_K in whitened coordinates, each [trials, heads, rank, key_dim]."""

    queries: Float[Tensor, "trials heads rank key_dim"]
    keys: Float[Tensor, "trials heads rank key_dim"]

    def __getitem__(self, chosen: Int[Tensor, " some"]) -> Weights:
        return Weights(self.queries[chosen], self.keys[chosen])

    def minus(self, step: Float[Tensor, "trials heads two rank key_dim"]) -> Weights:
        return Weights(self.queries - step[:, :, 0], self.keys - step[:, :, 1])

    def where(self, chosen: Bool[Tensor, " trials"], other: Weights) -> Weights:
        """These where chosen, the others elsewhere."""
        mask = chosen[:, None, None, None]
        return Weights(
            torch.where(mask, self.queries, other.queries), torch.where(mask, self.keys, other.keys)
        )

    def scaled(self, factor: float) -> Weights:
        """Scores times `factor`."""
        return Weights(self.queries * factor**0.5, self.keys * factor**0.5)


@dataclass(frozen=True)
class Reading:
    """What one pass over all pairs says of each trial.

    `low`: the lowest edge, `high`: the highest non-edge, `wrong`: pairs on the wrong side of τ (a
    non-edge counts once for each head that exceeds τ), `step`: where the model's minimum lies, if
    it was asked for. `missed` and `above`: the wrong edges, and the places of the wrong non-edges
    in [trials, items, items] where these are to be pressed.
    """

    loss: Float[Tensor, " trials"]
    low: Float[Tensor, " trials"]
    high: Float[Tensor, " trials"]
    wrong: Int[Tensor, " trials"]
    step: Float[Tensor, "trials heads two rank key_dim"] | None
    missed: Bool[Tensor, "trials edges"]
    above: Int[Tensor, " places"]

    @property
    def gap(self) -> Float[Tensor, " trials"]:
        """Positive where the scores separate."""
        return self.low - self.high


@dataclass
class Pressure:
    """How much each pair counts in each trial; non-edges count 1 each until `others` exists."""

    edges: Float[Tensor, "trials edges"]
    others: Float[Tensor, "trials items items"] | None = None
    factor: float = 1.0  # above 1: by how much `press` raises the weight of a pair

    def __getitem__(self, chosen: Int[Tensor, " some"]) -> Pressure:
        return Pressure(
            self.edges[chosen], None if self.others is None else self.others[chosen], self.factor
        )

    @property
    def presses_others(self) -> bool:
        return self.factor > 1 and self.others is not None

    def press(self, found: Reading) -> None:
        """Raise the weight of every pair that a reading found wrong, once for all heads."""
        if self.factor > 1:
            self.edges = torch.where(
                found.missed, (self.edges * self.factor).clamp_max_(_HEAVIEST), self.edges
            )
        if self.presses_others and self.others is not None:
            flat = self.others.view(-1)
            flat[found.above] = (flat[found.above] * self.factor).clamp_max_(_HEAVIEST)


class Objective:
    """All pairs of one whitened problem."""

    def __init__(self, problem: WhitenedProblem) -> None:
        self.problem, items = problem, problem.items
        self.tile = _TILE[problem.points.device.type]
        self.height = min(items, max(self.tile // items, _ROWS))
        tops = torch.arange(0, items + self.height, self.height).to(problem.sources)
        bounds = torch.searchsorted(problem.sources, tops).tolist()
        self.blocks = [
            (slice(top, min(top + self.height, items)), slice(bounds[n], bounds[n + 1]))
            for n, top in enumerate(range(0, items, self.height))
        ]

    def read(
        self,
        weights: Weights,
        margin: float,
        temperature: float,
        pressure: Pressure,
        damping: Float[Tensor, " trials"] | None = None,
    ) -> Reading:
        """One pass; with `damping` also each trial's Levenberg–Marquardt step."""
        trials, heads, rank, width = weights.queries.shape
        queries, keys = (
            (self.problem.points @ part).flatten(0, 1) for part in (weights.queries, weights.keys)
        )
        scores = self._edge_scores(queries, keys).view(trials, heads, -1)
        best = scores.amax(1)
        missed = best <= self.problem.level
        short = (self.problem.level + margin - scores).clamp_min_(0)
        cost, share = shared(short.square(), temperature)
        # Given the shares, an edge is a squared shortfall in each head, weighted by its share.
        pull = share.mul_(short > 0).mul_(pressure.edges.unsqueeze(1))
        sums = _Sums(
            (pressure.edges * cost).sum(1),
            missed.sum(1),
            torch.full_like(best[:, 0], -torch.inf),
            [missed.new_empty(0, dtype=torch.long)],
        )
        pull, short = pull.flatten(0, 1), short.flatten(0, 1)
        parts = [
            _Part(queries[some], keys[some], trial, pull[some], short[some])
            for some, trial in self._chunks(trials, heads)
        ]
        step = None
        if damping is None:
            for part in parts:
                self._pass(part, margin, pressure, sums, None)
        else:
            step = self._steps(parts, margin, pressure, sums, damping)
            step = step.view(trials, heads, 2, rank, width)
        above = torch.cat(sums.above)
        return Reading(sums.loss, best.amin(1), sums.high, sums.wrong, step, missed, above)

    def _steps(
        self,
        parts: list[_Part],
        margin: float,
        pressure: Pressure,
        sums: _Sums,
        damping: Float[Tensor, " trials"],
    ) -> Float[Tensor, "all parameters"]:
        """A pass that also gathers each head's Gauss–Newton model, and the damped steps."""
        direct: list[Tensor] = []
        waiting: list[Iterative] = []  # solved together: one head alone would not fill a device
        for part in parts:
            model = model_of(self.problem.points, part.queries, part.keys)
            self._pass(part, margin, pressure, sums, model)
            if isinstance(model, Direct):
                direct.append(model.step(damping[part.trial]))
            else:
                waiting.append(model)
        if direct:  # heads are of one size, so all models are of one kind
            return torch.cat(direct)
        shares = damping[torch.cat([part.trial for part in parts])]
        return solve_together(self.problem.points, waiting, shares)

    def _edge_scores(self, queries: Tensor, keys: Tensor) -> Float[Tensor, "all edges"]:
        """Each edge's score in each head of each trial."""
        ends = self.problem.sources, self.problem.targets
        both = zip(queries, keys, strict=True)
        return torch.stack([(query[ends[0]] * key[ends[1]]).sum(1) for query, key in both])

    def _chunks(self, trials: int, heads: int) -> Iterator[tuple[slice, Int[Tensor, " c"]]]:
        """Heads of all trials, as many at a time as a tile holds, and the trials they belong to."""
        each = max(1, self.tile // (self.problem.items * self.height))
        for first in range(0, trials * heads, each):
            chosen = torch.arange(
                first, min(first + each, trials * heads), device=self.problem.points.device
            )
            yield slice(first, first + len(chosen)), chosen // heads

    def _pass(
        self,
        part: _Part,
        margin: float,
        pressure: Pressure,
        sums: _Sums,
        model: Direct | Iterative | None,
    ) -> None:
        """All pairs of some heads: add up violations of non-edges, give the model every pair."""
        items = self.problem.items
        for rows, few in self.blocks:
            scores = part.queries[:, rows] @ part.keys.mT
            places = (
                slice(None),
                self.problem.sources[few] - rows.start,
                self.problem.targets[few],
            )
            scores[places] = -torch.inf  # edges have their own violations, in `pull` and `short`
            sums.high.scatter_reduce_(0, part.trial, scores.flatten(1).amax(1), "amax")
            excess = scores.sub_(self.problem.level - margin).clamp_min_(0)
            above = excess > margin
            sums.wrong.index_add_(0, part.trial, above.flatten(1).sum(1))
            if model is not None and pressure.presses_others:
                which, row, column = above.nonzero(as_tuple=True)
                sums.above.append((part.trial[which] * items + row + rows.start) * items + column)
            weight = None if pressure.others is None else pressure.others[part.trial, rows]
            slope = excess if weight is None else excess * weight
            sums.loss.index_add_(0, part.trial, (excess * slope).flatten(1).sum(1))
            if model is not None:
                active = (excess > 0).to(excess.dtype)
                active = active if weight is None else active.mul_(weight)
                active[places] = part.pull[:, few]
                slope[places] = -part.pull[:, few] * part.short[:, few]
                model.add(Tile(rows, slope, active, places[1:]))


@dataclass(frozen=True)
class _Part:
    """Some heads: their projections, their trials, and each edge's weight and shortfall in them."""

    queries: Float[Tensor, "c items key_dim"]
    keys: Float[Tensor, "c items key_dim"]
    trial: Int[Tensor, " c"]
    pull: Float[Tensor, "c edges"]
    short: Float[Tensor, "c edges"]


@dataclass(frozen=True)
class _Sums:
    """What a pass adds up for each trial."""

    loss: Float[Tensor, " trials"]
    wrong: Int[Tensor, " trials"]
    high: Float[Tensor, " trials"]
    above: list[Int[Tensor, " places"]]


def shared(
    costs: Float[Tensor, "trials heads edges"], temperature: float
) -> tuple[Float[Tensor, "trials edges"], Float[Tensor, "trials heads edges"]]:
    """The softened least cost of each edge, and each head's share in it.

    At temperature 0 one head owns it all.
    """
    if temperature <= 0:
        least, owner = costs.min(1)
        return least, torch.zeros_like(costs).scatter_(1, owner.unsqueeze(1), 1.0)
    logits = costs / -temperature
    return logits.logsumexp(1).mul_(-temperature), logits.softmax(1)
