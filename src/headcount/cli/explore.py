"""`headcount explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.common import TABLE_HELP, Json, TableKey, check_output, emit
from headcount.cli.items import NamesFile
from headcount.errors import InputError


def explore(
    weights: Annotated[
        Path | None, typer.Argument(help="Weights (.safetensors) to open the page with.")
    ] = None,
    graph: Annotated[Path | None, typer.Argument(help="Their graph: an edge list.")] = None,
    table: Annotated[Path | None, typer.Argument(help=TABLE_HELP)] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write (.html).")] = Path(
        "explorer.html"
    ),
    key: TableKey = None,
    names: NamesFile = None,
    json: Json = False,
) -> None:
    """Write one page to explore heads that divide the work: open it in any browser.

    It trains in the page, one head beside several at equal D_K, and shows
    interference, the capacity law and the planner. It needs no network. With
    weights, a graph and a table it opens with these.

    \b
    Examples:
      headcount explore
      headcount explore weights.safetensors graph.csv table.npy --out page.html
    """
    from headcount.attention.reading import read_weights_and_problem
    from headcount.explorer.page import explore as write

    check_output(out, ".html", ".htm")
    if weights is None:
        if key is not None or names is not None:
            raise InputError("--key and --names are for a table; give weights, a graph and a table")
        page = write(out)
    elif graph is None or table is None:
        raise InputError(
            "the page shows weights on a graph and a table: "
            "headcount explore WEIGHTS GRAPH TABLE --out page.html"
        )
    else:
        page = write(out, *read_weights_and_problem(weights, graph, table, key, names))
    emit({"page": str(page), "bytes": page.stat().st_size}, json, "open it in a browser")
