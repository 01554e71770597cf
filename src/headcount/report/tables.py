"""Tables 1 and 2, and that of compiled weights, as frames that a page shows as they are."""

from __future__ import annotations

import pandas as pd

from headcount.experiments import paper
from headcount.experiments.evidence import Evidence
from headcount.report.readings.compiled import compiled_frontier
from headcount.report.readings.frames import passing, rows
from headcount.report.readings.paper_widths import paper_widths
from headcount.report.words import widths_text

MISSING = "–"


def table1(evidence: Evidence) -> pd.DataFrame:
    """d_k* of every base point of the paper, ours beside it, with D_K* and h*, and the paper's width in our runs.

    Intervals stand in brackets: D_K* from optimistic to conservative, h* with the counts that are not told from it.
    """
    ours = {(point.items, point.d_model): point for point in paper_widths(evidence)}
    ends = _ends(evidence)
    lines = []
    for m, d, width in rows(paper.table_1(), "items", "d_model", "key_dim"):
        point = ours.get((m, d))
        budget, heads = ends.get((m, d), (MISSING, MISSING))
        split = point and (point.passing or point.nearest)
        lines.append(
            {
                "m": m,
                "d_model": d,
                "d_k* (paper)": width,
                "d_k* (ours)": str(point.key_dim) if point else MISSING,
                "D_K* (ours)": budget,
                "h* (ours)": heads,
                "the paper's d_k in our runs": split.text if split else MISSING,
            }
        )
    return pd.DataFrame(lines)


def table2(evidence: Evidence | None = None) -> pd.DataFrame:
    """The step cutoffs: the paper's, and ours where it lists none. They do not depend on the evidence."""
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
    swept = {point for name in paper.grids() if paper.grid(name).variant == "max" for point in paper.grid(name).points}
    return tuple(sorted(swept - listed))


def frontier(evidence: Evidence) -> pd.DataFrame:
    """The smallest compiled D_K of every point beside the others."""
    table = compiled_frontier(evidence)
    return pd.DataFrame(
        {
            "m": table["items"],
            "d_model": table["d_model"],
            "r": table["degree"],
            "compiled D_K": table["budget"],
            "heads × width": [widths_text(widths) for widths in table["widths"]],
            "trained D_K*": table["trained"],
            "smallest construction": table["constructed"],
            "largest lower bound": table["lower_bound"],
            "bits per parameter": table["bits_per_parameter"],
            "relative margin": table["relative_margin"],
            "seconds": table["seconds"],
            "machine": table["machine"],
        }
    )


def _ends(evidence: Evidence) -> dict[tuple[int, int], tuple[str, str]]:
    """D_K* and h* of every base point, with their intervals."""
    names = ("items", "d_model", "central", "optimistic", "conservative", "heads", "heads_low", "heads_high")
    return {
        (m, d): (_with_ends(budget, low, high), _with_ends(heads, few, many))
        for m, d, budget, low, high, heads, few, many in rows(passing(evidence, "base"), *names)
    }


def _with_ends(middle: int, low: int | None, high: int | None) -> str:
    """Write "56 [48, 64]"; an end that nothing reached as "–"."""
    return f"{middle} [{MISSING if low is None else low}, {MISSING if high is None else high}]"
