"""`headcount show`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.common import CHARTS, Json, TableKey, WeightsFile, check_output, emit
from headcount.cli.items import NamesFile
from headcount.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from headcount.attention.key_query import KeyQuery
    from headcount.problem.graph import Graph


def show(
    weights: WeightsFile,
    graph: Annotated[Path | None, typer.Argument(help="Edge list; needed for --scores.")] = None,
    table: Annotated[
        Path | None, typer.Argument(help="Embedding table; needed for --scores.")
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="Draw the score matrix here (.png, .svg or .pdf).")
    ] = None,
    key: TableKey = None,
    names: NamesFile = None,
    json: Json = False,
) -> None:
    """Show what a weights file holds; with --scores, draw its scores with the true edges marked.

    \b
    Examples:
      headcount show weights.safetensors
      headcount show weights.safetensors graph.csv table.npy --scores scores.png
    """
    from headcount.attention.reading import read_weights_and_problem
    from headcount.attention.storage import load_weights

    if scores is None and graph is not None:
        raise InputError(
            "a graph and a table are for --scores; add --scores OUT.png, or leave them out"
        )
    check_output(scores, *CHARTS)
    if scores is not None:
        if graph is None or table is None:
            raise InputError(
                "--scores needs a graph and a table: "
                "headcount show WEIGHTS GRAPH TABLE --scores OUT.png"
            )
        _draw(scores, read_weights_and_problem(weights, graph, table, key, names))
    loaded = load_weights(weights)
    shared = loaded.kv_heads < loaded.heads
    result = {
        **_notes(loaded.notes, json),
        "file": str(weights),
        "aggregation": loaded.aggregation,
        "d_model": loaded.d_model,
        "heads": loaded.heads,
        "key_dim": loaded.key_dim,
        "widths": list(loaded.widths) if len(set(loaded.widths)) > 1 else None,
        "kv_heads": loaded.kv_heads if shared else None,
        "budget": loaded.budget,
        "key_budget": loaded.key_budget if shared else None,
        "parameters": loaded.d_model * (loaded.budget + loaded.key_budget) + 1,
        "threshold": loaded.threshold,
        "dtype": str(loaded.queries.dtype).removeprefix("torch."),
    }
    if scores is not None:
        result["scores"] = str(scores)
    emit(
        {name: value for name, value in result.items() if value is not None},
        json,
        "key-query weights",
    )


def _notes(notes: Mapping[str, str], json: bool) -> dict[str, object]:
    """The notes; a certificate becomes a table for --json, and otherwise one line."""
    from headcount.compiler.certificate import Certificate

    try:
        certificate = Certificate.from_notes(notes).as_dict()
        margin = f"relative margin {certificate['relative_margin']:.3g}"
        line = f"{certificate['pairs']:,} pairs, {margin}; headcount verify checks it again"
    except (InputError, TypeError, ValueError, KeyError, AttributeError):
        return dict(notes)  # there is none, or somebody has changed it: the notes as they are
    others = {name: text for name, text in notes.items() if not name.startswith("certificate")}
    return {**others, "certificate": certificate if json else line}


def _draw(out: Path, read: tuple[KeyQuery, Graph, Tensor]) -> None:
    from headcount.report.chart_files import save_chart
    from headcount.report.score_matrix import plot_scores

    save_chart(plot_scores(*read), out)
