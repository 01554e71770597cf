"""Table 2: the training step limits."""

from __future__ import annotations

import pandas as pd

from headcount.paper import data as paper
from headcount.report.figures.base import Comparison, Figure
from headcount.report.formatting import MISSING, counted, listed, pairs_text
from headcount.report.readings.frames import rows
from headcount.reproduction.evidence import Evidence


def table(evidence: Evidence | None = None) -> pd.DataFrame:
    """The paper's step limits, and ours where it lists none, whatever the evidence."""
    lines = [
        {
            "m": m,
            "d_model": d,
            "steps (paper)": f"{steps:,}",
            "steps (ours)": f"{paper.step_cutoff(m, d):,}",
            "note": "",
        }
        for m, d, steps in rows(paper.table_2(), "items", "d_model", "steps")
    ]
    lines += [
        {
            "m": m,
            "d_model": d,
            "steps (paper)": MISSING,
            "steps (ours)": f"{paper.step_cutoff(m, d):,}",
            "note": "not in Table 2; our choice",
        }
        for m, d in unlisted_points()
    ]
    return pd.DataFrame(lines)


def unlisted_points() -> tuple[tuple[int, int], ...]:
    """The points of the paper's sweeps under max that Table 2 leaves out.

    >>> unlisted_points()
    ((1024, 32),)
    """
    listed = set(rows(paper.table_2(), "items", "d_model"))
    swept = {
        point
        for name in paper.grids()
        if paper.grid(name).variant == "max"
        for point in paper.grid(name).points
    }
    return tuple(sorted(swept - listed))


def compare(evidence: Evidence) -> list[Comparison]:
    """The step limits, which are the paper's."""
    listed = list(rows(paper.table_2(), "items", "d_model", "steps"))
    same = sum(paper.step_cutoff(m, d) == cutoff for m, d, cutoff in listed)
    return [
        Comparison(
            what="training step cutoffs",
            paper=f"{counted(len(listed), 'point')} listed",
            ours=f"{same} of {len(listed)} the same",
            difference="same" if same == len(listed) else "differs",
            overlap=None,
            place="Table 2",
        )
    ]


def meaning(evidence: Evidence) -> str:
    """Which step limits are the paper's."""
    listed_points = list(rows(paper.table_2(), "items", "d_model", "steps"))
    same = sum(paper.step_cutoff(m, d) == cutoff for m, d, cutoff in listed_points)
    more = [f"{paper.step_cutoff(m, d):,} steps" for m, d in unlisted_points()]
    return (
        f"The step limits are the paper's at {same} of the {len(listed_points)} points that it "
        f"lists. It leaves out {pairs_text(unlisted_points())}, where we chose {listed(more)}."
    )


FIGURE = Figure(
    id="table2",
    title="Table 2. Training step limits",
    table=table,
    compare=compare,
    meaning=meaning,
)
