"""Every figure and table of the report. A new one is a module here and a line in `FIGURES`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from headcount.errors import InputError
from headcount.report.figures import (
    adviser,
    block,
    bounds,
    fig1,
    fig2,
    fig3,
    fig4,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9,
    fig10,
    fig11,
    fig12,
    fig13,
    frontier,
    law,
    laws,
    limit,
    linear,
    relations,
    separability,
    shared_block,
    shared_keys,
    steps,
    table1,
    table2,
)
from headcount.report.figures.base import Claim, Figure
from headcount.report.rules import rules
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.presets import Need, preset, restricted
from headcount.reproduction.shipped import measured_evidence

FIGURES: tuple[Figure, ...] = (
    fig1.FIGURE,
    fig2.FIGURE,
    fig3.FIGURE,
    fig4.FIGURE,
    fig5.FIGURE,
    fig6.FIGURE,
    fig7.FIGURE,
    fig8.FIGURE,
    fig9.FIGURE,
    fig10.FIGURE,
    fig11.FIGURE,
    fig12.FIGURE,
    fig13.FIGURE,
    table1.FIGURE,
    table2.FIGURE,
    linear.FIGURE,
    block.FIGURE,
    shared_block.FIGURE,
    bounds.FIGURE,
    frontier.FIGURE,
    limit.FIGURE,
    law.FIGURE,
    separability.FIGURE,
    steps.FIGURE,
    laws.FIGURE,
    adviser.FIGURE,
    shared_keys.FIGURE,
    relations.FIGURE,
)


def chosen_figures(names: Sequence[str]) -> tuple[Figure, ...]:
    """The figures of these ids, in the order of the report; all of them without names.

    >>> [figure.id for figure in chosen_figures(["table1", "fig3"])]
    ['fig3', 'table1']
    """
    known = [figure.id for figure in FIGURES]
    for name in names:
        if name not in known:
            similar = get_close_matches(name, known, n=1, cutoff=0.5)
            guess = f" (did you mean {similar[0]!r}?)" if similar else ""
            raise InputError(
                f"{name!r} is not a figure or table of the report{guess}; "
                f"choose from {', '.join(known)}"
            )
    return tuple(figure for figure in FIGURES if not names or figure.id in names)


def figure(name: str, evidence: Evidence | None = None) -> Any:
    """Draw a figure of the report as an Altair chart, or give a table as a DataFrame.

    `evidence` is what the runs of a reproduction came to; without it, the results at the scale of
    the paper that are shipped with headcount.

    >>> figure("table2").columns.tolist()
    ['m', 'd_model', 'steps (paper)', 'steps (ours)', 'note']
    >>> figure("fig99")
    Traceback (most recent call last):
    headcount.errors.InputError: 'fig99' is not a figure or table of the report (did you mean
    'fig9'?); choose from fig1, ...
    """
    (found,) = chosen_figures([name])
    make = found.draw or found.table
    assert make is not None  # a figure has a chart, a table or both
    return make(measured_evidence() if evidence is None else evidence)


@lru_cache(maxsize=4)
def claims(evidence: Evidence) -> tuple[Claim, ...]:
    """Judge every claim of the paper, and our control; each states the rule it is judged by."""
    found = {claim.id: claim for figure in FIGURES for claim in _judged(figure, evidence)}
    return tuple(found[name] for name in rules())


def _judged(figure: Figure, evidence: Evidence) -> list[Claim]:
    return [judge(evidence) for judge in figure.claims]


def needs(figures: Sequence[Figure]) -> list[Need]:
    """The runs that these figures are drawn from."""
    own = [
        Need(grid, figure.points, curves=figure.curves)
        for figure in figures
        for grid in figure.grids
    ]
    return own + [need for figure in figures for need in figure.also]


def is_part_of(figure: Figure, name: str) -> bool:
    """Whether a preset has runs of a figure's own grids.

    >>> [is_part_of(one, "quick") for one in chosen_figures(["fig3", "fig4", "fig11"])]
    [True, False, False]
    """
    own = [Need(grid, figure.points, curves=figure.curves) for grid in figure.grids]
    part = restricted(preset(name), own)
    return bool(part.grids or part.searches)
