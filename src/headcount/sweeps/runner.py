"""`run_sweep`: takes batches from a plan, trains what the store lacks, and stores each result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from itertools import islice, takewhile
from threading import Event
from typing import Protocol, runtime_checkable

from headcount.interrupts import Stop
from headcount.provenance import cores
from headcount.store.store import Store
from headcount.sweeps.cost import Throughput, work
from headcount.sweeps.file import SweepFile, read_sweep
from headcount.sweeps.plans import BatchPlan
from headcount.sweeps.writer import OnBeat, SweepProgress, SweepWriter
from headcount.threads import torch_threads
from headcount.training.engines.base import Engine, ThreadedEngine, lineage
from headcount.training.engines.selection import EngineName, choose_engine
from headcount.training.spec import RunSpec
from headcount.training.train import UnderWay, train

CHECKPOINT = 30.0  # seconds of work between two checkpoints of runs under way
_FIRST_CHECKPOINT = 2.0  # seconds to the first, then twice as long each time
_PIECE = 4.0  # seconds of work given to `train` at once: a sweep that dies loses no more
_FIRST_PIECE = 1.0
_WIDE_PIECE = 30.0  # where many fleets are under way together, and need many runs
_MANY = 4  # runs per thread that keep all threads of a fleet busy, though some end early


@runtime_checkable
class Executor(Protocol):
    """Trains the runs of a sweep: in this process or on a cluster."""

    def run(self, specs: Sequence[RunSpec], writer: SweepWriter) -> None:
        """Train these runs and give every result to the writer."""
        ...


def run_sweep(
    sweep: SweepFile | BatchPlan | str | os.PathLike[str],
    store: Store | str | os.PathLike[str] | None = None,
    executor: Executor | Engine | EngineName | None = None,
    name: str | None = None,
    on_beat: OnBeat | None = None,
    stop: Stop | None = None,
) -> SweepProgress:
    """Run a sweep to its end and return how far it came. What the store has is never run again.

    `sweep` is a sweep file, its path, or a plan of batches. `store` and `executor` (an engine or
    its name, for this process) are by default those of the sweep file. `on_beat` is called about
    once a second. An interrupt leaves all that is finished in the store; so does `stop`, which ends
    in a KeyboardInterrupt at the next safe moment.

    >>> import tempfile
    >>> from headcount.sweeps.plans import GridPlan
    >>> specs = [RunSpec(16, 8, heads=2, key_dim=2, seed=s, steps=20) for s in range(2)]
    >>> store = tempfile.mkdtemp() + "/some.sqlite"
    >>> run_sweep(GridPlan(specs), store, "torch").trained
    2
    >>> run_sweep(GridPlan(specs), store, "torch").trained
    0
    """
    if isinstance(sweep, str | os.PathLike):
        sweep = read_sweep(sweep)
    engine: EngineName = "auto"
    if isinstance(sweep, SweepFile):
        engine, name = sweep.engine, name or sweep.name
        store = sweep.store if store is None else store  # a store without runs is false
    if store is None:
        raise TypeError("a plan names no store: pass one as run_sweep(plan, store)")
    chosen = executor or engine
    if not isinstance(chosen, Executor):
        chosen = LocalExecutor(choose_engine(chosen))
    files = sweep.files if isinstance(sweep, SweepFile) else {}
    with (
        _opened(store) as opened,
        SweepWriter(opened, name or "sweep", on_beat, stop, files) as writer,
    ):
        if files:
            opened.contents.require_unchanged(files)
        plan = sweep.as_begun(opened).plan() if isinstance(sweep, SweepFile) else sweep
        while batch := plan.next_batch():
            if todo := writer.begin_batch(batch):
                if own := set().union(*(spec.contents for spec in todo)):
                    opened.contents.share(own)
                chosen.run(todo, writer)
            writer.write()
            plan.observe(opened.results(hash=[spec.hash for spec in batch]))
    return writer.progress


def _opened(store: Store | str | os.PathLike[str]) -> AbstractContextManager[Store]:
    return nullcontext(store) if isinstance(store, Store) else Store(store)


class LocalExecutor:
    """This process with one engine: pieces of some seconds, checkpoints for what takes longer.

    Short runs are trained in fleets. A piece of them is short because `train` returns a fleet's
    results together: what is under way in a piece is what a kill can lose. It is not shorter
    because a fleet needs many runs to be fast. Long runs, which a fleet would leave alone on one
    thread whenever the others have ended, are each given a thread of their own.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._threads = engine.threads if isinstance(engine, ThreadedEngine) else 1
        self._throughput = Throughput.of(engine.name, self._threads)
        self._trainer = _Trainer(engine)

    def run(self, specs: Sequence[RunSpec], writer: SweepWriter) -> None:
        self.engine.prepare(specs)
        left, began = list(specs), time.monotonic()
        while left:
            asked = self._next_piece(left, time.monotonic() - began)
            if left[: len(asked)] == asked:
                left = left[len(asked) :]
            else:
                chosen = set(asked)
                left = [spec for spec in left if spec not in chosen]
            if self._is_long(asked[0]):
                self._run_side_by_side(asked, writer)
            # Another sweep may have finished some of them in the meantime.
            elif piece := writer.still_missing(asked):
                self._throughput.learn(*self._trainer.run(piece, writer))

    def _next_piece(self, left: Sequence[RunSpec], elapsed: float) -> list[RunSpec]:
        """All long runs if the first is one; else the first runs, as many as take some seconds."""
        if self._is_long(left[0]):
            return list(filter(self._is_long, left))
        seconds = _WIDE_PIECE
        fleets = self.engine.concurrency(left[:1])
        if fleets == 1:
            seconds = min(_PIECE, max(_FIRST_PIECE, elapsed))
        number = self._throughput.runs_in(left, seconds)
        # Runs that an engine computes side by side: one per thread, or one per fleet.
        width = getattr(self.engine, "threads", None) or max(fleets, cores())
        if number >= width or self._threads > 1:
            return list(takewhile(lambda spec: not self._is_long(spec), left[:number]))
        # Side by side are only runs of one fleet: those that `train` would group with the first.
        first = self._group(left[0])
        others = (spec for spec in left[1:] if self._group(spec) == first)
        return [left[0], *islice(others, width - 1)]

    def _is_long(self, spec: RunSpec) -> bool:
        """Whether a piece of such runs would have too few of them to keep all threads busy."""
        room = self._throughput.rate * _PIECE / (_MANY * self._threads)
        return self._threads > 1 and work(spec) > room

    def _group(self, spec: RunSpec) -> tuple[Hashable, int, int]:
        return self.engine.group(spec), spec.steps, spec.check_every

    def _run_side_by_side(self, specs: Sequence[RunSpec], writer: SweepWriter) -> None:
        """Train one run on each thread; a thread that has ended one takes the next."""
        assert isinstance(self.engine, ThreadedEngine)
        single, threads, ending = self.engine.single(), min(self._threads, len(specs)), Event()
        waiting = iter(specs)  # of a list: `next` is one operation, so threads may share it

        def train_next() -> None:
            trainer = _Trainer(single, ending)
            try:
                while not ending.is_set() and (spec := next(waiting, None)):
                    writer.check()  # a run that ends as an interrupt comes does not say so
                    if piece := writer.still_missing([spec]):
                        done, seconds = trainer.run(piece, writer)
                        self._throughput.learn(done, seconds / threads)
            except BaseException:
                ending.set()  # the others save their states and end
                raise

        # Threads that each set torch's number of threads, and restore it, would mix them up.
        with torch_threads(1), ThreadPoolExecutor(threads) as pool:
            try:
                trained = [pool.submit(train_next) for _ in range(threads)]
                wait(trained)
            except BaseException:  # an interrupt, which only the main thread is told
                ending.set()
                single.halt()
                raise
        errors = [error for each in trained if (error := each.exception())]
        # Threads that ended because of another's error were interrupted: they do not say why.
        for error in sorted(errors, key=lambda error: isinstance(error, KeyboardInterrupt)):
            raise error


class _Trainer:
    """Trains pieces one after another; the first checkpoints come sooner than later ones.

    A job that is preempted every ten seconds so still makes progress.
    """

    def __init__(self, engine: Engine, ending: Event | None = None) -> None:
        self._engine, self._ending = engine, ending or Event()
        self._pause = _FIRST_CHECKPOINT

    def run(self, piece: list[RunSpec], writer: SweepWriter) -> tuple[float, float]:
        """Train these runs; returns the work done and its seconds, zero where runs were resumed."""
        name, device = self._engine.name, lineage(self._engine)
        began = saved = time.monotonic()

        def on_block(steps: int, under_way: Callable[[], list[UnderWay]]) -> None:
            nonlocal saved
            writer.count_steps(steps)
            pause, ending = min(self._pause, CHECKPOINT), self._ending.is_set()
            if ending or writer.stop.asked or time.monotonic() - saved >= pause:
                writer.save_checkpoints(under_way(), name, device)
                saved, self._pause = time.monotonic(), 2 * pause
            writer.check()
            if ending:
                raise KeyboardInterrupt

        before = writer.load_checkpoints(piece, name, device)
        writer.count_saved(sum(run.state.taken for run in before if run.state))
        results = train(
            piece,
            self._engine,
            progress=False,
            on_result=writer.add,
            on_block=on_block,
            resume=before,
        )
        if len(results) < len(piece):  # `train` returns early when it is interrupted
            raise KeyboardInterrupt
        if before:  # resumed runs took less time than their arithmetic says
            return 0.0, 0.0
        done = sum(work(result.spec, result.steps) for result in results)
        return done, time.monotonic() - began
