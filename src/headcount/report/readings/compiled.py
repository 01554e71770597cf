"""Readings of the frontier of compiled weights that came with headcount."""

from __future__ import annotations

import pandas as pd

from headcount.errors import InputError
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.shipped import measured_frontier


def compiled_frontier(evidence: Evidence) -> pd.DataFrame:
    """The frontier, beside results at the scale of the paper; other evidence has none of its own."""
    preset = evidence.provenance.get("preset")
    if preset != "paper":
        raise InputError(f"not measured by the preset “{preset}”" if preset else "not measured")
    return measured_frontier()


def frontier_command(evidence: Evidence) -> str:
    """The command that compiles the same points."""
    table = measured_frontier()
    sizes = (
        table[["items", "d_model", "degree"]].drop_duplicates().itertuples(index=False, name=None)
    )
    points = ",".join(f"{m}x{d}" + (f"x{r}" if r > 1 else "") for m, d, r in sizes)
    count = len(set(table["seed"]))
    seeds = f" --seeds {count}" if count > 1 else ""
    return f"headcount frontier --points {points}{seeds} --time-limit {max(table['time_limit']):g} --chart frontier.png"
