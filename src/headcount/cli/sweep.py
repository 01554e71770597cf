"""`headcount sweep`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import EngineOption, Json, chosen_engine, emit
from headcount.cli.results import aligned, cell
from headcount.errors import InputError
from headcount.interrupts import STOPPING, stoppable
from headcount.progress import Status, duration, notice, progress_bar

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headcount.store.store import Store
    from headcount.sweeps.file import SweepFile, SweepPlan
    from headcount.sweeps.runner import Crew, Standing
    from headcount.training.spec import RunSpec

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
        bool, typer.Option("--dry-run", help="Only say what it would run, and how long.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(help="local:N worker processes, or a dask scheduler, tcp://host:port."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Always so: what the store has is never run again.")
    ] = True,
    json: Json = False,
) -> None:
    """Run a grid or a threshold search from a TOML file and give the thresholds of its points (A.2).

    Finished runs are in the store within seconds. After an interrupt, a crash or
    a kill, the same command goes on where it was.

    \b
    Examples:
      headcount sweep small.toml --dry-run
      headcount sweep small.toml
      headcount sweep small.toml --cluster local:4
    """
    from headcount.sweeps.file import read_sweep

    asked = read_sweep(file)
    path = store or asked.store
    name = engine.value if engine else asked.engine
    if dry_run:
        _foresee(asked, path, name, json)
    else:
        _run(asked, path, name, cluster, json)


def _foresee(asked: SweepFile, path: Path, engine: str, json: bool) -> None:
    """Say how much there is to do, from the store and a short measurement."""
    from headcount.store.store import Store
    from headcount.sweeps.cost import estimate

    known: set[str] = set()
    least, most = asked.range()
    if not path.parent.is_dir():
        raise InputError(f"{path}: its folder does not exist; make it, or name another store")
    if path.exists():
        with Store(path, read_only=True) as store:
            known = store.known(most)
    chosen = chosen_engine(engine)

    def cost(specs: Sequence[RunSpec]) -> dict[str, Any]:
        todo = [spec for spec in specs if spec.hash not in known]
        steps = sum(spec.steps for spec in todo)
        return {"to_run": len(todo), "run_steps": steps, "seconds": estimate(todo, chosen).seconds}

    whole = cost(most)
    found = {"name": asked.name, "store": str(path), "runs": len(most), "known": len(known)} | whole
    found |= {
        "engine": chosen.name,
        "device": chosen.device,
        "least": cost(least) if asked.searches else whole,
    }
    if json:
        emit(found, True)
        return
    few = found["least"]
    shown = {
        "runs": f"{len(most):,}: {len(known):,} known, {_span(few['to_run'], whole['to_run'])} to run",
        "run-steps": f"{_span(few['run_steps'], whole['run_steps'])} at most",
        "time": f"about {_span(duration(few['seconds']), duration(whole['seconds']))} at most",
        "engine": f"{chosen.name} on {chosen.device}",
        "store": str(path) + ("" if path.exists() else " (new)"),
    }
    emit(shown, False, asked.name)
    if asked.searches:
        typer.echo("A search asks for a part of its grid: between its first runs and all of them.")
    if whole["to_run"]:
        typer.echo(
            "The time is an estimate from a short measurement; runs that stop early save some of it."
        )


def _span(*ends: int | str) -> str:
    """One value, or both ends."""
    return " … ".join(dict.fromkeys(f"{end:,}" if isinstance(end, int) else end for end in ends))


def _run(asked: SweepFile, path: Path, engine: str, cluster: str | None, json: bool) -> None:
    from headcount.store.store import Store
    from headcount.sweeps.runner import Standing, run_sweep

    plan, standing = asked.plan(), Standing(asked.name)

    def on_beat(now: Standing) -> None:
        nonlocal standing
        standing = now
        refresh()

    with Store(path) as store:
        try:
            with (
                stoppable((signal.SIGINT, signal.SIGTERM), STOPPING) as stop,
                _crew(engine, cluster) as crew,
                progress_bar(asked.name, lambda: _status(standing)) as refresh,
            ):
                standing = run_sweep(plan, store, crew, asked.name, on_beat, stop)
        except KeyboardInterrupt:
            done = (
                f": {standing.known + standing.done:,} of {standing.known + standing.runs:,} runs"
            )
            notice(f"interrupted{done} are stored in {path}; the same command goes on from there")
            sys.exit(130)
        _report(plan, asked, store, standing, json)


def _crew(engine: Any, cluster: str | None) -> AbstractContextManager[Crew]:
    if cluster is None:
        from headcount.sweeps.runner import Here

        return nullcontext(Here(chosen_engine(engine)))
    from headcount.sweeps.cluster import hired

    return hired(cluster, engine, notice)


def _status(now: Standing) -> Status:
    known = f" (+{now.known:,} known)" if now.known else ""
    rate = now.taken / max(now.seconds, 1e-9)
    text = f"{now.done:,}/{now.runs:,} runs{known}, {rate:,.0f} run-steps/s"
    return Status(now.settled / max(now.steps, 1), text)


def _report(
    plan: SweepPlan, asked: SweepFile, store: Store, standing: Standing, json: bool
) -> None:
    from headcount.sweeps.summary import plain_rows, summarise

    found = summarise(
        asked.runs, store.frame(hash=[spec.hash for spec in asked.runs]), plan.searches
    )
    told = {
        "name": asked.name,
        "store": str(store.path),
        "runs": standing.known + standing.runs,
        "known": standing.known,
        "trained": standing.trained,
        "steps": standing.taken,
        "seconds": standing.seconds,
        "thresholds": plain_rows(found.thresholds),
        "searches": plain_rows(found.searches),
        "curves": plain_rows(found.curves),
    }
    if json:
        emit(told, True)
        return
    typer.echo(
        f"{asked.name}: {told['runs']:,} runs, {told['trained']:,} trained in {duration(told['seconds'])}, "
        f"{told['known']:,} known before; all in {store.path}"
    )
    for rows in (told["thresholds"], told["searches"]):
        if rows:
            typer.echo(aligned(_threshold_cells(rows)))
    for row in told["searches"]:
        if row["fallback"]:
            heads = ", ".join(map(str, row["fallback"]))
            notice(
                f"m {row['items']}, d_model {row['d_model']}: F1 does not rise with D_K at h = {heads}; looked closer"
            )
    if rows := told["curves"]:
        typer.echo(aligned(_curve_cells(rows[:_MOST_ROWS])))
        if len(rows) > _MOST_ROWS:
            typer.echo(
                f"… {len(rows) - _MOST_ROWS} more: headcount results list {store.path} --by heads,budget"
            )


_SHORT = {"degree": "r", "items": "m", "heads": "h", "budget": "D_K", "runs": "seeds"}
_ANSWER = (
    "central",
    "optimistic",
    "conservative",
    "heads",
    "key_dim",
    "mean",
    "heads_low",
    "heads_high",
)
_SPENT = ("settled", "runs", "steps", "grid_runs", "fallback")  # by a search


def _threshold_cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Point, D_K* with its optimistic … conservative ends, h* with those it cannot be told from, d_k and mean F1."""
    point = [name for name in rows[0] if name not in (*_ANSWER, *_SPENT)]
    head = [
        *(_SHORT.get(name, name) for name in point),
        "D_K*",
        "interval",
        "h*",
        "interval",
        "d_k",
        "mean F1",
    ]
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
