"""`headcount bench`: speed as a ratio, ours and the peer in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.bench_block import block
from headcount.cli.bench_engines import engines
from headcount.cli.common import Json, emit
from headcount.progress import progress_line

if TYPE_CHECKING:
    from torch import Tensor

    from headcount.attention.key_query import KeyQuery

app = typer.Typer(
    help="Measure speed, where there is a peer as a ratio in the same run.", no_args_is_help=True
)
app.command()(engines)
app.command()(block)
Repeats = Annotated[int, typer.Option(min=1, help="Timed repeats; the median counts.")]


@app.command()
def verify(
    items: Annotated[int, typer.Option(min=1, help="m.")] = 20_000,
    d_model: Annotated[int, typer.Option(min=1, help="d_model.")] = 256,
    heads: Annotated[int, typer.Option(min=1, help="h.")] = 8,
    key_dim: Annotated[int, typer.Option(min=1, help="d_k.")] = 64,
    repeats: Repeats = 3,
    json: Json = False,
) -> None:
    """Time `verify` against the bare tiled float32 matrix products of the same pass.

    \b
    Example:
      headcount bench verify --items 20000 --heads 8 --key-dim 64
    """
    import resource

    import torch

    from headcount.attention.key_query import KeyQuery
    from headcount.attention.verification import verify as check
    from headcount.problem.embeddings import gaussian_embeddings
    from headcount.problem.makers import permutation_graph

    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph, table = permutation_graph(items), gaussian_embeddings(items, d_model).to(device)
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(heads, d_model, key_dim, generator=generator) for _ in range(2))
    weights = KeyQuery(queries, keys, threshold=1e6).to(device)  # high: no pair needs a second look

    def ours() -> None:
        check(weights, graph, table, precision="float32")

    seconds, peer = _medians([ours, lambda: _bare_products(weights, table)], repeats)
    result = {
        "items": items,
        "d_model": d_model,
        "heads": heads,
        "budget": weights.budget,
        "device": device,
        "threads": torch.get_num_threads(),
        "verify_seconds": seconds,
        "products_seconds": peer,
        "ratio": seconds / peer,
        "gflops": 2 * items**2 * weights.budget / seconds / 1e9,
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }
    emit(result, json, "verify against bare products")


@app.command()
def contexts(
    items: Annotated[int, typer.Option(min=1, help="m.")] = 512,
    length: Annotated[int, typer.Option(min=1, help="ℓ.")] = 16,
    degree: Annotated[int, typer.Option(min=1, help="r; 1 is a permutation.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="Contexts drawn in a repeat.")] = 131_072,
    repeats: Repeats = 3,
    json: Json = False,
) -> None:
    """Time the context sampler on one thread.

    \b
    Example:
      headcount bench contexts --items 512 --length 16
    """
    import torch

    from headcount.problem.contexts import ContextSampler
    from headcount.problem.makers import graph_of_degree

    torch.set_num_threads(1)
    graph = graph_of_degree(items, degree)
    sampler = ContextSampler(graph, length)
    (seconds,) = _medians([lambda: sampler.draw(count, seed=0)], repeats)
    result = {
        "items": items,
        "length": length,
        "degree": degree,
        "contexts_per_second": count / seconds,
    }
    emit(result, json, "context sampler, one thread")


@app.command()
def packing(
    items: Annotated[int, typer.Option(min=1, help="m.")] = 333_333,
    edges: Annotated[int, typer.Option(min=1, help="m'.")] = 1_000_000,
    block: Annotated[int, typer.Option(min=1, help="Edges a head holds.")] = 512,
    repeats: Repeats = 1,
    json: Json = False,
) -> None:
    """Time Lemma B.8's packing of a random graph into matchings, and the even one.

    \b
    Example:
      headcount bench packing --items 333333 --edges 1000000
    """
    from headcount.constructions.packing import pack, pack_evenly
    from headcount.problem.makers import random_graph

    graph = random_graph(items, edges)
    heads = max(graph.max_degree, -(-edges // block))
    lemma, even = _medians([lambda: pack(graph, block), lambda: pack_evenly(graph, heads)], repeats)
    result = {
        "items": items,
        "edges": edges,
        "max_degree": graph.max_degree,
        "lemma_seconds": lemma,
        "even_seconds": even,
        "even_heads": heads,
    }
    emit(result, json, "packing edges into matchings")


def _medians(works: list[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each, measured in turns after one untimed round."""
    import torch

    rounds: list[list[float]] = []
    with progress_line() as report:
        for number in range(repeats + 1):
            rounds.append([])
            for work in works:
                begin = time.perf_counter()
                work()
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                rounds[-1].append(time.perf_counter() - begin)
            report(
                f"round {number} of {repeats}: {', '.join(f'{seconds:.3f} s' for seconds in rounds[-1])}"
            )
    return [median(column) for column in zip(*rounds[1:], strict=True)]


def _bare_products(weights: KeyQuery, table: Tensor) -> None:
    """Projections and per-head score tiles in float32, and nothing done with them."""
    import torch

    size = 1024 if table.device.type == "cpu" else 4096
    queries, keys = table @ weights.queries, (table @ weights.keys).transpose(1, 2).contiguous()
    buffer = torch.empty(size * size, device=table.device)
    for top in range(0, len(table), size):
        for left in range(0, len(table), size):
            shape = (min(size, len(table) - top), min(size, len(table) - left))
            out = buffer[: shape[0] * shape[1]].view(shape)
            for query, key in zip(queries, keys, strict=True):
                torch.mm(query[top : top + shape[0]], key[:, left : left + shape[1]], out=out)
