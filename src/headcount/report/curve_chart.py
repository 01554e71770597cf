"""F1 against D_K for runs of one's own: a store or a frame of runs as a chart."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.analysis.curves import POINT, USUAL, curves
from headcount.analysis.thresholds import thresholds
from headcount.errors import InputError
from headcount.store.runs import Filter
from headcount.store.store import Store
from headcount.training.spec import is_content_hash

_METRICS = {"value": "MSE", "block": "accuracy"}  # of these variants; the others have F1
_DIGITS = 8  # of a hash
_NAMED = ("graph", "table")  # by a hash where they are one's own
_STAR = "dotted: D_K*, the smallest D_K whose mean F1 reaches 0.99 for some head count"


def curve_chart(
    runs: pd.DataFrame | Store | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    title: str = "",
    **filters: Filter,
) -> Any:
    """Draw the test metric against D_K, one panel per point and one line per head count.

    Graphs and tables of several kinds are points of their own; those of one's own are called by
    their files, or by the first digits of their hashes.

    Lines are means over seeds with their 95 % intervals; where the metric is F1, the level 0.99 and
    the D_K* of each panel are marked. The result is an Altair chart, which a notebook shows.

    Args:
        runs: a frame with one row per run, as `curves` takes it, or a store, or the path of one.
        out: also write the chart here, as .png, .svg or .pdf.
        title: what stands above the chart; by default the metric and where the runs come from.
        filters: of the runs, as in `Store.frame`: `items=[64, 128]`, `budget=range(10, 41)`.

    >>> import headcount as hc
    >>> runs = hc.measured_runs(variant="max")
    >>> chart = curve_chart(runs[(runs["items"] == 64) & (runs["d_model"] == 16)])
    >>> chart.to_dict()["title"]["text"]
    'Test F1 against D_K at m = 64, d_model = 16'
    """
    from headcount.report.chart_files import save_chart
    from headcount.report.drawing.curve_panels import curve_panels

    frame, source = _frame(runs, filters)
    metric = _metric(frame)
    rows = curves(frame)
    note = ""
    if metric == "F1":
        found = pd.DataFrame(thresholds(frame))
        point = [name for name in (*POINT, *USUAL) if name in found]
        stars = found.loc[:, point].assign(star=found["central"].astype(float))
        rows = rows.merge(stars, on=point)
        reached = any(found["central"].notna().tolist())
        note = _STAR if reached else "no tested D_K reaches 0.99 on average"
    names = _panels(rows)
    rows, panels = rows.assign(panel=names), len(set(names))
    where = names[0] if panels == 1 else ""
    chart = curve_panels(
        rows,
        title or f"Test {metric} against D_K{' at ' if where else ''}{where}{source}",
        note,
        columns=min(3, panels),
        metric=metric,
        own_x=True,
        **({"width": 560, "height": 340} if panels == 1 else {}),
    )
    if out is not None:
        save_chart(chart, out)
    return chart


def _frame(runs: Any, filters: dict[str, Filter]) -> tuple[pd.DataFrame, str]:
    """The runs, and where they come from as a part of the title."""
    if isinstance(runs, pd.DataFrame):
        if filters:
            raise InputError(f"{next(iter(filters))}: filters are for a store; select from a frame")
        frame, source = runs, ""
    elif isinstance(runs, Store):
        frame, source = _called(runs, runs.frame(**filters)), f" ({Path(runs.path).name})"
    else:
        with Store(runs, read_only=True) as opened:
            return _frame(opened, filters)
    if frame.empty:
        raise InputError("there are no runs to draw; check the filters and the store")
    return frame, source


def _called(store: Store, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the files of graphs and tables in place of their hashes.

    A file that has held several keeps the digits of each.
    """
    own = {key for name in _NAMED for key in frame[name] if key is not None}
    paths = {key: path for key, path in store.contents.paths().items() if key in own}
    times = Counter(paths.values())
    called = {
        key: path if times[path] == 1 else f"{path} {key[:_DIGITS]}" for key, path in paths.items()
    }
    return frame.assign(
        **{name: frame[name].map(lambda key: called.get(key, key)) for name in _NAMED}
    )


def _metric(frame: pd.DataFrame) -> str:
    found = {_METRICS.get(variant, "F1") for variant in frame["variant"]}
    if len(found) > 1:
        variants = ", ".join(sorted(set(frame["variant"])))
        raise InputError(
            f"the variants {variants} have different metrics; choose one of them (--variant)"
        )
    return found.pop()


def _panels(rows: pd.DataFrame) -> list[str]:
    """The heads of panels: the point, with the degree and the variant where they say something.

    So with graphs, tables and shared keys, where there are several kinds.
    """
    several = len(set(rows["variant"])) > 1
    kinds = [name for name in USUAL if name in rows]
    return [
        f"m = {row['items']}, d_model = {row['d_model']}"
        + (f", r = {row['degree']}" if row["degree"] > 1 else "")
        + (f", {row['variant']}" if several or row["variant"] != "max" else "")
        + "".join(f", {_kind(name, row[name])}" for name in kinds)
        for row in rows.to_dict("records")
    ]


def _kind(name: str, value: Any) -> str:
    if name == "kv_heads":
        return f"g = {value}" if value else "own keys"
    return value[:_DIGITS] if is_content_hash(value) else value
