"""Rows that set a number of the paper beside ours."""

from __future__ import annotations

import pandas as pd

from headcount.paper import data as paper
from headcount.report.figures.base import Comparison
from headcount.report.formatting import interval_text, num, paper_text, percent, signed
from headcount.report.readings.paper_numbers import paper_value


def number_row(
    name: str,
    what: str,
    ours: float,
    interval: tuple[float, float] | None = None,
    detail: str = "",
    *,
    relative: bool = True,
) -> Comparison:
    """The paper's number beside ours, with the difference in percent.

    R² and numbers that may be negative are subtracted instead (`relative` is false, or the paper's
    is not positive). `detail` says how many points ours is based on.
    """
    theirs = paper_value(name)
    known = [f"95 %: {interval_text(interval)}"] if interval else []
    aside = "; ".join([*known, *([detail] if detail else [])])
    return Comparison(
        what=what,
        paper=paper_text(paper.number(name).value),
        ours=num(ours) + (f" ({aside})" if aside else ""),
        difference=percent(ours, theirs) if relative and theirs > 0 else signed(ours - theirs),
        overlap=None if interval is None else interval[0] <= theirs <= interval[1],
        place=paper.number(name).place,
    )


def finding_row(name: str, holds: bool, ours: str, what: str = "") -> Comparison:
    """A finding that the paper states in words or as a list, and whether ours is the same."""
    number = paper.number(name)
    return Comparison(
        what=what or number.what,
        paper=paper_text(number.value),
        ours=ours,
        difference="same" if holds else "differs",
        overlap=None,
        place=number.place,
    )


def runs_row(name: str, curves: pd.DataFrame) -> list[Comparison]:
    """How many runs stand behind an error bar; no row where there are no curves."""
    if curves.empty:
        return []
    runs = curves["runs"].tolist()
    least, most = min(runs), max(runs)
    number = paper.number(name)
    return [
        Comparison(
            what=number.what,
            paper=paper_text(number.value),
            ours=str(most) if least == most else f"{least} to {most}",
            difference=signed(least - paper_value(name)),
            overlap=None,
            place=number.place,
        )
    ]
