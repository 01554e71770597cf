"""`headcount block`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import Json, emit
from headcount.errors import InputError
from headcount.progress import notice

if TYPE_CHECKING:
    import pandas as pd


def block(
    plan: Annotated[
        str, typer.Argument(help="quick, paper, or a file of grids (.toml).")
    ] = "quick",
    table: Annotated[
        str | None,
        typer.Option(
            help="gpt2 (from the hub), smollm2 (from PyPI), sample, gaussian, or a .safetensors or .npy file.",
            show_default="the plan's",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to fill.", show_default="results/block-PLAN"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    time_limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds; what is not finished then goes on next time.", show_default="none"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train whole transformer blocks on frozen token embeddings (Section 7.3, Figure 7).

    Many runs are stacked and trained at once. Finished runs are kept in the
    folder, and after an interrupt, a time limit or a kill the same command
    goes on where it was. Exit code 1: some runs are still to do.

    \b
    Examples:
      headcount block
      headcount block paper --table smollm2 --time-limit 3600
      headcount block paper --table table.safetensors --out results/mine
    """
    from headcount.problem.token_tables import describe
    from headcount.sweeps.block_folder import BlockFolder
    from headcount.sweeps.block_plan import read_block_plan
    from headcount.sweeps.block_runs import run_blocks

    if time_limit is not None and not time_limit > 0:
        raise InputError(f"a time limit of {time_limit} s leaves no time; choose more than 0")
    asked = read_block_plan(plan, table)
    folder = BlockFolder(out or Path("results") / f"block-{Path(plan).stem}")
    shape = describe(asked.table)
    notice(
        f"{asked.table.name}: {shape.items:,} rows of {shape.d_model}, "
        f"norm {shape.norm_mean:.2f} ± {shape.norm_sd:.2f}, mean cosine {shape.mean_cosine:.3f}; "
        f"{len(asked.specs)} runs in {folder.path}"
    )
    words = ["headcount", "block", plan, *(["--table", table] if table else [])]
    made = run_blocks(
        asked, folder, shlex.join(words), device=device, progress=True, time_limit=time_limit
    )
    rows = folder.frame()
    rows = rows.loc[rows["hash"].isin([spec.hash for spec in asked.specs])]
    emit(
        {"folder": str(folder.path), "finished": made.finished, "missing": made.missing}
        | _summary(rows, json),
        json,
    )
    if made.missing:
        sys.exit(1)


def _summary(rows: pd.DataFrame, whole: bool) -> dict[str, Any]:
    """Mean test accuracy of each setting, with the least and the most over seeds."""
    if whole:
        return {"runs": rows.drop(columns="history").to_dict("records")}
    found = (
        rows.groupby(["control", "scale", "budget", "heads"])["test"]
        .agg(["mean", "min", "max"])
        .reset_index()
    )
    return {
        _name(row): f"{row['mean']:.3f} ({row['min']:.3f} … {row['max']:.3f})"
        for row in found.to_dict("records")
    }


def _name(row: dict[Any, Any]) -> str:
    """A setting in few words.

    >>> _name({"control": "none", "scale": 1.5, "budget": 64, "heads": 2})
    'budget 64, 2 heads, rows × 1.5'
    """
    words = f"budget {row['budget']}, {row['heads']} head{'s' if row['heads'] > 1 else ''}"
    words += f", {row['control']}" if row["control"] != "none" else ""
    return words + (f", rows × {row['scale']:g}" if row["scale"] != 1 else "")
