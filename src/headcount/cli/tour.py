"""`headcount tour`: graph, table, weights, verdict and picture, in a few seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.common import Json, Seed, emit


def tour(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to fill.")] = Path(
        "results/tour"
    ),
    items: Annotated[int, typer.Option(help="m, the number of items.")] = 128,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """End-to-end demo: make a graph and a table, construct weights, verify and draw them.

    Example: headcount tour --out results/tour
    """
    from headcount.attention.verification import verify
    from headcount.constructions.methods import one_hot
    from headcount.problem.edge_list import write_graph
    from headcount.problem.embeddings import one_hot_embeddings
    from headcount.problem.makers import permutation_graph
    from headcount.problem.tables import save_embeddings
    from headcount.report.chart_files import save_chart
    from headcount.report.score_matrix import draw_scores, score_matrix
    from headcount.report.tour_page import write_tour_page

    graph, table = permutation_graph(items, seed), one_hot_embeddings(items)
    weights = one_hot(graph, table, key_dim=64)
    found = verify(weights, graph, table)
    out.mkdir(parents=True, exist_ok=True)
    write_graph(graph, out / "graph.csv")
    save_embeddings(table, out / "table.npy")
    weights.save(out / "weights.safetensors")
    title = f"one-hot permutation of {items} items, one head of width {weights.budget}"
    save_chart(draw_scores(score_matrix(weights, graph, table), title), out / "scores.png")
    write_tour_page(out / "report.html", found, out / "scores.png", title)
    files = ["graph.csv", "table.npy", "weights.safetensors", "scores.png", "report.html"]
    result = {
        "exact": found.exact,
        "margin": found.margin,
        "budget": found.budget,
        "folder": str(out),
        "files": files,
    }
    emit(result, json, title)
