"""How much work a sweep has left, and how long it takes on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headcount.errors import InputError
from headcount.files import LOOP, is_link_loop
from headcount.store.store import Store
from headcount.sweeps.cost import estimate
from headcount.sweeps.file import SweepFile
from headcount.training.engines.base import Engine
from headcount.training.engines.selection import EngineName, choose_engine
from headcount.training.spec import RunSpec


@dataclass(frozen=True)
class Work:
    """What some runs cost at most: runs stop early."""

    to_run: int
    run_steps: int
    seconds: float


@dataclass(frozen=True)
class SweepEstimate:
    """What a sweep has left to do.

    A search asks for a part of its grid: at least its first batch, at most all of it.
    """

    store: Path
    runs: int
    known: int  # stored already
    least: Work
    most: Work
    engine: Engine


def estimate_sweep(
    sweep: SweepFile,
    store: str | os.PathLike[str] | None = None,
    engine: Engine | EngineName | None = None,
) -> SweepEstimate:
    """Estimate what is left of a sweep from its store and a short measurement of the engine.

    Files that have changed since the store's runs were trained on them are refused.
    """
    path = Path(store or sweep.store)
    if is_link_loop(path):
        raise InputError(f"{path}: {LOOP}; name another store")
    if not path.parent.is_dir():
        raise InputError(f"{path}: its folder does not exist; make it, or name another store")
    known: set[str] = set()
    if path.exists():
        with Store(path, read_only=True) as opened:
            if sweep.files:
                opened.contents.require_unchanged(sweep.files)
            sweep = sweep.as_begun(opened)
            known = opened.known(sweep.all_runs)
    chosen = choose_engine(engine or sweep.engine)

    def work(specs: Sequence[RunSpec]) -> Work:
        todo = [spec for spec in specs if spec.hash not in known]
        steps = sum(spec.steps for spec in todo)
        return Work(len(todo), steps, estimate(todo, chosen).seconds)

    most = work(sweep.all_runs)
    least = work(sweep.plan().next_batch()) if sweep.searches else most
    return SweepEstimate(path, len(sweep.all_runs), len(known), least, most, chosen)
