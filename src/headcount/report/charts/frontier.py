"""Compiled weights beside trained, constructed and impossible ones, in D_K and in bits (not in the paper)."""

from __future__ import annotations

import altair as alt
import pandas as pd

from headcount.analysis.laws import feature
from headcount.report.charts.style import COLOURS, PALE, SHAPES, finish, log2_ruler, some, tooltips
from headcount.report.words import widths_text

_LOOKS = {  # column, name, colour, shape
    "constructed": ("smallest construction", COLOURS[3], SHAPES[3]),
    "trained": ("trained D_K*", COLOURS[6], SHAPES[1]),
    "budget": ("compiled", COLOURS[2], SHAPES[0]),
    "lower_bound": ("largest lower bound", COLOURS[0], SHAPES[2]),
}
_PANELS = ("total key dimension D_K", "bits per key–query parameter")


def frontier(table: pd.DataFrame) -> alt.TopLevelMixin:
    """Every point of `experiments.frontier` against m'·log₂ m/d_model: D_K, and the bits of a parameter."""
    frame = _drawn(table)
    names = [name for name, _, _ in _LOOKS.values() if name in set(frame["name"])]
    looks = {name: (colour, shape) for name, colour, shape in _LOOKS.values()}
    key = alt.Legend(title=None, orient="top", columns=0, labelLimit=300)
    colours = alt.Scale(domain=names, range=[looks[name][0] for name in names])
    shapes = alt.Scale(domain=names, range=[looks[name][1] for name in names])
    dense = max(table["degree"]) > 1
    x = log2_ruler(
        f"x = {'(r·m / d_model)·log₂ m' if dense else 'm·log₂ m / d_model'}", padding=24
    ).x("x")
    y = log2_ruler("", padding=16, ticks=7)
    base = alt.Chart().encode(x=x)
    marks = base.mark_point(filled=True, opacity=1, size=70).encode(
        y=y.y("value"),
        color=alt.Color("name:N", scale=colours, legend=key),
        shape=alt.Shape("name:N", scale=shapes, legend=key),
        tooltip=tooltips(
            name="what",
            budget="D_K|d",
            bits="bits per parameter|.3f",
            split="widths of the heads",
            margin="relative margin",
            seconds="seconds",
            items="m|d",
            d_model="d_model|d",
            degree="r|d",
        ),
    )
    span = base.mark_rule(color=PALE).encode(y="min(value):Q", y2="max(value):Q")
    panels = alt.Facet("panel:N", title=None, sort=list(_PANELS))
    chart = (
        alt.layer(span, marks)
        .properties(width=400, height=380)
        .facet(data=frame, facet=panels, columns=2)
    )
    chart = chart.resolve_scale(y="independent")
    return finish(
        chart, frame, "Compiled weights between lower bounds and training", _subtitle(table)
    )


def _subtitle(table: pd.DataFrame) -> str:
    limits = sorted({f"{limit:g}" for limit in table["time_limit"].dropna()}, key=float)
    spent = (
        f"\ncompiled in at most {' to '.join(dict.fromkeys((limits[0], limits[-1])))} s a search"
        if limits
        else ""
    )
    none = len(table) - len(table.dropna(subset=["budget"]))
    more = f"\nnothing was certified in time in {none} of {len(table)} searches" if none else ""
    return f"compiled and constructed: every pair is right; trained: F1 of 0.99{spent}{more}"


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each D_K in each panel."""
    some(table.dropna(subset=["budget"]), "compiled weights")
    point = table[["items", "d_model", "degree"]].assign(
        x=feature(table, "edges·log2(items)/d_model")
    )
    parts = []
    for column, (name, _, _) in _LOOKS.items():
        part = point.assign(
            name=name, budget=table[column].astype(float), split="–", margin="–", seconds="–"
        )
        if column == "budget":
            part = part.assign(
                split=[widths_text(widths) for widths in table["widths"]],
                margin=[f"{value:.3g}" for value in table["relative_margin"]],
                seconds=[f"{value:.1f}" for value in table["seconds"]],
            )
        part["bits"] = table["bits"] / (2 * table["d_model"] * part["budget"])
        parts.append(part.dropna(subset=["budget"]).drop_duplicates())
    long = pd.concat(parts, ignore_index=True)
    panels = zip(_PANELS, ("budget", "bits"), strict=True)
    return pd.concat(
        [long.assign(panel=panel, value=long[column]) for panel, column in panels],
        ignore_index=True,
    )
