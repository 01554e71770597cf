"""Where a long training stands: a bar on a terminal, a line every few seconds otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from headcount.training.engines.base import Engine
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec

Progress = Callable[[int], None]  # told how many run-steps were just taken
_EVERY = 10.0  # seconds between plain lines


def notice(text: str) -> None:
    """Say something on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def show_progress(
    specs: Sequence[RunSpec], engine: Engine, results: Mapping[RunSpec, RunResult]
) -> Iterator[Progress]:
    """Show run-steps taken against the most there can be; runs that stop early make it jump."""
    most = sum(spec.steps for spec in specs)
    taken, began = 0, time.monotonic()
    title = f"{engine.name} on {engine.device}"

    def standing() -> tuple[int, str]:
        """Steps that are settled (taken, or spared by stopping early) and the text beside the bar."""
        spared = sum(spec.steps - result.steps for spec, result in results.items())
        rate = taken / max(time.monotonic() - began, 1e-9)
        return min(
            taken + spared, most
        ), f"{len(results)}/{len(specs)} runs, {rate:,.0f} run-steps/s"

    if not sys.stderr.isatty():
        last = began

        def line(steps: int) -> None:
            nonlocal taken, last
            taken += steps
            if time.monotonic() - last > _EVERY:
                last = time.monotonic()
                notice(f"{title}: {standing()[1]}")

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[standing]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(title, total=most, standing="")

        def move(steps: int) -> None:
            nonlocal taken
            taken += steps
            settled, text = standing()
            bar.update(job, completed=settled, standing=text)

        yield move
