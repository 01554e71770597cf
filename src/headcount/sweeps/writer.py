"""What a sweep writes to its store while it runs, and how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from headcount.block.spec import BlockResult, BlockSpec
from headcount.errors import InputError
from headcount.interrupts import Stop
from headcount.problem.contents import SourceFile
from headcount.store.checkpoints import Checkpoint
from headcount.store.store import Store
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec
from headcount.training.train import UnderWay

BEAT = 1.0  # seconds between two commits of finished runs, and between two signs of life

Spec = TypeVar("Spec", RunSpec, BlockSpec)
OnBeat = Callable[["SweepProgress"], None]


@dataclass
class SweepProgress:
    """How far a sweep is. Steps count what is to be done at most: runs stop early."""

    name: str
    known: int = 0  # runs that were stored before
    runs: int = 0  # to do, as far as the plan has asked
    done: int = 0
    trained: int = 0  # of those; the others came from another sweep on the same store
    steps: int = 0
    taken: int = 0
    saved: int = 0  # by runs that stopped early, or that another sweep has done
    began: float = field(default_factory=time.monotonic)

    @property
    def settled(self) -> int:
        """Steps that no longer need to be taken."""
        return min(self.taken + self.saved, self.steps)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.began


class SweepWriter:
    """Writes results, checkpoints and signs of life, about once a second, from its own thread.

    A commit is synced to disk, so one per finished run would hold up small runs. Committing once a
    second from another thread costs the training nothing, and a kill -9 loses a second of results.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        on_beat: OnBeat | None = None,
        stop: Stop | None = None,
        files: Mapping[Path, SourceFile] | None = None,
    ) -> None:
        self.store, self.progress, self.stop = store, SweepProgress(name), stop or Stop()
        self._on_beat = on_beat
        self._files = files  # still to be recorded
        self._sweep: int | None = None
        self._offset = 0.0
        self._waiting: list[RunResult | BlockResult] = []
        self._writing, self._ended = threading.RLock(), threading.Event()
        # Runs may report from several threads. Counting does not wait for a commit.
        self._counting = threading.Lock()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> SweepWriter:
        return self

    def begin_batch(self, batch: Sequence[Spec]) -> list[Spec]:
        """Count a batch; returns the runs that are missing, in the order in which to run them."""
        self.check()
        missing = self.missing(batch)
        progress, steps = self.progress, sum(spec.steps for spec in missing)
        progress.known += len(batch) - len(missing)
        progress.runs += len(missing)
        progress.steps += steps
        if self._sweep is None:
            self._begin(len(missing), steps)
        first = int(self._offset * len(missing))
        return missing[first:] + missing[:first]

    def _begin(self, runs: int, steps: int) -> None:
        """Enter the sweep and choose where in a batch it begins.

        Sweeps that share a store begin at different places, so that each finds done what another
        began with. Multiples of the golden ratio, modulo 1, are spread evenly for any number of
        sweeps.
        """
        sweeps = self.store.sweeps
        self._sweep = sweeps.begin(self.progress.name, runs, steps, self.progress.known)
        earlier = [sweep for sweep in sweeps if sweep.id < self._sweep]
        running = sum(sweep.state_at(time.time()) == "running" for sweep in earlier)
        self._offset = 0.618 * running % 1
        self._thread.start()

    def missing(self, specs: Sequence[Spec]) -> list[Spec]:
        """Those that the store lacks."""
        known = self.store.known(specs)
        return [spec for spec in specs if spec.hash not in known]

    def still_missing(self, specs: Sequence[Spec]) -> list[Spec]:
        """Those that the store lacks; the others, which another sweep finished, are counted."""
        missing = self.missing(specs)
        done = set(specs) - set(missing)
        with self._counting:
            self.progress.done += len(done)
            self.progress.saved += sum(spec.steps for spec in done)
        return missing

    def add(self, result: RunResult | BlockResult) -> None:
        """Take a finished run; it is stored within about a second."""
        taken = result.steps if isinstance(result, RunResult) else result.spec.steps
        with self._writing:
            self._waiting.append(result)
        with self._counting:
            self.progress.done += 1
            self.progress.trained += 1
            self.progress.saved += result.spec.steps - taken

    def count_steps(self, steps: int) -> None:
        """Count run-steps that were just taken."""
        with self._counting:
            self.progress.taken += steps

    def count_saved(self, steps: int) -> None:
        """Count run-steps that were taken before this sweep."""
        with self._counting:
            self.progress.saved += steps

    def save_checkpoints(self, runs: Iterable[UnderWay], engine: str, device: str) -> None:
        """Store the states of runs that are not finished."""
        self._record_files()
        self.store.checkpoints.save(
            Checkpoint(run.spec, run.state, run.history, engine, device, run.seconds)
            for run in runs
            if run.state
        )

    def load_checkpoints(
        self, specs: Iterable[RunSpec], engine: str, device: str
    ) -> list[UnderWay]:
        """Where earlier sweeps left these runs, with this engine and device."""
        found = (self.store.checkpoints.load(spec, engine, device) for spec in specs)
        return [
            UnderWay(left.spec, list(left.history), left.seconds, left.state)
            for left in found
            if left
        ]

    def write(self) -> None:
        """Commit what has been finished, and record how far the sweep is."""
        with self._writing:
            if self._waiting:
                self._record_files()
                self.store.add(self._waiting)
                self._waiting = []
            if self._sweep is not None:
                now = self.progress
                self.store.sweeps.update(
                    self._sweep,
                    now.done,
                    now.taken,
                    now.settled,
                    total_runs=now.runs,
                    total_steps=now.steps,
                )
        if self._on_beat:
            self._on_beat(self.progress)

    def _record_files(self) -> None:
        """Note what the sweep's files held, before the first run on them is stored."""
        with self._writing:
            if self._files:
                self.store.contents.record(self._files)
                self._files = None

    def check(self) -> None:
        """Raise what went wrong in the background, or KeyboardInterrupt on a request to stop."""
        if self._failure:
            raise self._failure
        if self.stop.asked:
            raise KeyboardInterrupt

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            try:
                self.write()
            except Exception as error:  # a full disk, a store that was removed
                self._failure = error
                return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._failure:  # nothing more can be written
            return
        # A second failure must not hide the error that ended the sweep.
        with suppress(InputError) if error else nullcontext():
            self.write()
            if self._sweep is not None:
                whole = not error and self.progress.done >= self.progress.runs
                self.store.sweeps.end(self._sweep, "finished" if whole else "interrupted")
