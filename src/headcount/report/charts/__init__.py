"""The figures of the paper, drawn from our evidence, and four of our own: `linear`, `block`, `bounds`
and `frontier`."""

from headcount.report.charts.block import block, fig7
from headcount.report.charts.bounds import bounds
from headcount.report.charts.curves import fig1, fig5, fig6, fig9, fig11, linear
from headcount.report.charts.frontier import frontier
from headcount.report.charts.heads import fig2, fig4, fig10, fig13
from headcount.report.charts.thresholds import fig3, fig8, fig12

__all__ = [
    "block",
    "bounds",
    "fig1",
    "fig2",
    "fig3",
    "fig4",
    "fig5",
    "fig6",
    "fig7",
    "fig8",
    "fig9",
    "fig10",
    "fig11",
    "fig12",
    "fig13",
    "frontier",
    "linear",
]
