"""Train the runs of a preset into the folder of a reproduction."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable

from headcount.interrupts import STOPPING, stoppable
from headcount.progress import Status, duration, notice, progress_bar
from headcount.reproduction.fitting import fitting
from headcount.reproduction.forecast import Forecast
from headcount.reproduction.results_folder import ResultsFolder
from headcount.store.store import Store
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.block_runs import run_blocks
from headcount.sweeps.file import SweepFile
from headcount.sweeps.manifest import TRAINING, ManifestEntry
from headcount.sweeps.runner import LocalExecutor, run_sweep
from headcount.sweeps.writer import SweepProgress
from headcount.training.engines.base import Engine
from headcount.training.engines.selection import SLOW, is_slow

_RECORD_EVERY = 5.0  # seconds between two entries in the manifest of how far the training is


def train_preset(
    sweep: SweepFile,
    engine: Engine,
    folder: ResultsFolder,
    entry: ManifestEntry,
    progress: bool,
    write_manifest: Callable[[], None],
    limit: float | None = None,
) -> None:
    """Train what the store lacks; what is finished is written, however this ends.

    With a limit, in seconds, only the points that fit into it. The manifest is written every few
    seconds, so that it says how many runs a process trained that was killed.
    """
    with Store(folder.store) as store:
        if not (sweep.grids or sweep.searches):  # the figures are drawn from other runs
            folder.write_runs(store)
            return
        tell = notice if progress else lambda line: None
        sweep, forecast = _part_that_fits(sweep.as_begun(store), engine, store, limit, tell)
        done, recorded = 0, -math.inf

        def status() -> Status:
            left, share = forecast.left()
            return Status(share, f"{share:.0%}, {done:,} runs done", left)

        def on_beat(now: SweepProgress) -> None:
            nonlocal done, recorded
            done, changed = now.done, now.trained != entry.trained
            entry.trained = now.trained
            if changed and time.monotonic() - recorded > _RECORD_EVERY:
                write_manifest()
                recorded = time.monotonic()
            refresh()

        with (
            stoppable((signal.SIGINT, signal.SIGTERM), STOPPING) as stop,
            progress_bar(sweep.name, status, quiet=not progress) as refresh,
            entry.timed(TRAINING),
        ):
            try:
                executor = LocalExecutor(engine)
                now = run_sweep(sweep, store, executor, on_beat=on_beat, stop=stop)
                entry.trained = now.trained
            finally:
                folder.write_runs(store)


def _part_that_fits(
    sweep: SweepFile,
    engine: Engine,
    store: Store,
    limit: float | None,
    tell: Callable[[str], None],
) -> tuple[SweepFile, Forecast]:
    """The part of the sweep that fits into the limit, and how long it takes; both are told."""
    tell(f"{sweep.name}: measuring this machine ({engine.name} engine)")
    if limit is not None:
        sweep, left_out = fitting(sweep, engine, store, limit)
        for words in left_out:
            tell(f"{sweep.name}: left out, to fit into {duration(limit)}: {words}")
    forecast = Forecast(sweep, engine, store)
    slow = f" {SLOW}" if is_slow(engine) else ""
    tell(f"{sweep.name}: {forecast.runs:,} runs to train, about {duration(forecast.total)}{slow}")
    return sweep, forecast


def train_preset_blocks(
    preset: str, table: str | None, folder: ResultsFolder, entry: ManifestEntry, progress: bool
) -> None:
    """Train the preset's runs of the transformer block; raises KeyboardInterrupt if stopped."""
    plan = read_block_plan(preset, table)
    if progress:
        notice(f"{preset}: {len(plan.specs)} runs of the transformer block on {plan.table.name}")
    with entry.timed("block runs"):
        made = run_blocks(plan, folder.block, entry.command, progress=progress)
    if made.missing:
        raise KeyboardInterrupt
