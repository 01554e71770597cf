"""What a dask worker does: train a shard of runs, for a while."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from headcount.provenance import versions
from headcount.training.engines.base import Engine, lineage
from headcount.training.engines.selection import EngineName, choose_engine
from headcount.training.result import RunResult
from headcount.training.train import UnderWay, train

Kind = tuple[str, str]  # engine and lineage: states go on where they began


@dataclass
class Report:
    """What a shard came to."""

    results: list[RunResult] = field(default_factory=list)
    left: list[UnderWay] = field(default_factory=list)  # with their states
    steps: int = 0
    seconds: float = 0.0


def dask_setup(worker: object) -> None:
    """Let Ctrl-C, which a terminal sends to all of its processes, be the driver's matter; dask calls this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _LegIsOver(Exception):
    """The time of a shard is up."""


def introduce(engine: EngineName) -> tuple[Kind, str]:
    """Say what a worker trains with, and its version of the code."""
    chosen = _engine(engine)
    return (chosen.name, lineage(chosen)), versions()["headcount"]


def run_shard(runs: Sequence[UnderWay], engine: EngineName, seconds: float) -> Report:
    """Train runs from where they are, until they end or the time is up."""
    report, began = Report(), time.monotonic()

    def on_block(steps: int, under_way: Callable[[], list[UnderWay]]) -> None:
        report.steps += steps
        if time.monotonic() - began > seconds:
            report.left = under_way()
            raise _LegIsOver

    with suppress(_LegIsOver):
        train(
            [run.spec for run in runs],
            _engine(engine),
            progress=False,
            on_result=report.results.append,
            on_block=on_block,
            resume=[run for run in runs if run.state],
        )
    begun = {result.spec for result in report.results} | {run.spec for run in report.left}
    report.left += [run for run in runs if run.spec not in begun]
    report.seconds = time.monotonic() - began
    return report


@cache
def _engine(name: EngineName) -> Engine:
    """The engine of this worker, on the threads that were given to it."""
    from distributed import get_worker

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a faster engine is missing
        chosen = choose_engine(name)
    if chosen.name == "native":
        from headcount.training.engines.native.engine import NativeEngine

        return NativeEngine(threads=get_worker().state.nthreads)
    return chosen
