"""`headcount watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headcount.cli.common import Json, emit
from headcount.cli.results import StorePath
from headcount.cli.run_lines import aligned, run_lines, with_paths
from headcount.progress import duration, notice

if TYPE_CHECKING:
    from headcount.store.sweeps import SweepRecord

_ENDED = ("finished", "interrupted", "died")
_MOST = 5  # ended sweeps, and runs, that are shown
_SWEEP_COLUMNS = ("sweep", "state", "runs", "run-steps/s", "share", "left")


def watch(
    store: StorePath,
    once: Annotated[bool, typer.Option("--once", help="Show it once and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks.")] = 1.0,
    json: Json = False,
) -> None:
    """Follow the sweeps of a store from a second terminal.

    It only reads, and exits when the sweeps have ended, or when none of them has written anything
    for two minutes.

    \b
    Examples:
      headcount watch results.sqlite
      headcount watch results.sqlite --once
      headcount watch results/block-quick/runs.sqlite
    """
    from headcount.store.store import Store

    with Store(store, read_only=True) as opened, _screen() as show:
        while True:
            now, known = time.time(), list(opened.sweeps)
            states = {sweep: sweep.state_at(now) for sweep in known}
            open_sweeps = [sweep for sweep in known if states[sweep] not in _ENDED]
            silent = [sweep for sweep in open_sweeps if states[sweep] == "silent"]
            latest = opened.latest(_MOST)
            if json:
                emit({"sweeps": [_plain(sweep, now) for sweep in known], "latest": latest}, True)
                return
            shown = [sweep for sweep in known if sweep in open_sweeps or sweep in known[-_MOST:]]
            show(shown, with_paths(opened, latest), now)
            if silent == open_sweeps:
                break
            if once:
                return
            time.sleep(interval)
    for sweep in silent:  # the screen is closed
        notice(_of_silent(sweep, now))


def _of_silent(sweep: SweepRecord, now: float) -> str:
    """What is known of a sweep whose process may live, and may be another with its number."""
    there = f"process {sweep.pid} of this machine, which was its own, is running"
    if sweep.updated > now:
        ahead = duration(sweep.updated - now)
        return f"{sweep.name}: last wrote {ahead} ahead of this machine's clock; {there}"
    return f"{sweep.name}: has written nothing for {duration(now - sweep.updated)}; {there}"


_Show = Callable[["list[SweepRecord]", list[dict[str, Any]], float], None]


@contextmanager
def _screen() -> Iterator[_Show]:
    """A view that changes in place on a terminal; elsewhere lines, when something has changed."""
    if not sys.stdout.isatty():
        last = ""

        def line(sweeps: list[SweepRecord], runs: list[dict[str, Any]], now: float) -> None:
            nonlocal last
            if (text := _text(sweeps, runs, now)) != last:
                print(text)
                last = text

        yield line
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        yield lambda sweeps, runs, now: live.update(Text(_text(sweeps, runs, now)), refresh=True)


def _text(sweeps: list[SweepRecord], runs: list[dict[str, Any]], now: float) -> str:
    parts = []
    if sweeps:
        parts.append(aligned([_SWEEP_COLUMNS, *(_sweep_cells(sweep, now) for sweep in sweeps)]))
    if runs:
        parts.append("latest runs\n" + run_lines(runs))
    return "\n\n".join(parts) or "nothing has been run yet"


def _sweep_cells(sweep: SweepRecord, now: float) -> list[str]:
    state, left = sweep.state_at(now), sweep.remaining(now)
    known = f" (+{sweep.known_runs:,} known)" if sweep.known_runs else ""
    return [
        sweep.name,
        state,
        f"{sweep.done_runs:,}/{sweep.total_runs:,}{known}",
        f"{sweep.rate:,.0f}",
        f"{sweep.share:.1%}",
        f"about {duration(left)}" if state == "running" and left is not None else "–",
    ]


def _plain(sweep: SweepRecord, now: float) -> dict[str, Any]:
    return asdict(sweep) | {
        "state": sweep.state_at(now),
        "share": sweep.share,
        "seconds_left": sweep.remaining(now),
    }
