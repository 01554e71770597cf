"""`headcount train`."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import EngineOption, Json, Quiet, TableKey, chosen_engine, emit
from headcount.cli.items import NamesFile
from headcount.errors import InputError
from headcount.files import made_folder
from headcount.progress import notice

if TYPE_CHECKING:
    from headcount.training.result import RunResult
    from headcount.training.spec import RunSpec


class VariantName(StrEnum):
    max = "max"
    softmax = "softmax"
    retrieval = "value"
    sum = "sum"
    logsumexp = "logsumexp"


def train(
    heads: Annotated[int, typer.Option(help="h, the number of heads.")],
    key_dim: Annotated[int, typer.Option(help="d_k, the width of a head.")],
    kv_heads: Annotated[
        int, typer.Option(help="g, the keys that heads share; g divides h.", show_default="h")
    ] = 0,
    items: Annotated[
        int | None,
        typer.Option(help="m, the number of items.", show_default="that of a graph or table file"),
    ] = None,
    d_model: Annotated[
        int | None,
        typer.Option(help="Width of the embeddings.", show_default="that of a table file"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of runs, one per seed.")] = 10,
    first_seed: Annotated[
        int, typer.Option(help="The seed of the first run; the others follow.")
    ] = 0,
    variant: Annotated[
        VariantName,
        typer.Option(
            help="Heads joined by max, softmax (7.1), sum or logsumexp, or value retrieval (7.2)."
        ),
    ] = VariantName.max,
    temperature: Annotated[float, typer.Option(help="t of logsumexp.")] = 1.0,
    degree: Annotated[
        int | None,
        typer.Option(
            help="r of a regular graph; 1 is a permutation.", show_default="1, or a file's"
        ),
    ] = None,
    graph: Annotated[
        str,
        typer.Option(
            help="A graph file; or regular, or m·r edges drawn uniformly (random) or with hubs "
            "(skewed)."
        ),
    ] = "regular",
    table: Annotated[
        str,
        typer.Option(help="A table file; or Gaussian unit-norm rows, or binary ones (Cor. B.7)."),
    ] = "gaussian",
    key: TableKey = None,
    names: NamesFile = None,
    context_length: Annotated[
        int | None,
        typer.Option(help="ℓ, the items of a context; by default 16, or all of fewer of your own."),
    ] = None,
    rate: Annotated[
        float, typer.Option(help="ρ, how often a target is brought into the context.")
    ] = 0.5,
    steps: Annotated[
        int | None,
        typer.Option(help="Most steps per run; by default 20,000, for softmax 80,000."),
    ] = None,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of AdamW.")] = 1e-3,
    engine: Annotated[
        EngineOption, typer.Option(help="auto takes the fastest available.")
    ] = EngineOption.auto,
    length: Annotated[
        int | None, typer.Option("--length", hidden=True, help="Former --context-length.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A folder for the weights: seed-N.safetensors of each run."
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train key-query weights by the paper's protocol (A.1) and print the test metric over seeds.

    The metric is micro-F1, or the mean squared error for --variant value.
    The interval is the 95 % t-interval over seeds (A.2). A run that diverged
    counts as F1 = 0; it is left out of a mean squared error.

    Seed N trains on what make graph and make embeddings draw with --seed N,
    so verify can judge the weights.

    With a graph and a table of your own, seeds vary first weights, contexts,
    validation and test only.

    \b
    Examples:
      headcount train --graph graph.csv --table table.npy --heads 4 --key-dim 5
      headcount train --items 64 --d-model 16 --heads 4 --key-dim 5 --seeds 10
      headcount train --items 64 --d-model 16 --heads 4 --key-dim 5 --graph skewed --table binary
      headcount train --items 64 --d-model 16 --heads 4 --key-dim 8 --kv-heads 1
    """
    from headcount.sweeps.toml_table import MOST_RUNS
    from headcount.training.problem_files import ProblemFiles
    from headcount.training.spec import RunSpec, sizes_of

    if seeds < 1:
        raise InputError(f"--seeds {seeds} trains nothing; choose at least 1")
    if seeds > MOST_RUNS:
        raise InputError(f"--seeds {seeds:,} are too many runs; choose at most {MOST_RUNS:,}")
    if steps is not None and steps < 1:
        raise InputError(f"--steps {steps} trains nothing; choose at least 1")
    words = None if names is None else str(names)
    files = ProblemFiles()
    files.require_used([graph], [table], key, words)
    own = files.contents(graph, table, items, key, words)
    given = {"items": items, "d_model": d_model, "degree": degree}
    sizes = {name: value for name, value in given.items() if value is not None}
    known = {**sizes, **sizes_of(*own)}
    for name, option in (("items", "--items"), ("d_model", "--d-model")):
        if name not in known:
            raise InputError(f"{option} is missing; give it, or files as --graph and --table")
    usual_length = RunSpec.length
    if items is None:  # those of a file, which may be few
        usual_length = min(usual_length, known["items"])
    common = {
        **sizes,
        "heads": heads,
        "key_dim": key_dim,
        "kv_heads": kv_heads,
        "variant": variant.value,
        "temperature": temperature,
        "length": context_length or length or usual_length,
        "rate": rate,
        "steps": steps or 0,
        "learning_rate": learning_rate,
    }
    try:
        specs = [
            RunSpec.on(*own, **common, seed=seed) for seed in range(first_seed, first_seed + seeds)
        ]
    except InputError as error:
        if str(error).startswith("length "):
            raise InputError(f"--context-{error}") from None
        raise
    _train(specs, engine.value, out, quiet, json)


def _train(
    specs: Sequence[RunSpec], engine: str, out: Path | None, quiet: bool, json: bool
) -> None:
    from headcount.training.train import train as run

    if out is not None:
        made_folder(out)
    chosen, began = chosen_engine(engine), time.perf_counter()
    results = run(
        specs,
        chosen,
        weights=out is not None,
        progress=not quiet,
        on_result=lambda result: _save(result, out),
    )
    seconds = time.perf_counter() - began
    summary = _summary(results, seconds) | {"engine": chosen.name, "device": chosen.device}
    names = ("items", "d_model", "heads", "key_dim", "budget", "degree", "variant", "metric")
    names = (*names, "kv_heads", "key_budget", "graph", "table")
    described = {name: getattr(specs[0], name) for name in names} | {
        "folder": None if out is None else str(out)
    }
    if summary["diverged"]:
        counts = (
            "they count as F1 = 0" if specs[0].metric == "f1" else "they are left out of the mean"
        )
        notice(f"{summary['diverged']} of {len(results)} runs diverged; {counts}")
    if json:
        emit(described | summary, True)
    elif results:
        _print(described | summary)
    sys.exit(130 if len(results) < len(specs) else 0)  # `run` has said that it was interrupted


def _save(result: RunResult, out: Path | None) -> None:
    if out is not None and result.weights is not None:  # a diverged run keeps none
        result.save_weights(out / f"seed-{result.spec.seed}.safetensors")


def _summary(results: Sequence[RunResult], seconds: float) -> dict[str, Any]:
    mean, low, high = _over_seeds(results)
    return {
        "mean": mean,
        "low": low,
        "high": high,
        "mean_steps": sum(result.steps for result in results) / len(results) if results else None,
        "diverged": sum(result.diverged is not None for result in results),
        "seconds": seconds,
        "run_steps_per_second": sum(result.steps for result in results) / seconds,
        "runs": [
            {
                "seed": result.spec.seed,
                "value": result.value,
                "steps": result.steps,
                "diverged": result.diverged,
            }
            for result in results
        ],
    }


def _over_seeds(results: Sequence[RunResult]) -> tuple[float | None, float | None, float | None]:
    """Mean and 95 % interval over seeds, None where there is none."""
    from headcount.analysis.curves import curves
    from headcount.store.frames import results_frame

    if not results:
        return None, None, None
    found = curves(results_frame(results)).iloc[0]

    def known(name: str) -> float | None:
        return None if math.isnan(found[name]) else float(found[name])

    return known("mean"), known("low"), known("high")


def _print(result: dict[str, Any]) -> None:
    metric = {"f1": "test F1", "mse": "test error"}[result["metric"]]
    print(f"  {'seed':>6}  {metric:>10}  {'steps':>7}")
    for run in result["runs"]:
        value = f"{run['value']:.6f}" if run["diverged"] is None else "–"
        tail = "" if run["diverged"] is None else f"  diverged at step {run['diverged']:,}"
        print(f"  {run['seed']:>6}  {value:>10}  {run['steps']:>7,}{tail}")
    rate = f"{result['run_steps_per_second']:,.0f} run-steps/s"
    shown: dict[str, Any] = {f"mean {metric}": "–", "steps": "–"}
    if result["mean"] is not None:
        shown[f"mean {metric}"] = f"{result['mean']:.6f}"
        if result["low"] is not None:
            shown[f"mean {metric}"] += (
                f"  (95 % interval {result['low']:.6f} … {result['high']:.6f})"
            )
        shown["steps"] = f"{result['mean_steps']:,.0f} on average"
    shown["engine"] = f"{result['engine']} on {result['device']}, {result['seconds']:.1f} s, {rate}"
    if result["folder"]:
        shown["weights"] = result["folder"]
    emit(
        shown,
        False,
        f"{result['items']} items, d_model {result['d_model']}, "
        f"{result['heads']} × {result['key_dim']}, D_K {result['budget']}, "
        + (f"g {result['kv_heads']}, D_KV {result['key_budget']}, " * (result["kv_heads"] > 0))
        + result["variant"],
    )
