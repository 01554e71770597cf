"""The meaning of the frontier of compiled weights."""

from __future__ import annotations

import pandas as pd

from headcount.errors import InputError
from headcount.report.meanings.permutations import UNMEASURED
from headcount.report.readings.compiled import compiled_frontier
from headcount.report.words import counted, num, span_text
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.frontier import compiled_law


def frontier(evidence: Evidence) -> str:
    """Compiled weights beside the others."""
    try:
        found = compiled_frontier(evidence).dropna(subset=["budget"])
    except InputError:
        return UNMEASURED
    if found.empty:
        return UNMEASURED
    points = len(found[["items", "d_model", "degree"]].drop_duplicates())
    beside = [
        f"{span_text(shares)} {name}"
        for column, name in (
            ("trained", "the trained D_K*"),
            ("constructed", "the smallest construction that we know"),
        )
        if (shares := _shares(found, column))
    ]
    needs = f" with {' and '.join(beside)}" if beside else ""
    best = found.sort_values("bits_per_parameter").iloc[-1]
    known = found.dropna(subset=["trained"])
    trained = (known["bits"] / (2 * known["d_model"] * known["trained"])).tolist()
    more = f", trained ones up to {num(max(trained))}" if trained else ""
    return (
        f"At {counted(points, 'point')} compiled weights are right on every pair{needs}. They carry up to "
        f"{num(best['bits_per_parameter'])} bits per key–query parameter, at ({best['items']}, {best['d_model']})"
        f"{more}{_law(found)}."
    )


def _shares(found: pd.DataFrame, column: str) -> list[float]:
    return (found["budget"] / found[column]).dropna().astype(float).tolist()


def _law(found: pd.DataFrame) -> str:
    try:
        line = compiled_law(found)
    except InputError:  # too few points for a line
        return ""
    return f", and their D_K follows {num(line.slope)} m log₂ m/d_model with R² {num(line.r_squared or 0.0)}"
