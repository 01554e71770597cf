"""`reproduce`: run the paper's experiments into a folder, add bounds, and write the report."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.interrupts import STOPPING, stoppable
from headcount.progress import Status, duration, notice, progress_bar, progress_line
from headcount.reproduction.bounds_table import bounds_table
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.forecast import Forecast
from headcount.reproduction.manifest import ManifestEntry, recorded
from headcount.reproduction.presets import preset as read_preset
from headcount.reproduction.presets import restricted
from headcount.reproduction.results_folder import ResultsFolder
from headcount.store.store import Store
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.block_runs import run_blocks
from headcount.sweeps.file import SweepFile
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.sweeps.writer import SweepProgress
from headcount.training.engines.base import Engine
from headcount.training.engines.selection import EngineName, choose_engine

MOST_DEGREE = 16  # of the graphs that are constructed; the paper's Fig. 12 compares none beyond
_BLOCK_FIGURES = {"fig7", "block"}  # drawn from runs of the transformer block


@dataclass(frozen=True)
class Reproduction:
    """What a reproduction came to, and the folder that holds its files."""

    folder: Path
    evidence: Evidence
    claims: Sequence[Any]  # of the paper, judged (`headcount.report`); empty without a report
    files: Sequence[Path]  # of the report, the page first
    trained: int  # runs; the others were in the folder before
    seconds: Mapping[str, float]  # of each stage


def reproduce(
    preset: str = "quick",
    only: Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
    *,
    engine: EngineName | Engine = "auto",
    table: str | None = None,
    report: bool = True,
    progress: bool = True,
) -> Reproduction:
    """Run the paper's experiments into a folder and write a report that sets ours beside them.

    What the folder already holds is not run again, so the same call continues after an interrupt
    (KeyboardInterrupt), a crash or a kill.

    Args:
        preset: "quick" takes minutes on two cores; "paper" is every run of the paper, for a GPU.
        only: ids such as "fig3" and "table1", to run and draw these alone.
        out: the folder; by default results/PRESET.
        engine: how to train.
        table: the token table of Figure 7, which is trained only if `only` names it.
        report: whether to draw the report, which takes some seconds.
        progress: whether to show progress on standard error.
    """
    figures = _report_module("figures").chosen_figures(only)
    sweep = read_preset(preset)
    blocks = bool(_BLOCK_FIGURES & set(only))
    if table and not blocks:
        raise InputError("a token table is for the runs of Figure 7; ask for them: --only fig7")
    folder = ResultsFolder.opened(out or Path("results") / preset, preset)
    if only:
        sweep = restricted(sweep, _report_module("figures").needs(figures))
    entry = ManifestEntry(_command(preset, only, table), choose_engine(engine), tuple(only))
    claims, files = [], []
    with recorded(folder, preset, entry) as write_manifest:
        if blocks:
            _train_blocks(preset, table, folder, entry, progress)
        _train(sweep, folder, entry, progress)
        write_manifest()  # the evidence names its provenance
        evidence = folder.evidence()
        with progress_line() if progress else nullcontext(lambda line: None) as tell:
            if any(figure.shows_bounds for figure in figures):
                evidence = _with_bounds(evidence, folder, entry, tell)
            if report:
                tell("drawing the report")
                with entry.timed("report"):
                    claims = _report_module("figures").claims(evidence)
                    write = _report_module("page").write_report
                    files = write(folder.path, evidence, figures, claims)
    return Reproduction(folder.path, evidence, claims, files, entry.trained, entry.seconds)


def _report_module(name: str) -> Any:
    """A module of `headcount.report`, imported when it is needed.

    The report is drawn from evidence, so its package is above this one in the order of imports.
    Only this function reaches up: it has the figures say what they need, and draws them.
    """
    return import_module(f"headcount.report.{name}")


def _command(preset: str, only: Sequence[str], table: str | None) -> str:
    """The command that does the same, for the manifest."""
    words = ["headcount", "reproduce", "--preset", preset]
    words += ["--only", ",".join(only)] if only else []
    return shlex.join([*words, "--table", table] if table else words)


def _train(sweep: SweepFile, folder: ResultsFolder, entry: ManifestEntry, progress: bool) -> None:
    """Train what the store lacks; what is finished is written, however this ends."""
    with Store(folder.store) as store:
        if not (sweep.grids or sweep.searches):  # the figures are drawn from other runs
            folder.write_runs(store)
            return
        tell = notice if progress else lambda line: None
        tell(f"{sweep.name}: measuring this machine ({entry.engine.name} engine)")
        forecast = Forecast(sweep, entry.engine, store)
        tell(f"{sweep.name}: {forecast.runs:,} runs to train, about {duration(forecast.total)}")
        done = 0

        def status() -> Status:
            left, share = forecast.left()
            return Status(share, f"{share:.0%}, {done:,} runs done", left)

        def on_beat(now: SweepProgress) -> None:
            nonlocal done
            done, entry.trained = now.done, now.trained
            refresh()

        with (
            stoppable((signal.SIGINT, signal.SIGTERM), STOPPING) as stop,
            progress_bar(sweep.name, status) if progress else nullcontext(lambda: None) as refresh,
            entry.timed("runs"),
        ):
            try:
                executor = LocalExecutor(entry.engine)
                now = run_sweep(sweep, store, executor, on_beat=on_beat, stop=stop)
                entry.trained = now.trained
            finally:
                folder.write_runs(store)


def _train_blocks(
    preset: str, table: str | None, folder: ResultsFolder, entry: ManifestEntry, progress: bool
) -> None:
    plan = read_block_plan(preset, table)
    if progress:
        notice(f"{preset}: {len(plan.specs)} runs of the transformer block on {plan.table.name}")
    with entry.timed("block runs"):
        made = run_blocks(plan, folder.block, entry.command, progress=progress)
    if made.missing:
        raise KeyboardInterrupt


def _with_bounds(
    evidence: Evidence, folder: ResultsFolder, entry: ManifestEntry, tell: Callable[[str], None]
) -> Evidence:
    """The evidence with bounds and constructions at the sizes of its thresholds.

    Those that the folder lacks are computed; each is written at once, so an interrupt loses one.
    """
    sizes = ["degree", "items", "d_model"]
    found, have = evidence.thresholds, folder.bounds()
    wanted = found.loc[(found["variant"] == "max") & (found["degree"] <= MOST_DEGREE), sizes]
    known = [] if have is None else have[sizes].itertuples(index=False, name=None)
    missing = sorted(set(wanted.itertuples(index=False, name=None)) - set(known))
    with entry.timed("bounds") if missing else nullcontext():
        for degree, items, d_model in missing:
            tell(f"bounds and constructions at m = {items:,}, d_model = {d_model}, r = {degree}")
            more = bounds_table([(items, d_model)], [degree])
            have = more if have is None else pd.concat([have, more], ignore_index=True)
            folder.write_bounds(have)
    return evidence if have is None else replace(evidence, bounds=have)
