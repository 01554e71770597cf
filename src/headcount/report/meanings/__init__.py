"""What every figure and table of the report means: two sentences each, with the numbers of the evidence."""

from __future__ import annotations

from collections.abc import Callable

from headcount.report.meanings.block import block, fig7
from headcount.report.meanings.compiled import frontier
from headcount.report.meanings.permutations import (
    fig1,
    fig2,
    fig3,
    fig4,
    fig8,
    fig9,
    fig10,
    table1,
    table2,
)
from headcount.report.meanings.variants import bounds, fig5, fig6, fig11, fig12, fig13, linear
from headcount.reproduction.evidence import Evidence

MEANINGS: dict[str, Callable[[Evidence], str]] = {
    "fig1": fig1,
    "fig2": fig2,
    "fig3": fig3,
    "fig4": fig4,
    "fig5": fig5,
    "fig6": fig6,
    "fig7": fig7,
    "fig8": fig8,
    "fig9": fig9,
    "fig10": fig10,
    "fig11": fig11,
    "fig12": fig12,
    "fig13": fig13,
    "table1": table1,
    "table2": table2,
    "linear": linear,
    "block": block,
    "bounds": bounds,
    "frontier": frontier,
}
