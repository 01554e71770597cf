"""L-BFGS on all pairs in stages of a shrinking margin.

The margin μ starts wide (every pair shapes the weights) and shrinks (only pairs near τ do), and
with it the temperature at which heads share edges. In the second half wrong pairs gain weight. All
this changes between stages only, so that a stage is one smooth problem; what L-BFGS has learnt of
the curvature is carried on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headcount.compiler.layout import Layout
from headcount.compiler.pair_loss import PairLoss
from headcount.compiler.quasi_newton import Memory, minimise
from headcount.compiler.trial import Descended, Weights, start
from headcount.compiler.whitened import WhitenedProblem

# With a wide margin all scores shrink towards 0 at first, where heads hardly differ. Heads with
# keys of their own part again, and better for it; heads that share a key do not.
_WIDEST, _WIDEST_SHARED = 0.8, 0.3
# With columns to spare heads need not part so well. A narrower first margin then saves a third to
# four fifths of the steps (docs/compiler.md); pairs of budget over estimate and margin.
_WIDEST_SPARE = ((2.0, 0.2), (1.25, 0.4))
_GROWTH = 1.3  # how much wider a margin is tried each time
_WIDENING = 15  # iterations for each


@dataclass(frozen=True)
class Stages:
    """How a descent runs; the defaults are the measured best (docs/compiler.md)."""

    count: int = 16
    iterations: int = 20  # in each
    widest: float = _WIDEST
    narrowest: float = 0.01
    softness: float = 3.0  # heads share an edge at temperature softness·μ²
    pressing: float = 0.5  # share of the stages after which wrong pairs gain weight
    factor: float = 1.5

    @classmethod
    def of(cls, layout: Layout, count: int, spare: float = 1.0) -> Stages:
        """The stages for heads that share keys, or do not; `spare` is the budget over the estimate.

        Rows decided by their top have levels of their own, which take the wide margin to settle.
        """
        if layout.sharing > 1:
            return cls(count, widest=_WIDEST_SHARED)
        if layout.top:
            return cls(count)
        fitting = (widest for least, widest in _WIDEST_SPARE if spare >= least)
        return cls(count, widest=next(fitting, _WIDEST))

    def margin(self, stage: int) -> float:
        share = stage / max(1, self.count - 1)
        return self.widest * (self.narrowest / self.widest) ** share


def descend_in_stages(
    problem: WhitenedProblem,
    layout: Layout,
    seed: int,
    stages: Stages,
    keep_on: Callable[[int, Descended | None], bool] = lambda steps, best: True,
) -> Descended:
    """Stop at the first exact point; `keep_on(steps, best so far)` is asked at every pass."""
    loss = PairLoss(problem, layout)
    at = loss.start(start(problem, layout.widths, seed))
    memory = Memory.like(at)
    best: Descended | None = None
    steps = 0

    def go_on() -> bool:
        nonlocal steps
        steps += 1
        return keep_on(steps, best)

    for stage in range(stages.count):
        margin = stages.margin(stage)

        def function(point, margin=margin):
            return loss.value_and_slope(point, margin, stages.softness * margin**2)

        at = minimise(function, at, memory, stages.iterations, go_on)
        found = loss.look(at)
        if best is None or found.gap > 0 or found.wrong < best.wrong:
            best = Descended(loss.weights(at), found.gap, found.wrong, steps)
        if best.gap > 0 or not keep_on(steps, best):
            break
        if stage >= stages.pressing * stages.count:
            loss.press(found, stages.factor)
    assert best is not None
    return best


def widen_in_stages(
    problem: WhitenedProblem,
    weights: Weights,
    layout: Layout,
    keep_on: Callable[[], bool],
    enough: float,
    rounds: int,
) -> Weights:
    """Widen the relative margin of exact weights: each round aims a little beyond the last one."""
    loss = PairLoss(problem, layout)
    at = loss.centred(loss.start(weights))
    best, widest = at, loss.look(at).relative_gap
    for _ in range(rounds):
        if widest >= enough or not keep_on():
            break
        margin = max(_GROWTH * widest, 1e-3)
        # Centred scores have their level at ±1, so μ is a share of it.

        def function(point, margin=margin):
            return (*loss.value_and_slope(point, margin, 0.0)[:2], False)

        at = minimise(function, best, Memory.like(best), _WIDENING, keep_on)
        at = loss.centred(at)
        found = loss.look(at).relative_gap
        if not found > widest:
            break
        best, widest = at, found
    return loss.weights(best)
