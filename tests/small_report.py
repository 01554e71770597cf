"""A small report to test the page with: four measured points, and charts like the report's."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from headcount.analysis.curves import curves
from headcount.analysis.thresholds import thresholds, thresholds_by_heads
from headcount.report.figures.base import Claim, Comparison, Figure
from headcount.report.page import write_report
from headcount.reproduction.evidence import Evidence
from tests.measured import base_runs

# Text that must come through as text.
NASTY = "a < b & </script><script>alert('x')</script> \"quoted\""
_FILTERS = {"m": "items", "d_model_": "d_model", "h": "heads"}


@cache
def small_evidence() -> Evidence:
    """Four points of the base grid."""
    runs = base_runs().query("items <= 128 and d_model <= 32")
    frames = [
        frame.assign(grid="base")
        for frame in (curves(runs), thresholds(runs), thresholds_by_heads(runs))
    ]
    provenance = {
        "preset": "paper",
        "runs": 12_345,
        "seconds": 3_725.0,
        "date": "2026-01-02",
        "device": "a device",
        "machine": NASTY,
        "commit": "abc1234",
        "versions": {"numpy": "2.4.6"},
    }
    return Evidence(frames[0], frames[1].assign(runs=10), frames[2], pd.DataFrame(), provenance)


def _filtered(chart: Any) -> Any:
    for name, column in _FILTERS.items():
        chart = chart.transform_filter(f"{name} == null || datum.{column} == {name}")
    return chart.add_params(*[alt.param(name=name, value=None) for name in _FILTERS])


def _panels(evidence: Evidence) -> Any:
    """A facet of four plots, 1,000 pixels wide."""
    rows = evidence.on("base")
    rows["panel"] = [
        f"m = {m}, d_model = {d}" for m, d in zip(rows["items"], rows["d_model"], strict=True)
    ]
    points = (
        alt.Chart()
        .mark_point()
        .encode(x="budget:Q", y="mean:Q", color="heads:N", tooltip=["mean:Q", "runs:Q"])
    )
    lines = alt.Chart().mark_line().encode(x="budget:Q", y="mean:Q", color="heads:N")
    panels = (
        alt.layer(lines, points, data=rows)  # a line above a point would take its tooltip
        .properties(width=200, height=120)
        .facet("panel:N", columns=4)
    )
    return _filtered(panels).properties(
        title=f"A long title of a chart that a narrow page has to break: {NASTY}"
    )


def _grid(evidence: Evidence) -> Any:
    """Rows and columns of plots, as Figure 7 has them."""
    rows = evidence.on("base").query("heads <= 4")
    sizes = sorted({int(width) for width in rows["d_model"]})
    points = alt.Chart(rows).mark_point().encode(x="budget:Q", y="mean:Q", color="heads:N")
    return _filtered(
        points.properties(width=230, height=120).facet(
            row=alt.Row("d_model:N", sort=sizes, title=None), column="items:N"
        )
    )


def _beside(evidence: Evidence) -> Any:
    """Two plots side by side, with a long legend at the bottom."""
    rows = evidence.on("base", "thresholds").assign(
        law="a law with a name that is longer than a telephone is wide"
    )
    key = alt.Legend(orient="bottom", direction="vertical", title=None)
    stroke = alt.Stroke("law:N", scale=alt.Scale(domain=list(rows["law"].unique())), legend=key)
    plots = [
        alt.Chart(rows).mark_line(point=True).encode(x="items:Q", y=y, stroke=stroke)
        for y in ("central:Q", "heads:Q")
    ]
    return _filtered(alt.hconcat(*[plot.properties(width=350, height=200) for plot in plots]))


def _plain(evidence: Evidence) -> Any:
    """A chart without filters."""
    return (
        alt.Chart(pd.DataFrame({"x": [1, 2], "y": [3, 4]}))
        .mark_bar()
        .encode(x="x:O", y="y:Q")
        .properties(width=600)
    )


def small_figures() -> list[Figure]:
    def compare(evidence: Evidence) -> list[Comparison]:
        return [
            Comparison("slope <of> D_K*", "1.65", "1.70 ± 0.10", "+3 %", True, "Section 6.1"),
            Comparison("an order", "rising", "rising", "same", None, "Section 6.2"),
        ]

    def meaning(evidence: Evidence) -> str:
        return f"One sentence & another. {NASTY}"

    def table(evidence: Evidence) -> pd.DataFrame:
        return evidence.thresholds[["items", "d_model", "central", "mean"]].assign(note=NASTY)

    return [
        Figure(
            "fig1",
            "Figure 1: four panels",
            ("base",),
            draw=_panels,
            compare=compare,
            meaning=meaning,
        ),
        Figure("fig2", "Figure 2: two plots", ("base",), draw=_beside, table=table),
        Figure("bars", "Bars <without> filters", (), draw=_plain),
        Figure("grid", "A grid of plots", ("base",), draw=_grid),
        Figure("table1", "Table 1: thresholds", ("base",), table=table),
        Figure("fig5", "Figure 5: softmax", ("softmax",), draw=_panels),
    ]


def small_claims() -> list[Claim]:
    return [
        Claim("C1", f"Heads help: {NASTY}", "h* > 1.", "confirmed", "h* = 8", ("fig1", "fig2")),
        Claim("C2", "The law holds.", "R² > 0.9.", "partly", "slope 1.7", ("table1",)),
        Claim("C3", "One head is enough.", "F1 > 0.9.", "not confirmed", "F1 = 0.5", ("bars",)),
        Claim("C4", "Softmax needs more.", "More.", "not measured", "–", ("fig5", "fig99")),
    ]


def write_small_report(out: Path, formats: tuple[str, ...] = ("png", "svg", "pdf")) -> list[Path]:
    return write_report(out, small_evidence(), small_figures(), small_claims(), formats)
