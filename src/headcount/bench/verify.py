"""How fast exact verification is, against the bare matrix products of the same pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.bench.timing import Report, medians, silent
from headcount.memory import peak_memory
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import permutation_graph
from headcount.shapes import Float


def verify_speed(
    items: int = 20_000,
    d_model: int = 256,
    heads: int = 8,
    key_dim: int = 64,
    *,
    repeats: int = 3,
    report: Report = silent,
) -> dict[str, Any]:
    """Time `verify` on random weights, and the tiled float32 products that it once consisted of."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph, table = permutation_graph(items), gaussian_embeddings(items, d_model).to(device)
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(heads, d_model, key_dim, generator=generator) for _ in range(2))
    # The threshold is out of reach: no pair is close enough to need a second look in float64.
    weights = KeyQuery(queries, keys, threshold=1e6).to(device)
    ours, products = medians(
        [
            lambda: verify(weights, graph, table),
            lambda: _bare_products(weights, table),
        ],
        repeats,
        report,
    )
    return {
        "items": items,
        "d_model": d_model,
        "heads": heads,
        "budget": weights.budget,
        "device": device,
        "threads": torch.get_num_threads(),
        "verify_seconds": ours,
        "products_seconds": products,
        "ratio": ours / products,
        "gflops": 2 * items**2 * weights.budget / ours / 1e9,
        "peak_memory_gb": peak_memory() / 1e9,
    }


def _bare_products(weights: KeyQuery, table: Float[Tensor, "items d_model"]) -> None:
    """Projections and per-head score tiles in float32, and nothing done with them."""
    size = 1024 if table.device.type == "cpu" else 4096
    queries, keys = (
        table @ weights.queries,
        (table @ weights.keys_per_head).transpose(1, 2).contiguous(),
    )
    buffer = torch.empty(size * size, device=table.device)
    for top in range(0, len(table), size):
        for left in range(0, len(table), size):
            shape = (min(size, len(table) - top), min(size, len(table) - left))
            out = buffer[: shape[0] * shape[1]].view(shape)
            for query, key in zip(queries, keys, strict=True):
                torch.mm(query[top : top + shape[0]], key[:, left : left + shape[1]], out=out)
