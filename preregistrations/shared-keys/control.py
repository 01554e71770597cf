"""Run the control, shared queries: python preregistrations/shared-keys/control.py OUT --seconds N

On CPU cores, with the torch engine. Writes OUT/shared-queries.parquet.

h heads that share g queries and have keys of their own score x W_Q·(y W_K) with the two sides
exchanged: calling the shared side the keys turns every label y_pq into y_qp and changes nothing
else. So this trains with shared keys on the contexts of the graph and on transposed labels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from measure import OWN, POINTS, channels, row

import headcount as hc
from headcount.training.engines.base import State
from headcount.training.engines.edges import StackedEdges
from headcount.training.engines.torch import TorchEngine, TorchFleet

SPLITS = ((4, 1), (8, 2), (8, 1))


class SharedQueryFleet(TorchFleet):
    """Its contexts are drawn along the edges, its labels are those of the reversed edges."""

    def _load(
        self, specs: Sequence[hc.RunSpec], states: Sequence[State], diverged: Sequence[int | None]
    ) -> None:
        super()._load(specs, states, diverged)
        graphs = [reversed_graph(task.graph) for task in self._tasks]
        self._edges = StackedEdges(self._padded(graphs), self.device)


class SharedQueryEngine(TorchEngine):
    """Torch, with the roles of queries and keys exchanged."""

    name = "torch, shared queries"

    def fleet(
        self, specs: Sequence[hc.RunSpec], states: Sequence[State] | None = None
    ) -> SharedQueryFleet:
        states = states or [State.initial(spec) for spec in specs]
        return SharedQueryFleet(specs, states, self.device, 4)


def reversed_graph(graph: hc.Graph) -> hc.Graph:
    return hc.Graph.from_edges(graph.items, graph.pairs[:, ::-1])


def batches() -> list[list[hc.RunSpec]]:
    """The seeds of a configuration together; the widest first, which take longest."""
    found: dict[Any, list[hc.RunSpec]] = {}
    for point in POINTS[:2]:
        for channel in channels(SPLITS, OWN[point], point[1]):
            spec = hc.RunSpec(*point, **channel)
            key = (*point, spec.heads, spec.kv_heads, spec.key_dim)
            found.setdefault(key, []).append(spec)
    return sorted(found.values(), key=lambda specs: -specs[0].d_model * specs[0].budget)


def train(specs: list[hc.RunSpec]) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    results = hc.train(specs, engine=SharedQueryEngine(), progress=False)
    return [row("queries", result) for result in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--processes", type=int, default=12)
    chosen = parser.parse_args()
    began = time.monotonic()
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    work = batches()
    pool = ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn"))
    running = [pool.submit(train, specs) for specs in work]
    try:
        for done in as_completed(running, timeout=chosen.seconds):
            rows += done.result()
            frame = pd.DataFrame(rows).astype({"value": "float32", "seconds": "float32"})
            frame.to_parquet(chosen.out / "shared-queries.parquet", compression="zstd", index=False)
    except TimeoutError:
        print("no time left", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    print(f"queries: {len(rows)} runs, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
