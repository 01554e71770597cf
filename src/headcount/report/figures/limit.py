"""Beyond the paper: how small compiled weights get, beside training, the laws and the bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.palette import COLOURS, INK, PALE, SHAPES
from headcount.reproduction.compiled_limit_verdicts import limit_verdicts, measured_limit
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.law_verdicts import verdict_table
from headcount.reproduction.shipped import measured_frontier
from headcount.theory.capacity_law import degrees_of_freedom, freedom_needed, gardner_capacity
from headcount.theory.counting import family_of, log2_graphs
from headcount.theory.lower_bounds import lower_bounds
from headcount.theory.refined_law import effective_freedom, squared_width

_LOOKS = {  # name: colour, shape
    "trained": (COLOURS[6], SHAPES[1]),
    "compiled, one head": (COLOURS[0], SHAPES[0]),
    "compiled, several heads": (COLOURS[2], SHAPES[3]),
    "largest lower bound": (PALE, SHAPES[2]),
}
_SIZE = {"width": 290, "height": 270}


def compiled_rows() -> pd.DataFrame:
    """The shipped frontier and the preregistered searches, with R, G and bits per parameter."""
    rows = []
    one: Any  # a row, whose columns are not typed
    for one in measured_frontier().dropna(subset=["budget"]).itertuples():
        widths = [int(width) for width in one.widths.split()]
        rows.append(_row((one.items, one.d_model, one.degree), widths, "search of the frontier"))
    for one in measured_limit().dropna(subset=["budget"]).itertuples():
        share, rest = divmod(int(one.budget), one.heads)
        widths = [share + (head < rest) for head in range(one.heads)]
        rows.append(_row((one.items, one.d_model, one.degree), widths, "preregistered search"))
    return pd.DataFrame(rows)


def _row(size: tuple[int, int, int], widths: Sequence[int], source: str) -> dict[str, Any]:
    items, d_model, degree = size
    needed, budget = freedom_needed(items, items * degree), sum(widths)
    kind = "compiled, one head" if len(widths) == 1 else "compiled, several heads"
    return {
        "name": "trained" if source == "trained" else kind,
        "source": source,
        "items": items,
        "d_model": d_model,
        "degree": degree,
        "heads": len(widths),
        "budget": budget,
        "share": budget / len(widths) / d_model,
        "ratio": sum(degrees_of_freedom(d_model, 1, width) for width in widths) / needed,
        "width_ratio": sum(effective_freedom(d_model, 1, width) for width in widths) / needed,
        "bits": _bits(size) / (2 * d_model * budget),
    }


def _bits(size: tuple[int, int, int]) -> float:
    items, _, degree = size
    edges = items * degree
    return log2_graphs(items, edges, family_of(items, edges, degree), degree)


def limit_rows(evidence: Evidence) -> pd.DataFrame:
    """Compiled weights, and at their sizes the trained threshold and the largest lower bound."""
    evidence.require_shipped()
    rows = [compiled_rows()]
    sizes = rows[0][["items", "d_model", "degree"]].drop_duplicates()
    one: Any
    trained: Any = evidence.thresholds[evidence.thresholds["variant"] == "max"]
    trained = trained.dropna(subset=["central"]).sort_values("central")
    for one in sizes.merge(trained).drop_duplicates(list(sizes)).itertuples():
        widths = [int(one.key_dim)] * int(one.heads)
        rows.append(pd.DataFrame([_row((one.items, one.d_model, one.degree), widths, "trained")]))
    bounds = [_bound(size) for size in sizes.itertuples(index=False, name=None)]
    return pd.concat([*rows, pd.DataFrame(bounds)], ignore_index=True)


def _bound(size: tuple[int, int, int]) -> dict[str, Any]:
    """The largest lower bound on D_K; its R counts 2d per column, the most that a column has."""
    items, d_model, degree = size
    edges = items * degree
    family = family_of(items, edges, degree)
    found = lower_bounds(items, edges, d_model, family=family, max_degree=degree)
    budget = max(int(bound.budget) for bound in found)
    ratio = 2 * d_model * budget / freedom_needed(items, edges)
    sizes = dict(zip(("items", "d_model", "degree"), size, strict=True))
    named = {"name": "largest lower bound", "source": "bound"}
    return named | sizes | {"budget": budget, "ratio": ratio}


def draw(evidence: Evidence) -> Any:
    """R against m and against the width of a head, and bits per parameter against m."""
    import altair as alt

    from headcount.report.drawing.style import log2_axis, styled

    rows = limit_rows(evidence)
    weights: Any = rows[rows["name"] != "largest lower bound"]
    one = alt.Chart(pd.DataFrame({"one": [1.0]})).mark_rule(color=INK, strokeDash=[5, 3])
    items = log2_axis("items m", padding=16)
    share = log2_axis("width of a head, k/d_model", padding=16)
    ratio = "R = degrees of freedom / N"
    chart: Any = alt.hconcat(
        alt.layer(one.encode(y="one:Q"), _marks(rows, items.x("items"), "ratio", ratio)),
        alt.layer(
            _curve(wide_limit(), share.x("share"), "ratio"),
            _marks(weights, share.x("share"), "ratio", ratio),
        ),
        alt.layer(
            _curve(perceptron(), items.x("items"), "bits"),
            _marks(weights, items.x("items"), "bits", "bits per key–query parameter"),
        ),
    )
    return styled(
        chart,
        pd.DataFrame(),
        "How small compiled weights get: one head ends at G = 1, not at R = 1",
        "dashed, left: the law R = 1; middle: one head at G = 1; right: a perceptron's bits per "
        "weight\nwhere one label in m is positive (Gardner)",
    )


def _marks(rows: pd.DataFrame, x: Any, column: str, title: str) -> Any:
    import altair as alt

    from headcount.report.drawing.style import tooltips

    names = [name for name in _LOOKS if name in set(rows["name"])]
    key = alt.Legend(title=None, orient="top", columns=2, labelLimit=300)
    colours = alt.Scale(domain=names, range=[_LOOKS[name][0] for name in names])
    shapes = alt.Scale(domain=names, range=[_LOOKS[name][1] for name in names])
    marks = alt.Chart(rows).mark_point(filled=True, size=46, opacity=0.9)
    return marks.encode(
        x=x,
        y=alt.Y(f"{column}:Q", title=title),
        color=alt.Color("name:N", scale=colours, legend=key),
        shape=alt.Shape("name:N", scale=shapes, legend=key),
        tooltip=tooltips(
            name="what",
            source="from",
            items="m|d",
            d_model="d_model|d",
            degree="r|d",
            heads="heads|d",
            budget="D_K|d",
            ratio="R|.3f",
            width_ratio="G|.3f",
            bits="bits per parameter|.3f",
        ),
    ).properties(**_SIZE)


def _curve(table: pd.DataFrame, x: Any, column: str) -> Any:
    import altair as alt

    line = alt.Chart(table).mark_line(color=INK, strokeDash=[5, 3], strokeWidth=1)
    return line.encode(x=x, y=f"{column}:Q").properties(**_SIZE)


def wide_limit() -> pd.DataFrame:
    """R at G = 1 for one head of width k on a wide table: k(2d − k)/ω²(k)."""
    d_model, shares = 4096, [2 ** (-step / 4) for step in range(25)]
    ranks = [share * d_model for share in shares]
    ratios = [k * (2 * d_model - k) / squared_width(d_model, d_model, k) for k in ranks]
    return pd.DataFrame({"share": shares, "ratio": ratios})


def perceptron() -> pd.DataFrame:
    """The bits per weight of a perceptron at its capacity where one label in m is positive."""
    items = [2 ** (6 + step / 4) for step in range(21)]
    return pd.DataFrame({"items": items, "bits": [perceptron_bits(1 / m) for m in items]})


def perceptron_bits(rate: float) -> float:
    """α_c(f)·H(f), with the entropy H of a label.

    >>> perceptron_bits(0.5), round(perceptron_bits(1 / 256), 2)
    (2.0, 1.46)
    """
    entropy = -rate * math.log2(rate) - (1 - rate) * math.log2(1 - rate)
    return gardner_capacity(rate) * entropy


def table(evidence: Evidence) -> pd.DataFrame:
    """The verdict on each preregistered hypothesis."""
    evidence.require_shipped()
    return verdict_table(limit_verdicts())


def meaning(evidence: Evidence) -> str:
    """Where compiled weights end, in R and in G."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    rows = compiled_rows()
    best = rows.loc[rows.groupby(["items", "d_model", "degree"])["budget"].idxmin()]
    low, middle, high = (best["ratio"].quantile(part) for part in (0, 0.5, 1))
    least, most = best["width_ratio"].min(), best["width_ratio"].max()
    return (
        f"The smallest compiled weights at {len(best)} sizes are exact at R = {low:.2f} to "
        f"{high:.2f}, with a median of {middle:.2f}, where the law says 1. In G, which counts the "
        f"Gaussian width of narrow heads, they are at {least:.2f} to {most:.2f}."
    )


def _command(evidence: Evidence) -> str:
    return "python preregistrations/compiled-limit/measure.py compiled_limit.csv"


FIGURE = Figure(
    id="limit",
    title="Beyond the paper: how small compiled weights get",
    draw=draw,
    table=table,
    meaning=meaning,
    command=_command,
)
