"""`headcount noise`: signal and noise in the scores of the compressive construction."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headcount.cli.common import CHARTS, Json, Seed, check_output, emit


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
    from headcount.constructions.compressive_noise import measure_noise

    check_output(chart, *CHARTS)
    result = asdict(measure_noise(items, d_model, key_dim, heads=heads, seed=seed))
    parts = {
        name: f"rms {part['rms']:.4g}, largest {part['max']:.4g}, "
        f"its mean given X at most {part['max_mean']:.4g}"
        for name, part in result["parts"].items()
    }
    shown = {name: value for name, value in result.items() if name != "parts"} | parts
    if chart is not None:
        from headcount.report.chart_files import save_chart
        from headcount.report.noise_chart import noise_chart

        save_chart(noise_chart(items, d_model, seed), chart)
        result["chart"] = shown["chart"] = str(chart)
    emit(result if json else shown, json, "signal and noise of the compressive construction")
