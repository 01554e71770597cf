"""Compiles what it is told to, one JSON line at a time: run as a script, for any release's source.

It uses only what release 0.1.0 has too, and checks every pair by itself, in float64.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from headcount.compiler.compile import compile
from headcount.errors import NoSolution
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import permutation_graph, regular_graph

_ROWS = 4096  # checked at a time


def compiled(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of one call, wall and CPU time, and whether its weights are exact."""
    items, degree, seed, device = (job[name] for name in ("items", "degree", "seed", "device"))
    graph = (
        permutation_graph(items, seed=seed)
        if degree == 1
        else regular_graph(items, degree, seed=seed)
    )
    table = gaussian_embeddings(items, job["d_model"], seed=seed)
    options = {name: job[name] for name in ("budget", "seed", "time_limit", "bits") if name in job}
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        weights = compile(graph, table, device=device, **options).weights
    except NoSolution:
        weights = None
    found = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    if weights is None:
        return {**found, "exact": False}
    if device == "cuda":
        found["gpu_gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
    exact = _exact(weights, (graph.sources, graph.targets), table.to(device))
    if "bits" in job:  # every matrix of every head has a level for each pattern of its bits at most
        parts = (*weights.queries, *weights.keys)
        exact = exact and all(len(part.unique()) <= 2 ** job["bits"] for part in parts)
    return {**found, "exact": exact}


def _exact(weights: Any, edges: tuple[Any, Any], table: torch.Tensor) -> bool:
    """Whether all pairs are right in float64, some rows at a time."""
    rows = table.double()
    queries, keys = (rows @ part.to(rows) for part in (weights.queries, weights.keys))
    wrong, at = 0, [torch.from_numpy(part.copy()).to(rows.device) for part in edges]
    for first in range(0, len(rows), _ROWS):
        scores = queries[0, first : first + _ROWS] @ keys[0].mT
        for query, key in zip(queries[1:], keys[1:], strict=True):
            torch.maximum(scores, query[first : first + _ROWS] @ key.mT, out=scores)
        above = scores > weights.threshold
        here = (at[0] >= first) & (at[0] < first + _ROWS)
        above[at[0][here] - first, at[1][here]] ^= True
        wrong += int(above.sum())
    return not wrong


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(compiled(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
