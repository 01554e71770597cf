"""L-BFGS (Nocedal and Wright, Algorithms 7.4 and 7.5) with a backtracking line search.

The two-loop recursion runs on the Gram matrix of the kept steps, slope changes and the slope: a few
scalars in Python, and one product with all of them, in place of forty small ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from headcount.shapes import Float

_KEPT = 10  # steps remembered
_DECREASE = 1e-4  # share of the promised decrease that a step must give (Armijo)
_BACKTRACKS = 8
_FIRST = 0.01  # length of a step along the slope, as a share of the point's norm
_FLAT = 1e-10  # s·y below this share of y·y says nothing about the curvature

Function = Callable[[Tensor], tuple[float, Tensor, bool]]  # loss, slope, whether it is enough


@dataclass
class Memory:
    """The last steps s and slope changes y, newest last in `order`; it may serve several losses."""

    basis: Float[Tensor, "kept parameters"]  # all s, all y, the slope
    gram: np.ndarray = field(default_factory=lambda: np.zeros((2 * _KEPT + 1,) * 2))
    order: list[int] = field(default_factory=list)

    @classmethod
    def like(cls, at: Float[Tensor, " parameters"]) -> Memory:
        return cls(at.new_zeros(2 * _KEPT + 1, len(at)))

    def keep(
        self, step: Float[Tensor, " parameters"], change: Float[Tensor, " parameters"]
    ) -> None:
        """Remember a step, in place of the oldest if there are many."""
        if float(step @ change) <= _FLAT * float(change @ change):
            return
        place = len(self.order) if len(self.order) < _KEPT else self.order.pop(0)
        self.order.append(place)
        self._set(place, step)
        self._set(_KEPT + place, change)

    def direction(self, slope: Float[Tensor, " parameters"]) -> tuple[Tensor, float]:
        """Minus the inverse Hessian times the slope, and how fast the loss falls that way."""
        self._set(-1, slope)
        share, parts = np.zeros(len(self.gram)), {}
        share[-1] = -1.0
        for i in reversed(self.order):
            parts[i] = float(share @ self.gram[:, i]) / self.gram[i, _KEPT + i]
            share[_KEPT + i] -= parts[i]
        if self.order:
            i = self.order[-1]
            share *= self.gram[i, _KEPT + i] / self.gram[_KEPT + i, _KEPT + i]
        for i in self.order:
            share[i] += parts[i] - float(share @ self.gram[:, _KEPT + i]) / self.gram[i, _KEPT + i]
        rate = float(share @ self.gram[:, -1])
        if not self.order or not rate < 0:
            self.order.clear()
            return -slope, -float(slope @ slope)
        return torch.from_numpy(share).to(slope) @ self.basis, rate

    def _set(self, place: int, vector: Tensor) -> None:
        self.basis[place] = vector
        products = (self.basis @ vector).double().cpu().numpy()
        self.gram[place], self.gram[:, place] = products, products


def minimise(
    function: Function,
    at: Float[Tensor, " parameters"],
    memory: Memory,
    iterations: int,
    keep_on: Callable[[], bool],
) -> Float[Tensor, " parameters"]:
    """Some iterations from a point, fewer once a point is good enough or no step helps."""
    loss, slope, enough = function(at)
    for _ in range(iterations):
        if enough or not keep_on():
            break
        direction, rate = memory.direction(slope)
        length = 1.0
        if not memory.order:  # the slope's own length says nothing about how far to go
            length = _FIRST * float(at.norm()) / max(math.sqrt(-rate), 1e-30)
        moved = at + length * direction
        new_loss, new_slope, enough = function(moved)
        for _ in range(_BACKTRACKS):
            if enough or new_loss <= loss + _DECREASE * length * rate or not keep_on():
                break
            # The minimum of the parabola through both losses, not too near to either end.
            bend = 2 * (new_loss - loss - length * rate)
            best = -rate * length**2 / bend if math.isfinite(bend) and bend > 0 else 0.0
            length = min(max(best, 0.1 * length), 0.5 * length)
            moved = at + length * direction
            new_loss, new_slope, enough = function(moved)
        if not (enough or new_loss < loss):
            break
        memory.keep(moved - at, new_slope - slope)
        at, loss, slope = moved, new_loss, new_slope
    return at
