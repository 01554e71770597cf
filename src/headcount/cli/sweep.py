"""`headcount sweep`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import EngineOption, Json, Quiet, chosen_engine, emit
from headcount.cli.run_lines import aligned, cell, with_paths
from headcount.interrupts import STOPPING, stoppable
from headcount.progress import Status, duration, notice, printable, progress_bar

if TYPE_CHECKING:
    from headcount.store.store import Store
    from headcount.sweeps.cluster_address import TlsFiles
    from headcount.sweeps.file import SweepFile
    from headcount.sweeps.runner import Executor
    from headcount.sweeps.writer import SweepProgress
    from headcount.training.engines.selection import EngineName

_MOST_ROWS = 40  # of curves that are printed


def sweep(
    file: Annotated[Path, typer.Argument(help="The sweep: a TOML file.", show_default=False)],
    store: Annotated[
        Path | None, typer.Option(help="The results store.", show_default="what the file says")
    ] = None,
    engine: Annotated[
        EngineOption | None, typer.Option(show_default="what the file says, or auto")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would be run, and how long it takes.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="local:N processes, gpus (one per device), or a dask scheduler: tls://host:port."
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a grid or a threshold search from a TOML file and print the thresholds found (A.2).

    Finished runs are in the store within seconds and are never run again. After
    an interrupt, a crash or a kill, the same command continues where it was.

    \b
    Examples:
      headcount sweep small.toml --dry-run
      headcount sweep small.toml
      headcount sweep small.toml --cluster local:4
      headcount sweep small.toml --cluster gpus
    """
    from headcount.sweeps.file import read_sweep

    asked = read_sweep(file)
    path = store or asked.store
    name = engine.value if engine else asked.engine
    if dry_run:
        _estimate(asked, path, name, json)
    else:
        _run(asked, path, name, cluster, quiet, json)


def _estimate(asked: SweepFile, path: Path, engine: EngineName, json: bool) -> None:
    """Print how much there is to do."""
    from headcount.sweeps.estimate import estimate_sweep

    found = estimate_sweep(asked, path, chosen_engine(engine))
    most, least, used = found.most, found.least, found.engine
    if json:
        about = {"name": asked.name, "store": str(path), "runs": found.runs, "known": found.known}
        about |= asdict(most) | {"engine": used.name, "device": used.device, "least": asdict(least)}
        emit(about, True)
        return
    to_run = _span(least.to_run, most.to_run)
    shown = {
        "runs": f"{found.runs:,}: {found.known:,} known, {to_run} to run",
        "run-steps": f"{_span(least.run_steps, most.run_steps)} at most",
        "time": f"about {_span(duration(least.seconds), duration(most.seconds))} at most",
        "engine": f"{used.name} on {used.device}",
        "store": str(path) + ("" if path.exists() else " (new)"),
    }
    emit(shown, False, asked.name)
    if asked.searches:
        print("A search asks for a part of its grid: between its first runs and all of them.")
    if most.to_run:
        print("The time is an estimate from a short measurement; runs that stop early take less.")


def _span(*ends: int | str) -> str:
    """One value, or both ends."""
    return " … ".join(dict.fromkeys(f"{end:,}" if isinstance(end, int) else end for end in ends))


def _run(
    asked: SweepFile, path: Path, engine: EngineName, cluster: str | None, quiet: bool, json: bool
) -> None:
    from headcount.store.store import Store
    from headcount.sweeps.runner import run_sweep
    from headcount.sweeps.writer import SweepProgress

    progress = SweepProgress(asked.name)

    def on_beat(now: SweepProgress) -> None:
        nonlocal progress
        progress = now
        refresh()

    with Store(path) as store:
        try:
            with (
                stoppable((signal.SIGINT, signal.SIGTERM), STOPPING) as stop,
                _executor(engine, cluster, asked.tls) as executor,
                progress_bar(asked.name, lambda: _status(progress), quiet) as refresh,
            ):
                progress = run_sweep(asked, store, executor, on_beat=on_beat, stop=stop)
        except KeyboardInterrupt:
            done, runs = progress.known + progress.done, progress.known + progress.runs
            notice(
                f"interrupted: {done:,} of {runs:,} runs are stored in {path}; "
                "the same command continues from there"
            )
            sys.exit(130)
        _report(asked, store, progress, json)


@contextmanager
def _executor(engine: EngineName, cluster: str | None, tls: TlsFiles | None) -> Iterator[Executor]:
    if cluster is None:
        from headcount.sweeps.runner import LocalExecutor

        yield LocalExecutor(chosen_engine(engine))
        return
    from headcount.sweeps.cluster import ClusterExecutor
    from headcount.sweeps.cluster_connection import connected_cluster

    with connected_cluster(cluster, notice, tls) as connected:
        yield ClusterExecutor(connected, engine)


def _status(now: SweepProgress) -> Status:
    known = f" (+{now.known:,} known)" if now.known else ""
    rate = now.taken / max(now.seconds, 1e-9)
    text = f"{now.done:,}/{now.runs:,} runs{known}, {rate:,.0f} run-steps/s"
    return Status(now.settled / max(now.steps, 1), text)


def _report(asked: SweepFile, store: Store, progress: SweepProgress, json: bool) -> None:
    from headcount.store.frames import plain_rows
    from headcount.sweeps.summary import summarise

    found = summarise(asked, store)
    told = {
        "name": asked.name,
        "store": str(store.path),
        "runs": progress.known + progress.runs,
        "known": progress.known,
        "trained": progress.trained,
        "steps": progress.taken,
        "seconds": progress.seconds,
        "thresholds": plain_rows(found.thresholds),
        "searches": plain_rows(found.searches),
        "curves": plain_rows(found.curves),
    }
    if json:
        emit(told, True)
        return
    print(
        printable(
            f"{asked.name}: {told['runs']:,} runs, {told['trained']:,} trained "
            f"in {duration(told['seconds'])}, {told['known']:,} known before; all in {store.path}"
        )
    )
    for rows in (told["thresholds"], told["searches"]):
        if rows:
            print(aligned(_threshold_cells(with_paths(store, rows))))
    for row in told["searches"]:
        if row["fallback"]:
            heads = ", ".join(map(str, row["fallback"]))
            notice(
                f"m {row['items']}, d_model {row['d_model']}: F1 does not rise with D_K "
                f"at h = {heads}; every budget there that can matter was tested"
            )
    if rows := told["curves"]:
        print(aligned(_curve_cells(with_paths(store, rows[:_MOST_ROWS]))))
        if len(rows) > _MOST_ROWS:
            more = f"headcount results list {store.path} --by heads,budget"
            print(f"… {len(rows) - _MOST_ROWS} more: {more}")


_SHORT = {"degree": "r", "items": "m", "heads": "h", "budget": "D_K", "runs": "seeds"}
_ANSWER = (
    *("central", "optimistic", "conservative"),
    *("heads", "key_dim", "mean", "heads_low", "heads_high"),
)
_SPENT = ("settled", "runs", "steps", "grid_runs", "fallback")  # by a search


def _threshold_cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Point, D_K* and h*, each with its interval, d_k and mean F1.

    The interval of D_K* is optimistic … conservative; that of h* has the head counts that cannot
    be distinguished from it.
    """
    point = [name for name in rows[0] if name not in (*_ANSWER, *_SPENT)]
    head = [_SHORT.get(name, name) for name in point]
    head += ["D_K*", "interval", "h*", "interval", "d_k", "mean F1"]
    return [head + ["runs"] * ("grid_runs" in rows[0])] + [
        [
            *(cell(row[name]) for name in point),
            cell(row["central"]),
            _ends(row["optimistic"], row["conservative"]),
            cell(row["heads"]),
            _ends(row["heads_low"], row["heads_high"]),
            cell(row["key_dim"]),
            cell(row["mean"]),
            *([f"{row['runs']:,} of {row['grid_runs']:,}"] if "grid_runs" in row else []),
        ]
        for row in rows
    ]


def _curve_cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    names = [name for name in rows[0] if name not in ("low", "high")]
    head = [*(_SHORT.get(name, name) for name in names), "95 % interval"]
    return [head] + [
        [*(cell(row[name]) for name in names), _ends(row["low"], row["high"])] for row in rows
    ]


def _ends(low: float | None, high: float | None) -> str:
    return "–" if low is None and high is None else f"{cell(low)} … {cell(high)}"
