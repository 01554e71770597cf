"""A softmax head whose logits are in a given order in every row: L-BFGS on all pairs.

The order of head 1 is edge > the source itself > everything else, that of head 2 is edge >
everything else > the source itself (softmax_descent.py says what for). The loss is the sum of the
squared shortfalls of a margin that shrinks from stage to stage. Heads share no pair of logits, so
each is a descent of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from headcount.compiler.quasi_newton import Memory, minimise
from headcount.compiler.staged_descent import Stages
from headcount.compiler.trial import start
from headcount.compiler.whitened import WhitenedProblem
from headcount.shapes import Float, Int
from headcount.threads import denormals_flushed

_STAGES = Stages(24)
_ENOUGH = 0.05  # a difference of logits that ends a descent: stretching does the rest


@dataclass(frozen=True)
class Order:
    """Of every row: its edge, if it has one, above all others; the source above or below these."""

    problem: WhitenedProblem
    source_is_above: bool

    @cached_property
    def _loops(self) -> Int[Tensor, " loops"]:
        """Items that are their own target: they have no further place in the order."""
        return self.problem.sources[self.problem.sources == self.problem.targets]

    def loss(
        self, weights: Float[Tensor, "two rank width"], margin: float
    ) -> tuple[float, Float[Tensor, "two rank width"], float]:
        """Squared shortfalls of the margin, their slope, and the least difference in the order."""
        points, edge = self.problem.points, (self.problem.sources, self.problem.targets)
        queries, keys = points @ weights
        logits = queries @ keys.T
        sign = 1.0 if self.source_is_above else -1.0
        behind = sign * (logits - logits.diagonal()[:, None])  # how far others pass the source
        behind.fill_diagonal_(-torch.inf)
        behind[edge] = -torch.inf
        behind[self._loops] = -torch.inf
        highest = float(behind.max())
        short = (behind + margin).clamp_min_(0)
        total = float(short.square().sum())
        slope = sign * short
        slope.diagonal().sub_(slope.sum(1))
        behind = logits[edge[0]] - logits[edge][:, None]  # how far others pass the edge
        behind[torch.arange(len(edge[0])), edge[1]] = -torch.inf
        highest = max(highest, float(behind.max()))
        short = (behind + margin).clamp_min_(0)
        total += float(short.square().sum())
        slope.index_add_(0, edge[0], short)
        slope[edge] -= short.sum(1)
        moved = torch.stack([points.T @ (slope @ keys), points.T @ (slope.T @ queries)])
        return total, 2 * moved, -highest


def descend_in_order(
    order: Order, width: int, seed: int, keep_on: Callable[[], bool]
) -> tuple[Float[Tensor, "two rank width"], float]:
    """W_Q and W_K of the best point, and the least difference in its order: right if positive."""
    first = start(order.problem, (width,), seed)
    at = torch.stack([first.queries[0], first.keys[0]])
    shape, at = at.shape, at.flatten()
    best, widest, memory = at, -torch.inf, Memory.like(at)
    with denormals_flushed():
        for stage in range(_STAGES.count):
            margin = _STAGES.margin(stage)

            def function(point: Tensor, margin: float = margin) -> tuple[float, Tensor, bool]:
                nonlocal best, widest
                total, slope, least = order.loss(point.view(shape), margin)
                if least > widest:
                    best, widest = point, least
                return total, slope.flatten(), least >= min(_ENOUGH, margin / 2)

            at = minimise(function, at, memory, _STAGES.iterations, keep_on)
            if widest >= min(_ENOUGH, margin / 2) or not keep_on():
                break
    return best.view(shape), widest
