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
from headcount.theory.measured_range import BEST_WIDTHS, MOST_COLUMNS, RANGES, SOFTMAX_STEPS
from headcount.theory.refined_law import width_ratio
from headcount.theory.steps_law import STEPS_LAW

USUAL_STEPS, USUAL_CHANCE = 50_000, 0.95
HEAD_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
TRADED_STEPS = (20_000, 50_000, 100_000)
# Softmax was measured at five points with 80,000 steps. It is given this many times the heads that
# max gets for 20,000 steps and a chance of 90 %, at the same width: enough at all five points.
SOFTMAX_FACTOR, _SOFTMAX_OF = 2, (20_000, 0.9)
_SKEWED = 3.0  # times the mean degree: hubs need more than the law says (docs/law.md)
IMPOSSIBLE = 0.95  # capacity ratio of one full-width head below which no run succeeded


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
    """What to train, or why nothing is advised.

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
    if variant == "softmax" and chance != USUAL_CHANCE:
        raise InputError("no chance is known for softmax; leave out the chance")
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
    if variant == "softmax":
        text = _softmax_text(split, request)
    elif split is None:
        text = _none_text(request, budget, steps or (None if budget else usual), others)
    else:
        text = _text(split, request, budget)
    return Advice(split, others, None, ratio, text + _one_head(ratio))


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
            width = min(budget // count, self.d_model, MOST_COLUMNS // count)
            if width and self._exists(count, width):
                needed = ceil(self._steps(count, np.array([width]))[0])
                given = needed if steps is None else steps
                found.append(Split(count, width, given, self._chance(count, width, given)))
        if steps is None:
            most = RANGES["max"].steps[1]
            found = [split for split in found if split.steps <= most]
            return min(found, key=lambda split: split.steps, default=None)
        return max(found, key=lambda split: split.chance or 0, default=None)

    def softmax(self, budget: int | None) -> Split | None:
        """The split for max with the measured factor times its heads, if it is asked for."""
        split = self.doubled()
        if split is None or (self.heads is not None and self.heads != split.heads):
            return None
        return None if budget is not None and split.budget > budget else split

    def doubled(self) -> Split | None:
        """The split for softmax, whatever was asked for."""
        steps, chance = _SOFTMAX_OF
        found = replace(self, chance=chance, heads=None).narrowest(steps)
        if found is None:
            return None
        return Split(found.heads * SOFTMAX_FACTOR, found.key_dim, SOFTMAX_STEPS, None)

    def trades(self, steps: int) -> tuple[Split, ...]:
        """What other numbers of steps would ask for."""
        others = (self.narrowest(count) for count in TRADED_STEPS if count != steps)
        return tuple(split for split in others if split is not None)

    def _counts(self) -> tuple[int, ...]:
        return HEAD_COUNTS if self.heads is None else (self.heads,)

    def _least(self, heads: int, steps: int) -> Split | None:
        """The narrowest heads that reach the chance; wider than d_model would add nothing."""
        widths = np.arange(1, min(self.d_model, MOST_COLUMNS // heads) + 1)
        enough = widths[self._steps(heads, widths) <= steps].tolist()
        width = next((width for width in enough if self._exists(heads, width)), None)
        if width is None:
            return None
        return Split(heads, width, steps, self._chance(heads, width, steps))

    def _exists(self, heads: int, width: int) -> bool:
        """Whether the capacity law leaves room for one head; several are not limited by it."""
        sizes = (self.items, self.edges, self.d_model)
        if heads > 1:
            return True
        if capacity_ratio(*sizes, 1, self.d_model) < IMPOSSIBLE:
            return False
        return width_ratio(*sizes, 1, width) >= 1 or width == self.d_model

    def _steps(self, heads: int, widths: np.ndarray) -> np.ndarray:
        """The steps that give the chance, for each width."""
        needed = freedom_needed(self.items, self.edges)
        sizes = (float(self.items), float(self.edges), float(self.d_model), float(heads))
        logs = STEPS_LAW.log_steps(needed, *sizes, widths.astype(float))
        predicted = np.exp(np.minimum(logs, 100.0))  # heads without a column left never get there
        return STEPS_LAW.steps_for(predicted, self.d_model, self.chance)

    def _chance(self, heads: int, width: int, steps: int) -> float:
        return STEPS_LAW.chance(self.items, self.edges, self.d_model, heads, width, steps)


def _text(split: Split, request: _Request, budget: int | None) -> str:
    chance = 100 * (split.chance or 0)
    shown = "less than 1 %" if chance < 1 else f"{chance:.0f} %"
    of_width = f"{_counted(split.heads)} of width {split.key_dim}"
    if (split.chance or 0) < request.chance - 1e-9:  # budget and steps are both fixed
        return (
            f"No split of D_K ≤ {budget:,} reaches a chance of {100 * request.chance:.0f} % in "
            f"{split.steps:,} steps; the best, {of_width}, has {shown}."
        )
    return (
        f"Train {of_width} (D_K = {split.budget:,}) for {split.steps:,} steps: the chance of a "
        f"mean F1 of 0.99 is {shown}."
    )


def _none_text(
    request: _Request, budget: int | None, steps: int | None, others: tuple[Split, ...]
) -> str:
    given = [
        _counted(request.heads) if request.heads else "",
        f"D_K ≤ {budget:,}" if budget else "",
        f"{steps or RANGES['max'].steps[1]:,} steps",
    ]
    named = ", ".join(part for part in given if part)
    text = f"No split reaches a chance of {100 * request.chance:.0f} % with {named}"
    longer = [split for split in others if steps is not None and split.steps > steps]
    if not longer:
        return f"{text}."
    best = longer[0]
    return (
        f"{text}; {best.steps:,} steps suffice for {_counted(best.heads)} of width {best.key_dim} "
        f"(D_K = {best.budget:,})."
    )


def _softmax_text(split: Split | None, request: _Request) -> str:
    known = request.doubled()
    if known is None:
        return (
            "No split is known for softmax: at these sizes max itself takes more than 20,000 steps."
        )
    of_width = f"{_counted(known.heads)} of width {known.key_dim} (D_K = {known.budget:,})"
    if split is None:
        return (
            f"Softmax was measured only with {SOFTMAX_FACTOR} × the heads that max takes, here "
            f"{of_width}, so no other split is advised."
        )
    return (
        f"Train {of_width} for {split.steps:,} steps. This is small evidence: {SOFTMAX_FACTOR} × "
        "the heads of max was enough at the five points where softmax was measured and at six "
        "fresh ones."
    )


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
    if ratio >= IMPOSSIBLE:
        return ""
    return (
        f" One head can never do it: its capacity ratio is at most {ratio:.2f}, where training "
        "needs 1."
    )
