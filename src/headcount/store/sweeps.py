"""The record of sweeps in a store: what each has done, how fast, and whether its process lives."""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from headcount.errors import InputError
from headcount.store.database import Database

Ending = Literal["finished", "interrupted"]
SweepState = Literal["running", "silent", "finished", "interrupted", "died"]

# Seconds: a sweep that wrote this recently is alive, whatever its process number says (which may
# have been given to another process, or belong to another container).
_FRESH = 10.0
_STALE = 120.0
_MEMORY = 30.0  # seconds over which the rate is smoothed
_LARGEST_PID = 2**22  # that Linux gives out
_CLOCKS = 60.0  # seconds by which two clocks of a machine may differ


@dataclass(frozen=True)
class SweepRecord:
    """One sweep as it last wrote about itself; totals count what it had to do when it began.

    `settled_steps` are the steps taken by open runs and the limits of finished ones: stopping
    early saves the rest.
    """

    id: int
    name: str
    state: str
    pid: int
    host: str
    started: float  # seconds since 1970, as is `updated`
    updated: float
    known_runs: int  # stored before it began
    total_runs: int
    total_steps: int
    done_runs: int
    steps_taken: int
    settled_steps: int
    rate: float  # run-steps per second, lately

    @property
    def share(self) -> float:
        """How much of it is settled, 0 to 1."""
        if self.state == "finished":
            return 1.0
        return min(self.settled_steps / self.total_steps, 1.0) if self.total_steps else 0.0

    def remaining(self, now: float) -> float | None:
        """Seconds left at the rate so far; None before there is anything to go by."""
        if self.state != "running" or not self.share:
            return None
        return max((self.updated - self.started) * (1 / self.share - 1) - (now - self.updated), 0.0)

    def state_at(self, now: float) -> SweepState:
        """Its state: a running sweep whose process is gone has died.

        One that has not written for long is silent. Nothing can be known about a process of
        another machine, so there a long silence counts as death.
        """
        if self.state in ("finished", "interrupted"):
            return self.state
        # A record from the future was written by another clock, and says as little as an old one.
        quiet = abs(now - self.updated)
        if quiet < _FRESH:
            return "running"
        if self.host == socket.gethostname():
            if not _is_alive(self.pid) or _began(self.pid) > self.started + _CLOCKS:
                return "died"  # and another process has its number since
            return "running" if quiet < _STALE else "silent"
        return "running" if quiet < _STALE else "died"


_NAMES = tuple(item.name for item in fields(SweepRecord))


class SweepTable:
    """The sweeps of a store; iterating gives a record of each, in the order in which they began."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __iter__(self) -> Iterator[SweepRecord]:
        query = f"SELECT {', '.join(_NAMES)} FROM sweeps ORDER BY id"
        return iter([SweepRecord(*row) for row in self._database.read(query)])

    def begin(self, name: str, runs: int, steps: int, known: int = 0) -> int:
        """Enter a sweep with these runs and run-steps ahead of it; returns its number."""
        now = time.time()
        values = (name, "running", os.getpid(), socket.gethostname(), now, now, known, runs, steps)
        names = ", ".join(_NAMES[1:])
        query = f"INSERT INTO sweeps ({names}) VALUES ({', '.join('?' * len(values))}, 0, 0, 0, 0)"
        with self._database.transaction() as connection:
            added = connection.execute(query, values)
        assert added.lastrowid is not None
        return added.lastrowid

    def update(
        self,
        sweep: int,
        done_runs: int,
        steps_taken: int,
        settled_steps: int | None = None,
        *,
        total_runs: int | None = None,
        total_steps: int | None = None,
    ) -> None:
        """Record how far a sweep is; each call is a synced commit, so once a second is enough.

        A search that learns on its way how much there is to do gives new totals.
        """
        now = time.time()
        with self._database.transaction() as connection:
            found = connection.execute(
                "SELECT started, updated, steps_taken, rate FROM sweeps WHERE id = ?", [sweep]
            )
            if (before := found.fetchone()) is None:
                path = self._database.path
                raise InputError(f"{path}: there is no sweep {sweep}; begin one first")
            rate = _smoothed(before, steps_taken, now)
            settled = settled_steps or steps_taken
            connection.execute(
                """UPDATE sweeps SET updated = ?, done_runs = ?, steps_taken = ?, settled_steps = ?,
                rate = ?, total_runs = coalesce(?, total_runs),
                total_steps = coalesce(?, total_steps) WHERE id = ?""",
                (now, done_runs, steps_taken, settled, rate, total_runs, total_steps, sweep),
            )

    def end(self, sweep: int, state: Ending = "finished") -> None:
        """Close the record of a sweep."""
        query = "UPDATE sweeps SET state = ?, updated = ? WHERE id = ?"
        with self._database.transaction() as connection:
            connection.execute(query, (state, time.time(), sweep))


def _smoothed(before: tuple[float, float, int, float], taken_now: int, now: float) -> float:
    """The rate, with older times forgotten exponentially; the clock may have been set back."""
    started, updated, taken, rate = before
    passed = max(now - updated, 1e-3)
    new = max(taken_now - taken, 0) / passed
    if updated == started:
        return new
    weight = 1 - math.exp(-passed / _MEMORY)
    return weight * new + (1 - weight) * rate


def _is_alive(pid: int) -> bool:
    if not 0 < pid <= _LARGEST_PID:  # 0 and below mean groups of processes
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return True


def _began(pid: int) -> float:
    """When a process began, in seconds since 1970; before all records where it cannot be known."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        boot = re.search(r"btime (\d+)", Path("/proc/stat").read_text(encoding="utf-8"))
    except (OSError, ValueError, IndexError):  # not on Linux, or gone by now
        return -math.inf
    return float(boot[1]) + int(ticks) / os.sysconf("SC_CLK_TCK") if boot else -math.inf
