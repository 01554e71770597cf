"""`headcount block`."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import DeviceOption, Json, Quiet, emit
from headcount.errors import InputError
from headcount.interrupts import STOPPING, Stop, stoppable
from headcount.progress import notice

if TYPE_CHECKING:
    import pandas as pd

    from headcount.sweeps.block_plan import BlockPlan
    from headcount.sweeps.block_runs import BlockExecutor


def block(
    plan: Annotated[
        str, typer.Argument(help="quick, paper, or a file of grids (.toml).")
    ] = "quick",
    table: Annotated[
        str | None,
        typer.Option(
            help="gpt2 (from the hub), smollm2 (from PyPI), sample, gaussian, "
            "or a .safetensors or .npy file.",
            show_default="the plan's",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to fill.", show_default="results/block-PLAN"),
    ] = None,
    device: Annotated[DeviceOption, typer.Option(help="Where to train.")] = DeviceOption.auto,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="local:N processes, gpus (one per device), or a dask scheduler: tls://host:port."
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds; unfinished runs continue next time.", show_default="none"),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train whole transformer blocks on frozen token embeddings (Section 7.3, Figure 7).

    Many runs are stacked and trained at once. Finished runs are stored in the
    folder's runs.sqlite, which headcount watch and headcount results read. After
    an interrupt, a time limit or a kill, the same command continues where it was.
    Exit code 1: some runs are still to do.

    \b
    Examples:
      headcount block
      headcount block paper --table smollm2 --time-limit 3600
      headcount block paper --table table.safetensors --out results/mine
      headcount block --cluster local:4
    """
    from headcount.sweeps.block_folder import BlockFolder
    from headcount.sweeps.block_plan import read_block_plan
    from headcount.sweeps.block_runs import run_blocks

    if time_limit is not None and not time_limit > 0:
        raise InputError(f"a time limit of {time_limit} s leaves no time; choose more than 0")
    asked = read_block_plan(plan, table)
    folder = BlockFolder(out or Path("results") / f"block-{Path(plan).stem}")
    words = ["headcount", "block", plan, *(["--table", table] if table else [])]
    with _executor(asked, device.value, cluster, quiet) as (executor, stop):
        if not quiet:
            _announce(asked, folder.path)
        counts = run_blocks(
            asked,
            folder,
            shlex.join(words),
            executor,
            time_limit=time_limit,
            stop=stop,
        )
    rows = folder.frame()
    rows = rows.loc[rows["hash"].isin([spec.hash for spec in asked.specs])]
    about = {"folder": str(folder.path), "finished": counts.finished, "missing": counts.missing}
    emit(about | _summary(rows, json), json)
    if counts.missing:
        sys.exit(1)


@contextmanager
def _executor(
    asked: BlockPlan, device: str, cluster: str | None, quiet: bool
) -> Iterator[tuple[BlockExecutor, Stop | None]]:
    """Who trains, and what stops it: `train_blocks` handles Ctrl-C itself in this process."""
    if cluster is None:
        from headcount.sweeps.block_runs import LocalBlockExecutor

        yield LocalBlockExecutor(device, progress=not quiet), None
        return
    from headcount.sweeps.block_cluster import ClusterBlockExecutor
    from headcount.sweeps.cluster_connection import connected_cluster

    with (
        stoppable((signal.SIGINT, signal.SIGTERM), STOPPING) as stop,
        connected_cluster(cluster, notice, asked.tls) as connected,
    ):
        yield ClusterBlockExecutor(connected, cluster, device), stop


def _announce(asked: BlockPlan, folder: Path) -> None:
    from headcount.problem.token_tables import describe

    shape = describe(asked.table)
    notice(
        f"{asked.table.name}: {shape.items:,} items and NULL, {shape.d_model} wide, "
        f"norm {shape.norm_mean:.2f} ± {shape.norm_sd:.2f}, mean cosine {shape.mean_cosine:.3f}; "
        f"{len(asked.specs)} runs in {folder}"
    )


def _summary(rows: pd.DataFrame, whole: bool) -> dict[str, Any]:
    """All runs, or the mean test accuracy of each setting with its range over seeds."""
    from headcount.sweeps.block_frame import block_means

    if whole:
        return {"runs": rows.drop(columns="history").to_dict("records")}
    return {
        _name(row): f"{row['mean']:.3f} ({row['min']:.3f} … {row['max']:.3f})"
        for row in block_means(rows).to_dict("records")
    }


def _name(row: dict[Any, Any]) -> str:
    """A setting in few words.

    >>> _name({"control": "none", "scale": 1.5, "budget": 64, "heads": 2, "key_heads": 1})
    'budget 64, 2 heads, 1 key head, rows × 1.5'
    """
    from headcount.report.formatting import counted

    words = f"budget {row['budget']}, {counted(row['heads'], 'head')}"
    if row["key_heads"] != row["heads"]:
        words += f", {counted(row['key_heads'], 'key head')}"
    words += f", {row['control']}" if row["control"] != "none" else ""
    return words + (f", rows × {row['scale']:g}" if row["scale"] != 1 else "")
