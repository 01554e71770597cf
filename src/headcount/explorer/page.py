"""`explore`: write the interactive page, one HTML file that needs no network and no server."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError
from headcount.explorer.contents import (
    antonym_pairs,
    head_colours,
    measured_points,
    theory_constants,
)
from headcount.explorer.scripts import ASSETS, joined_script
from headcount.files import replacing
from headcount.problem.graph import Graph
from headcount.problem.tables import TableLike, table_for
from headcount.provenance import package_version
from headcount.report.html import asset, page_template, script_json

MOST_ITEMS = 2048  # that the page draws
_VIEWS = (
    ("watch", "Watch"),
    ("problem", "The problem"),
    ("interference", "Interference"),
    ("transition", "The transition"),
    ("plan", "The plan"),
    ("weights", "Your weights"),
)


def explore(
    out: str | os.PathLike[str] = "explorer.html",
    weights: KeyQuery | None = None,
    graph: Graph | None = None,
    table: TableLike | None = None,
    *,
    report: str | None = None,
) -> Path:
    """Write the explorer to `out` and return its path: heads that divide the work, in any browser.

    The page trains models by the paper's protocol, shows how their heads share the relations of a
    graph, and lets one play with interference, the capacity law and the planner. With `weights`, a
    `graph` and a `table` it opens with these. `report` is the address of a page to link to.

    >>> import tempfile
    >>> page = explore(Path(tempfile.mkdtemp()) / "page.html")
    >>> page.stat().st_size < 1_500_000
    True
    """
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path}: the explorer is written as .html; give the file that suffix")
    data: dict[str, Any] = {
        "palette": head_colours(),
        "theory": theory_constants(),
        "measured": measured_points(),
        "antonyms": antonym_pairs(),
    }
    if weights is not None and graph is not None and table is not None:
        data["embedded"] = _embedded(weights, graph, table)
    elif any(given is not None for given in (weights, graph, table)):
        raise InputError("the explorer shows weights on a graph and a table; give all three")
    page = page_template("explorer.html", ASSETS).render(
        css=asset("report.css") + Markup((ASSETS / "explorer.css").read_text(encoding="utf-8")),
        views=_VIEWS,
        data=[(name, script_json(content)) for name, content in data.items()],
        worker=_script("worker.js"),
        script=_script("main.js"),
        report=report,
        version=package_version("headcount") or "",
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def _embedded(weights: KeyQuery, graph: Graph, table: TableLike) -> Mapping[str, Any]:
    """Weights, graph and table as the page reads them from files."""
    from tempfile import TemporaryDirectory

    rows = table_for(graph, table)
    weights.require_width(rows.shape[1])
    if weights.aggregation not in ("max", "sum"):
        raise InputError(
            f"the scores of {weights.aggregation} depend on the context or the temperature; the "
            "explorer shows weights of max or sum"
        )
    if weights.decided_by == "top":
        raise InputError(
            "weights decided by the top of a row have no threshold; the explorer shows weights "
            "that have one"
        )
    if graph.items > MOST_ITEMS:
        raise InputError(
            f"{graph.items:,} items are more than the page can draw; choose at most {MOST_ITEMS:,}"
        )
    array = io.BytesIO()
    np.save(array, rows.cpu().numpy())  # float64 stays: rounding would change what is exact
    with TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        weights.detached().save(file)
        stored = file.read_bytes()
    return {
        "label": "the embedded weights",
        "weights": base64.b64encode(stored).decode(),
        "table": base64.b64encode(array.getvalue()).decode(),
        "pairs": graph.pairs.tolist(),
        "names": None if graph.names is None else list(graph.names),
    }


def _script(entry: str) -> Markup:
    script = joined_script(entry)
    assert "</script" not in script.lower()
    return Markup(script)
