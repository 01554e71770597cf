"""`headcount noise`: signal and noise in the scores of the compressive construction."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Annotated, Any

import typer

from headcount.cli.common import Json, Seed, emit


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
    """Split the scores of the compressive construction into signal and noise (Section 5, B.2).

    Example: headcount noise --items 2048 --d-model 256 --key-dim 64 --chart noise.png
    """
    heads = _usual_heads(items, d_model) if heads is None else heads
    result = _measure_noise(items, d_model, heads, key_dim, seed)
    parts = {
        name: f"rms {part['rms']:.4g}, largest {part['max']:.4g}, "
        f"its mean given X at most {part['max_mean']:.4g}"
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
