"""What verification reports: exactness, the margin of Definition 9.1, counts and micro-F1."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError


@dataclass(frozen=True)
class Extreme:
    """The pair that binds: the lowest edge or the highest non-edge."""

    score: float
    source: int
    target: int


@dataclass(frozen=True)
class Recovery:
    """What verification found.

    `exact`: every checked pair is decided rightly. `margin` is Definition 9.1's γ: how far the nearest
    score stays on the right side of τ; negative when a pair is on the wrong side, by the furthest.
    `score_error` bounds the distance between `margin` and its value in exact arithmetic.
    """

    exact: bool
    margin: float
    threshold: float
    false_positives: int
    false_negatives: int
    f1: float
    budget: int
    heads: int
    key_dim: int
    scope: Literal["all pairs", "given contexts", "sampled contexts"]
    pairs: int
    lowest_edge: Extreme | None
    highest_non_edge: Extreme | None
    score_error: float
    checked_in: str
    contexts: int = 0
    failed_contexts: int = 0
    failure_rate_below: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, nested pairs as dictionaries; for JSON."""
        return asdict(self)


def summarise(
    weights: KeyQuery,
    *,
    hits: int,
    false_positives: int,
    false_negatives: int,
    lowest_edge: Extreme | None,
    highest_non_edge: Extreme | None,
    **rest: Any,
) -> Recovery:
    """Put the counts together: exactness, the margin of Definition 9.1, micro-F1."""
    exact = not (false_positives or false_negatives)
    margins = [lowest_edge.score - weights.threshold] if lowest_edge else []
    margins += [weights.threshold - highest_non_edge.score] if highest_non_edge else []
    margin = min(margins) if margins else float("inf")
    if margins and not math.isfinite(margin):
        raise InputError(
            "the distance from a score to the threshold overflows float64; scale the weights down"
        )
    errors = false_positives + false_negatives
    return Recovery(
        exact=exact,
        margin=max(margin, 0.0)
        if exact
        else min(margin, 0.0),  # its last bit never contradicts `exact`
        threshold=weights.threshold,
        false_positives=false_positives,
        false_negatives=false_negatives,
        f1=2 * hits / (2 * hits + errors) if hits or errors else 1.0,
        budget=weights.budget,
        heads=weights.heads,
        key_dim=weights.key_dim,
        lowest_edge=lowest_edge,
        highest_non_edge=highest_non_edge,
        **rest,
    )
