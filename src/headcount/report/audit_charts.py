"""Charts of an audit: heat maps of layers × heads, spectra, and what removing heads leaves."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd
import torch

from headcount.auditing.redundancy import measured_removal
from headcount.auditing.result import ModelAudit
from headcount.auditing.spectra import random_values
from headcount.report.drawing.style import styled, tooltips
from headcount.report.palette import COLOURS, GREY, INK

_CELL = 22  # pixels; smaller where there are many heads
_WIDEST = 620
_MOST_LINES = 400  # spectra; of more heads the layers' means are drawn
_LAYER = "layer_"  # the page's filter


def rank_chart(audit: ModelAudit) -> Any:
    """Entropy rank of every head."""
    width, random = audit.sizes.key_dim, audit.random["entropy_rank"]
    chart = _heat(
        audit,
        audit.heads,
        "entropy_rank",
        "entropy rank",
        alt.Scale(scheme="viridis", domain=[0, width]),
        tooltips(
            layer="layer",
            head="head",
            entropy_rank="entropy rank|.1f",
            energy_rank="90 % energy rank|d",
            kept_rank="rank that keeps all choices|d",
        ),
    )
    title = f"Entropy rank of each head, of {width}; random weights have {random:.1f}"
    return styled(alt.layer(chart), audit.heads, title)


def overlap_chart(audit: ModelAudit) -> Any:
    """How far each head's queries and keys lie in the other heads' spaces."""
    frame: Any = audit.heads
    most = max(0.5, float(frame[["query_overlap", "key_overlap"]].max().max()))
    scale = alt.Scale(scheme="viridis", domain=[0, round(most, 2)])
    parts = []
    for kind, words in (("query", "queries"), ("key", "keys")):
        shown = tooltips(
            layer="layer",
            head="head",
            **{f"{kind}_overlap": f"overlap of {words}|.3f"},
            nearest_head="head with the nearest scores",
            nearest_cosine="cosine of the two|.2f",
        )
        heads = frame.dropna(subset=[f"{kind}_overlap"])
        part = _heat(audit, heads, f"{kind}_overlap", "mean overlap", scale, shown, share=0.62)
        parts.append(part.properties(title=words))
    random = audit.random["overlap"]
    title = f"Mean overlap with the other heads of the layer; random heads have {random:.3f}"
    return styled(alt.hconcat(*parts, spacing=30), audit.heads, title)


def choice_chart(audit: ModelAudit) -> Any:
    """The rank from which on each head keeps 90 % of its choices."""
    width = audit.sizes.key_dim
    shown = tooltips(
        layer="layer",
        head="head",
        chosen_words="different words chosen|d",
        kept_rank_90="rank that keeps 90 %|d",
        kept_rank="rank that keeps all|d",
        compiled_columns="compiled columns|d",
    )
    scale = alt.Scale(scheme="viridis", domain=[0, width])
    heat = _heat(audit, audit.heads, "kept_rank_90", "rank", scale, shown)
    title = f"Directions, of {width}, that keep 90 % of a head's choices"
    return styled(alt.layer(heat), audit.heads, title)


def column_chart(audit: ModelAudit) -> Any:
    """The columns of compiled weights that make a head's choices, beside a random head's."""
    frame: Any = audit.heads.dropna(subset=["compiled_columns"])
    width, random = audit.sizes.key_dim, audit.random["compiled_columns"]
    y = alt.Y("compiled_columns:Q", title="columns", scale=alt.Scale(domain=[0, width]))
    shown = tooltips(
        layer="layer",
        head="head",
        compiled_columns="compiled columns|d",
        chosen_words="different words chosen|d",
    )
    x = alt.X("layer:O", title="layer", axis=alt.Axis(labelAngle=0, labelOverlap=True))
    points = (
        alt.Chart(frame)
        .mark_point(filled=True, size=60, color=COLOURS[0], opacity=0.8)
        .encode(x=x, y=y, tooltip=shown)
    )
    line = (
        alt.Chart(pd.DataFrame({"compiled_columns": [random]}))
        .mark_rule(color=INK, strokeDash=[6, 3], strokeWidth=2)
        .encode(y=y)
    )
    both = alt.layer(points, line).properties(width=480, height=220)
    title = f"Compiled columns that make a head's choices, of the {width} that it owns"
    return styled(both, frame, title, "dashed: random heads, mean")


def spectrum_chart(audit: ModelAudit) -> Any:
    """The share of a form's energy in its largest singular values, beside random weights."""
    frame: Any = audit.spectra.copy()
    groups = ["layer", "head"]
    if len(audit.heads) > _MOST_LINES:
        frame = frame.groupby(["layer", "index"], as_index=False)["energy"].mean()
        groups = ["layer"]
    frame["share"] = frame.groupby(groups)["energy"].cumsum()
    if "head" not in frame:
        frame["head"] = -1
    frame = frame[[*("layer", "head", "index", "share")]]
    colour = alt.Color(
        "layer:Q",
        scale=alt.Scale(scheme="viridis"),
        legend=alt.Legend(title="layer", orient="top", gradientLength=160, format="d"),
    )
    x = alt.X("index:Q", title="largest singular values r", scale=alt.Scale(nice=False))
    y = alt.Y("share:Q", title="share of Σ s² in the largest r", scale=alt.Scale(domain=[0, 1]))
    heads = (
        alt.Chart(frame)
        .transform_filter(f"{_LAYER} == null || datum.layer == {_LAYER}")
        .mark_line(strokeWidth=1, opacity=0.55, clip=True)
        .encode(x=x, y=y, color=colour, detail=[f"{name}:N" for name in groups])
    )
    values = random_values(audit.sizes.d_model, audit.sizes.key_dim, draws=20).square()
    curve = (values / values.sum(1, keepdim=True)).mean(0).cumsum(0)
    random = pd.DataFrame({"index": torch.arange(1, len(curve) + 1), "share": curve})
    line = (
        alt.Chart(random)
        .mark_line(color=INK, strokeDash=[6, 3], strokeWidth=2)
        .encode(x="index:Q", y="share:Q")
    )
    label = (
        alt.Chart(random.iloc[[len(random) // 2]])
        .mark_text(text="random weights", align="left", dx=8, dy=10, color=INK)
        .encode(x="index:Q", y="share:Q")
    )
    both = alt.layer(heads, line, label).properties(width=_WIDEST, height=300)
    chart = styled(both, frame, "Where the energy of each head's form lies")
    return chart.add_params(alt.param(name=_LAYER, value=None))


def relation_chart(audit: ModelAudit) -> Any:
    """AUC of every head on every relation, with marks on the heads that know it."""
    scores: Any = audit.scores
    scores = scores[scores["offset"] == scores["offset"].min()].copy()
    scores["mark"] = [
        "beyond similarity" if beyond else "knows" if knows else ""
        for knows, beyond in zip(scores["knows"], scores["beyond_similarity"], strict=True)
    ]
    shown = tooltips(
        relation="relation",
        layer="layer",
        head="head",
        auc="AUC|.3f",
        mrr="mean reciprocal rank|.3f",
        f1="best F1|.3f",
        p_corrected="corrected p|.3f",
        residual_auc="AUC without similarity|.3f",
    )
    scale = alt.Scale(scheme="blueorange", domain=[0, 1], domainMid=0.5)
    names = list(dict.fromkeys(scores["relation"]))
    parts = []
    for name in names:
        part = scores[scores["relation"] == name]
        share = 1.0 if len(names) == 1 else 0.62
        heat = _heat(audit, part, "auc", "AUC", scale, shown, share)
        found = part[part["mark"] != ""]
        marks = _marks(found) if len(found) else None
        layers = [heat] if marks is None else [heat, marks]
        parts.append(alt.layer(*layers).properties(title=name))
    grid: Any = alt.concat(*parts, columns=2, spacing=30) if len(parts) > 1 else parts[0]
    subtitle = "○ the head knows the relation   ● also beyond what similarity explains"
    return styled(grid, scores, "AUC of content scores, edges against non-edges", subtitle)


def removal_chart(audit: ModelAudit) -> Any:
    """What greedy removal leaves of each layer's choices, beside trained and compiled weights."""
    own: Any = audit.removal.copy()
    own["share"] = own["kept"] / audit.sizes.heads
    study: Any = measured_removal()
    study["share"] = study["kept"] / study["heads"]
    study["weights"] = study["kind"] + ", D_K/D_K* = " + study["ratio"].map("{:g}".format)
    x = alt.X("share:Q", title="share of heads kept", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("left:Q", title="what is left", scale=alt.Scale(domain=[0, 1]))
    names = sorted(study["weights"].unique())
    layers = (
        alt.Chart(own)
        .transform_filter(f"{_LAYER} == null || datum.layer == {_LAYER}")
        .mark_line(color=GREY, strokeWidth=1, opacity=0.6)
        .encode(x=x, y=y, detail="layer:N", tooltip=tooltips(layer="layer", left="left|.2f"))
    )
    legend = alt.Legend(title=None, orient="right", direction="vertical")
    lines = (
        alt.Chart(study)
        .mark_line(strokeWidth=2, point=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "weights:N",
                scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])),
                legend=legend,
            ),
            strokeDash=alt.StrokeDash(
                "kind:N",
                scale=alt.Scale(domain=["compiled", "trained"], range=[[1, 0], [6, 3]]),
                legend=None,
            ),
        )
    )
    both = alt.layer(layers, lines).properties(width=480, height=300)
    subtitle = "grey: the model's layers (share of choices); colours: F1 of weights for a graph"
    chart = styled(both, own, "Heads removed one by one, the least useful first", subtitle)
    return chart.add_params(alt.param(name=_LAYER, value=None))


def _heat(
    audit: ModelAudit,
    frame: Any,
    column: str,
    title: str,
    scale: alt.Scale,
    shown: list[alt.Tooltip],
    share: float = 1.0,
) -> Any:
    """Layers × heads as colours."""
    room = _WIDEST * share
    cell = min(_CELL, max(2.0, room / audit.sizes.heads))
    return (
        alt.Chart(frame)
        .mark_rect()
        .encode(
            x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=alt.Y("layer:O", title="layer", axis=alt.Axis(labelOverlap=True)),
            color=alt.Color(
                f"{column}:Q",
                title=title,
                scale=scale,
                legend=alt.Legend(orient="bottom", gradientLength=min(260, int(room))),
            ),
            tooltip=shown,
        )
        .properties(
            width=max(int(cell * audit.sizes.heads), 120),
            height=max(int(min(_CELL, max(cell, 7)) * len(audit.layers)), 30),
        )
    )


def _marks(found: Any) -> Any:
    return (
        alt.Chart(found)
        .mark_point(size=40, strokeWidth=1.5, stroke=INK)
        .encode(
            x="head:O",
            y="layer:O",
            fill=alt.Fill(
                "mark:N",
                scale=alt.Scale(domain=["knows", "beyond similarity"], range=["transparent", INK]),
                legend=None,
            ),
        )
    )
