"""How fast edges are packed into matchings (Lemma B.8), and evenly."""

from __future__ import annotations

from typing import Any

from headcount.bench.timing import Report, medians, silent
from headcount.constructions.packing import pack, pack_evenly
from headcount.problem.makers import random_graph


def packing_speed(
    items: int = 333_333,
    edges: int = 1_000_000,
    block: int = 512,
    *,
    repeats: int = 1,
    report: Report = silent,
) -> dict[str, Any]:
    """Time both packings of a random graph; a head holds at most `block` edges."""
    graph = random_graph(items, edges)
    heads = max(graph.max_degree, -(-edges // block))
    lemma, even = medians(
        [lambda: pack(graph, block), lambda: pack_evenly(graph, heads)], repeats, report
    )
    return {
        "items": items,
        "edges": edges,
        "max_degree": graph.max_degree,
        "lemma_seconds": lemma,
        "even_seconds": even,
        "even_heads": heads,
    }
