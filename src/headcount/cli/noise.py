"""`headcount noise`: signal and noise in the scores of the compressive construction."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headcount.cli.common import CHARTS, Json, Seed, check_output, emit

if TYPE_CHECKING:
    from headcount.constructions.softmax_background import SoftmaxBackground


def noise(
    items: Annotated[int, typer.Option(help="Items m of a random permutation.")] = 2048,
    d_model: Annotated[int, typer.Option(help="Width of the Gaussian table.")] = 256,
    heads: Annotated[int | None, typer.Option(help="Heads h; by default ⌈m/d_model⌉.")] = None,
    key_dim: Annotated[int, typer.Option(help="Width d_k of a head.")] = 64,
    context_length: Annotated[
        int | None,
        typer.Option(help="Also read contexts of ℓ items by softmax: Eqs. (7)–(18), measured."),
    ] = None,
    pair: Annotated[
        tuple[int, int] | None,
        typer.Option(help="Also split one score: a source and a target.", metavar="I J"),
    ] = None,
    seed: Seed = 0,
    chart: Annotated[
        Path | None, typer.Option(help="Draw Section 5 here (.png, .svg or .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """Split the scores of the compressive construction into signal and noise (Section 5, B.2).

    \b
    Example:
      headcount noise --items 2048 --d-model 256 --key-dim 64 --chart noise.png
      headcount noise --items 2048 --d-model 512 --key-dim 1024 --context-length 64
      headcount noise --items 128 --d-model 64 --heads 2 --pair 0 89
    """
    from headcount.constructions.compressive_noise import measure_noise
    from headcount.constructions.softmax_background import measure_background

    check_output(chart, *CHARTS)
    result = asdict(measure_noise(items, d_model, key_dim, heads=heads, seed=seed, pair=pair))
    parts = {
        name: f"rms {part['rms']:.4g}, largest {part['max']:.4g}, "
        f"its mean given X at most {part['max_mean']:.4g}"
        for name, part in result["parts"].items()
    }
    one = result.pop("pair")
    shown = {name: value for name, value in result.items() if name != "parts"} | parts
    if pair is not None and one is not None:
        result["pair"] = {"source": pair[0], "target": pair[1], **one}
        terms = ", ".join(f"{name} {value:.4g}" for name, value in one.items())
        shown[f"score of {pair[0]} → {pair[1]}"] = terms
    if context_length is not None:
        background = measure_background(
            items, d_model, key_dim, context_length, heads=heads, seed=seed
        )
        result["softmax"] = asdict(background)
        shown |= _background_lines(background)
    if chart is not None:
        from headcount.report.chart_files import save_chart
        from headcount.report.noise_chart import noise_chart

        save_chart(noise_chart(items, d_model, seed), chart)
        result["chart"] = shown["chart"] = str(chart)
    emit(result if json else shown, json, "signal and noise of the compressive construction")


def _background_lines(found: SoftmaxBackground) -> dict[str, str]:
    """What softmax makes of the scores, with the paper's prediction in brackets."""
    return {
        f"softmax, contexts of {found.context_length}": "the paper's bounds in brackets",
        "owner's score/d_k": f"edges from {found.lowest_owner_score:.3g} (3/4), "
        f"others to {found.highest_owner_score:.3g} (1/4, Eq. (7))",
        "owner's mass": f"edges from {found.lowest_owner_mass:.3g} "
        f"({found.predicted_owner_mass:.3g}, Eq. (9)), others to {found.highest_other_mass:.2g} "
        f"({found.predicted_other_mass:.2g}, Eq. (11))",
        "background B": f"mean {found.background_mean:.3g} = (h − 1)/ℓ, spread "
        f"{found.background_spread:.2g}, off by up to {found.background_deviation:.2g} "
        f"({found.predicted_deviation:.2g}·C₂, Eq. (13))",
        "least C₂ of Eq. (16)": f"{found.least_c2:.3g}",
        "ℓ·mean mass": f"{found.share_on_own:.3g} on the head's own targets, "
        f"{found.share_on_others:.3g} on others (1, Eq. (14))",
        "A": f"edges from {found.lowest_edge:.3g}, others to {found.highest_non_edge:.3g}, "
        f"to {found.highest_without_target:.3g} without their target (τ = 1/2)",
    }
