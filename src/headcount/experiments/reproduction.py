"""Reproduce: run a preset into its folder, lay bounds and constructions beside it, and say how it was made."""

from __future__ import annotations

import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from headcount.experiments.ceilings import ceilings
from headcount.experiments.evidence import Evidence
from headcount.experiments.results_folder import ResultsFolder
from headcount.experiments.runner import Crew, Standing, Stop, run_sweep
from headcount.experiments.store import Store
from headcount.experiments.sweep import SweepFile
from headcount.training.engine import Engine, cores
from headcount.training.result import versions

MOST_DEGREE = 16  # of the graphs that are constructed; beyond, the paper's Fig. 12 has none to compare


@dataclass
class Making:
    """One time that a folder was worked on: an entry of its manifest, filled on the way."""

    command: str
    engine: Engine
    only: tuple[str, ...] = ()  # the figures asked for; none: all
    trained: int = 0
    complete: bool = False

    def __post_init__(self) -> None:
        self.began = datetime.now(UTC)
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the seconds of a stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = round(time.monotonic() - began, 1)

    def entry(self) -> dict[str, Any]:
        """What the manifest keeps."""
        return {
            "command": self.command,
            "commit": commit(),
            "date": self.began.strftime("%Y-%m-%d %H:%M UTC"),
            "only": list(self.only),
            "complete": self.complete,
            "trained": self.trained,
            "seconds": self.seconds,
            "engine": self.engine.name,
            "device": device_name(self.engine),
            "machine": machine(),
            "versions": versions() | {name: found for name in ("triton", "altair") if (found := _version(name))},
        }


def run_preset(
    sweep: SweepFile,
    folder: ResultsFolder,
    store: Store,
    crew: Crew,
    making: Making,
    on_beat: Callable[[Standing], None] | None = None,
    stop: Stop | None = None,
) -> None:
    """Train what the store lacks; what is finished is written, whatever ends it."""

    def beat(standing: Standing) -> None:
        making.trained = standing.trained
        if on_beat:
            on_beat(standing)

    with making.timed("runs"):
        try:
            making.trained = run_sweep(sweep.plan(), store, crew, sweep.name, beat, stop).trained
        finally:
            folder.write_runs(store)


def add_ceilings(evidence: Evidence, folder: ResultsFolder, making: Making, report: Callable[[str], None]) -> None:
    """Compute lower bounds and constructions at the points and degrees of the thresholds, where they are missing."""
    found = evidence.thresholds
    wanted = found.loc[(found["variant"] == "max") & (found["degree"] <= MOST_DEGREE), ["degree", "items", "d_model"]]
    have = folder.ceilings()
    there = set() if have is None else set(have[["degree", "items", "d_model"]].itertuples(index=False, name=None))
    points = sorted(set(wanted.itertuples(index=False, name=None)) - there)
    if not points:
        return
    with making.timed("bounds"):
        for degree, items, d_model in points:
            report(f"bounds and constructions at m = {items:,}, d_model = {d_model}, r = {degree}")
            found = ceilings([(items, d_model)], [degree])
            have = found if have is None else pd.concat([have, found], ignore_index=True)
            folder.write_ceilings(have)  # an interrupt loses one point


@contextmanager
def recorded(folder: ResultsFolder, preset: str, making: Making) -> Iterator[None]:
    """Keep the folder's manifest while it is worked on, with an entry for this time, however it ends."""
    before = folder.made()

    def write() -> None:
        runs = folder.runs() if folder.has_runs() else pd.DataFrame({"seed": [], "steps": []})
        steps, seeds = sum(runs["steps"].tolist()), sorted(int(seed) for seed in set(runs["seed"]))
        counts = {"preset": preset, "runs": len(runs), "run_steps": steps, "seeds": seeds}
        folder.write_manifest(counts | {"made": [*before, making.entry()]})

    write()
    try:
        yield
        making.complete = True
    finally:
        write()


def machine() -> str:
    """The processor, its cores, and the GPU where there is one."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name}, {cores()} cores{gpu}"


def device_name(engine: Engine) -> str:
    """What the engine computes on."""
    return torch.cuda.get_device_name() if engine.device == "cuda" else getattr(engine, "level_name", engine.device)


def commit() -> str | None:
    """The commit of the source that runs, with a "+" where it was changed; None outside a checkout."""
    git, here = shutil.which("git"), Path(__file__).parent
    if not git:
        return None

    def ask(*words: str) -> str:
        return subprocess.run([git, "-C", str(here), *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        if not ask("ls-files", Path(__file__).name):  # an installed copy inside somebody else's repository
            return None
        changed = "+" if ask("status", "--porcelain", "--untracked-files=no") else ""
        return ask("rev-parse", "--short", "HEAD") + changed
    except (subprocess.CalledProcessError, OSError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
