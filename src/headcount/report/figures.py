"""Every figure and table of the report, in the order of the paper; ours follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.paper import data as paper
from headcount.report import tables
from headcount.report.comparisons import COMPARISONS
from headcount.report.figure import Figure
from headcount.report.meanings import MEANINGS
from headcount.report.readings.block import block_command
from headcount.report.readings.compiled import compiled_frontier, frontier_command
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.presets import Need

_LAW = ("base", "extreme")  # whose thresholds the laws of Section 6.1 are fitted to


def _figure(
    name: str,
    title: str,
    *grids: str,
    table: Callable[[Evidence], pd.DataFrame] | None = None,
    **more: Any,
) -> Figure:
    draw = more.pop("draw", None if table else partial(_draw, name))
    return Figure(
        name,
        title,
        grids,
        draw=draw,
        table=table,
        compare=COMPARISONS[name],
        meaning=MEANINGS[name],
        **more,
    )


def _draw(name: str, evidence: Evidence) -> Any:
    from headcount.report import charts  # Altair is loaded to draw, not to choose what to run

    return getattr(charts, name)(evidence)


def _draw_frontier(evidence: Evidence) -> Any:
    from headcount.report import charts

    return charts.frontier(compiled_frontier(evidence))


def _beside(grid: str) -> tuple[Need, ...]:
    """The permutations under max at the points of another grid, for comparison."""
    return (Need("base", paper.grid(grid).points),)


FIGURES = (
    _figure("fig1", "Figure 1. F1 against D_K at (256, 32)", "base", points=((256, 32),)),
    _figure("fig2", "Figure 2. The head count h* that needs the least D_K", "base"),
    _figure("fig3", "Figure 3. The capacity law", *_LAW),
    _figure("fig4", "Figure 4. The diagonal m/d_model = 8", "diagonal"),
    _figure("fig5", "Figure 5. F1 against D_K under softmax", "softmax", also=_beside("softmax")),
    _figure("fig6", "Figure 6. Value retrieval", "value"),
    _figure(
        "fig7",
        "Figure 7. A whole transformer block",
        draw=partial(_draw, "fig7"),
        table=tables.fig7,
        command=block_command,
    ),
    _figure(
        "fig8", "Figure 8. D_K*, the smallest total key dimension", "base", "diagonal", "extreme"
    ),
    _figure("fig9", "Figure 9. F1 against D_K", "base"),
    _figure("fig10", "Figure 10. Heads against compression", *_LAW),
    _figure("fig11", "Figure 11. F1 against D_K, regular graphs", "regular"),
    _figure("fig12", "Figure 12. Capacity scales with the edges", "regular", ceilings=True),
    _figure("fig13", "Figure 13. Heads against degree", "regular"),
    _figure("table1", "Table 1. Width of a head at D_K*", "base", table=tables.table1),
    _figure("table2", "Table 2. Training step limits", table=tables.table2),
    _figure(
        "linear", "Beyond the paper: scores summed over heads", "linear", also=_beside("linear")
    ),
    _figure(
        "block",
        "Beyond the paper: what the second head does",
        draw=partial(_draw, "block"),
        table=tables.block,
        command=block_command,
    ),
    _figure(
        "bounds",
        "Beyond the paper: bounds, training, constructions",
        *("base", "regular", "diagonal", "extreme"),
        ceilings=True,
    ),
    _figure(
        "frontier",
        "Beyond the paper: compiled weights",
        draw=_draw_frontier,
        table=tables.frontier,
        command=frontier_command,
    ),
)


def chosen_figures(names: Sequence[str]) -> tuple[Figure, ...]:
    """The figures of these ids, in the order of the paper; all of them without names.

    >>> [figure.id for figure in chosen_figures(["table1", "fig3"])]
    ['fig3', 'table1']
    """
    known = [figure.id for figure in FIGURES]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else ""
            raise InputError(
                f"{name!r} is no figure or table of the report; {hint or 'use ' + ', '.join(known)}"
            )
    return tuple(figure for figure in FIGURES if not names or figure.id in names)


def needs(figures: Sequence[Figure]) -> list[Need]:
    """The runs that these figures are drawn from."""
    own = [Need(grid, figure.points) for figure in figures for grid in figure.grids]
    return own + [need for figure in figures for need in figure.also]
