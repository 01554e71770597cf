"""Beyond the paper: heads that share keys, and how small the key cache may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from headcount.analysis.shared_keys import beside_own
from headcount.errors import InputError
from headcount.report.figures.base import BEYOND, Figure
from headcount.report.palette import COLOURS, INK, SHAPES
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.shared_key_verdicts import (
    least_widths,
    shared_key_runs,
    shared_key_thresholds,
    shared_key_verdicts,
)
from headcount.theory.key_width import free_query_width, random_key_width

_SIZE: Any = {"width": 300, "height": 280}
_KINDS = ("narrowest that passed", "random keys need", "free queries need")


def threshold_rows() -> pd.DataFrame:
    """Query and key columns at the threshold of every split of the part main."""
    found = shared_key_thresholds()
    main = found.loc[found["part"] == "main"].dropna(subset=["threshold"])
    return _with_point(main).sort_values(["items", "heads", "kv_heads"])


def sum_rows() -> pd.DataFrame:
    """q of every split with g < h, and 1 for keys of their own, against g/h."""
    beside = beside_own(shared_key_thresholds())
    main = _with_point(beside.loc[beside["part"] == "main"].dropna(subset=["sum_ratio"]))
    own = main.drop_duplicates(["items", "heads"]).assign(sum_ratio=1.0)
    own = own.assign(kv_heads=own["heads"])
    both = pd.concat([main, own])
    return both.assign(share=both["kv_heads"] / both["heads"])


def least_rows() -> pd.DataFrame:
    """The narrowest shared key that passed at each point, beside what the theory has to say."""
    rows = []
    for (items, d_model), least in least_widths(shared_key_runs()).items():
        widths = (least, random_key_width(items), free_query_width(items, items, d_model))
        for kind, width in zip(_KINDS, widths, strict=True):
            if width:
                row = {"items": items, "d_model": d_model, "kind": kind, "key_dim": width}
                rows.append(row)
    return _with_point(pd.DataFrame(rows))


def _with_point(frame: pd.DataFrame) -> pd.DataFrame:
    sizes = zip(frame["items"], frame["d_model"], strict=True)
    return frame.assign(point=[f"({m}, {d})" for m, d in sizes])


def draw(evidence: Evidence) -> Any:
    """Key against query columns, their sum against g, and the narrowest key."""
    import altair as alt

    from headcount.report.drawing.style import styled

    evidence.require_shipped()
    chart: Any = alt.hconcat(_columns(), _sums(), _least()).resolve_scale(
        color="independent", shape="independent"
    )
    return styled(
        chart,
        pd.DataFrame(),
        "Shared keys: what sharing takes from the keys, queries have to add",
        "thresholds of 20,000 steps, max over heads, 10 seeds; (m, d_model); one line per number "
        "of heads h\nmiddle: dashed, the same sum; dotted, what the Gaussian width asks for\n"
        "right: one shared key, up to 64 heads and 200,000 steps",
    )


def _point_looks(rows: pd.DataFrame) -> dict[str, Any]:
    import altair as alt

    order = list(dict.fromkeys(rows.sort_values("items")["point"]))
    key = alt.Legend(title=None, orient="top", columns=3)
    return {
        "color": alt.Color("point:N", scale=alt.Scale(domain=order, range=COLOURS), legend=key),
        "shape": alt.Shape("point:N", scale=alt.Scale(domain=order, range=SHAPES), legend=key),
    }


def _columns() -> Any:
    import altair as alt

    from headcount.report.drawing.style import log2_axis, tooltips

    rows = threshold_rows()
    looks = _point_looks(rows)
    base = alt.Chart(rows).encode(
        x=log2_axis("query columns D_Q = h·d_k").x("query_columns"),
        y=log2_axis("key columns D_KV = g·d_k").y("key_columns"),
        color=looks["color"],
        detail="heads:N",
    )
    text = tooltips(
        point="(m, d_model)",
        heads="h|d",
        kv_heads="g|d",
        threshold="d_k at the threshold|.2f",
        low="from|.2f",
        high="to|.2f",
        query_columns="D_Q|.0f",
        key_columns="D_KV|.1f",
        columns="D_Q + D_KV|.0f",
    )
    points = base.mark_point(filled=True, size=44).encode(shape=looks["shape"], tooltip=text)
    return alt.layer(base.mark_line(strokeWidth=1, opacity=0.6), points).properties(**_SIZE)


def _sums() -> Any:
    import altair as alt

    from headcount.report.drawing.style import log2_axis, tooltips

    rows = sum_rows()
    looks = _point_looks(rows)
    axis = log2_axis("keys per head, g/h")
    base = alt.Chart(rows).encode(
        x=alt.X(
            "share:Q",
            scale=axis.scale,
            axis=alt.Axis(
                values=[1 / 16, 1 / 8, 1 / 4, 1 / 2, 1],
                labelExpr="datum.value == 1 ? '1' : '1/' + format(1 / datum.value, 'd')",
            ),
            title=axis.title,
        ),
        y=alt.Y(
            "sum_ratio:Q",
            scale=alt.Scale(domain=(0.6, 1.6)),
            title="D_Q + D_KV over that with keys of their own",
        ),
        color=looks["color"],
        detail="heads:N",
    )
    text = tooltips(
        point="(m, d_model)", heads="h|d", kv_heads="g|d", sum_ratio="ratio of sums|.3f"
    )
    points = base.mark_point(filled=True, size=44).encode(shape=looks["shape"], tooltip=text)
    lines = base.mark_line(strokeWidth=1, opacity=0.6)
    one = alt.Chart(pd.DataFrame({"one": [1.0]})).mark_rule(color=INK, strokeDash=[5, 3])
    return alt.layer(lines, points, one.encode(y="one:Q"), _gaussian_width()).properties(**_SIZE)


def _gaussian_width() -> Any:
    """q by the squared Gaussian width, for heads much narrower than the table."""
    import altair as alt

    share = np.geomspace(1 / 16, 1, 40)
    ratio = 2 * (1 + share) / (1 + np.sqrt(share)) ** 2
    frame = pd.DataFrame({"share": share, "sum_ratio": ratio})
    line = alt.Chart(frame).mark_line(color=INK, strokeDash=[1, 3], strokeWidth=1.5)
    return line.encode(x="share:Q", y="sum_ratio:Q")


def _least() -> Any:
    import altair as alt

    from headcount.report.drawing.style import log2_axis, tooltips

    rows = least_rows()
    key = alt.Legend(title=None, orient="top", columns=1)
    look: Any = {"domain": _KINDS}
    base = alt.Chart(rows).encode(
        x=log2_axis("items m", values=sorted(set(rows["items"]))).x("items"),
        y=alt.Y("key_dim:Q", scale=alt.Scale(domainMin=0), title="width d_k of one shared key"),
        color=alt.Color("kind:N", scale=alt.Scale(**look, range=COLOURS), legend=key),
    )
    points = base.mark_point(filled=True, size=44).encode(
        shape=alt.Shape("kind:N", scale=alt.Scale(**look, range=SHAPES), legend=key),
        tooltip=tooltips(point="(m, d_model)", kind="what", key_dim="d_k|.1f"),
    )
    return alt.layer(base.mark_line(strokeWidth=1, opacity=0.6), points).properties(**_SIZE)


def table(evidence: Evidence) -> pd.DataFrame:
    """The verdict on each preregistered hypothesis."""
    evidence.require_shipped()
    return shared_key_verdicts()


def meaning(evidence: Evidence) -> str:
    """What sharing costs, and how narrow one key may be."""
    try:
        evidence.require_shipped()
    except InputError:
        return BEYOND
    said = shared_key_verdicts().set_index("part")
    return " ".join(
        f"{said.loc[part, 'hypothesis'][0].upper()}{said.loc[part, 'hypothesis'][1:]}: "
        f"{said.loc[part, 'verdict']}, {said.loc[part, 'numbers']}."
        for part in ("sum", "freedom", "random keys")
    )


def _command(evidence: Evidence) -> str:
    return "python preregistrations/shared-keys/measure.py OUT"


FIGURE = Figure(
    id="shared-keys",
    title="Beyond the paper: shared keys",
    draw=draw,
    table=table,
    meaning=meaning,
    command=_command,
)
