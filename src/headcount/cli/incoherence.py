"""`headcount incoherence`: what a table leaks."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Annotated, Any

import typer

from headcount.cli.common import Json, TableFile, TableKey, emit
from headcount.errors import InputError
from headcount.progress import notice

_MANY = 10_000  # items from which the m² inner products take minutes


def incoherence(
    table: TableFile,
    block: Annotated[
        int | None, typer.Option(help="Block size B; by default d_model/ln m.")
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="Scale μ; by default the one with the smallest ε_d.")
    ] = None,
    c_diagonal: Annotated[
        float, typer.Option(help="Theorem B.5's c₁, for the largest block.")
    ] = 0.1,
    c_leakage: Annotated[float, typer.Option(help="Theorem B.5's c₂.")] = 1 / 3,
    c_cross: Annotated[float, typer.Option(help="Theorem B.5's c₃.")] = 1 / 3,
    key: TableKey = None,
    json: Json = False,
) -> None:
    """Measure a table's restricted self-incoherence, and the largest block that Theorem B.5 allows.

    Worst case over all sets of at most B items, so it holds for every permutation and partition.

    Example: headcount incoherence table.npy --block 16 --json
    """
    from headcount.problem.tables import load_embeddings
    from headcount.theory.incoherence import incoherence as measure
    from headcount.theory.incoherence import largest_block

    _check_positive("--scale", scale, "the scale divides the Gram matrix")
    for name, constant in (
        ("--c-diagonal", c_diagonal),
        ("--c-leakage", c_leakage),
        ("--c-cross", c_cross),
    ):
        _check_positive(name, constant, "it bounds what Theorem B.5 allows")
    rows = load_embeddings(table, key)
    items, d_model = rows.shape
    if items > _MANY:
        notice(f"{items:,} items make {items**2:,} inner products; this takes minutes")
    found = measure(rows, block, scale)
    result: dict[str, Any] = {
        "items": items,
        "d_model": d_model,
        **asdict(found),
        "margin": found.margin,
    }
    result["c_leakage_needed"], result["c_cross_needed"] = found.constants_needed(items)
    result["largest_block"] = largest_block(rows, c_diagonal, c_leakage, c_cross, found.scale)
    emit(
        result if json else _in_words(result),
        json,
        f"restricted self-incoherence at block size {found.block}",
    )


def _check_positive(option: str, value: float | None, why: str) -> None:
    if value is not None and not 0 < value < inf:
        raise InputError(f"{option} {value}: {why}; choose a positive number")


def _in_words(result: dict[str, Any]) -> dict[str, Any]:
    low, high = result["distinct"]
    verdict = "separates" if result["margin"] > 0 else "proves nothing"
    return {
        "table": f"{result['items']:,} × {result['d_model']:,}, scale μ = {result['scale']:.6g}",
        "diagonal ε": result["diagonal"],
        "leakage ρ": f"{result['leakage']:.6g} = {result['c_leakage_needed']:.4g}/ln m",
        "cross-leakage γ": f"{result['cross_leakage']:.6g} = {result['c_cross_needed']:.4g}/ln m",
        "γ over i ≠ j": f"{low:.6g}" if low == high else f"between {low:.6g} and {high:.6g}",
        "margin of a wide head": f"{result['margin']:.4g} ({verdict})",
        "largest block": result["largest_block"]
        or "0: no block size meets Theorem B.5 with these constants",
    }
