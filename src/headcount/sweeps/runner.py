"""The runner: takes batches from a plan, trains what the store lacks, and loses nothing that is finished."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, runtime_checkable

from headcount.errors import InputError
from headcount.interrupts import Stop
from headcount.store.store import Partial, Store
from headcount.sweeps.cost import Pace, work
from headcount.sweeps.file import Plan
from headcount.training.engines.base import Engine, lineage
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec
from headcount.training.train import UnderWay, train

BEAT = 1.0  # seconds between two commits of finished runs, and between two signs of life
CHECKPOINT = 30.0  # seconds of work between two checkpoints of runs under way
_PIECE = 4.0  # seconds of work given to `train` at once: a sweep that dies loses no more
_WIDE_PIECE = 30.0  # where many fleets are under way together, and need many runs


@dataclass
class Standing:
    """Where a sweep stands. Steps count what is to be done at most: runs stop early."""

    name: str
    known: int = 0  # runs that were stored before
    runs: int = 0  # to do, as far as the plan has asked
    done: int = 0
    trained: int = 0  # of those, the others came from another sweep on the same store
    steps: int = 0
    taken: int = 0
    spared: int = 0  # by runs that stopped early, or that another sweep has done
    began: float = field(default_factory=time.monotonic)

    @property
    def settled(self) -> int:
        """Steps that are no longer to be taken."""
        return min(self.taken + self.spared, self.steps)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


@runtime_checkable
class Crew(Protocol):
    """Whoever trains: this process or a cluster."""

    def run(self, specs: Sequence[RunSpec], log: Log) -> None:
        """Train these runs and give every result to the log."""
        ...


def run_sweep(
    plan: Plan,
    store: Store,
    crew: Crew,
    name: str,
    on_beat: Callable[[Standing], None] | None = None,
    stop: Stop | None = None,
) -> Standing:
    """Run a plan to its end. What the store has is never run again.

    An interrupt leaves all that is finished there; so does `stop`, which ends in a KeyboardInterrupt at the next safe
    moment.
    """
    with Log(store, name, on_beat, stop) as log:
        while batch := plan.next_batch():
            if todo := log.enter(batch):
                crew.run(todo, log)
            log.write()
            plan.observe(store.results(hash=[spec.hash for spec in batch]))
    return log.standing


class Log:
    """What a sweep writes: results, checkpoints and signs of life, committed about once a second by its own thread."""

    def __init__(
        self,
        store: Store,
        name: str,
        on_beat: Callable[[Standing], None] | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.store, self.standing, self.stop = store, Standing(name), stop or Stop()
        self._on_beat = on_beat
        self._sweep: int | None = None
        self._waiting: list[RunResult] = []
        self._writing, self._ended = threading.RLock(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Log:
        return self

    def enter(self, batch: Sequence[RunSpec]) -> list[RunSpec]:
        """Take note of a batch; gives the runs that are missing, in the order in which to run them."""
        self.go_on()
        missing = self.missing(batch)
        standing, steps = self.standing, sum(spec.steps for spec in missing)
        standing.known += len(batch) - len(missing)
        standing.runs += len(missing)
        standing.steps += steps
        if self._sweep is None:
            self._sweep = self.store.begin_sweep(standing.name, len(missing), steps, standing.known)
            earlier = [sweep for sweep in self.store.sweeps() if sweep.id < self._sweep]
            self._turn = (
                0.618 * sum(sweep.standing(time.time()) == "running" for sweep in earlier) % 1
            )
            self._thread.start()
        # Sweeps that share a store begin at different places, so that each finds done what another has begun with.
        first = int(self._turn * len(missing))
        return missing[first:] + missing[:first]

    def missing(self, specs: Sequence[RunSpec]) -> list[RunSpec]:
        """Those that the store lacks."""
        known = self.store.known(specs)
        return [spec for spec in specs if spec.hash not in known]

    def found(self, specs: Iterable[RunSpec]) -> None:
        """Take note of runs that another sweep has finished in the meantime."""
        for spec in specs:
            self.standing.done += 1
            self.standing.spared += spec.steps

    def spare(self, steps: Iterable[int]) -> None:
        """Take note of steps that runs had taken before this sweep."""
        self.standing.spared += sum(steps)

    def add(self, result: RunResult) -> None:
        """Take a finished run; it is stored within about a second."""
        with self._writing:
            self._waiting.append(result)
            self.standing.done += 1
            self.standing.trained += 1
            self.standing.spared += result.spec.steps - result.steps

    def took(self, steps: int) -> None:
        """Take note of run-steps."""
        self.standing.taken += steps

    def keep(self, runs: Iterable[UnderWay], engine: str, device: str) -> None:
        """Store the states of runs under way."""
        self.store.checkpoint_all(
            Partial(run.spec, run.state, run.history, engine, device, run.seconds)
            for run in runs
            if run.state
        )

    def left(self, specs: Iterable[RunSpec], engine: str, device: str) -> list[UnderWay]:
        """Where these runs were left by an earlier sweep, with this engine and device."""
        partials = (self.store.resume(spec, engine, device) for spec in specs)
        return [
            UnderWay(found.spec, list(found.history), found.seconds, found.state)
            for found in partials
            if found
        ]

    def write(self) -> None:
        """Commit what has been finished, and say how far the sweep is."""
        with self._writing:
            if self._waiting:
                self.store.add(self._waiting)
                self._waiting = []
            if self._sweep is not None:
                now = self.standing
                self.store.update_sweep(
                    self._sweep,
                    now.done,
                    now.taken,
                    now.settled,
                    total_runs=now.runs,
                    total_steps=now.steps,
                )
        if self._on_beat:
            self._on_beat(self.standing)

    def go_on(self) -> None:
        """Between two pieces of work: raise what went wrong while writing in the background, or the wish to end."""
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
        with (
            suppress(InputError) if error else nullcontext()
        ):  # must not hide the error that ended the sweep
            self.write()
            if self._sweep is not None:
                self.store.end_sweep(self._sweep, "interrupted" if error else "finished")


class Here:
    """This process with one engine: pieces of some seconds, checkpoints for what takes longer."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._pace = Pace.of(engine.name)

    def run(self, specs: Sequence[RunSpec], log: Log) -> None:
        self.engine.prepare(specs)
        left = list(specs)
        while left:
            seconds = _PIECE if self.engine.concurrency == 1 else _WIDE_PIECE
            number = self._pace.piece(left, seconds)
            asked, left = left[:number], left[number:]
            piece = log.missing(asked)
            log.found(set(asked) - set(piece))
            if piece:
                self._run_piece(piece, log)

    def _run_piece(self, piece: list[RunSpec], log: Log) -> None:
        name, device = self.engine.name, lineage(self.engine)
        began = saved = time.monotonic()

        def on_block(steps: int, under_way: Callable[[], list[UnderWay]]) -> None:
            nonlocal saved
            log.took(steps)
            if log.stop.asked or time.monotonic() - saved >= CHECKPOINT:
                log.keep(under_way(), name, device)
                saved = time.monotonic()
            log.go_on()

        before = log.left(piece, name, device)
        log.spare(run.state.taken for run in before if run.state)
        results = train(
            piece, self.engine, progress=False, on_result=log.add, on_block=on_block, resume=before
        )
        if len(results) < len(piece):  # `train` was interrupted and has said so by returning early
            raise KeyboardInterrupt
        if not before:
            self._pace.learn(
                sum(work(result.spec, result.steps) for result in results), time.monotonic() - began
            )
