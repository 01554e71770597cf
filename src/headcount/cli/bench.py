"""`headcount bench`: speed as a ratio, ours and the peer in one run."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from headcount.cli.bench_all import Engines, all, chosen_engines, compare
from headcount.cli.bench_compile import brief, compile
from headcount.cli.common import DeviceOption, Json, Quiet, emit
from headcount.cli.help import App
from headcount.errors import InputError
from headcount.progress import progress_line

app = App("Measure speed: where there is a peer, as a ratio in the same run.")
app.command()(all)
app.command()(compare)
app.command()(compile)
Items = Annotated[int, typer.Option(min=1, help="m.")]
Width = Annotated[int, typer.Option(min=1, help="d_model.")]
Heads = Annotated[int, typer.Option(min=1, help="h.")]
Repeats = Annotated[int, typer.Option(min=1, help="Timed repeats; the median counts.")]


class Shapes(StrEnum):
    main = "main"
    all = "all"


@app.command()
def engines(
    engines: Engines = None,
    shapes: Annotated[
        Shapes, typer.Option(help="main is (m, d_model, h, D_K) = (256, 32, 8, 64).")
    ] = Shapes.main,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds; the median counts.")] = 5,
    peers: Annotated[
        bool, typer.Option(help="Time the eager PyTorch loop and JAX as well.")
    ] = True,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time the training engines in µs per run-step, and their peers in the same run.

    All take turns: one untimed round, then --repeats timed ones. Engines are
    timed as train drives them: 500 steps with the drawing of their contexts,
    then the check on 500 validation contexts.

    The peers do less. eager is one run as a researcher would write it
    (nn.Module, autograd, torch.optim.AdamW); jax is vmap over runs and scan
    over steps, jitted, with float32 products in full precision, on one core
    or on the CUDA device. Both have predrawn contexts and do no check.

    Runs at a time: 80 on a core at the main shape, fewer at larger ones; 560
    on a CUDA device, and 4,000 at the main shape.

    matmul is the rate of torch's own float32 products: square matrices on one
    thread and on all, or on the CUDA device without TF32. gflops counts projections,
    scores and their gradients at ℓ = 16; Adam's work is not counted.

    \b
    Examples:
      headcount bench engines
      headcount bench engines --engines native --shapes all --no-peers --json
    """
    from headcount.bench.engines import ENGINES, engine_speeds

    chosen = None if engines is None else chosen_engines(engines, ENGINES)
    with progress_line(quiet=quiet) as report:
        found = engine_speeds(
            chosen, all_shapes=shapes is Shapes.all, peers=peers, repeats=repeats, report=report
        )
    if json:
        emit(found, True)
    else:
        _print_engines(found)


@app.command()
def block(
    heads: Heads = 8,
    budget: Annotated[int, typer.Option(min=1, help="D_K.")] = 512,
    runs: Annotated[int, typer.Option(min=1, help="Runs in the stack.")] = 28,
    items: Annotated[int, typer.Option(min=3, help="m.")] = 6144,
    d_model: Width = 768,
    batch: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 1024,
    steps: Annotated[int, typer.Option(min=1, help="Steps per repeat.")] = 64,
    repeats: Repeats = 5,
    device: Annotated[DeviceOption, typer.Option(help="Where to time.")] = DeviceOption.auto,
    json: Json = False,
) -> None:
    """Time stacked runs of the transformer block against a plain eager module.

    Both train the same block on the same batch, in turns; the rate in FLOP/s
    is given beside the device's own rate for matrix products.

    \b
    Examples:
      headcount bench block
      headcount bench block --runs 4 --items 512 --batch 128 --steps 2 --device cpu
    """
    from headcount.bench.block import block_speed

    if budget % heads:
        raise InputError(
            f"{heads} heads do not share a budget of {budget} evenly; choose a multiple"
        )
    sizes = {"items": items, "d_model": d_model, "heads": heads, "key_dim": budget // heads}
    found = block_speed(device.value, **sizes, batch=batch, runs=runs, steps=steps, repeats=repeats)
    ratios = {"speedup": found.speedup, "share_of_matmul_rate": found.share}
    row = {**sizes, "batch": batch, **asdict(found), **ratios}
    if not json:  # 2.43e+14 is hard to read
        row = {name.replace("_flops", "_gflops"): _giga(name, of) for name, of in row.items()}
    emit(row, json, "a stack of blocks against one eager module")


def _giga(name: str, value: Any) -> Any:
    return value / 1e9 if name.endswith("_flops") else value


@app.command()
def verify(
    items: Items = 20_000,
    d_model: Width = 256,
    heads: Heads = 8,
    key_dim: Annotated[int, typer.Option(min=1, help="d_k.")] = 64,
    repeats: Repeats = 3,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time `verify` against the bare tiled float32 matrix products of the same pass.

    \b
    Example:
      headcount bench verify --items 20000 --heads 8 --key-dim 64
    """
    from headcount.bench.verify import verify_speed

    with progress_line(quiet=quiet) as report:
        row = verify_speed(items, d_model, heads, key_dim, repeats=repeats, report=report)
    emit(row, json, "verify against bare products")


@app.command()
def contexts(
    items: Items = 512,
    context_length: Annotated[int, typer.Option(min=1, help="ℓ.")] = 16,
    degree: Annotated[int, typer.Option(min=1, help="r; 1 is a permutation.")] = 1,
    count: Annotated[int, typer.Option(min=1, help="Contexts drawn per repeat.")] = 131_072,
    repeats: Repeats = 3,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time the context sampler on one thread.

    \b
    Example:
      headcount bench contexts --items 512 --context-length 16
    """
    from headcount.bench.contexts import contexts_speed

    with progress_line(quiet=quiet) as report:
        row = contexts_speed(items, context_length, degree, count, repeats=repeats, report=report)
    emit(row, json, "context sampler, one thread")


@app.command()
def packing(
    items: Items = 333_333,
    edges: Annotated[int, typer.Option(min=1, help="m'.")] = 1_000_000,
    block: Annotated[int, typer.Option(min=1, help="Edges per head.")] = 512,
    repeats: Repeats = 1,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Time Lemma B.8's packing of a random graph into matchings, and the even one.

    \b
    Example:
      headcount bench packing --items 333333 --edges 1000000
    """
    from headcount.bench.packing import packing_speed

    with progress_line(quiet=quiet) as report:
        row = packing_speed(items, edges, block, repeats=repeats, report=report)
    emit(row, json, "packing edges into matchings")


def _print_engines(found: dict[str, Any]) -> None:
    from headcount.cli.tables import print_table

    missing = {row["engine"]: row["missing"] for row in found["rows"] if row["missing"]}
    print_table(
        f"{found['machine']}, {found['cores']} cores; medians of {found['repeats']} rounds",
        "µs per run-step; check and draw: the shares that validation and drawing contexts take",
        ["engine", "m", "d", "h", "D_K", "runs", "µs", "GFLOP/s", "check", "draw"],
        [_cells(row) for row in found["rows"]],
        list(missing.items()),
    )
    print("ratios at (m, d_model, h, D_K) = (256, 32, 8, 64)")
    for name, ratio in found["ratios"].items():
        goal = f"  (target {brief(ratio['target'])})" if ratio["target"] else ""
        if products := ratio.get("products"):
            goal += f", bare products {brief(products)}"
        print(f"  {name.replace('_', ' '):<24}{brief(ratio['value']):>8}{goal}")


def _cells(row: dict[str, Any]) -> list[str]:
    from headcount.bench.engines import named

    shares = (row["share_evaluation"], row["share_drawing"])
    return [
        named(row["engine"], row["device"], row["threads"]),
        *(str(row[name]) for name in ("items", "d_model", "heads", "budget")),
        *(brief(row[name]) for name in ("runs", "us_per_run_step", "gflops")),
        *("–" if share is None else f"{share:.0%}" for share in shares),
    ]
