"""`headcount bench block`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headcount.cli.common import Json, emit


def block(
    heads: Annotated[int, typer.Option(min=1, help="h.")] = 8,
    budget: Annotated[int, typer.Option(min=1, help="D_K.")] = 512,
    runs: Annotated[int, typer.Option(min=1, help="Runs in the stack.")] = 28,
    items: Annotated[int, typer.Option(min=3, help="m.")] = 6144,
    d_model: Annotated[int, typer.Option(min=1, help="d_model.")] = 768,
    batch: Annotated[int, typer.Option(min=1, help="Examples a step.")] = 1024,
    steps: Annotated[int, typer.Option(min=1, help="Steps in a repeat.")] = 20,
    repeats: Annotated[int, typer.Option(min=1, help="Timed repeats; the median counts.")] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Json = False,
) -> None:
    """Time stacked runs of the transformer block against a plain eager module.

    Both train the same block on the same batch, in turns; the rate in FLOP/s
    stands beside the device's own for matrix products.

    \b
    Examples:
      headcount bench block
      headcount bench block --runs 4 --items 512 --batch 128 --steps 2 --device cpu
    """
    from headcount.bench.block import block_speed
    from headcount.errors import InputError

    if budget % heads:
        raise InputError(
            f"{heads} heads do not share a budget of {budget} evenly; choose a multiple"
        )
    sizes = {"items": items, "d_model": d_model, "heads": heads, "key_dim": budget // heads}
    found = block_speed(device, **sizes, batch=batch, runs=runs, steps=steps, repeats=repeats)
    more = {"speedup": found.speedup, "share_of_matmul_rate": found.share}
    emit(
        {**sizes, "batch": batch, **asdict(found), **more},
        json,
        "a stack of blocks against one eager module",
    )
