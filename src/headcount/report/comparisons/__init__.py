"""The paper's numbers beside ours, for every figure and table of the report.

The paper's side comes from `headcount.paper.data`. What was not measured has no row. "In our interval" is said
of the 95 % intervals of fitted slopes and intercepts alone. What comes from two D_K*, or from D_K* and h* (d_k*, the
growth of D_K*), has no such interval: its row gives the range that the two intervals allow.
"""

from __future__ import annotations

from collections.abc import Callable

from headcount.report.comparisons.block import fig7
from headcount.report.comparisons.permutations import fig1, fig2, fig3, fig4, fig8, fig9, fig10
from headcount.report.comparisons.tables import table1, table2
from headcount.report.comparisons.variants import bounds, fig5, fig6, fig11, fig12, fig13, linear
from headcount.report.figure import Comparison
from headcount.reproduction.evidence import Evidence

COMPARISONS: dict[str, Callable[[Evidence], list[Comparison]]] = {
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
    "block": lambda evidence: [],  # the paper has no controls
    "bounds": bounds,
    "frontier": lambda evidence: [],  # the paper has none
}
