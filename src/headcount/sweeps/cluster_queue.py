"""Queues of work for the workers of a cluster, cut into shards."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from headcount.block.spec import BlockSpec
from headcount.problem.contents import to_bytes
from headcount.sweeps.cost import Throughput, work
from headcount.sweeps.worker import Kind, Report, describe_worker, run_shard
from headcount.sweeps.writer import SweepWriter
from headcount.training.engines.selection import EngineName
from headcount.training.spec import RunSpec
from headcount.training.train import UnderWay

# Seconds of work sent to a worker at once: long enough that sending costs little, short enough
# that a worker that dies loses little.
_SHARD = 10.0
_WIDE_SHARD = 30.0  # for one with a GPU
_FULL = 1024  # runs that keep a GPU busy: one per program, a few programs per multiprocessor
_LEAST_SHARD = 1.0
SHARD_LIMIT = 30.0  # seconds after which a shard ends and returns what is under way
_FIRST_LIMIT = 3.0  # of the first shards: they come back soon, and a driver that dies loses little

Spec = TypeVar("Spec", RunSpec, BlockSpec)


@dataclass
class Shard(Generic[Spec]):
    """Runs for one worker, and the call that trains them there."""

    specs: list[Spec]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass
class Worker(Generic[Spec]):
    """A dask worker as the driver sees it."""

    task: Any = None  # the future of its description, then of a shard
    shard: Shard[Spec] | None = None
    kind: Kind | None = None  # known once it has described itself
    threads: int = 1
    throughput: Throughput = field(default_factory=lambda: Throughput(1.0))
    refused: str = ""
    lacks: set[str] = field(default_factory=set)  # graphs and tables that it asked for


@runtime_checkable
class ShardQueue(Protocol[Spec]):
    """Runs of one sort that wait for a worker."""

    def description(self) -> tuple[Callable[..., tuple[Kind, str]], tuple[Any, ...]]:
        """The call by which a new worker prepares for these runs and describes itself."""
        ...

    def waiting(self) -> bool:
        """Whether there are runs to hand out."""
        ...

    def next_shard(self, worker: Worker[Spec], kinds: Sequence[Kind | None]) -> Shard[Spec] | None:
        """The next runs for a worker; `kinds` are those of all workers."""
        ...

    def take(self, worker: Worker[Spec], report: Any) -> None:
        """Store what a shard came to, and queue what it left."""
        ...

    def put_back(self, specs: Iterable[Spec]) -> None:
        """Queue the runs of a shard that was lost."""
        ...


def _is_wide(kind: Kind) -> bool:
    """Whether a worker has a GPU, which needs many runs to be fast."""
    return kind[1].startswith("cuda")


class RunQueue:
    """Runs of a sweep: shards are cut to the measured throughput of each worker.

    Runs that take longer than a shard come back as states. The driver stores them as checkpoints,
    and hands them on to workers of the same kind.
    """

    def __init__(self, specs: Sequence[RunSpec], engine: EngineName, writer: SweepWriter) -> None:
        self._fresh, self._begun = deque(specs), dict[Kind, deque[RunSpec]]()
        self._engine, self._writer = engine, writer
        self._began = time.monotonic()

    def description(self) -> tuple[Callable[..., tuple[Kind, str]], tuple[Any, ...]]:
        return describe_worker, (self._engine,)

    def waiting(self) -> bool:
        return bool(self._fresh or any(self._begun.values()))

    def next_shard(
        self, worker: Worker[RunSpec], kinds: Sequence[Kind | None]
    ) -> Shard[RunSpec] | None:
        """What the worker's kind has begun, then new runs, then what no other kind can resume."""
        assert worker.kind is not None
        orphans = [queue for kind, queue in self._begun.items() if kind not in kinds]
        for queue in (self._begun.get(worker.kind, deque()), self._fresh, *orphans):
            while queue:
                if specs := self._writer.still_missing(self._cut(queue, worker, len(kinds))):
                    return self._shard(specs, worker)
        return None

    def _cut(self, queue: deque[RunSpec], worker: Worker[RunSpec], workers: int) -> list[RunSpec]:
        assert worker.kind is not None
        # Towards the end shards get smaller, so that all workers end together.
        fair = sum(map(work, queue)) / worker.throughput.rate / (2 * workers)
        most = min(_SHARD, max(_FIRST_LIMIT, time.monotonic() - self._began))
        is_wide = _is_wide(worker.kind)
        most = _WIDE_SHARD if is_wide else most
        number = worker.throughput.runs_in(queue, min(most, max(fair, _LEAST_SHARD)))
        # Of long runs as many as the worker has threads, and as many as fill a GPU, which is not
        # faster with fewer; as long as there are some for all workers.
        number = max(number, min(_FULL if is_wide else worker.threads, -(-len(queue) // workers)))
        return [queue.popleft() for _ in range(number)]

    def _shard(self, specs: list[RunSpec], worker: Worker[RunSpec]) -> Shard[RunSpec]:
        """The shard with what the worker asked for: it is sent each graph and table once."""
        assert worker.kind is not None
        begun = {run.spec: run for run in self._writer.load_checkpoints(specs, *worker.kind)}
        runs = [begun.get(spec) or UnderWay(spec) for spec in specs]
        sent = worker.lacks & set().union(*(spec.contents for spec in specs))
        contents = {key: to_bytes(key) for key in sent}
        worker.lacks -= sent
        limit = min(SHARD_LIMIT, max(_FIRST_LIMIT, time.monotonic() - self._began))
        if _is_wide(worker.kind):  # the tasks of a thousand runs alone take seconds to draw
            limit = SHARD_LIMIT
        return Shard(specs, run_shard, (runs, self._engine, limit, contents))

    def take(self, worker: Worker[RunSpec], report: Report) -> None:
        assert worker.kind is not None
        worker.lacks |= report.lacks
        for result in report.results:
            self._writer.add(result)
        self._writer.count_steps(report.steps)
        self._writer.save_checkpoints(report.left, *worker.kind)
        for run in reversed(report.left):
            queue = self._begun.setdefault(worker.kind, deque()) if run.state else self._fresh
            queue.appendleft(run.spec)
        done = sum(work(result.spec, result.steps) for result in report.results)
        worker.throughput.learn(done, report.seconds)

    def put_back(self, specs: Iterable[RunSpec]) -> None:
        self._fresh.extendleft(reversed(list(specs)))
