"""Advice on training: heads, width and steps for a graph, with the chance that they suffice.

Within the sizes that were measured the advice follows the law of steps. Outside them there is none:
`Advice.outside` says which size is beyond what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from headcount.errors import InputError
from headcount.theory.capacity_law import TRAINED_RATIOS, capacity_ratio, freedom_needed
from headcount.theory.laws import PlannedAggregation
from headcount.theory.steps_law import STEPS_LAW

USUAL_STEPS, USUAL_CHANCE = 50_000, 0.95
_HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_TRADED = (20_000, 50_000, 100_000)
# Softmax was measured at five points with 80,000 steps. It is given this many times the heads that
# max gets for 20,000 steps and a chance of 90 %, at the same width: enough at all five points.
SOFTMAX_STEPS, SOFTMAX_FACTOR, _SOFTMAX_OF = 80_000, 2, (20_000, 0.9)
# The widths of the best splits that were measured: the smallest passing D_K at each of 111 points.
BEST_WIDTHS = (4, 28)
_SKEWED = 3.0  # times the mean degree: hubs need more than the law says (docs/law.md)
_IMPOSSIBLE = 0.95  # capacity ratio of one full-width head below which no run succeeded


@dataclass(frozen=True)
class Range:
    """The sizes between which a law was measured."""

    items: tuple[int, int]
    d_model: tuple[int, int]
    degree: tuple[float, float]
    steps: tuple[int, int]
    items_per_dimension: tuple[float, float] = (1.0, 33.0)  # m/d_model
    items_per_edge: float = 8.0  # m/r, at least

    def beyond(self, items: int, edges: int, d_model: int, steps: int) -> str | None:
        """Name the first size that is outside, or None."""
        sizes = {
            "items": (items, *self.items),
            "d_model": (d_model, *self.d_model),
            "edges per item": (edges / items, *self.degree),
            "items per dimension": (items / d_model, *self.items_per_dimension),
            "steps": (steps, *self.steps),
        }
        for name, (value, low, high) in sizes.items():
            if not low <= value <= high:
                return f"{name} {value:,.4g} against {low:,g} … {high:,g}"
        if items / (edges / items) < self.items_per_edge:
            return f"{edges / items:,.3g} edges per item among {items:,} items"
        return None


RANGES: dict[PlannedAggregation, Range] = {
    "max": Range((40, 2048), (16, 256), (0.5, 16), (5_000, 100_000)),
    "softmax": Range((64, 256), (16, 32), (1, 1), (SOFTMAX_STEPS, SOFTMAX_STEPS)),
}


@dataclass(frozen=True)
class Split:
    """Heads and width, the steps to train them, and the chance of a mean F1 of 0.99.

    The chance is None for softmax, whose five points are too few to state one.
    """

    heads: int
    key_dim: int
    steps: int
    chance: float | None

    @property
    def budget(self) -> int:
        """D_K = h·d_k."""
        return self.heads * self.key_dim


@dataclass(frozen=True)
class Advice:
    """What to train, or why there is no advice.

    `split` is None outside the measured range (`outside` says where) and where no split reaches the
    chance asked for. `others` trades width for steps. `one_head_ratio` is the capacity ratio of one
    head of full width: below 0.95 one head never succeeded, whatever the steps.
    """

    split: Split | None
    others: tuple[Split, ...]
    outside: str | None
    one_head_ratio: float
    text: str


def advise(
    items: int,
    edges: int,
    d_model: int,
    *,
    variant: PlannedAggregation = "max",
    steps: int | None = None,
    budget: int | None = None,
    heads: int | None = None,
    max_degree: int | None = None,
    chance: float = USUAL_CHANCE,
) -> Advice:
    """Advise heads, width and steps for a graph of `edges` relations among `items` items.

    `steps`, `budget` and `heads` fix some of them. Without `steps` the usual 50,000 are meant, or,
    for a given budget, as many as it needs. Graphs with hubs (a `max_degree` of more than three
    times the mean, and above 8) are outside what was measured.

    >>> advice = advise(256, 256, 32)
    >>> advice.split.steps, advice.split.chance >= 0.95, advice.one_head_ratio < 1
    (50000, True, True)
    """
    _check(steps, budget, heads, chance)
    request = _Request(items, edges, d_model, heads, chance)
    ratio = capacity_ratio(items, edges, d_model, 1, d_model)
    usual = SOFTMAX_STEPS if variant == "softmax" else USUAL_STEPS
    outside = RANGES[variant].beyond(items, edges, d_model, steps or usual)
    if max_degree is not None and max_degree > max(8, _SKEWED * edges / items):
        outside = outside or f"degrees up to {max_degree:,} where the mean is {edges / items:,.3g}"
    if outside is not None:
        text = (
            f"Outside the measured range ({outside}), so no split is advised."
            f"{_between(items, edges, d_model, variant)}{_one_head(ratio)}"
        )
        return Advice(None, (), outside, ratio, text)
    if variant == "softmax":
        split = request.softmax(budget)
    elif budget is None:
        split = request.narrowest(steps or usual)
    else:
        split = request.within(budget, steps)
    others = () if variant == "softmax" or budget else request.trades(steps or usual)
    text = _text(split, request, budget, steps, variant) + _one_head(ratio)
    return Advice(split, others, None, ratio, text)


def _check(steps: int | None, budget: int | None, heads: int | None, chance: float) -> None:
    for name, value in (("steps", steps), ("budget", budget), ("heads", heads)):
        if value is not None and value < 1:
            raise InputError(f"{name} = {value}: it must be at least 1; pass a larger number")
    if not 0 < chance < 1:
        raise InputError(f"chance = {chance}: not between 0 and 1; the usual one is {USUAL_CHANCE}")
    if heads is not None and budget is not None and heads > budget:
        raise InputError(
            f"heads = {heads}: more than the {budget} columns of the budget; pass fewer"
        )


@dataclass(frozen=True)
class _Request:
    items: int
    edges: int
    d_model: int
    heads: int | None
    chance: float

    def narrowest(self, steps: int) -> Split | None:
        """The smallest D_K that reaches the chance within these steps."""
        found = [split for count in self._counts() if (split := self._least(count, steps))]
        return min(found, key=lambda split: (split.budget, -(split.chance or 0)), default=None)

    def within(self, budget: int, steps: int | None) -> Split | None:
        """The split of a budget with the best chance, or the one that needs the fewest steps."""
        found = []
        for count in self._counts():
            if width := min(budget // count, self.d_model):
                needed = ceil(self._steps(count, np.array([width]))[0])
                given = needed if steps is None else steps
                found.append(Split(count, width, given, self._chance(count, width, given)))
        if steps is None:
            most = RANGES["max"].steps[1]
            found = [split for split in found if split.steps <= most]
            return min(found, key=lambda split: split.steps, default=None)
        return max(found, key=lambda split: split.chance or 0, default=None)

    def softmax(self, budget: int | None) -> Split | None:
        """The split for max with the measured factor times its heads."""
        steps, chance = _SOFTMAX_OF
        found = replace(self, chance=chance, heads=None).narrowest(steps)
        if found is None:
            return None
        split = Split(found.heads * SOFTMAX_FACTOR, found.key_dim, SOFTMAX_STEPS, None)
        if self.heads is not None and self.heads != split.heads:
            return None
        return None if budget is not None and split.budget > budget else split

    def trades(self, steps: int) -> tuple[Split, ...]:
        """What other numbers of steps would ask for."""
        others = (self.narrowest(count) for count in _TRADED if count != steps)
        return tuple(split for split in others if split is not None)

    def _counts(self) -> tuple[int, ...]:
        return _HEADS if self.heads is None else (self.heads,)

    def _least(self, heads: int, steps: int) -> Split | None:
        """The narrowest heads that reach the chance; wider than d_model would add nothing."""
        widths = np.arange(1, self.d_model + 1)
        enough = np.flatnonzero(self._steps(heads, widths) <= steps)
        if not enough.size:
            return None
        width = int(widths[enough[0]])
        return Split(heads, width, steps, self._chance(heads, width, steps))

    def _steps(self, heads: int, widths: np.ndarray) -> np.ndarray:
        """The steps that give the chance, for each width."""
        needed = freedom_needed(self.items, self.edges)
        sizes = (float(self.items), float(self.edges), float(self.d_model), float(heads))
        logs = STEPS_LAW.log_steps(needed, *sizes, widths.astype(float))
        predicted = np.exp(np.minimum(logs, 100.0))  # heads without a column left never get there
        return STEPS_LAW.steps_for(predicted, self.d_model, self.chance)

    def _chance(self, heads: int, width: int, steps: int) -> float:
        return STEPS_LAW.chance(self.items, self.edges, self.d_model, heads, width, steps)


def _text(
    split: Split | None,
    request: _Request,
    budget: int | None,
    steps: int | None,
    variant: PlannedAggregation,
) -> str:
    if split is None:
        given = [
            _counted(request.heads) if request.heads else "",
            f"D_K ≤ {budget:,}" if budget else "",
            f"{steps:,} steps" if steps else f"{RANGES[variant].steps[1]:,} steps",
        ]
        named = ", ".join(part for part in given if part)
        return f"No split reaches a chance of {100 * request.chance:.0f} % with {named}."
    text = (
        f"Train {_counted(split.heads)} of width {split.key_dim} (D_K = {split.budget:,}) for "
        f"{split.steps:,} steps"
    )
    if split.chance is None:
        return (
            f"{text}. This is small evidence: {SOFTMAX_FACTOR} × the heads of max was enough at "
            "the five points where softmax was measured and at six fresh ones."
        )
    return f"{text}: the chance of a mean F1 of 0.99 is {100 * split.chance:.0f} %."


def _counted(heads: int) -> str:
    return "one head" if heads == 1 else f"{heads:,} heads"


def _between(items: int, edges: int, d_model: int, variant: PlannedAggregation) -> str:
    """The D_K of narrow heads at the ratios between which training began to succeed elsewhere."""
    low, _, high = (
        ceil(ratio * freedom_needed(items, edges) / (2 * d_model))
        for ratio in TRAINED_RATIOS[variant]
    )
    return (
        f" Narrow heads at the capacity ratios where training succeeded elsewhere have a D_K of "
        f"{low:,} to {max(high, BEST_WIDTHS[0]):,}."
    )


def _one_head(ratio: float) -> str:
    if ratio >= _IMPOSSIBLE:
        return ""
    return (
        f" One head can never do it: its capacity ratio is at most {ratio:.2f}, and it takes "
        f"{ceil(1 / ratio)} heads to reach 1."
    )
