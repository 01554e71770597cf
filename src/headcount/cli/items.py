"""Items in what the commands print: by name where the graph has names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from headcount.problem.graph import Graph

_ENDS = ("source", "target")

NamesFile = Annotated[
    Path | None,
    typer.Option(
        "--names",
        help="Names of the table's rows: text with one per line, or a table with a name column.",
        show_default="those in the table's file",
    ),
]


def add_names(result: Any, graph: Graph) -> Any:
    """A result for JSON, with a name beside every id of an item; unchanged without names."""
    if graph.names is None or not isinstance(result, dict):
        return result
    named = {key: add_names(value, graph) for key, value in result.items()}
    for end in _ENDS:
        if isinstance(result.get(end), int):
            named[f"{end}_name"] = graph.name(result[end])
    if result.get("counterexample") is not None:
        named["counterexample_names"] = [graph.name(item) for item in result["counterexample"]]
    return named


def in_words(result: dict[str, Any], graph: Graph) -> dict[str, Any]:
    """A result for people: scored pairs in one line, contexts as the names of their items."""
    shown: dict[str, Any] = {
        key: f"{value['score']:.6g} at ({', '.join(graph.name(value[end]) for end in _ENDS)})"
        if isinstance(value, dict)
        else value
        for key, value in result.items()
    }
    if shown.get("counterexample") is not None:
        shown["counterexample"] = [graph.name(item) for item in shown["counterexample"]]
    return shown
