"""`headcount tour`: one graph by one head and by several, verified and drawn in a few seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.common import Json, Seed, emit
from headcount.errors import InputError
from headcount.progress import progress_line

if TYPE_CHECKING:
    from torch import Tensor

    from headcount.attention.key_query import KeyQuery
    from headcount.problem.graph import Graph
    from headcount.report.tour_page import Stop


def tour(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to fill.")] = Path(
        "results/tour"
    ),
    items: Annotated[int, typer.Option(help="m, the number of items.")] = 128,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """End-to-end demo, and why several heads: build, verify and draw weights for one graph.

    With a one-hot table one head is enough. With a table a quarter as wide, the
    head that the paper's construction builds is wrong on some pairs, though it
    is as wide as a head can use; several heads are exact.

    \b
    Example:
      headcount tour --out results/tour
    """
    from headcount.compiler.compile import compile
    from headcount.constructions.construct import construct
    from headcount.constructions.methods import one_hot
    from headcount.problem.edge_list import write_graph
    from headcount.problem.embeddings import gaussian_embeddings, one_hot_embeddings
    from headcount.problem.makers import permutation_graph
    from headcount.problem.tables import save_embeddings
    from headcount.report.tour_page import write_tour_page

    if items < 16:
        raise InputError(f"--items {items} is too few for the tour; choose at least 16")
    graph, wide, d_model = permutation_graph(items, seed), one_hot_embeddings(items), items // 4
    narrow = gaussian_embeddings(items, d_model, seed)
    out.mkdir(parents=True, exist_ok=True)
    write_graph(graph, out / "graph.csv")
    save_embeddings(wide, out / "table.npy")
    save_embeddings(narrow, out / "narrow-table.npy")
    alone = construct(
        *(graph, narrow, "compressive"),
        heads=1,
        key_dim=d_model,
        inverse="pinv",
        threshold="midpoint",
        seed=seed,
    )
    with progress_line(quiet=json) as tell:
        tell("compiling the weights of several heads")
        several = compile(graph, narrow, budget=d_model + d_model // 2, seed=seed)
    stops = [
        _stop(
            *(out, "weights", "scores.png", one_hot(graph, wide, key_dim=64), graph, wide),
            f"one-hot table, d_model {items}: one head",
            "Every item has a dimension of its own, so one head can tell all pairs apart.",
        ),
        _stop(
            *(out, "one-head", "one-head.png", alone, graph, narrow),
            f"Gaussian table, d_model {d_model}: one head",
            f"Now four items share a dimension. A head can use {d_model} columns, as many as the "
            "table has; more would change nothing. In the paper's construction, here with "
            "pseudo-inverses, each edge of the one head leaks into other pairs.",
        ),
        _stop(
            *(out, "several-heads", "several-heads.png", several.weights, graph, narrow),
            f"Gaussian table, d_model {d_model}: {several.weights.heads} heads",
            "Each head holds a part of the edges, and the maximum over heads keeps the noise of "
            "one from adding to that of another. That is why attention has several heads.",
        ),
    ]
    write_tour_page(out / "report.html", stops)
    first, one, many = (stop.found for stop in stops)
    errors = one.false_positives + one.false_negatives
    result = {
        "exact": first.exact,
        "margin": first.margin,
        "budget": first.budget,
        "one_head_errors": errors,
        "one_head_budget": one.budget,
        "several_heads": many.heads,
        "several_heads_budget": many.budget,
        "several_heads_exact": many.exact,
        "folder": str(out),
        "files": sorted(path.name for path in out.iterdir() if path.name in _files()),
    }
    if json:
        emit(result, True)
        return
    told = {
        "one-hot table": f"one head of width {first.budget}: {first.statement}",
        "narrow table": f"one head of width {one.budget}, all it can use: {one.statement}",
        "several heads": f"{many.heads} heads, D_K {many.budget}: {many.statement}",
        "open": str(out / "report.html"),
    }
    emit(told, False, f"a permutation of {items} items, by one head and by several")


def _files() -> tuple[str, ...]:
    names = ("weights", "one-head", "several-heads")
    tables = ("graph.csv", "table.npy", "narrow-table.npy", "report.html", "scores.png")
    return (*tables, "one-head.png", "several-heads.png", *(f"{n}.safetensors" for n in names))


def _stop(
    out: Path,
    name: str,
    picture: str,
    weights: KeyQuery,
    graph: Graph,
    table: Tensor,
    title: str,
    reason: str,
) -> Stop:
    """Verify, write and draw weights."""
    from headcount.attention.verification import verify
    from headcount.report.chart_files import save_chart
    from headcount.report.score_matrix import draw_scores, score_matrix
    from headcount.report.tour_page import Stop

    weights.save(out / f"{name}.safetensors")
    save_chart(draw_scores(score_matrix(weights, graph, table), title), out / picture)
    return Stop(title, reason, verify(weights, graph, table), out / picture)
