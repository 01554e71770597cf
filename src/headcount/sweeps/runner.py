"""`run_sweep`: takes batches from a plan, trains what the store lacks, and stores each result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Protocol, runtime_checkable

from headcount.interrupts import Stop
from headcount.provenance import cores
from headcount.store.store import Store
from headcount.sweeps.cost import Throughput, work
from headcount.sweeps.file import SweepFile, read_sweep
from headcount.sweeps.plans import BatchPlan
from headcount.sweeps.writer import OnBeat, SweepProgress, SweepWriter
from headcount.training.engines.base import Engine, lineage
from headcount.training.engines.selection import EngineName, choose_engine
from headcount.training.spec import RunSpec
from headcount.training.train import UnderWay, train

CHECKPOINT = 30.0  # seconds of work between two checkpoints of runs under way
_FIRST_CHECKPOINT = 2.0  # seconds to the first, then twice as long each time
_PIECE = 4.0  # seconds of work given to `train` at once: a sweep that dies loses no more
_FIRST_PIECE = 1.0
_WIDE_PIECE = 30.0  # where many fleets are under way together, and need many runs


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

    Pieces are short because `train` returns a fleet's results together: what is under way in a
    piece is what a kill can lose. They are not shorter because a fleet needs many runs to be fast.
    The first pieces and checkpoints come sooner, so that a job which is preempted every ten seconds
    still makes progress.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._throughput = Throughput.of(engine.name)
        self._pause = _FIRST_CHECKPOINT
        # Runs that an engine computes side by side: one per thread, or one per fleet.
        self._width = getattr(engine, "threads", None) or max(engine.concurrency, cores())

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
            # Another sweep may have finished some of them in the meantime.
            if piece := writer.still_missing(asked):
                self._run_piece(piece, writer)

    def _next_piece(self, left: Sequence[RunSpec], elapsed: float) -> list[RunSpec]:
        """The first runs, as many as take some seconds; of long ones, as many as fill the cores."""
        seconds = _WIDE_PIECE
        if self.engine.concurrency == 1:
            seconds = min(_PIECE, max(_FIRST_PIECE, elapsed))
        number = self._throughput.runs_in(left, seconds)
        if number >= self._width:
            return list(left[:number])
        # Side by side are only runs of one fleet: those that `train` would group with the first.
        first = self._group(left[0])
        others = (spec for spec in left[1:] if self._group(spec) == first)
        return [left[0], *islice(others, self._width - 1)]

    def _group(self, spec: RunSpec) -> tuple[Hashable, int, int]:
        return self.engine.group(spec), spec.steps, spec.check_every

    def _run_piece(self, piece: list[RunSpec], writer: SweepWriter) -> None:
        name, device = self.engine.name, lineage(self.engine)
        began = saved = time.monotonic()

        def on_block(steps: int, under_way: Callable[[], list[UnderWay]]) -> None:
            nonlocal saved
            writer.count_steps(steps)
            pause = min(self._pause, CHECKPOINT)
            if writer.stop.asked or time.monotonic() - saved >= pause:
                writer.save_checkpoints(under_way(), name, device)
                saved, self._pause = time.monotonic(), 2 * pause
            writer.check()

        before = writer.load_checkpoints(piece, name, device)
        writer.count_saved(sum(run.state.taken for run in before if run.state))
        results = train(
            piece,
            self.engine,
            progress=False,
            on_result=writer.add,
            on_block=on_block,
            resume=before,
        )
        if len(results) < len(piece):  # `train` returns early when it is interrupted
            raise KeyboardInterrupt
        if not before:  # resumed runs took less time than their arithmetic says
            done = sum(work(result.spec, result.steps) for result in results)
            self._throughput.learn(done, time.monotonic() - began)
