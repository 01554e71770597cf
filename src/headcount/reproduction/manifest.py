"""The manifest of a results folder: one entry for each time that the folder was worked on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import torch

from headcount.provenance import commit, machine, package_version, versions
from headcount.reproduction.results_folder import ResultsFolder
from headcount.training.engines.base import Engine


@dataclass
class ManifestEntry:
    """How one reproduction was made; filled while it runs."""

    command: str
    engine: Engine
    only: tuple[str, ...] = ()  # the figures asked for; empty for all
    trained: int = 0
    complete: bool = False
    seconds: dict[str, float] = field(default_factory=dict)  # of each stage
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Record how long a stage takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = round(time.monotonic() - began, 1)

    def as_dict(self) -> dict[str, Any]:
        """The entry as the file holds it."""
        drawn_with = {name: package_version(name) for name in ("triton", "altair")}
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
            "versions": versions() | {name: found for name, found in drawn_with.items() if found},
        }


@contextmanager
def recorded(
    folder: ResultsFolder, preset: str, entry: ManifestEntry
) -> Iterator[Callable[[], None]]:
    """Add the entry to the folder's manifest, at the start and however the work ends.

    It is there from the start so that the next command knows the preset of a run that was killed.
    The returned function updates the manifest in between.
    """
    before = folder.history()

    def write() -> None:
        runs = folder.runs() if folder.has_runs() else pd.DataFrame({"seed": [], "steps": []})
        steps, seeds = sum(runs["steps"].tolist()), sorted(int(seed) for seed in set(runs["seed"]))
        counts = {"preset": preset, "runs": len(runs), "run_steps": steps, "seeds": seeds}
        folder.write_manifest(counts | {"made": [*before, entry.as_dict()]})

    write()
    try:
        yield write
        entry.complete = True
    finally:
        write()


def device_name(engine: Engine) -> str:
    """What the engine computes on."""
    if engine.device == "cuda":
        return torch.cuda.get_device_name()
    return getattr(engine, "level_name", engine.device)
