"""What a figure of the report is, and how a claim of the paper is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from headcount.report.rules import rule, shared_number
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.presets import Need

TOLERANCE = shared_number("tolerance")  # numbers agree within 15 %
LINEAR = shared_number("linear")  # R² of a tight line
UNMEASURED = (
    "These runs are not part of this reproduction. "
    "The paper's finding is neither confirmed nor refuted here."
)
BEYOND = (
    "This goes beyond the paper, and its runs are not part of this reproduction. "
    "headcount report shows it from the runs that are shipped."
)

Verdict = Literal["confirmed", "partly", "not confirmed", "not measured"]


@dataclass(frozen=True)
class Comparison:
    """One number of the paper beside ours; what was not measured has no row.

    `overlap` says whether the paper's value is in our 95 % interval. Only fitted slopes, intercepts
    and means have one. A number derived from two others, such as d_k* from D_K* and h*, has none:
    its row gives the range that their two intervals allow.
    """

    what: str
    paper: str  # as the paper writes it
    ours: str
    difference: str  # "+13 %", "same", "–" where the two cannot be subtracted
    overlap: bool | None
    place: str  # "Section 6.1, Fig. 3"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, judged by the evidence."""

    id: str  # "C3"
    text: str
    rule: str  # by which it is judged
    verdict: Verdict
    number: str  # what the verdict is based on
    figures: tuple[str, ...]  # ids of the figures that show it
    brief: str = ""  # the main numbers, in a few words
    thin: str = ""  # what of the evidence is less than the rule asks for

    @property
    def is_control(self) -> bool:
        """Whether this is a check of our own training rather than a claim of the paper."""
        return self.id.startswith("K")


@dataclass(frozen=True)
class Figure:
    """A figure or table: what it shows and how it is made from the evidence."""

    id: str  # "fig3", "table1", and our own: "linear", "block", "bounds", "frontier"
    title: str
    grids: tuple[str, ...] = ()  # grids of the paper whose runs it shows
    points: tuple[tuple[int, int], ...] = ()  # of those grids; empty for all
    curves: bool = False  # whether it shows whole curves, for which a search does not suffice
    also: tuple[Need, ...] = ()  # runs that it is compared with
    shows_bounds: bool = False  # whether it shows bounds and constructions
    draw: Callable[[Evidence], Any] | None = None  # an Altair chart; None for a table
    table: Callable[[Evidence], pd.DataFrame] | None = None
    compare: Callable[[Evidence], list[Comparison]] = lambda evidence: []
    meaning: Callable[[Evidence], str] = lambda evidence: ""  # two sentences
    claims: tuple[Callable[[Evidence], Claim], ...] = ()  # judged by what it shows
    command: Callable[[Evidence], str] | None = None  # where `reproduce --only` does not make it


@dataclass(frozen=True)
class Check:
    """One question to the evidence, with the numbers that answer it."""

    holds: bool | None  # None where it was not measured
    text: str


def verdict(checks: Sequence[Check]) -> Verdict:
    """Give the verdict: by the first check, and then by whether all others hold as well.

    Without data for the first check the claim is not measured; if the check fails, the claim is not
    confirmed. If it holds, the claim is confirmed where all others hold too, and partly confirmed
    where one of them fails or was not measured.
    """
    first = checks[0].holds
    if first is None:
        return "not measured"
    if not first:
        return "not confirmed"
    return "confirmed" if all(check.holds for check in checks) else "partly"


def judged(
    name: str, checks: Sequence[Check], found: Mapping[str, int] | None = None, brief: str = ""
) -> Claim:
    """The claim with its rule, its verdict and the numbers behind it.

    `found` counts the evidence (points, seeds and the like) that the rule asks for. With less the
    evidence is thin, and the verdict is "partly" at most.
    """
    by = rule(name)
    number = "; ".join(check.text for check in checks if check.text) or "no runs for it"
    given = verdict(checks)
    thin = "" if given == "not measured" else by.thin(found or {})
    if thin and given == "confirmed":
        given = "partly"
    return Claim(name, by.text, by.rule, given, number, by.figures, brief, thin)


def near(ours: float, paper: float, interval: tuple[float, float] | None = None) -> bool:
    """Whether ours is within 15 % of the paper's, or the paper's is in our interval.

    >>> near(1.3, 1.19), near(1.4, 1.19), near(1.4, 1.19, (1.1, 1.7))
    (True, False, True)
    """
    close = abs(ours - paper) <= TOLERANCE * abs(paper)
    return close or (interval is not None and interval[0] <= paper <= interval[1])
