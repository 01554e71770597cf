"""How many contexts per second the sampler draws on one thread."""

from __future__ import annotations

from typing import Any

from headcount.bench.timing import Report, medians, silent
from headcount.problem.contexts import ContextSampler
from headcount.problem.makers import graph_of_degree
from headcount.threads import torch_threads


def contexts_speed(
    items: int = 512,
    length: int = 16,
    degree: int = 1,
    count: int = 131_072,
    *,
    repeats: int = 3,
    report: Report = silent,
) -> dict[str, Any]:
    """Time the drawing of `count` contexts."""
    sampler = ContextSampler(graph_of_degree(items, degree), length)
    with torch_threads(1):
        (seconds,) = medians([lambda: sampler.draw(count, seed=0)], repeats, report)
    return {
        "items": items,
        "length": length,
        "degree": degree,
        "contexts_per_second": count / seconds,
    }
