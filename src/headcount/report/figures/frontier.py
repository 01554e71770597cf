"""Beyond the paper: the smallest compiled weights beside trained and constructed ones."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.analysis.laws import feature
from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.formatting import counted, num, span_text, widths_text
from headcount.report.palette import COLOURS, PALE, SHAPES
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.frontier import compiled_law
from headcount.reproduction.shipped import measured_frontier
from headcount.theory.laws import BUDGET

_LOOKS = {  # column, name, colour, shape
    "constructed": ("smallest construction", COLOURS[3], SHAPES[3]),
    "trained": ("trained D_K*", COLOURS[6], SHAPES[1]),
    "budget": ("compiled", COLOURS[2], SHAPES[0]),
    "lower_bound": ("largest lower bound", COLOURS[0], SHAPES[2]),
}
_PANELS = ("total key dimension D_K", "bits per key–query parameter")


def compiled_frontier(evidence: Evidence) -> pd.DataFrame:
    """The shipped frontier, which belongs to results at the scale of the paper alone."""
    evidence.require_shipped()
    return measured_frontier()


def frontier_command(evidence: Evidence) -> str:
    """The command that compiles the same points."""
    table = measured_frontier()
    sizes = (
        table[["items", "d_model", "degree"]].drop_duplicates().itertuples(index=False, name=None)
    )
    points = ",".join(f"{m}x{d}" + (f"x{r}" if r > 1 else "") for m, d, r in sizes)
    count = len(set(table["seed"]))
    seeds = f" --seeds {count}" if count > 1 else ""
    return (
        f"headcount frontier --points {points}{seeds} --time-limit {max(table['time_limit']):g} "
        "--chart frontier.png"
    )


def draw(evidence: Evidence) -> Any:
    """The chart of the frontier that is shipped with headcount."""
    return draw_frontier(compiled_frontier(evidence))


def draw_frontier(table: pd.DataFrame) -> Any:
    """Every point of a frontier against m'·log₂ m/d_model: D_K, and bits per parameter."""
    import altair as alt

    from headcount.report.drawing.style import log2_axis, styled, tooltips

    frame = _drawn(table)
    names = [name for name, _, _ in _LOOKS.values() if name in set(frame["name"])]
    looks = {name: (colour, shape) for name, colour, shape in _LOOKS.values()}
    key = alt.Legend(title=None, orient="top", columns=0, labelLimit=300)
    colours = alt.Scale(domain=names, range=[looks[name][0] for name in names])
    shapes = alt.Scale(domain=names, range=[looks[name][1] for name in names])
    dense = max(table["degree"]) > 1
    x = log2_axis(
        f"x = {'(r·m / d_model)·log₂ m' if dense else 'm·log₂ m / d_model'}", padding=24
    ).x("x")
    y = log2_axis("", padding=16, ticks=7)
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
    return styled(
        chart, frame, "Compiled weights between lower bounds and training", _subtitle(table)
    )


def _subtitle(table: pd.DataFrame) -> str:
    limits = sorted({f"{limit:g}" for limit in table["time_limit"].dropna()}, key=float)
    spent = (
        f"\ncompiled in at most {' to '.join(dict.fromkeys((limits[0], limits[-1])))} s per search"
        if limits
        else ""
    )
    none = len(table) - len(table.dropna(subset=["budget"]))
    more = f"\nnothing was certified in time in {none} of {len(table)} searches" if none else ""
    return f"compiled and constructed: every pair is correct; trained: F1 of 0.99{spent}{more}"


def _drawn(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each D_K in each panel."""
    from headcount.report.drawing.style import require_rows

    require_rows(table.dropna(subset=["budget"]), "compiled weights")
    point = table[["items", "d_model", "degree"]].assign(x=feature(table, BUDGET.form))
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


def table(evidence: Evidence) -> pd.DataFrame:
    """The smallest compiled D_K of every point beside the others."""
    found = compiled_frontier(evidence)
    return pd.DataFrame(
        {
            "m": found["items"],
            "d_model": found["d_model"],
            "r": found["degree"],
            "compiled D_K": found["budget"],
            "heads × width": [widths_text(widths) for widths in found["widths"]],
            "trained D_K*": found["trained"],
            "smallest construction": found["constructed"],
            "largest lower bound": found["lower_bound"],
            "bits per parameter": found["bits_per_parameter"],
            "relative margin": found["relative_margin"],
            "seconds": found["seconds"],
            "machine": found["machine"],
        }
    )


def meaning(evidence: Evidence) -> str:
    """How small compiled weights are beside trained and constructed ones."""
    try:
        found = compiled_frontier(evidence).dropna(subset=["budget"])
    except InputError:
        return BEYOND
    if found.empty:
        return BEYOND
    points = len(found[["items", "d_model", "degree"]].drop_duplicates())
    beside = [
        f"{span_text(shares)} {name}"
        for column, name in (
            ("trained", "the trained D_K*"),
            ("constructed", "the smallest construction that we know"),
        )
        if (shares := _shares(found, column))
    ]
    needs = f" with {' and '.join(beside)}" if beside else ""
    best = found.sort_values("bits_per_parameter").iloc[-1]
    known = found.dropna(subset=["trained"])
    trained = (known["bits"] / (2 * known["d_model"] * known["trained"])).tolist()
    more = f", trained ones up to {num(max(trained))}" if trained else ""
    return (
        f"At {counted(points, 'point')} compiled weights are correct on every pair{needs}. They "
        f"carry up to {num(best['bits_per_parameter'])} bits per key–query parameter, at "
        f"({best['items']}, {best['d_model']}){more}{_law(found)}."
    )


def _shares(found: pd.DataFrame, column: str) -> list[float]:
    return (found["budget"] / found[column]).dropna().astype(float).tolist()


def _law(found: pd.DataFrame) -> str:
    try:
        line = compiled_law(found)
    except InputError:  # too few points for a line
        return ""
    return (
        f", and their D_K follows {num(line.slope)} m log₂ m/d_model with R² "
        f"{num(line.r_squared or 0.0)}"
    )


FIGURE = Figure(
    id="frontier",
    title="Beyond the paper: compiled weights",
    draw=draw,
    table=table,
    meaning=meaning,
    command=frontier_command,
)
