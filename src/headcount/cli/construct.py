"""`headcount construct`."""

from __future__ import annotations

import sys
import warnings
from enum import StrEnum
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import TABLE_HELP, Json, Quiet, Seed, TableKey, check_output, emit
from headcount.cli.items import NamesFile
from headcount.errors import InputError
from headcount.progress import notice, progress_line

if TYPE_CHECKING:
    from torch import Tensor

    from headcount.problem.graph import Graph


class Method(StrEnum):
    auto = "auto"
    one_hot = "one-hot"
    compressive = "compressive"
    general_embedding = "general-embedding"
    general_graph = "general-graph"
    softmax = "softmax"


class Inverse(StrEnum):
    transpose = "transpose"
    pinv = "pinv"


class Signature(StrEnum):
    rademacher = "rademacher"
    bernoulli = "bernoulli"


class Threshold(StrEnum):
    paper = "paper"
    midpoint = "midpoint"


def construct(
    graph: Annotated[Path | None, typer.Argument(help="Edge list (.csv or .tsv).")] = None,
    table: Annotated[Path | None, typer.Argument(help=TABLE_HELP)] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the weights here (.safetensors).")
    ] = None,
    method: Annotated[
        Method, typer.Option(help="auto picks the first whose assumptions hold.")
    ] = Method.auto,
    key_dim: Annotated[
        int | None,
        typer.Option(help="d_k.", show_default="the smallest that verification confirms"),
    ] = None,
    heads: Annotated[
        int | None,
        typer.Option(help="h.", show_default="the best split; with --key-dim the paper's"),
    ] = None,
    inverse: Annotated[
        Inverse, typer.Option(help="De-embedding: the paper's Xᵀ, or pseudo-inverses.")
    ] = Inverse.transpose,
    signatures: Annotated[Signature, typer.Option(help="Signature family.")] = Signature.rademacher,
    sparsity: Annotated[
        float | None,
        typer.Option(help="p of Bernoulli signatures.", show_default="0.25 one-hot, 0.05"),
    ] = None,
    threshold: Annotated[
        Threshold | None, typer.Option(help="τ.", show_default="midpoint in a search, else paper")
    ] = None,
    context_length: Annotated[
        int | None, typer.Option(help="Softmax: ℓ of the contexts that confirm.")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Calibrate instead: measure success rates over this many draws."),
    ] = None,
    items: Annotated[int | None, typer.Option(help="Calibration: m.")] = None,
    d_model: Annotated[int | None, typer.Option(help="Calibration: d_model.")] = None,
    degree: Annotated[
        int, typer.Option(help="Calibration: r of a regular graph; 1 is a permutation.")
    ] = 1,
    seed: Seed = 0,
    key: TableKey = None,
    names: NamesFile = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Build weights for a graph and a table by one of the paper's constructions, and verify them.

    Exit code 0: verified; 1: not, or nothing found; 2: bad input. Softmax
    weights are verified on drawn contexts, which proves nothing about others.

    With --trials, measure instead how often a construction succeeds as
    d_k grows, with the paper's heads and threshold.

    \b
    Examples:
      headcount construct graph.csv table.npy --inverse pinv --out weights.safetensors
      headcount construct --trials 100 --method compressive --items 512 --d-model 256
    """
    from headcount.problem.reading import read_problem

    check_output(out, ".safetensors")
    if trials is not None:
        if items is None or d_model is None or method is Method.auto:
            raise InputError(
                "--trials needs --method, --items and --d-model; it draws its own graphs and tables"
            )
        calibration = {
            "degree": degree,
            "heads": heads,
            "inverse": inverse.value,
            "trials": trials,
            "seed": seed,
        }
        _calibrate(method.value, items, d_model, calibration, threshold, quiet, json)
        return
    if graph is None or table is None:
        raise InputError("give a graph and a table: headcount construct GRAPH TABLE --out WEIGHTS")
    if items is not None or d_model is not None:
        raise InputError(
            "--items and --d-model are for --trials; a graph and a table have their own"
        )
    if out is None and not (json or quiet):
        notice("the weights are not written; give --out FILE.safetensors to keep them")
    options = {
        "key_dim": key_dim,
        "heads": heads,
        "inverse": inverse.value,
        "signatures": signatures.value,
        "sparsity": sparsity,
        "threshold": threshold and threshold.value,
        "context_length": context_length,
        "seed": seed,
    }
    read = read_problem(graph, table, key, names)
    _build(read, out, method.value, options, quiet, json)


def _build(
    problem: tuple[Graph, Tensor],
    out: Path | None,
    method: str,
    options: dict[str, Any],
    quiet: bool,
    json: bool,
) -> None:
    from headcount.constructions.construct import construct as run
    from headcount.constructions.request import sampler_for, verify_construction
    from headcount.errors import PreconditionWarning

    read, rows = problem
    with warnings.catch_warnings(record=True) as caught, progress_line(quiet=quiet) as report:
        warnings.simplefilter("always", PreconditionWarning)
        weights = run(read, rows, method, progress=report, **options)  # pyright: ignore[reportArgumentType]
    for warning in caught:
        notice(f"warning: {warning.message}")
    contexts = sampler_for(weights, read)
    found = verify_construction(weights, read, rows, seed=options["seed"])
    if out is not None:
        weights.save(out)
    result = {
        "method": weights.notes["method"],
        "exact": found.exact if json or found.exact is not None else "not proved",
        "margin": found.margin,
        "heads": found.heads,
        "key_dim": found.key_dim,
        "budget": found.budget,
        "threshold": found.threshold,
        "scope": found.scope,
        **({"correct": found.correct, "statement": found.statement} if json else {}),
        "context_length": contexts and contexts.length,
        "false_positives": found.false_positives,
        "false_negatives": found.false_negatives,
        "file": str(out) if out else None,
    }
    emit(
        result,
        json,
        f"{weights.notes['method']} construction: {found.heading}: {found.statement}",
    )
    sys.exit(0 if found.correct else 1)


def _calibrate(
    method: str,
    items: int,
    d_model: int,
    options: dict[str, Any],
    threshold: Threshold | None,
    quiet: bool,
    json: bool,
) -> None:
    from headcount.constructions.calibrate import calibrate

    with progress_line(quiet=quiet) as report:
        found = calibrate(
            method,
            items,
            d_model,
            threshold=(threshold or Threshold.paper).value,
            progress=report,
            **options,
        )
    result = {
        "method": method,
        "items": items,
        "edges": found.edges,
        "d_model": d_model,
        "heads": found.heads,
        "inverse": found.inverse,
        "trials": found.trials,
        "key_dim": found.key_dim,
        "C": found.constant,
        "d_model_per_ln_items": d_model / log(items),
        "limit_rate": found.limit,
        "limit_interval": found.limit_interval and list(found.limit_interval),
    }
    if json:
        emit({**result, "rates": found.rates.to_dict("records")}, json)
        return
    emit(result, json, f"{method} at ({items}, {d_model}), success rates over {found.trials} draws")
    print(found.rates.round(3).to_string(index=False))
