"""Section 5 as a chart: N₃ against Eq. (1), and one head against many at equal D_K."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf, log10

import altair as alt
import numpy as np
import pandas as pd
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.constructions.compressive_noise import usual_heads
from headcount.constructions.template import Signatures, fill, inverter, split_sources
from headcount.errors import InputError
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph
from headcount.shapes import Float
from headcount.theory.noise_law import measure_n3

# Okabe–Ito, which readers with any colour vision can tell apart.
_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
_LINE = "#222222"
_LIMIT = "∞"
Layers = alt.LayerChart | alt.FacetChart


def noise_chart(items: int, d_model: int, seed: int = 0) -> alt.HConcatChart:
    """Measure Section 5 around these sizes and draw it, as `draw_noise` does.

    N₃ is measured at d_model and a quarter of it, for three widths d_k. The gaps are measured from
    one head up to twice the ⌈m/d_model⌉ of Algorithm 1, over budgets that double from m/4 to 4m.
    """
    usual = usual_heads(items, d_model)
    heads = sorted({1, max(usual // 4, 1), max(usual // 2, 1), usual, min(2 * usual, items)})
    # No budget is below the largest number of heads, so that every head has a width.
    budgets = [max(items // 4, heads[-1]) * 2**power for power in range(5)]
    d_models = sorted({max(d_model // 4, 1), d_model})
    return draw_noise(
        n3_by_block(items, d_models, (16, 128, 1024), seed),
        gaps_by_budget(items, d_model, heads, budgets, seed),
    )


def n3_by_block(
    items: int, d_models: Sequence[int], key_dims: Sequence[int], seed: int = 0
) -> pd.DataFrame:
    """The largest |N₃|/d_k at block sizes m, m/4, m/16, …, with the laws of its two parts.

    `eq1` is Eq. (1), which describes the centred part, and `mean` the law of E[N₃ | X]. Eq. (1)
    leaves the constant open, so each law is scaled by the median ratio of its part's maximum to it
    (`eq1_constant`, `mean_constant`).
    """
    if items < 16:
        raise InputError(f"{items} items leave too few block sizes to draw; choose at least 16")
    blocks = [items // 4**power for power in range(items.bit_length() // 2)]
    frame = pd.concat([measure_n3(items, d_model, blocks, key_dims, seed) for d_model in d_models])
    sizes = ["items", "d_model", "block", "key_dim"]
    largest, law = (
        frame.pivot(index=sizes, columns="part", values=name) for name in ("max", "law")
    )
    constants = (largest / law).median()
    wide = pd.DataFrame(
        {
            "measured": largest["total"],
            "eq1": law["centred"] * constants["centred"],
            "mean": law["mean"] * constants["mean"],
        }
    )
    shares = wide.div(wide.index.get_level_values("key_dim").to_numpy(), axis=0).reset_index()
    return shares.assign(eq1_constant=constants["centred"], mean_constant=constants["mean"])


def gaps_by_budget(
    items: int, d_model: int, heads: Sequence[int], budgets: Sequence[int], seed: int = 0
) -> pd.DataFrame:
    """Construction II at equal D_K: (lowest edge score − highest non-edge score)/d_k by head count.

    Where the gap is positive, some threshold recognises the graph. `budget` is infinite for the
    limit d_k → ∞, which orthogonal signatures, one column per edge of the block, reach exactly.
    """
    if not all(1 <= count <= min(items, *budgets) for count in heads):
        raise InputError(
            f"heads {list(heads)} must be at least 1, and at most the items and the smallest budget"
        )
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, d_model, seed)
    lines = []
    for count in heads:
        matchings = split_sources(graph, count)
        ideal = KeyQuery.from_heads(
            [(table[part.sources].T, table[part.targets].T) for part in matchings], 0.5
        )
        lines.append({"heads": count, "budget": inf, "gap": _gap(ideal, graph, table)})
        for budget in budgets:
            width = budget // count
            weights = fill(table, matchings, Signatures(seed=seed), width, inverter("transpose"))
            gap = _gap(weights, graph, table) / width
            lines.append({"heads": count, "budget": float(budget), "gap": gap})
    return pd.DataFrame(lines).assign(items=items, d_model=d_model)


def _gap(weights: KeyQuery, graph: Graph, table: Float[Tensor, "items d_model"]) -> float:
    """Smallest edge score minus largest non-edge score, after the maximum over heads."""
    found = verify(weights, graph, table)
    assert found.lowest_edge is not None
    assert found.highest_non_edge is not None  # a permutation of two items or more has both
    return found.lowest_edge.score - found.highest_non_edge.score


def draw_noise(noise: pd.DataFrame, gaps: pd.DataFrame) -> alt.HConcatChart:
    """Left: N₃ against Eq. (1), one panel per d_model. Right: the gap against D_K by head count."""
    decades = _decades(noise["measured"].to_numpy())
    panels = [
        _draw_n3(noise.query("d_model == @d_model"), d_model, decades)
        for d_model in sorted(set(noise["d_model"]))
    ]
    left = alt.hconcat(*panels, spacing=20).resolve_scale(color="shared", strokeDash="shared")
    title = (
        f"Leakage noise of the compressive construction, {noise['items'].iloc[0]:,} items, "
        "Gaussian table"
    )
    return (
        alt.hconcat(left, _draw_gaps(gaps), spacing=50)
        .resolve_scale(color="independent", strokeDash="independent")
        .properties(title=alt.TitleParams(title, fontSize=16, anchor="start", offset=12))
        .configure_view(stroke="#cccccc")
        .configure(font="DejaVu Sans, Helvetica, Arial, sans-serif")
    )


def _draw_n3(noise: pd.DataFrame, d_model: int, decades: list[float]) -> Layers:
    eq1 = f"Eq. (1), × {noise['eq1_constant'].iloc[0]:.1f}"
    mean = f"mean part, × {noise['mean_constant'].iloc[0]:.1f}"
    blocks = sorted(int(block) for block in noise["block"].unique())
    x = alt.X(
        "block:Q",
        scale=alt.Scale(type="log", domain=[blocks[0] / 1.3, blocks[-1] * 1.3], nice=False),
        axis=alt.Axis(values=blocks, format=",d"),
        title="block size B (edges per head)",
    )
    y = alt.Y(
        "share:Q",
        scale=alt.Scale(type="log", domain=[decades[0], decades[-1]]),
        axis=alt.Axis(values=decades, format="~g"),
        title="largest |N₃| over pairs, as a share of d_k",
    )
    colour = alt.Color(
        "key_dim:N",
        scale=alt.Scale(range=_COLOURS),
        legend=alt.Legend(title="d_k (points: measured)", orient="bottom"),
    )
    dash = alt.StrokeDash(
        "law:N",
        scale=alt.Scale(domain=[eq1, mean], range=[[1, 0], [2, 4]]),
        legend=alt.Legend(title="law", orient="bottom"),
    )
    curves = alt.Chart(noise.assign(law=eq1, share=noise["eq1"])).mark_line(clip=True)
    # As a share of d_k the mean part's law is one line for all widths.
    line = alt.Chart(noise.drop_duplicates("block").assign(law=mean, share=noise["mean"]))
    points = alt.Chart(noise.assign(share=noise["measured"])).mark_point(
        filled=True, size=55, opacity=1, clip=True
    )
    chart = (
        curves.encode(x=x, y=y, color=colour, strokeDash=dash)
        + line.mark_line(clip=True, color=_LINE).encode(x=x, y=y, strokeDash=dash)
        + points.encode(x=x, y=y, color=colour)
        + _rule(0.5, "τ = d_k/2")
    )
    return chart.properties(width=270, height=330, title=f"d_model = {d_model}")


def _decades(values: np.ndarray) -> list[float]:
    """The powers of ten from below all values to above them, two at least."""
    low = floor(log10(values.min()))
    return [10.0**power for power in range(low, max(ceil(log10(values.max())), low + 1) + 1)]


def _draw_gaps(gaps: pd.DataFrame) -> Layers:
    items, d_model = int(gaps["items"].iloc[0]), int(gaps["d_model"].iloc[0])
    named = gaps.assign(
        D_K=[_LIMIT if budget == inf else f"{budget:,.0f}" for budget in gaps["budget"]],
        split=[f"{count} (B = {-(-items // count):,})" for count in gaps["heads"]],
    )
    order = [*(f"{budget:,.0f}" for budget in sorted(set(gaps["budget"]) - {inf})), _LIMIT]
    splits = list(dict.fromkeys(named["split"]))
    base = alt.Chart(named).encode(
        x=alt.X("D_K:O", sort=order, axis=alt.Axis(labelAngle=0), title="total key dimension D_K"),
        y=alt.Y("gap:Q", title="(lowest edge − highest non-edge) / d_k"),
        color=alt.Color(
            "split:N",
            sort=splits,
            scale=alt.Scale(domain=splits, range=_COLOURS),
            legend=alt.Legend(title="heads", orient="bottom", columns=3),
        ),
    )
    finite = base.transform_filter(f"datum.D_K != '{_LIMIT}'")
    lines = finite.mark_line(strokeWidth=2) + finite.mark_point(filled=True, size=45, opacity=1)
    limits = base.transform_filter(f"datum.D_K == '{_LIMIT}'").mark_point(
        filled=True, size=90, shape="diamond", opacity=1
    )
    return (lines + limits + _rule(0, "above: a threshold separates")).properties(
        width=360, height=330, title=f"one head against many, d_model = {d_model}"
    )


def _rule(height: float, text: str) -> Layers:
    base = alt.Chart(pd.DataFrame({"height": [height]})).encode(y="height:Q")
    rule = base.mark_rule(color=_LINE, strokeDash=[5, 3])
    label = base.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=_LINE)
    return rule + label.encode(x=alt.value(0), text=alt.value(text))
