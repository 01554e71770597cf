"""How a claim is judged: by checks that the evidence answers, the first of which the claim stands or falls with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.report.figure import Claim, Verdict

TOLERANCE = 0.15  # a number agrees within 15 %
LINEAR = 0.9  # R² of a tight line


@dataclass(frozen=True)
class Check:
    """One question to the evidence: `holds` is None where it was not measured, `text` has the numbers."""

    holds: bool | None
    text: str


def verdict(checks: Sequence[Check]) -> Verdict:
    """Give the verdict: by the first check, and then by whether all others hold as well.

    A first check without data leaves the claim not measured, a failed one not confirmed. If it holds, the claim is
    confirmed where all others hold, and partly confirmed where one fails or was not measured.
    """
    first = checks[0].holds
    if first is None:
        return "not measured"
    if not first:
        return "not confirmed"
    return "confirmed" if all(check.holds for check in checks) else "partly"


def judged(
    name: str, text: str, rule: str, checks: Sequence[Check], figures: tuple[str, ...]
) -> Claim:
    """The claim with its rule, its verdict and the numbers behind it."""
    number = "; ".join(check.text for check in checks if check.text)
    return Claim(name, text, rule, verdict(checks), number or "no runs for it", figures)


def near(ours: float, paper: float, interval: tuple[float, float] | None = None) -> bool:
    """Whether ours is within 15 % of the paper's, or the paper's within our interval where one is given.

    >>> near(1.3, 1.19), near(1.4, 1.19), near(1.4, 1.19, (1.1, 1.7))
    (True, False, True)
    """
    close = abs(ours - paper) <= TOLERANCE * abs(paper)
    return close or (interval is not None and interval[0] <= paper <= interval[1])
