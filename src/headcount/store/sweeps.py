"""The record of sweeps in a store: what each has done, how fast, and whether its process lives."""

from __future__ import annotations

import math
import os
import socket
import time
from dataclasses import dataclass, fields
from typing import Literal

from headcount.errors import InputError
from headcount.store.database import Database

Ending = Literal["finished", "interrupted"]
Standing = Literal["running", "silent", "finished", "interrupted", "died"]

_FRESH = (
    10.0  # seconds: a sweep that wrote this recently is alive, whatever its process number says
)
_STALE = 120.0
_MEMORY = 30.0  # seconds over which the rate is smoothed


@dataclass(frozen=True)
class Sweep:
    """One sweep as it last wrote about itself. Totals count what it still had to do when it began.

    `settled_steps` are steps taken by open runs and the limits of finished ones: stopping early spares the rest.
    """

    id: int
    name: str
    state: str
    pid: int
    host: str
    started: float  # seconds since 1970, as `updated`
    updated: float
    known_runs: int  # stored before it began
    total_runs: int
    total_steps: int
    done_runs: int
    steps_taken: int
    settled_steps: int
    rate: float  # run-steps a second, lately

    @property
    def share(self) -> float:
        """How much of it is settled, 0 to 1."""
        if self.state == "finished":
            return 1.0
        return min(self.settled_steps / self.total_steps, 1.0) if self.total_steps else 0.0

    def remaining(self, now: float) -> float | None:
        """Seconds left if it goes on as it went so far; None before there is anything to go by."""
        if self.state != "running" or not self.share:
            return None
        return max((self.updated - self.started) * (1 / self.share - 1) - (now - self.updated), 0.0)

    def standing(self, now: float) -> Standing:
        """Its state: a running sweep whose process is gone died, and one that has not written for long is silent.

        Of another machine's process nothing can be known, so there a long silence counts as death.
        """
        if self.state in ("finished", "interrupted"):
            return self.state
        quiet = now - self.updated
        if quiet < _FRESH:
            return "running"
        if self.host == socket.gethostname():
            if not _lives(self.pid):
                return "died"
            return "running" if quiet < _STALE else "silent"
        return "running" if quiet < _STALE else "died"


_NAMES = tuple(item.name for item in fields(Sweep))


def begin_sweep(database: Database, name: str, runs: int, steps: int, known: int = 0) -> int:
    """Enter a sweep that has these runs and run-steps before it; returns its number."""
    now = time.time()
    values = (
        name,
        "running",
        os.getpid(),
        socket.gethostname(),
        now,
        now,
        known,
        runs,
        steps,
        0,
        0,
        0,
        0.0,
    )
    with database.transaction() as connection:
        places = ", ".join("?" * len(values))
        added = connection.execute(
            f"INSERT INTO sweeps ({', '.join(_NAMES[1:])}) VALUES ({places})", values
        )
    assert added.lastrowid is not None
    return added.lastrowid


def update_sweep(
    database: Database,
    sweep: int,
    done_runs: int,
    steps_taken: int,
    settled_steps: int | None = None,
    *,
    total_runs: int | None = None,
    total_steps: int | None = None,
) -> None:
    """Say how far a sweep is; each call is one commit, so about one a second is right.

    A search that learns on its way how much there is to do gives new totals.
    """
    now = time.time()
    with database.transaction() as connection:
        found = connection.execute(
            "SELECT started, updated, steps_taken, rate FROM sweeps WHERE id = ?", [sweep]
        )
        if (before := found.fetchone()) is None:
            raise InputError(f"{database.path}: there is no sweep {sweep}; begin one first")
        rate = _smoothed(before, steps_taken, now)
        connection.execute(
            """UPDATE sweeps SET updated = ?, done_runs = ?, steps_taken = ?, settled_steps = ?, rate = ?,
            total_runs = coalesce(?, total_runs), total_steps = coalesce(?, total_steps) WHERE id = ?""",
            (
                now,
                done_runs,
                steps_taken,
                settled_steps or steps_taken,
                rate,
                total_runs,
                total_steps,
                sweep,
            ),
        )


def end_sweep(database: Database, sweep: int, state: Ending = "finished") -> None:
    """Close the record of a sweep."""
    with database.transaction() as connection:
        connection.execute(
            "UPDATE sweeps SET state = ?, updated = ? WHERE id = ?", (state, time.time(), sweep)
        )


def sweeps(database: Database) -> list[Sweep]:
    """Every sweep, in the order in which they began."""
    return [
        Sweep(*row) for row in database.read(f"SELECT {', '.join(_NAMES)} FROM sweeps ORDER BY id")
    ]


def _smoothed(before: tuple[float, float, int, float], taken_now: int, now: float) -> float:
    """The rate, with older times forgotten exponentially; the clock may have been set back."""
    started, updated, taken, rate = before
    passed = max(now - updated, 1e-3)
    new = max(taken_now - taken, 0) / passed
    if updated == started:
        return new
    weight = 1 - math.exp(-passed / _MEMORY)
    return weight * new + (1 - weight) * rate


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # someone else's process
        return True
    return True
