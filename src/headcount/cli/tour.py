"""`headcount tour`: words looked up by attention, and one head beside several, in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.common import Json, Seed, emit
from headcount.errors import InputError
from headcount.files import made_folder
from headcount.progress import progress_line

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import MultiheadAttention

    from headcount.attention.key_query import KeyQuery
    from headcount.problem.graph import Graph
    from headcount.report.tour_page import Stop

LONGEST_WORD = 5  # letters: 259 words, which take seconds to compile
CONTEXT = ("hot", "rich", "cold", "night", "poor", "day", "left")
_WRITTEN = ("graph.csv", "table.safetensors", "permutation.csv", "narrow-table.npy", "report.html")
_WEIGHTS = ("weights", "one-head", "several-heads")


def tour(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to fill.")] = Path(
        "results/tour"
    ),
    items: Annotated[
        int, typer.Option(help="m, the items of the graph on which one head fails.")
    ] = 128,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """End-to-end demo: words in, certified weights out, "hot" looked up; and why several heads.

    WordNet's antonyms among short words become the weights of two heads on the
    words' own rows in all-MiniLM-L6-v2. They are verified on every pair and run
    in PyTorch's own attention. Then a random permutation on a narrow table: the
    one head that the paper's construction builds is wrong on some pairs, though
    it is as wide as a head can use; several heads are exact.

    \b
    Example:
      headcount tour --out results/tour
    """
    from headcount.report.tour_page import write_tour_page

    if items < 16:
        raise InputError(f"--items {items} is too few for the tour; choose at least 16")
    made_folder(out)
    with progress_line(quiet=json) as tell:
        tell("compiling the weights of the antonyms")
        words, found = _words(out, seed)
        tell("compiling the weights of several heads")
        one, many = _one_and_several(out, items, seed)
    write_tour_page(out / "report.html", words, found, [one, many])
    result = {
        "words": words.graph.items,
        "exact": words.found.exact,
        "margin": words.found.margin,
        "budget": words.found.budget,
        "looked_up": found,
        "one_head_errors": one.found.false_positives + one.found.false_negatives,
        "one_head_budget": one.found.budget,
        "several_heads": many.found.heads,
        "several_heads_budget": many.found.budget,
        "several_heads_exact": many.found.exact,
        "folder": str(out),
        "files": sorted(path.name for path in out.iterdir() if path.name in _files()),
    }
    if json:
        emit(result, True)
        return
    lookups = (f"{word} → {', '.join(targets) or 'nothing'}" for word, targets in found.items())
    told = {
        "antonyms": f"{words.found.heads} heads, D_K {words.found.budget}: {words.found.statement}",
        "looked up": "; ".join(lookups),
        "one head": f"of width {one.found.budget}, all it can use: {one.found.statement}",
        "several heads": (
            f"{many.found.heads} heads, D_K {many.found.budget}: {many.found.statement}"
        ),
        "open": str(out / "report.html"),
    }
    emit(told, False, f"{words.graph.items} words, and a permutation of {items} items")


def _files() -> tuple[str, ...]:
    made = (f"{name}{suffix}" for name in _WEIGHTS for suffix in (".safetensors", ".png"))
    return (*_WRITTEN, *made)


def _words(out: Path, seed: int) -> tuple[Stop, dict[str, list[str]]]:
    """The antonyms of short words, compiled, and what attention finds in `CONTEXT`."""
    from headcount.attention.export import to_torch
    from headcount.compiler.compile import compile
    from headcount.problem.edge_list import write_graph
    from headcount.problem.relations import relations
    from headcount.problem.tables import save_embeddings

    graph, table = _among_short_words(*relations("antonyms", table="minilm"))
    write_graph(graph, out / "graph.csv")
    save_embeddings(table, out / "table.safetensors", graph.names)
    weights = compile(graph, table, budget=16, heads=2, seed=seed).weights
    stop = _stop(
        *(out, "weights", weights, graph, table),
        f"{graph.edges} antonyms of {graph.items} words: two heads of width 8",
        f"The words are those of up to {LONGEST_WORD} letters with an antonym in WordNet, and "
        "their embeddings the rows of all-MiniLM-L6-v2, as they are.",
    )
    return stop, looked_up(to_torch(weights, graph, table).module(), graph, table, CONTEXT)


def _among_short_words(graph: Graph, table: Tensor) -> tuple[Graph, Tensor]:
    from headcount.problem.conversion import as_graph

    assert graph.names is not None
    kept = [
        (graph.name(source), graph.name(target))
        for source, target in graph.pairs.tolist()
        if max(len(graph.name(source)), len(graph.name(target))) <= LONGEST_WORD
    ]
    words = sorted({word for edge in kept for word in edge})
    return as_graph(kept, names=words), table[[graph.names.id(word) for word in words]]


def looked_up(
    attention: MultiheadAttention, graph: Graph, table: Tensor, context: tuple[str, ...]
) -> dict[str, list[str]]:
    """The words of the context to which each of them gives most of a head."""
    from headcount.attention.export import padded

    assert graph.names is not None
    rows = padded(table[[graph.names.id(word) for word in context]], attention)[None]
    _, shares = attention(rows, rows, rows, average_attn_weights=False)
    largest = shares[0].amax(dim=0)[:, : len(context)]  # the last column is the resting place
    return {
        word: [context[place] for place in row.gt(0.5).nonzero().flatten().tolist()]
        for word, row in zip(context, largest, strict=True)
    }


def _one_and_several(out: Path, items: int, seed: int) -> tuple[Stop, Stop]:
    """A permutation on a table a quarter as wide as it has items."""
    from headcount.compiler.compile import compile
    from headcount.constructions.construct import construct
    from headcount.problem.edge_list import write_graph
    from headcount.problem.embeddings import gaussian_embeddings
    from headcount.problem.makers import permutation_graph
    from headcount.problem.tables import save_embeddings

    graph, d_model = permutation_graph(items, seed), items // 4
    table = gaussian_embeddings(items, d_model, seed)
    write_graph(graph, out / "permutation.csv")
    save_embeddings(table, out / "narrow-table.npy")
    alone = construct(
        *(graph, table, "compressive"),
        heads=1,
        key_dim=d_model,
        inverse="pinv",
        threshold="midpoint",
        seed=seed,
    )
    one = _stop(
        *(out, "one-head", alone, graph, table),
        f"A permutation of {items} items, d_model {d_model}: one head",
        f"The words had more dimensions than there were words. Here four items share one. A head "
        f"can use {d_model} columns, as many as the table has; more would change nothing. In the "
        "paper's construction, here with pseudo-inverses, each edge of the one head leaks into "
        "other pairs.",
    )
    several = compile(graph, table, budget=d_model + d_model // 2, seed=seed).weights
    many = _stop(
        *(out, "several-heads", several, graph, table),
        f"The same, {several.heads} heads",
        "Each head holds a part of the edges, and the maximum over heads keeps the noise of "
        "one from adding to that of another. That is why attention has several heads.",
    )
    return one, many


def _stop(
    out: Path, name: str, weights: KeyQuery, graph: Graph, table: Tensor, title: str, reason: str
) -> Stop:
    """Verify, write and draw weights."""
    from headcount.attention.verification import verify
    from headcount.report.chart_files import save_chart
    from headcount.report.score_matrix import draw_scores, score_matrix
    from headcount.report.tour_page import Stop

    weights.save(out / f"{name}.safetensors")
    picture = out / f"{name}.png"
    save_chart(draw_scores(score_matrix(weights, graph, table), title), picture)
    return Stop(title, reason, graph, verify(weights, graph, table), picture)
