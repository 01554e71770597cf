"""What a figure or a table of the report is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from headcount.reproduction.evidence import Evidence
from headcount.reproduction.presets import Need

Verdict = Literal["confirmed", "partly", "not confirmed", "not measured"]


@dataclass(frozen=True)
class Comparison:
    """One number of the paper beside ours."""

    what: str
    paper: str  # as the paper writes it
    ours: str
    difference: str  # "+13 %", "same", "–" where the two cannot be subtracted
    overlap: (
        bool | None
    )  # whether the paper's value lies in our 95 % interval; None where there is none
    place: str  # "Section 6.1, Fig. 3"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, judged by the evidence."""

    id: str  # "C3"
    text: str
    rule: str  # by which it is judged
    verdict: Verdict
    number: str  # what the verdict rests on
    figures: tuple[str, ...]  # ids of the figures that show it


@dataclass(frozen=True)
class Figure:
    """A figure or table: what it shows and how it is made from the evidence."""

    id: str  # "fig3", "table1", and our own: "linear", "block", "bounds", "frontier"
    title: str
    grids: tuple[str, ...]  # of the paper whose runs it shows
    points: tuple[tuple[int, int], ...] = ()  # of those grids; none: all
    also: tuple[Need, ...] = ()  # runs that it is compared with
    ceilings: bool = False  # whether it shows bounds and constructions
    draw: Callable[[Evidence], Any] | None = None  # an Altair chart; None for a table
    table: Callable[[Evidence], pd.DataFrame] | None = None
    compare: Callable[[Evidence], list[Comparison]] = lambda evidence: []
    meaning: Callable[[Evidence], str] = lambda evidence: ""  # two sentences
    command: Callable[[Evidence], str] | None = (
        None  # that makes it, where `reproduce --only` does not
    )
