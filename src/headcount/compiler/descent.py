"""Levenberg–Marquardt on all pairs with a shrinking margin, for a stack of trials at once.

The margin μ starts wide (every pair shapes the weights) and shrinks (only pairs near τ do), and
with it the temperature at which heads share edges. In the second half wrong pairs gain weight. The
worse half of the trials is dropped twice on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from headcount.compiler.objective import Objective, Pressure, Reading, Weights
from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.streams import generator

_PRESSED = 2**26  # pairs of all trials up to which non-edges have weights of their own
# What a step that helps, or does not, makes of the damping λ: near Gauss–Newton while the model is
# good, towards short steps along the gradient while it is not.
_EASIER, _HARDER = 0.6, 2.0
_LEAST, _MOST = 1e-6, 1e3  # λ stays in this range, where the steps are neither wild nor frozen


@dataclass(frozen=True)
class Schedule:
    """How a descent runs; the defaults are the measured best (docs/compiler.md)."""

    steps: int = 400
    widest: float = 0.8
    narrowest: float = 0.01
    shrinking: float = 0.7  # share of the steps over which μ shrinks
    softness: float = 3.0  # heads share an edge at temperature softness·μ²
    pressing: float = 0.5  # share of the steps after which wrong pairs gain weight
    factor: float = 1.1
    edge_weight: float = 1.0  # of an edge at first; a non-edge weighs 1
    culls: tuple[float, ...] = (0.3, 0.5)
    # Share of the steps without fewer wrong pairs, once μ is narrow, that ends a descent.
    patience: float = 0.15

    def margin(self, step: int) -> float:
        share = min(1.0, step / (self.shrinking * self.steps))
        return self.widest * (self.narrowest / self.widest) ** share

    def hopeless(self, step: int, best_at: int) -> bool:
        """Whether μ has been narrow for long and no trial has come closer."""
        return step - max(best_at, self.shrinking * self.steps) > self.patience * self.steps


@dataclass(frozen=True)
class Descended:
    """The best trial of a descent: exact if `gap` > 0, as far as float32 can tell."""

    weights: Weights
    gap: float
    wrong: int
    steps: int

    @classmethod
    def of(cls, weights: Weights, here: Reading, step: int) -> Descended:
        """The trial with the widest gap, or if none separates, with the fewest wrong pairs."""
        leader = int(here.gap.argmax() if bool((here.gap > 0).any()) else here.wrong.argmin())
        chosen = torch.tensor([leader], device=here.gap.device)
        return cls(weights[chosen], float(here.gap[leader]), int(here.wrong[leader]), step)


def descend(
    problem: WhitenedProblem,
    widths: tuple[int, ...],
    trials: int,
    seed: int,
    schedule: Schedule,
    keep_on: Callable[[int, Descended], bool] = lambda step, best: True,
) -> Descended:
    """Stop at the first exact trial; `keep_on(step, best so far)` is asked every step."""
    objective, device = Objective(problem), problem.points.device
    weights = start(problem, widths, trials, seed)
    pressure = Pressure(torch.full((trials, problem.edges), schedule.edge_weight, device=device))
    damping = torch.full((trials,), 1e-2, device=device)
    cull_at = [int(share * schedule.steps) for share in schedule.culls]
    best = None
    for step in range(schedule.steps):
        margin = schedule.margin(step)
        if step in cull_at and len(damping) > 1:
            loss = objective.read(weights, margin, 0.0, pressure).loss
            kept = loss.argsort()[: -(-len(damping) // 2)]
            weights, pressure, damping = weights[kept], pressure[kept], damping[kept]
        if step == int(schedule.pressing * schedule.steps):
            _start_pressing(problem, pressure, schedule.factor)
        setting = margin, schedule.softness * margin**2, pressure
        here = objective.read(weights, *setting, damping)
        found = Descended.of(weights, here, step)
        if best is None or found.gap > 0 or found.wrong < best.wrong:
            best = found
        if best.gap > 0 or schedule.hopeless(step, best.steps) or not keep_on(step, best):
            break
        assert here.step is not None
        moved = weights.minus(here.step)
        better = objective.read(moved, *setting).loss < here.loss
        weights = moved.where(better, weights)  # a trial that got worse stays where it is
        pressure.press(here)
        damping = torch.where(better, damping * _EASIER, damping * _HARDER).clamp_(_LEAST, _MOST)
    assert best is not None
    return best


def _start_pressing(problem: WhitenedProblem, pressure: Pressure, factor: float) -> None:
    """From now on wrong pairs gain weight; non-edges too where their weights fit in memory."""
    pressure.factor = factor
    trials, items = len(pressure.edges), problem.items
    if trials * items**2 <= _PRESSED:
        pressure.others = torch.ones(trials, items, items, device=problem.points.device)


def start(problem: WhitenedProblem, widths: tuple[int, ...], trials: int, seed: int) -> Weights:
    """Normal weights under which scores are about standard normal.

    Columns beyond a head's width are zero and stay so, since both factors of their slope vanish.
    """
    shape = (2, trials, len(widths), problem.rank, max(widths))
    draws = torch.from_numpy(generator(seed, 0xC0DE).standard_normal(shape)).float()
    for head, width in enumerate(widths):
        draws[:, :, head, :, width:] = 0.0
        draws[:, :, head] /= width**0.25
    return Weights(*draws.to(problem.points.device))
