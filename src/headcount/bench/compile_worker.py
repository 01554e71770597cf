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


def compiled(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of one call, wall and CPU time, and whether its weights are exact."""
    items, degree, seed = job["items"], job["degree"], job["seed"]
    graph = (
        permutation_graph(items, seed=seed)
        if degree == 1
        else regular_graph(items, degree, seed=seed)
    )
    table = gaussian_embeddings(items, job["d_model"], seed=seed)
    options = {name: job[name] for name in ("budget", "seed", "time_limit")}
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        weights = compile(graph, table, device="cpu", **options).weights
    except NoSolution:
        weights = None
    found = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    if weights is None:
        return {**found, "exact": False}
    rows = table.double()
    scores = ((rows @ weights.queries.double()) @ (rows @ weights.keys.double()).mT).amax(0)
    edge = torch.zeros(items, items, dtype=torch.bool)
    edge[torch.from_numpy(graph.sources.copy()), torch.from_numpy(graph.targets.copy())] = True
    return {**found, "exact": torch.equal(scores > weights.threshold, edge)}


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(compiled(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
