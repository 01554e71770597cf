"""The chart of Figure 7: accuracy of the transformer block, with and without s and q barred."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from headcount.report.drawing.style import log2_axis, require_rows, series_looks, styled, tooltips
from headcount.report.figures.block_cells import CELL_TOOLTIPS, cell_marks
from headcount.report.formatting import listed
from headcount.report.palette import GREY
from headcount.report.readings.block_runs import Setting, panels
from headcount.report.readings.paper_numbers import paper_value, quoted
from headcount.reproduction.evidence import Evidence

_ROWS = ("test accuracy", "accuracy with s and q barred")
_DODGE = 0.14  # octaves of D_K between the head counts, so that their bars stand side by side
_BESIDE = 0.032  # octaves from a mean to its first seed
_JITTER = 0.009  # octaves between the seeds


def accuracy_chart(evidence: Evidence) -> alt.TopLevelMixin:
    """Accuracy against D_K, seeds beside their mean; below, with s and q barred at the test."""
    found = panels(evidence)
    lines = [line for panel in found for line in _panel_lines(panel)]
    frame = require_rows(pd.DataFrame(lines), "runs of the transformer block")
    budgets = sorted({budget for panel in found for budget in panel.budgets})
    looks = series_looks("heads", frame["heads"], "heads h")
    x = log2_axis("total key dimension D_K", padding=30, values=budgets).x("x")
    ends, ticks = _ruler(min(frame["value"]))
    y = alt.Y(
        "value:Q",
        scale=alt.Scale(domain=ends, nice=False),
        axis=alt.Axis(values=ticks, format=".1f"),
        title=None,
    )
    base: Any = alt.Chart().encode(x=x, color=looks["color"])
    means = base.transform_filter("datum.kind == 'mean'")
    paper: Any = alt.Chart().transform_filter("datum.kind == 'paper'")
    layers = [
        paper.mark_rule(color=GREY, strokeDash=[2, 3], strokeWidth=1.3).encode(y=y),
        means.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.2, clip=True)
        .encode(y="low:Q", y2="high"),
        means.mark_line(strokeWidth=1.5).encode(y=y, strokeDash=looks["strokeDash"]),
        means.mark_point(filled=True, size=42, opacity=1).encode(
            y=y, shape=looks["shape"], tooltip=tooltips(**CELL_TOOLTIPS)
        ),
        base.transform_filter("datum.kind == 'seed'")
        .mark_point(filled=False, size=12, strokeWidth=0.9, opacity=1, shape="circle")
        .encode(y=y, tooltip=tooltips(**CELL_TOOLTIPS)),
        base.transform_filter("datum.kind == 'collapsed'")
        .mark_text(align="left", dx=13, fontSize=10)
        .encode(y=y, text="collapsed:N"),
    ]
    width = {1: 440, 2: 340}.get(len(found), 230)
    chart = alt.layer(*layers, data=frame).properties(width=width, height=230)
    facet = chart.facet(
        row=alt.Row("row:N", sort=list(_ROWS), title=None),
        column=alt.Column("panel:N", sort=[panel.short_title for panel in found], title=None),
        spacing=14,
    ).resolve_axis(x="independent", y="independent")
    return styled(
        facet, frame, "A whole transformer block on frozen token embeddings", _subtitle(found)
    )


def _ruler(least: float) -> tuple[list[float], list[float]]:
    """The ends and ticks of the accuracy axis.

    It starts at 0, or where every run has learnt at the tenth below the least.

    >>> _ruler(0.31)[1], _ruler(0.667)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], ([0.584, 1.016], [0.6, 0.7, 0.8, 0.9, 1.0]))
    """
    tenths = int(10 * least) if least >= 0.5 else 0
    ticks = [tenth / 10 for tenth in range(tenths, 11, 1 if tenths else 2)]
    beyond = 0.04 * (1 - ticks[0])
    return [round(ticks[0] - beyond, 4), round(1 + beyond, 4)], ticks


def _panel_lines(panel: Setting) -> Iterator[dict[str, object]]:
    counts = sorted({heads for heads, _ in panel.cells})
    for row, setting in zip(_ROWS, (panel, panel.barred_at_test), strict=True):
        place = {
            "panel": panel.short_title,
            "row": row,
            "items": panel.items,
            "d_model": panel.d_model,
        }
        for (heads, budget), cell in setting.cells.items():
            at = budget * 2 ** (_DODGE * (counts.index(heads) - (len(counts) - 1) / 2))
            for step, line in enumerate(cell_marks(cell)):
                yield place | line | {"x": at * 2 ** (_BESIDE + _JITTER * step if step else 0)}
            if 0 < cell.collapsed < len(cell.seeds):
                text = f"{cell.collapsed} of {len(cell.seeds)}"
                yield place | {
                    "kind": "collapsed",
                    "heads": heads,
                    "value": 0.0,
                    "x": at,
                    "collapsed": text,
                }
        if setting is panel and panel.compressed:
            yield place | {
                "kind": "paper",
                "heads": 1,
                "value": paper_value("block.single-head.partial"),
            }


def _subtitle(found: list[Setting]) -> str:
    runs = listed([f"{panel.name} {_seeds(panel)} of {panel.steps:,} steps" for panel in found])
    lines = [
        f"filled: means, bars: 95 % intervals; small circles: runs ({runs}), with the number of "
        "those near 0",
        "lower row: the same runs where neither s = π(q) nor the query q may be the answer; in "
        "brackets d_model, with m = "
        f"{listed(list(dict.fromkeys(f'{panel.items:,}' for panel in found)))} items",
    ]
    if any(panel.compressed for panel in found):
        lines.append(
            f"dotted: {quoted('block.single-head.partial')}, the paper's runs with one head that "
            "do not collapse"
        )
    return "\n".join(lines)


def _seeds(panel: Setting) -> str:
    counts = sorted({len(cell.seeds) for cell in panel.cells.values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
