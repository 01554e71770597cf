"""`headcount reproduce` and `headcount report`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import EngineOption, Json, chosen_engine, emit
from headcount.cli.sweep import STOPPING
from headcount.errors import InputError
from headcount.interrupts import stoppable
from headcount.progress import Status, duration, notice, progress_bar, progress_line

if TYPE_CHECKING:
    from headcount.report.figure import Claim
    from headcount.reproduction.evidence import Evidence
    from headcount.reproduction.forecast import Forecast
    from headcount.reproduction.reproduce import Making
    from headcount.reproduction.results_folder import ResultsFolder
    from headcount.sweeps.file import SweepFile
    from headcount.sweeps.runner import Standing

_BLOCK = {"fig7", "block"}  # drawn from runs of the transformer block
_DRAWING = ("altair", "vl_convert", "jinja2")


class PresetOption(StrEnum):
    quick = "quick"
    paper = "paper"


Only = Annotated[
    str | None,
    typer.Option(help="Run and draw these alone, as in fig3,table1.", show_default="all"),
]


def reproduce(
    preset: Annotated[
        PresetOption,
        typer.Option(help="quick: minutes on two cores; paper: every run of the paper, on a GPU."),
    ] = PresetOption.quick,
    only: Only = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder to fill.", show_default="results/PRESET"),
    ] = None,
    engine: Annotated[EngineOption, typer.Option(help="How to train.")] = EngineOption.auto,
    table: Annotated[
        str | None,
        typer.Option(
            help="Token table of Figure 7; see headcount block.", show_default="the preset's"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run the paper's experiments and write a report: every figure and table, ours beside the paper's.

    Finished runs are in the folder's store within seconds. After an interrupt, a
    crash or a kill, the same command goes on where it was. Figure 7 is shown
    from runs that came with headcount unless --only asks for it.

    \b
    Examples:
      headcount reproduce
      headcount reproduce --only fig7
      headcount reproduce --only fig1,fig3,table1
      headcount reproduce --preset paper --out results/paper
    """
    from headcount.reproduction.presets import preset as read_preset
    from headcount.reproduction.presets import restricted
    from headcount.reproduction.reproduce import Making, recorded
    from headcount.reproduction.results_folder import ResultsFolder

    names = _names(only)
    folder = ResultsFolder(_made(out or Path("results") / preset.value))
    sweep = read_preset(preset.value)
    _check_preset(folder, sweep)
    if names:
        sweep = restricted(sweep, _needs(names))
    if table and not _BLOCK & set(names):
        raise InputError("--table is for the runs of Figure 7; add --only fig7")
    command = f"headcount reproduce --preset {preset.value}" + (
        f" --only {','.join(names)}" if names else ""
    )
    command += f" --table {shlex.quote(table)}" if table else ""
    making = Making(command, chosen_engine(engine.value), tuple(names))
    try:
        with recorded(folder, sweep.name, making):
            if _BLOCK & set(names):
                _train_blocks(preset.value, table, folder, making)
            _train(sweep, folder, making)
            judged, files = _evaluate(folder, making)
    except KeyboardInterrupt:
        notice(
            f"interrupted; what is finished is in {folder.path}, and the same command goes on from there"
        )
        sys.exit(130)
    _say(folder.path, judged, files, json, making)


def report(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="What reproduce has filled.", show_default="our own runs of the whole paper"
        ),
    ] = None,
    only: Only = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Where to write.", show_default="FOLDER, or results/report"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Draw the report again from finished runs: without a folder from the paper-scale runs that came with headcount.

    \b
    Examples:
      headcount report
      headcount report results/quick --only fig3
    """
    from headcount.reproduction.results_folder import ResultsFolder
    from headcount.reproduction.shipped import MEASURED

    names = _names(only)
    source = ResultsFolder(folder) if folder else MEASURED
    evidence = source.evidence()
    target = _made(out or folder or Path("results/report"))
    judged, files = _draw(evidence, target, names)
    _say(target, judged, files, json)


def _names(only: str | None) -> list[str]:
    """The ids that were asked for, all of them known."""
    names = [name.strip().lower() for name in (only or "").split(",") if name.strip()]
    if only is not None and not names:
        raise InputError("--only names nothing; write for instance --only fig3,table1")
    if names:
        _needs(names)
    return list(dict.fromkeys(names))


def _needs(names: Sequence[str]) -> list[Any]:
    from headcount.report.figures import chosen_figures, needs

    return needs(chosen_figures(names))


def _made(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be a folder ({error.strerror}); name another with --out"
        ) from None
    if not os.access(path, os.W_OK):
        raise InputError(f"{path}: cannot be written to; name another folder with --out")
    return path


def _check_preset(folder: ResultsFolder, sweep: SweepFile) -> None:
    if folder.made() and (before := folder.manifest()["preset"]) != sweep.name:
        raise InputError(
            f"{folder.path}: holds a reproduction with --preset {before}; name another folder with --out"
        )


def _train(sweep: SweepFile, folder: ResultsFolder, making: Making) -> None:
    from headcount.reproduction.forecast import Forecast
    from headcount.reproduction.reproduce import run_preset
    from headcount.store.store import Store
    from headcount.sweeps.runner import Here, Standing

    with Store(folder.store) as store, stoppable((signal.SIGINT, signal.SIGTERM), STOPPING) as stop:
        if not (sweep.grids or sweep.searches):  # figures that are drawn from other runs
            folder.write_runs(store)
            return
        notice(f"{sweep.name}: measuring this machine ({making.engine.name} engine)")
        forecast = Forecast(sweep, making.engine, store)
        notice(f"{sweep.name}: {forecast.runs:,} runs to train, about {duration(forecast.total)}")
        standing = Standing(sweep.name)

        def on_beat(now: Standing) -> None:
            nonlocal standing
            standing = now
            refresh()

        with progress_bar(sweep.name, lambda: _status(standing, forecast)) as refresh:
            run_preset(sweep, folder, store, Here(making.engine), making, on_beat, stop)


def _train_blocks(preset: str, table: str | None, folder: ResultsFolder, making: Making) -> None:
    from headcount.sweeps.block_plan import read_block_plan
    from headcount.sweeps.block_runs import run_blocks

    plan = read_block_plan(preset, table)
    notice(f"{preset}: {len(plan.specs)} runs of the transformer block on {plan.table.name}")
    with making.timed("block runs"):
        made = run_blocks(plan, folder.block, making.command)
    if made.missing:
        raise KeyboardInterrupt


def _evaluate(folder: ResultsFolder, making: Making) -> tuple[list[Claim], list[Path]]:
    """Bounds and the report, where there is what they need to be drawn with."""
    from headcount.report.figures import chosen_figures
    from headcount.reproduction.reproduce import add_ceilings

    if any(figure.ceilings for figure in chosen_figures(making.only)):
        with progress_line() as tell:
            add_ceilings(folder.evidence(), folder, making, tell)
    if missing := [name for name in _DRAWING if not find_spec(name)]:
        notice(
            f"nothing was drawn: {', '.join(missing)} not installed; where it is: headcount report {folder.path}"
        )
        return [], []
    with making.timed("report"):
        return _draw(folder.evidence(), folder.path, making.only)


def _draw(evidence: Evidence, out: Path, names: Sequence[str]) -> tuple[list[Claim], list[Path]]:
    from headcount.report.claims import claims
    from headcount.report.figures import chosen_figures
    from headcount.report.page import write_report

    judged = claims(evidence)
    with progress_line() as tell:
        tell("drawing the report")
        return judged, write_report(out, evidence, chosen_figures(names), judged)


def _status(now: Standing, forecast: Forecast) -> Status:
    left, share = forecast.left()
    return Status(share, f"{share:.0%}, {now.done:,} runs done", left)


def _say(
    out: Path,
    judged: Sequence[Claim],
    files: Sequence[Path],
    json: bool,
    making: Making | None = None,
) -> None:
    if json:
        told: dict[str, Any] = {"folder": str(out), "files": [str(path) for path in files]}
        told["claims"] = {
            claim.id: {"verdict": claim.verdict, "number": claim.number} for claim in judged
        }
        emit(
            told | ({"seconds": making.seconds, "trained": making.trained} if making else {}), True
        )
        return
    for claim in judged:
        typer.echo(f"  {claim.id:<5}{claim.verdict:<15}{claim.text}")
        typer.echo(f"{'':22}{claim.number}")
    if files:
        typer.echo(f"Open {out / 'report.html'}")
