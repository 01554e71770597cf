"""How far a training is: finished runs, and the rate of run-steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from headcount.progress import Status, progress_bar
from headcount.training.engines.base import Engine
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec

Progress = Callable[[int], None]  # told how many run-steps were just taken


@contextmanager
def show_progress(
    specs: Sequence[RunSpec], engine: Engine, results: Mapping[RunSpec, RunResult]
) -> Iterator[Progress]:
    """Show run-steps taken against the most there can be; runs that stop early make it jump."""
    most = sum(spec.steps for spec in specs)
    taken, began = 0, time.monotonic()

    def status() -> Status:
        # Steps are settled when they are taken, or spared by stopping early.
        spared = sum(spec.steps - result.steps for spec, result in results.items())
        rate = taken / max(time.monotonic() - began, 1e-9)
        text = f"{len(results)}/{len(specs)} runs, {rate:,.0f} run-steps/s"
        return Status(min((taken + spared) / max(most, 1), 1.0), text)

    with progress_bar(f"{engine.name} on {engine.device}", status) as refresh:

        def report(steps: int) -> None:
            nonlocal taken
            taken += steps
            refresh()

        yield report
