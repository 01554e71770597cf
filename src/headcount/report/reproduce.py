"""`reproduce`: run the paper's experiments into a folder, add bounds, and write the report."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headcount.errors import InputError
from headcount.explorer.page import explore
from headcount.progress import notice, progress_line
from headcount.report.agreement import LocalVerdict, judge
from headcount.report.figures import chosen_figures, is_part_of, needs
from headcount.report.figures.base import Claim, Figure
from headcount.report.page import EXPLORER, write_report
from headcount.reproduction.bounds_table import with_bounds
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.forecast import Forecast
from headcount.reproduction.presets import preset as read_preset
from headcount.reproduction.presets import restricted
from headcount.reproduction.results_folder import ResultsFolder
from headcount.reproduction.training import train_preset, train_preset_blocks
from headcount.store.store import Store
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.file import SweepFile
from headcount.sweeps.manifest import ManifestEntry, device_name
from headcount.training.engines.base import Engine
from headcount.training.engines.selection import EngineName, choose_engine, is_slow

_SHORT = 20 * 60.0  # seconds
_BLOCK_FIGURES = {"fig7", "block"}  # drawn from runs of the transformer block


@dataclass(frozen=True)
class Reproduction:
    """What a reproduction came to, and the folder that holds its files."""

    folder: Path
    evidence: Evidence
    claims: Sequence[Claim]  # of the paper, judged by the shipped runs; empty without a report
    local: Mapping[str, LocalVerdict]  # by claim, judged by this folder's own runs
    files: Sequence[Path]  # of the report, the page first
    trained: int  # runs; the others were in the folder before
    seconds: Mapping[str, float]  # of each stage


def reproduce(
    preset: str = "quick",
    only: str | Sequence[str] = (),
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
        only: one or more ids such as "fig3" and "table1", to run and draw these alone.
        out: the folder; by default results/PRESET.
        engine: how to train.
        table: the token table of Figure 7, which is trained only if `only` names it.
        report: whether to draw the report, which takes some seconds.
        progress: whether to show progress on standard error.
    """
    names, figures, sweep, blocks = _asked(preset, only, table)
    if names and progress:
        _say_untrained(figures, preset)
    folder = ResultsFolder.opened(out or Path("results") / preset, preset)
    chosen = choose_engine(engine)
    device = getattr(chosen, "level_name", device_name(chosen.device))
    entry = ManifestEntry(_command(preset, names, table), device, chosen.name, names)
    claims: Sequence[Claim] = ()
    local: Mapping[str, LocalVerdict] = {}
    files: Sequence[Path] = ()
    with folder.recorded(preset, entry) as write_manifest:
        if blocks:
            train_preset_blocks(preset, table, folder, entry, progress)
        # The quick preset stays quick where only a slow engine can train; what is named is whole.
        limit = _SHORT if preset == "quick" and not names and is_slow(chosen) else None
        train_preset(sweep, chosen, folder, entry, progress, write_manifest, limit)
        write_manifest()  # the evidence names its provenance
        evidence = folder.evidence()
        with progress_line(quiet=not progress) as tell:
            if any(figure.shows_bounds for figure in figures):
                evidence = with_bounds(evidence, folder, entry, tell)
            if report:
                tell("drawing the report")
                with entry.timed("report"):
                    claims, local = judge(folder, evidence)
                    explore(folder.path / EXPLORER, report="report.html")
                    files = write_report(folder.path, evidence, figures, claims, local=local)
    return Reproduction(folder.path, evidence, claims, local, files, entry.trained, entry.seconds)


def _lacking(figures: Sequence[Figure], preset: str) -> list[str]:
    """The figures that the preset has no runs for."""
    return [one.id for one in figures if one.grids and not is_part_of(one, preset)]


def _require_some(figures: Sequence[Figure], preset: str) -> None:
    """Refuse what the preset cannot show at all."""
    lacking = _lacking(figures, preset)
    if len(lacking) == len(figures):
        raise InputError(
            f"the preset {preset} has no runs for {', '.join(lacking)}; use --preset paper, or see "
            f"our own runs with: headcount report --only {','.join(lacking)}"
        )


def _say_untrained(figures: Sequence[Figure], preset: str) -> None:
    """Name what needs no training, and what the preset has no runs for."""
    lacking = _lacking(figures, preset)
    free = [one.id for one in figures if not one.grids and one.id not in _BLOCK_FIGURES]
    if free:
        notice(f"{', '.join(free)}: nothing to train; drawn from what headcount ships")
    if lacking:
        notice(f"{', '.join(lacking)}: no runs in the preset {preset}; --preset paper has them")


@dataclass(frozen=True)
class ReproductionForecast:
    """What a reproduction would do: nothing has been trained or written."""

    preset: str
    folder: Path
    figures: Sequence[str]  # that it would draw
    runs: int  # to train
    known: int  # in the folder already
    seconds: float  # of training on this machine, by a short measurement
    engine: str
    device: str
    block_runs: int  # of the transformer block to train, whose time is not known


def forecast_reproduction(
    preset: str = "quick",
    only: str | Sequence[str] = (),
    out: str | os.PathLike[str] | None = None,
    *,
    engine: EngineName | Engine = "auto",
    table: str | None = None,
) -> ReproductionForecast:
    """What `reproduce` would run with the same arguments, and how long that takes here.

    It measures the engine for some seconds; nothing is trained, and no file is made. The bounds and
    the report take about a minute more.
    """
    asked = _asked(preset, only, table)
    folder = Path(out or Path("results") / preset)
    chosen = choose_engine(engine)
    held = ResultsFolder.existing(folder, preset)
    with ExitStack() as opened:
        store, sweep = None, asked.sweep
        if held is not None and held.store.exists():
            store = opened.enter_context(Store(held.store, read_only=True))
            sweep = sweep.as_begun(store)
        forecast = Forecast(sweep, chosen, store)
    block_runs = 0
    if asked.blocks:
        done = {result.spec for result in held.block.results()} if held else set()
        block_runs = len(set(read_block_plan(preset, table).specs) - done)
    return ReproductionForecast(
        preset,
        folder,
        [figure.id for figure in asked.figures],
        forecast.runs,
        forecast.known,
        forecast.total,
        chosen.name,
        chosen.device,
        block_runs,
    )


class _Asked(NamedTuple):
    """What the arguments of a reproduction ask for."""

    names: tuple[str, ...]
    figures: tuple[Figure, ...]
    sweep: SweepFile
    blocks: bool


def _asked(preset: str, only: str | Sequence[str], table: str | None) -> _Asked:
    names = (only,) if isinstance(only, str) else tuple(only)
    figures, sweep = chosen_figures(names), read_preset(preset)
    blocks = bool(_BLOCK_FIGURES & set(names))
    if names:
        _require_some(figures, preset)
    if table and not blocks:
        raise InputError("a token table is for the runs of Figure 7; ask for them: --only fig7")
    return _Asked(names, figures, restricted(sweep, needs(figures)) if names else sweep, blocks)


def _command(preset: str, only: Sequence[str], table: str | None) -> str:
    """The command that does the same, for the manifest."""
    words = ["headcount", "reproduce", "--preset", preset]
    words += ["--only", ",".join(only)] if only else []
    return shlex.join([*words, "--table", table] if table else words)
