"""What verification reports: exactness, the margin of Definition 9.1, counts and micro-F1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from headcount.attention.key_query import Decide, KeyQuery
from headcount.errors import InputError
from headcount.notebook import html_table

Scope = Literal["all pairs", "given contexts", "sampled contexts"]


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

    @property
    def statement(self) -> str:
        """What the verdict says, in a sentence."""
        every = f"every context of {self.context_length} items"
        return {
            "certified": f"every pair is decided correctly in {every}",
            "refuted": "the counterexample is a context in which a pair is decided wrongly",
            "open": f"neither a proof for {every} nor a counterexample; more search may decide",
        }[self.verdict]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, nested pairs as dictionaries; for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Recovery:
    """What verification found.

    `correct`: every checked pair is decided correctly. `exact`: that is proved for all that `scope`
    names; None where only a sample was checked and no error was in it.

    `margin` is Definition 9.1's γ: how far the nearest score stays on the right side of τ; negative
    when a pair is on the wrong side, by the furthest. `score_error` bounds the distance between
    `margin` and its value in exact arithmetic.

    Where softmax weights were decided for all contexts of one length, `certificate` holds that
    answer and `exact` says whether they are certified; the other numbers are of the contexts that
    were counted, as `scope` and `contexts` say.

    With `decide` "top" no threshold takes part: every target is to score above every other item of
    its row. `margin` is then the least difference of the two, `lowest_edge` and `highest_non_edge`
    are the pairs of one row that attain it. `false_negatives` counts targets that another item
    reaches, `false_positives` the items that reach a target of their row.
    """

    exact: bool | None
    margin: float
    threshold: float
    false_positives: int
    false_negatives: int
    f1: float
    budget: int
    heads: int
    key_dim: int
    kv_heads: int
    key_budget: int
    scope: Scope
    pairs: int
    lowest_edge: Extreme | None
    highest_non_edge: Extreme | None
    score_error: float
    checked_in: str
    contexts: int = 0
    context_length: int | None = None  # of the contexts that were checked
    failed_contexts: int = 0
    failure_rate_below: float | None = None
    certificate: SoftmaxCertificate | None = None
    decide: Decide = "threshold"

    @property
    def verdict(self) -> Literal["certified", "refuted", "open"] | None:
        """What holds in every context of one length, where that was asked for."""
        return self.certificate and self.certificate.verdict

    @property
    def correct(self) -> bool:
        """Whether every checked pair is decided correctly; in a sample, that proves no more."""
        return not (self.false_positives or self.false_negatives)

    @property
    def heading(self) -> str:
        """The answer in a few words."""
        if self.exact is None:
            return "not proved"
        return "exact" if self.exact else "not exact"

    @property
    def statement(self) -> str:
        """What was checked and what follows, in a sentence."""
        if self.certificate is not None:
            return self.certificate.statement
        errors = self.false_positives + self.false_negatives
        if self.decide == "top":
            if self.correct:
                return "every target is the top of its row in every context that holds it"
            return f"{self.false_negatives:,} targets are reached by another item of their row"
        if self.scope == "all pairs":
            if self.correct:
                return "every pair is decided correctly, hence in every context of every length"
            return f"{errors:,} of {self.pairs:,} pairs are decided wrongly"
        kind = self.scope.partition(" ")[0]
        checked = f"{self.contexts:,} {kind} contexts of {self.context_length} items"
        if not self.correct:
            return f"{self.failed_contexts:,} of {checked} hold a pair that is decided wrongly"
        if kind == "given":
            return f"every pair is decided correctly in {checked}; other contexts are not checked"
        return (
            f"no error in {checked}, so at 95 % confidence fewer than "
            f"{100 * (self.failure_rate_below or 0):.2g} % of such contexts fail; "
            "that none does is not proved"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, nested ones as dictionaries; for JSON."""
        more = {"correct": self.correct, "verdict": self.verdict, "statement": self.statement}
        return {**asdict(self), **more}

    def _repr_html_(self) -> str:
        names = ("margin", "threshold", "false_positives", "false_negatives", "f1")
        rows = [(name.replace("_", " "), getattr(self, name)) for name in (*names, "scope")]
        if self.certificate is None:
            return html_table(("", self.heading), rows)
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
    scope: Scope,
    hits: int,
    false_positives: int,
    false_negatives: int,
    lowest_edge: Extreme | None,
    highest_non_edge: Extreme | None,
    score_error: float,
    decide: Decide = "threshold",
    **rest: Any,
) -> Recovery:
    """Put the counts together: exactness, the margin of Definition 9.1, micro-F1.

    `score_error` bounds the error of the two scores; that of the margin is added here.
    """
    correct = not (false_positives or false_negatives)
    distances: list[tuple[float, float]] = []  # the margin is the least difference
    if decide == "top":
        if lowest_edge and highest_non_edge:
            distances = [(lowest_edge.score, highest_non_edge.score)]
    else:
        distances = [(lowest_edge.score, weights.threshold)] if lowest_edge else []
        distances += [(weights.threshold, highest_non_edge.score)] if highest_non_edge else []
    margin = min((one - other for one, other in distances), default=float("inf"))
    if distances and not math.isfinite(margin):
        raise InputError(
            "the distance from a score to the threshold overflows float64; scale the weights down"
        )
    errors = false_positives + false_negatives
    return Recovery(
        exact=None if correct and scope == "sampled contexts" else correct,
        # The last bit of a computed margin must not contradict what was decided exactly.
        margin=max(margin, 0.0) if correct else min(margin, 0.0),
        threshold=weights.threshold,
        false_positives=false_positives,
        false_negatives=false_negatives,
        f1=2 * hits / (2 * hits + errors) if hits or errors else 1.0,
        budget=weights.budget,
        heads=weights.heads,
        key_dim=weights.key_dim,
        kv_heads=weights.kv_heads,
        key_budget=weights.key_budget,
        lowest_edge=lowest_edge,
        highest_non_edge=highest_non_edge,
        scope=scope,
        decide=decide,
        score_error=_with_rounding(score_error, distances),
        **rest,
    )


def _with_rounding(error: float, distances: Sequence[tuple[float, float]]) -> float:
    """The error of scores and that of their distances, which are rounded too; all rounded up."""
    lost = max((abs(Fraction(a) - Fraction(b) - Fraction(a - b)) for a, b in distances), default=0)
    if not lost or not math.isfinite(error):
        return error
    return math.nextafter(error + math.nextafter(float(lost), math.inf), math.inf)
