"""What verification reports: exactness, the margin of Definition 9.1, counts and micro-F1."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError
from headcount.notebook import html_table


@dataclass(frozen=True)
class Extreme:
    """The pair that binds: the lowest edge or the highest non-edge."""

    score: float
    source: int
    target: int


@dataclass(frozen=True)
class SoftmaxCertificate:
    """What holds in every context of `context_length` items.

    certified: every pair is decided correctly in each of them. refuted: `counterexample` is a
    context in which the pair `broken` is not. open: neither is known; `open_pairs` pairs may go
    either way, more `search` may tell. The scores of `lowest_edge` and `highest_non_edge` bound
    A_ij over all these contexts from below and above; `margin` is how far they stay on the right
    side of τ (Definition 9.1), negative when they do not.
    """

    verdict: Literal["certified", "refuted", "open"]
    context_length: int
    threshold: float
    margin: float
    lowest_edge: Extreme | None
    highest_non_edge: Extreme | None
    open_pairs: int
    counterexample: tuple[int, ...] | None
    broken: Extreme | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, nested pairs as dictionaries; for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Recovery:
    """What verification found.

    `exact`: every checked pair is decided correctly. `margin` is Definition 9.1's γ: how far the
    nearest score stays on the right side of τ; negative when a pair is on the wrong side, by the
    furthest. `score_error` bounds the distance between `margin` and its value in exact arithmetic.

    Where softmax weights were decided for all contexts of one length, `certificate` holds that
    answer and `exact` says whether they are certified; the other numbers are of the contexts that
    were counted, as `scope` and `contexts` say.
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
    certificate: SoftmaxCertificate | None = None

    @property
    def verdict(self) -> Literal["certified", "refuted", "open"] | None:
        """What holds in every context of one length, where that was asked for."""
        return self.certificate and self.certificate.verdict

    def as_dict(self) -> dict[str, Any]:
        """Plain values, nested ones as dictionaries; for JSON."""
        return {**asdict(self), "verdict": self.verdict}

    def _repr_html_(self) -> str:
        names = ("margin", "threshold", "false_positives", "false_negatives", "f1")
        rows = [(name.replace("_", " "), getattr(self, name)) for name in (*names, "scope")]
        if self.certificate is None:
            return html_table(("", "exact" if self.exact else "not exact"), rows)
        # The verdict covers every context of one length; the rows above it count some of them.
        rows += [
            ("certified margin", self.certificate.margin),
            ("context length", self.certificate.context_length),
            ("open pairs", self.certificate.open_pairs),
        ]
        return html_table(("", self.certificate.verdict), rows)


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
        # The last bit of a computed margin must not contradict `exact`, which was decided exactly.
        margin=max(margin, 0.0) if exact else min(margin, 0.0),
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
