"""The transformer block: Fig. 7, and one head under the controls (not in the paper)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from headcount.report.charts.style import (
    COLOURS,
    GREY,
    finish,
    log2_ruler,
    some,
    told_apart,
    tooltips,
)
from headcount.report.readings.block import Cell, Setting, panels
from headcount.report.readings.block_controls import AT_TEST, Control, controls
from headcount.report.readings.frames import said, value
from headcount.report.words import counted, listed
from headcount.reproduction.evidence import Evidence

_ROWS = ("test accuracy", "accuracy with s and q barred")
_DODGE = 0.14  # octaves of D_K between the head counts, so that their bars stand side by side
_BESIDE = 0.032  # octaves from a mean to its first seed
_JITTER = 0.009  # octaves between the seeds
_ENDS = [-0.04, 1.04]
_ONE, _SEVERAL, _CONTROL = "one head", "several heads", "one head under a control"
_SHOWN = {
    "value": "accuracy|.4f",
    "seed": "seed",
    "interval": "95 % interval of the mean",
    "errors": "errors that are s",
    "collapsed": "collapsed runs",
    "heads": "h|d",
    "budget": "D_K|d",
    "items": "m|d",
    "d_model": "d_model|d",
}


def fig7(evidence: Evidence) -> alt.TopLevelMixin:
    """Fig. 7: accuracy against D_K on each table, seeds beside their mean; below, with s and q barred at the test."""
    found = panels(evidence)
    lines = [line for panel in found for line in _panel_lines(panel)]
    frame = some(pd.DataFrame(lines), "runs of the transformer block")
    budgets = sorted({budget for panel in found for budget in panel.budgets})
    looks = told_apart("heads", frame["heads"], "heads h")
    x = log2_ruler("total key dimension D_K", padding=30, values=budgets).x("x")
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
            y=y, shape=looks["shape"], tooltip=tooltips(**_SHOWN)
        ),
        base.transform_filter("datum.kind == 'seed'")
        .mark_point(filled=False, size=12, strokeWidth=0.9, opacity=1, shape="circle")
        .encode(y=y, tooltip=tooltips(**_SHOWN)),
        base.transform_filter("datum.kind == 'collapsed'")
        .mark_text(align="left", dx=13, fontSize=10)
        .encode(y=y, text="collapsed:N"),
    ]
    width = {1: 440, 2: 340}.get(len(found), 230)
    chart = alt.layer(*layers, data=frame).properties(width=width, height=230)
    facet = chart.facet(
        row=alt.Row("row:N", sort=list(_ROWS), title=None),
        column=alt.Column("panel:N", sort=[_short(panel) for panel in found], title=None),
        spacing=14,
    ).resolve_axis(x="independent", y="independent")
    return finish(
        facet, frame, "A whole transformer block on frozen token embeddings", _subtitle(found)
    )


def block(evidence: Evidence) -> alt.TopLevelMixin:
    """One head under the controls beside plain heads: a line for each, a panel for each table and D_K."""
    found = _with_trained_controls(controls(evidence))
    plain = list({control.plain.title: control.plain for control in found}.values())
    frame = pd.DataFrame([*_plain_lines(plain), *_control_lines(found)])
    some(frame, "runs of the transformer block with one head")
    names = sorted(
        dict.fromkeys(frame["name"]), key=lambda name: (name.startswith(_ONE), "rows ×" in name)
    )
    kinds = [_SEVERAL, _ONE, _CONTROL]
    colours = alt.Scale(domain=kinds, range=[COLOURS[2], COLOURS[0], COLOURS[3]])
    shapes = alt.Scale(domain=kinds, range=["square", "circle", "triangle-up"])
    x = alt.X(
        "value:Q",
        scale=alt.Scale(domain=_ENDS, nice=False),
        axis=alt.Axis(values=[0, 0.5, 1], format=".1f"),
    )
    base: Any = alt.Chart().encode(
        x=x.title("accuracy"),
        y=alt.Y(
            "name:N", sort=names, title=None, axis=alt.Axis(labelLimit=260, grid=True, ticks=False)
        ),
        color=alt.Color("what:N", scale=colours, legend=None),
        tooltip=tooltips(name="what", **_SHOWN),
    )
    means = base.transform_filter("datum.kind == 'mean'")
    layers = [
        means.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.4, clip=True)
        .encode(x="low:Q", x2="high"),
        base.transform_filter("datum.kind == 'seed'").mark_point(
            size=14, strokeWidth=0.9, opacity=1, yOffset=7
        ),
        means.mark_point(filled=True, size=55, opacity=1).encode(
            shape=alt.Shape("what:N", scale=shapes, legend=None)
        ),
    ]
    order = [f"D_K = {budget}" for budget in sorted(set(frame["budget"]))]
    chart = alt.layer(*layers, data=frame).properties(width=185, height={"step": 24})
    facet = chart.facet(
        row=alt.Row("panel:N", sort=[_short(panel) for panel in plain], title=None),
        column=alt.Column("column:N", sort=order, title=None),
        spacing={"row": 16, "column": 12},
    ).resolve_axis(x="independent")
    title = "What the second head does: one head where s may not be the answer, and with a second value path"
    subtitle = "large: means with 95 % intervals; small circles: runs; q: the query, s = π(q); in brackets: d_model"
    return finish(facet, frame, title, subtitle)


def _ruler(least: float) -> tuple[list[float], list[float]]:
    """The ends and ticks of accuracy: from 0, or where every run has learnt from the tenth below the least.

    >>> _ruler(0.31)[1], _ruler(0.667)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], ([0.584, 1.016], [0.6, 0.7, 0.8, 0.9, 1.0]))
    """
    tenths = int(10 * least) if least >= 0.5 else 0
    ticks = [tenth / 10 for tenth in range(tenths, 11, 1 if tenths else 2)]
    beyond = 0.04 * (1 - ticks[0])
    return [round(ticks[0] - beyond, 4), round(1 + beyond, 4)], ticks


def _with_trained_controls(found: list[Control]) -> list[Control]:
    """The controls of the tables that have others than barring at the test, which Fig. 7 shows; all if none has."""
    tables = [control.plain for control in found if control.name != AT_TEST]
    return [control for control in found if control.plain in tables] if tables else found


def _short(panel: Setting) -> str:
    return f"{panel.name} ({panel.d_model})"


def _panel_lines(panel: Setting) -> Iterator[dict[str, object]]:
    counts = sorted({heads for heads, _ in panel.cells})
    for row, setting in zip(_ROWS, (panel, panel.barred_at_test), strict=True):
        place = {"panel": _short(panel), "row": row, "items": panel.items, "d_model": panel.d_model}
        for (heads, budget), cell in setting.cells.items():
            at = budget * 2 ** (_DODGE * (counts.index(heads) - (len(counts) - 1) / 2))
            for step, line in enumerate(_cell_lines(cell)):
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
            yield place | {"kind": "paper", "heads": 1, "value": value("block.single-head.partial")}


def _plain_lines(plain: list[Setting]) -> Iterator[dict[str, object]]:
    for panel in plain:
        for (heads, budget), cell in panel.cells.items():
            name = _ONE if heads == 1 else counted(heads, "head")
            yield from _named(panel, budget, cell, name, _ONE if heads == 1 else _SEVERAL)


def _control_lines(found: list[Control]) -> Iterator[dict[str, object]]:
    for control in found:
        for cell in control.cells:
            yield from _named(control.plain, cell.budget, cell, f"{_ONE}, {control.name}", _CONTROL)


def _named(
    panel: Setting, budget: int, cell: Cell, name: str, what: str
) -> Iterator[dict[str, object]]:
    place = {
        "panel": _short(panel),
        "column": f"D_K = {budget}",
        "items": panel.items,
        "d_model": panel.d_model,
    }
    yield from (place | {"name": name, "what": what} | line for line in _cell_lines(cell))


def _cell_lines(cell: Cell) -> Iterator[dict[str, object]]:
    """The mean, then each seed."""
    share, ends = cell.errors_s, cell.interval
    low, high = ends or (None, None)
    shared = {
        "heads": cell.heads,
        "budget": cell.budget,
        "interval": "–" if ends is None else f"{ends[0]:.4f} … {ends[1]:.4f}",
        "errors": "–" if share is None else f"{100 * share:.0f} %",
        "collapsed": f"{cell.collapsed} of {len(cell.seeds)}",
    }
    yield shared | {"kind": "mean", "seed": "mean", "value": cell.mean, "low": low, "high": high}
    for seed, score in cell.seeds.items():
        yield shared | {"kind": "seed", "seed": str(seed), "value": score}


def _subtitle(found: list[Setting]) -> str:
    runs = listed([f"{panel.name} {_seeds(panel)} of {panel.steps:,} steps" for panel in found])
    lines = [
        f"filled: means, bars: 95 % intervals; small circles: runs ({runs}), with the number near 0",
        "lower row: the same runs where neither s = π(q) nor the query q may be the answer; in brackets "
        f"d_model, with m = {listed(list(dict.fromkeys(f'{panel.items:,}' for panel in found)))} items",
    ]
    if any(panel.compressed for panel in found):
        lines.append(
            f"dotted: {said('block.single-head.partial')}, the paper's runs with one head that do not collapse"
        )
    return "\n".join(lines)


def _seeds(panel: Setting) -> str:
    counts = sorted({len(cell.seeds) for cell in panel.cells.values()})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
