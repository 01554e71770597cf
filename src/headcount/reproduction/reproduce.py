"""Reproduce: run a preset into its folder, lay bounds and constructions beside it, and say how it was made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import torch

from headcount.interrupts import Stop
from headcount.provenance import commit, machine, package_version, versions
from headcount.reproduction.bounds_table import ceilings
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.results_folder import ResultsFolder
from headcount.store.store import Store
from headcount.sweeps.file import SweepFile
from headcount.sweeps.runner import Crew, Standing, run_sweep
from headcount.training.engines.base import Engine

MOST_DEGREE = (
    16  # of the graphs that are constructed; beyond, the paper's Fig. 12 has none to compare
)


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
            "versions": versions()
            | {name: found for name in ("triton", "altair") if (found := package_version(name))},
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


def add_ceilings(
    evidence: Evidence, folder: ResultsFolder, making: Making, report: Callable[[str], None]
) -> None:
    """Compute lower bounds and constructions at the points and degrees of the thresholds, where they are missing."""
    found = evidence.thresholds
    wanted = found.loc[
        (found["variant"] == "max") & (found["degree"] <= MOST_DEGREE),
        ["degree", "items", "d_model"],
    ]
    have = folder.ceilings()
    there = (
        set()
        if have is None
        else set(have[["degree", "items", "d_model"]].itertuples(index=False, name=None))
    )
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


def device_name(engine: Engine) -> str:
    """What the engine computes on."""
    return (
        torch.cuda.get_device_name()
        if engine.device == "cuda"
        else getattr(engine, "level_name", engine.device)
    )
