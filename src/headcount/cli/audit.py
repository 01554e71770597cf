"""`headcount incoherence` and `headcount noise`: what a table leaks, and what that does to scores."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil, inf, log
from pathlib import Path
from typing import Annotated, Any

import typer

from headcount.cli.common import Json, Seed, emit
from headcount.cli.verify import TableFile, TableKey
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
    growth = log(max(items, 2))
    found = measure(
        rows, min(max(round(d_model / growth), 1), items) if block is None else block, scale
    )
    result: dict[str, Any] = {
        "items": items,
        "d_model": d_model,
        **asdict(found),
        "margin": found.margin,
    }
    result["c_leakage_needed"] = found.leakage * growth
    result["c_cross_needed"] = found.cross_leakage * growth
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


def noise(
    items: Annotated[int, typer.Option(help="Items m of a random permutation.")] = 2048,
    d_model: Annotated[int, typer.Option(help="Width of the Gaussian table.")] = 256,
    heads: Annotated[int | None, typer.Option(help="Heads h; by default ⌈m/d_model⌉.")] = None,
    key_dim: Annotated[int, typer.Option(help="Width d_k of a head.")] = 64,
    seed: Seed = 0,
    chart: Annotated[
        Path | None, typer.Option(help="Draw Section 5 here (.png, .svg or .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """Split the scores of the compressive construction into signal and noise (Section 5, Appendix B.2).

    Example: headcount noise --items 2048 --d-model 256 --key-dim 64 --chart noise.png
    """
    heads = _usual_heads(items, d_model) if heads is None else heads
    result = _measure_noise(items, d_model, heads, key_dim, seed)
    parts = {
        name: f"rms {part['rms']:.4g}, largest {part['max']:.4g}, its mean given X at most {part['max_mean']:.4g}"
        for name, part in result["parts"].items()
    }
    shown = {name: value for name, value in result.items() if name != "parts"} | parts
    if chart is not None:
        _draw(items, d_model, seed, chart)
        result["chart"] = shown["chart"] = str(chart)
    emit(result if json else shown, json, "signal and noise of the compressive construction")


def _usual_heads(items: int, d_model: int) -> int:
    """⌈m/d_model⌉, as in Algorithm 1 where d_model does not divide m."""
    return max(ceil(items / max(d_model, 1)), 1)


def _measure_noise(items: int, d_model: int, heads: int, key_dim: int, seed: int) -> dict[str, Any]:
    from headcount.attention.verification import verify
    from headcount.constructions.template import Signatures, fill, inverter, split_sources
    from headcount.problem.embeddings import gaussian_embeddings
    from headcount.problem.makers import permutation_graph
    from headcount.theory.noise import concentration, noise_summary
    from headcount.theory.noise_law import predicted_n3

    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, d_model, seed)
    matchings, signatures = split_sources(graph, heads), Signatures(seed=seed)
    found = verify(fill(table, matchings, signatures, key_dim, inverter("transpose")), graph, table)
    blocks = [(part.sources, part.targets) for part in matchings]
    block = max(len(part.sources) for part in matchings)
    summary = noise_summary(table, blocks, signatures.draw(items, key_dim)).set_index("part")
    lemma = concentration(table, blocks)
    return {
        "items": items,
        "d_model": d_model,
        "heads": heads,
        "key_dim": key_dim,
        "budget": found.budget,
        "block": block,
        "exact": found.exact,
        "lowest_edge": found.lowest_edge and found.lowest_edge.score,
        "highest_non_edge": found.highest_non_edge and found.highest_non_edge.score,
        "threshold": found.threshold,
        "least_c2": lemma.leakage_mass,
        "least_c3": lemma.c3,
        "n3_by_equation_1": predicted_n3(items, d_model, block, key_dim),
        "parts": summary.to_dict(orient="index"),
    }


def _draw(items: int, d_model: int, seed: int, out: Path) -> None:
    from headcount.report.chart_files import save_chart
    from headcount.report.noise_chart import draw_noise, gaps_by_budget, n3_by_block

    share = _usual_heads(items, d_model)
    heads = sorted({1, max(share // 4, 1), max(share // 2, 1), share, min(2 * share, items)})
    budgets = [max(items // 4, heads[-1]) * 2**power for power in range(5)]
    widths = sorted({max(d_model // 4, 1), d_model})
    save_chart(
        draw_noise(
            n3_by_block(items, widths, (16, 128, 1024), seed),
            gaps_by_budget(items, d_model, heads, budgets, seed),
        ),
        out,
    )
