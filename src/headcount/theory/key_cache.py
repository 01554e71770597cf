"""How small may a key cache be? Heads that share keys, planned for a graph.

A token's keys have D_KV = g·k numbers, which is what a key cache pays for. h heads of width k that
share g keys are planned like heads with keys of their own that have as many degrees of freedom
(`shared_keys.own_width`), by the law of steps. docs/shared-keys.md has the runs behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, erf, exp, log, sqrt
from typing import Any

from scipy.optimize import brentq

from headcount.errors import InputError
from headcount.theory.adviser import USUAL_CHANCE, USUAL_STEPS
from headcount.theory.capacity_law import freedom_needed
from headcount.theory.counting import check_sizes
from headcount.theory.footprint import CACHE_BYTES, check_cache_bytes, parameters
from headcount.theory.key_width import random_key_width
from headcount.theory.measured_range import MOST_COLUMNS, SHARED_RANGE
from headcount.theory.shared_keys import own_width
from headcount.theory.steps_law import STEPS_LAW

_HEADS = (4, 6, 8, 12, 16)  # the measured range: many more heads on one key were seen to fail
# ln(k*/k predicted) at the preregistered thresholds, by steps: mean and standard deviation
# (`headcount.analysis.shared_keys.planned_errors`). Between them both follow ln(steps).
ERRORS = {20_000: (-0.101, 0.110), 200_000: (0.114, 0.179)}
# The narrowest shared keys that passed, over the width that random keys need.
NARROWEST = 0.72
# Key columns that are advised at least, over the width that random keys need. Below 1.15 times that
# many heads fail in 50,000 steps where degrees of freedom would suffice.
FEWEST = 1.15


@dataclass(frozen=True)
class SharedSplit:
    """h heads of width k that share g keys, the steps to train them, and what their keys take.

    `interval` holds 95 % of the smallest widths at which such runs began to pass.
    """

    heads: int
    kv_heads: int
    key_dim: int
    steps: int
    chance: float
    interval: tuple[float, float]
    cache_bytes: float  # per token
    parameters: int

    @property
    def query_columns(self) -> int:
        """D_Q = h·k."""
        return self.heads * self.key_dim

    @property
    def key_columns(self) -> int:
        """D_KV = g·k."""
        return self.kv_heads * self.key_dim


@dataclass(frozen=True)
class KeyCachePlan:
    """What to train, or why nothing is advised, and the smallest cache for each number of keys.

    `split` is None outside the measured range (`outside` says where), and where no split fits.
    """

    items: int
    edges: int
    d_model: int
    bytes_per_number: float
    split: SharedSplit | None
    choices: tuple[SharedSplit, ...]
    outside: str | None
    text: str


def plan_key_cache(
    items: int,
    edges: int | None = None,
    *,
    d_model: int,
    kv_heads: int | None = None,
    heads: int | None = None,
    key_cache_bytes: float | None = None,
    bytes_per_number: float = CACHE_BYTES,
    steps: int | None = None,
    chance: float = USUAL_CHANCE,
) -> KeyCachePlan:
    """Plan shared keys under max for a graph; without `edges` for a permutation.

    `kv_heads` and `heads` fix g and h. With `key_cache_bytes`, the most that the keys of one token
    may take in one layer, the split is the one with the fewest parameters that fits; without it,
    the one with the smallest cache. `choices` has the smallest cache for each number of keys.

    >>> answer = plan_key_cache(256, d_model=32, kv_heads=1)
    >>> answer.split.kv_heads, answer.split.cache_bytes == 2 * answer.split.key_dim
    (1, True)
    """
    edges = check_sizes(items, edges, d_model)
    given = USUAL_STEPS if steps is None else steps
    request = _Request(items, edges, d_model, kv_heads, heads, bytes_per_number, given, chance)
    request.check(key_cache_bytes)
    outside = request.beyond()
    if outside is not None:
        text = (
            f"Outside the measured range of shared keys ({outside}), so no split is advised. "
            f"{request.by_capacity()}"
        )
        return KeyCachePlan(items, edges, d_model, bytes_per_number, None, (), outside, text)
    splits = request.splits()
    fitting = [
        split for split in splits if key_cache_bytes is None or split.cache_bytes <= key_cache_bytes
    ]
    order = _by_cache if key_cache_bytes is None else _by_parameters
    chosen = min(fitting, key=order, default=None)
    choices = [
        min((split for split in splits if split.kv_heads == count), key=_by_cache)
        for count in sorted({split.kv_heads for split in splits})
    ]
    text = _text(chosen, choices, request, key_cache_bytes)
    found = tuple(choices)
    return KeyCachePlan(items, edges, d_model, bytes_per_number, chosen, found, None, text)


def _by_cache(split: SharedSplit) -> tuple[float, int]:
    return split.cache_bytes, split.parameters


def _by_parameters(split: SharedSplit) -> tuple[int, float]:
    return split.parameters, split.cache_bytes


def predicted_threshold(
    items: int, edges: int, d_model: int, heads: int, kv_heads: int, steps: int
) -> float:
    """The width at which half of such runs pass in these steps, by the law of steps.

    It is at least what the narrowest keys that passed anywhere had (`NARROWEST`).

    >>> round(predicted_threshold(256, 256, 32, 8, 8, 20_000), 1)
    7.1
    """

    def surplus(width: float) -> float:
        return _chance(items, edges, d_model, heads, kv_heads, width, steps) - 0.5

    # Upwards: wide heads take more steps again, so that the chance may fall. Width past d_model
    # adds nothing.
    below = 1.0
    if kv_heads < heads:
        below = max(below, NARROWEST * _random_width(items, edges) / kv_heads)
    if surplus(below) >= 0:
        return below
    while below < d_model:
        above = min(1.05 * below, float(d_model))
        if surplus(above) >= 0:
            found: Any = brentq(surplus, below, above)
            return float(found)
        below = above
    return below


def threshold_spread(
    items: int, edges: int, d_model: int, heads: int, kv_heads: int, steps: int
) -> tuple[float, float]:
    """Mean and standard deviation of ln k* for such splits, from the preregistered thresholds."""
    first, last = ERRORS
    part = log(steps / first) / log(last / first)
    bias, spread = (
        early + part * (late - early)
        for early, late in zip(ERRORS[first], ERRORS[last], strict=True)
    )
    middle = predicted_threshold(items, edges, d_model, heads, kv_heads, steps)
    return log(middle) + bias, spread


def _random_width(items: int, edges: int) -> float:
    return random_key_width(items, max(1, round(edges / items)))


def _chance(
    items: int, edges: int, d_model: int, heads: int, kv_heads: int, width: float, steps: int
) -> float:
    """The chance of heads with keys of their own that have as many degrees of freedom."""
    own = own_width(width, d_model, heads, kv_heads)
    return STEPS_LAW.chance(items, edges, d_model, heads, own, steps)


@dataclass(frozen=True)
class _Request:
    items: int
    edges: int
    d_model: int
    kv_heads: int | None
    heads: int | None
    bytes_per_number: float
    steps: int
    chance: float

    def check(self, cache: float | None) -> None:
        """Refuse what makes no sense."""
        for name, value in (("kv_heads", self.kv_heads), ("heads", self.heads)):
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise InputError(f"{name} = {value}: it must be a whole number from 1 on")
        if self.heads and self.kv_heads and self.heads % self.kv_heads:
            raise InputError(
                f"kv_heads = {self.kv_heads}: does not divide {self.heads} heads; pass a divisor"
            )
        if self.steps < 1:
            raise InputError(f"steps = {self.steps}: it must be at least 1; pass a larger number")
        if not 0 < self.chance < 1:
            raise InputError(f"chance = {self.chance}: not between 0 and 1; the usual one is 0.95")
        check_cache_bytes(self.bytes_per_number)
        if cache is not None and not cache >= self.bytes_per_number:
            raise InputError(
                f"key_cache_bytes = {cache:g}: less than one number of "
                f"{self.bytes_per_number:g} bytes; pass more"
            )

    def splits(self) -> list[SharedSplit]:
        """The narrowest heads of every number of heads and keys that reach the chance."""
        found = []
        for heads in self._head_counts():
            counts = range(1, heads + 1) if self.kv_heads is None else (self.kv_heads,)
            for count in counts:
                if heads % count == 0 and (split := self._narrowest(heads, count)):
                    found.append(split)
        return found

    def _head_counts(self) -> list[int]:
        """The usual head counts, or the multiples of g among all that were measured."""
        if self.heads is not None:
            return [self.heads]
        shared = self.kv_heads or 1
        usual = [heads for heads in _HEADS if heads % shared == 0]
        return usual or [n for n in range(_HEADS[0], _HEADS[-1] + 1) if n % shared == 0]

    def _narrowest(self, heads: int, kv_heads: int) -> SharedSplit | None:
        # g keys of width k are a special case of one key of width g·k.
        least = ceil(FEWEST * _random_width(self.items, self.edges) / kv_heads)
        sizes = self.items, self.edges, self.d_model, heads, kv_heads
        middle, spread = threshold_spread(*sizes, self.steps)
        for width in range(
            1 if kv_heads == heads else least, min(self.d_model, MOST_COLUMNS // heads) + 1
        ):
            reached = _chance(*sizes, width, self.steps)
            if kv_heads < heads:  # the thresholds measured with shared keys must allow it too
                reached = min(reached, (1 + erf((log(width) - middle) / (sqrt(2) * spread))) / 2)
            if reached >= self.chance:
                break
        else:
            return None
        columns = heads * width, kv_heads * width
        ends = [round(exp(middle + side * 1.96 * spread), 1) for side in (-1, 1)]
        return SharedSplit(
            heads,
            kv_heads,
            width,
            self.steps,
            reached,
            (ends[0], ends[1]),
            columns[1] * self.bytes_per_number,
            parameters(self.d_model, *columns),
        )

    def beyond(self) -> str | None:
        """Name the first size that is outside what was measured, or None."""
        least, most = _HEADS[0], _HEADS[-1]
        if self.heads is not None and not least <= self.heads <= most:
            return f"heads {self.heads}; measured: {least} to {most}"
        if self.kv_heads is not None and self.kv_heads > most:
            return f"kv_heads {self.kv_heads}; measured: 1 to {most}"
        return SHARED_RANGE.beyond(self.items, self.edges, self.d_model, self.steps)

    def by_capacity(self) -> str:
        """What the capacity law alone says of the columns."""
        columns = freedom_needed(self.items, self.edges) / self.d_model
        return (
            f"By the capacity law alone, D_Q + D_KV must exceed {ceil(columns):,} columns. Keys "
            f"that are not trained would need {ceil(_random_width(self.items, self.edges))}."
        )


def _text(
    split: SharedSplit | None,
    choices: list[SharedSplit],
    request: _Request,
    cache: float | None,
) -> str:
    """The range, the advice, and what it saves over keys of their own."""
    most = "" if cache is None else f" and at most {cache:,g} bytes of keys per token"
    if split is None:
        text = f"No split reaches a chance of {100 * request.chance:.0f} % in "
        text += f"{request.steps:,} steps{most}"
        if choices:
            least = min(choices, key=_by_cache)
            text += f"; the smallest key cache is {_described(least)}"
        return f"{SHARED_RANGE.in_words()} {text}."
    low, high = split.interval
    text = (
        f"Train {_described(split)} for {split.steps:,} steps: the chance of a mean F1 of 0.99 is "
        f"{100 * split.chance:.0f} %. 95 % of such thresholds are at widths of {low:g} to {high:g}."
    )
    return f"{SHARED_RANGE.in_words()} {text}"


def _described(split: SharedSplit) -> str:
    keys = "one shared key" if split.kv_heads == 1 else f"{split.kv_heads} keys"
    if split.kv_heads == split.heads:
        keys = "keys of their own"
    return (
        f"{split.heads} heads of width {split.key_dim} with {keys} (D_Q = {split.query_columns}, "
        f"D_KV = {split.key_columns}, {split.cache_bytes:,g} bytes per token)"
    )
