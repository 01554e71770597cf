"""What the page shows that only Python knows: constants of the laws, measured runs, words."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import pandas as pd

from headcount.analysis.curves import curves
from headcount.analysis.thresholds import thresholds
from headcount.problem.relations import relations
from headcount.report.palette import COLOURS
from headcount.reproduction.shipped import measured_runs
from headcount.theory.adviser import (
    HEAD_COUNTS,
    IMPOSSIBLE,
    TRADED_STEPS,
    USUAL_CHANCE,
    USUAL_STEPS,
)
from headcount.theory.capacity_law import TRAINED_RATIOS
from headcount.theory.constants import constants
from headcount.theory.laws import BUDGET, BUDGET_REGULAR, BUDGET_WIDE, COMPILED
from headcount.theory.margins import default_margin
from headcount.theory.measured_range import MOST_COLUMNS, RANGES
from headcount.theory.steps_law import CENTRE, SOFTNESS, STEPS_LAW, WIDE_TABLE

_BITS_PER_PARAMETER = 8  # what `plan` assumes
_PAIRS = 64  # of antonyms
_RED = "#D55E00"


def theory_constants() -> dict[str, Any]:
    """The constants of the laws under max; the formulas are in assets/theory."""
    return {
        "bits": _BITS_PER_PARAMETER,
        "margin": default_margin(2, 1),  # the same at all sizes
        "laws": {
            law.name: {"slope": law.slope, "interval": law.interval, "source": law.source}
            for law in (BUDGET, BUDGET_WIDE, BUDGET_REGULAR, COMPILED)
        },
        "constructions": {
            name: {"C": constant.C, "c0": constant.c0} for name, constant in constants().items()
        },
        "steps_law": {
            **asdict(STEPS_LAW),
            "centre": CENTRE,
            "softness": SOFTNESS,
            "wide_table": WIDE_TABLE,
        },
        "range": asdict(RANGES["max"]),
        "head_counts": HEAD_COUNTS,
        "traded_steps": TRADED_STEPS,
        "impossible": IMPOSSIBLE,
        "usual_steps": USUAL_STEPS,
        "usual_chance": USUAL_CHANCE,
        "most_columns": MOST_COLUMNS,
        "trained_ratios": TRAINED_RATIOS["max"],
    }


def head_colours() -> list[str]:
    """The report's colours; its red comes last, since wrong pairs are red on the page."""
    return [*(colour for colour in COLOURS if colour != _RED), _RED]


@cache
def measured_points() -> dict[str, Any]:
    """Mean F1 of the shipped runs by split, and the smallest D_K that trained, under max."""
    runs = measured_runs("max")
    found, least = curves(runs), thresholds(runs)
    found["mean"] = found["mean"].round(3)
    shown = ["degree", "items", "d_model", "heads", "budget", "mean", "runs"]
    ends = ["degree", "items", "d_model", "central", "heads"]
    return {"splits": _rows(found, shown), "thresholds": _rows(least, ends)}


def _rows(frame: pd.DataFrame, columns: list[str]) -> list[list[Any]]:
    return [list(row) for row in zip(*(frame[name].tolist() for name in columns), strict=True)]


@cache
def antonym_pairs() -> list[list[str]]:
    """Pairs of opposite words, no word twice: those of the fewest letters."""
    graph = relations("antonyms")
    assert graph.names is not None
    pairs = [
        (graph.names[a], graph.names[b])
        for a, b in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True)
        if a < b
    ]
    used: set[str] = set()
    chosen: list[list[str]] = []
    for pair in sorted(pairs, key=lambda pair: (max(map(len, pair)), pair)):
        if len(chosen) < _PAIRS and used.isdisjoint(pair):
            used.update(pair)
            chosen.append(list(pair))
    return chosen
