"""A sweep on dask.distributed: workers train shards, and the driver alone writes the store.

Every shard goes to one named worker. A worker that dies costs its shard: those runs go back into
the queue. The workers need no file system in common with the driver.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from headcount.block.spec import BlockSpec
from headcount.errors import InputError
from headcount.provenance import versions
from headcount.sweeps.cluster_queue import RunQueue, ShardQueue, Worker
from headcount.sweeps.cost import Throughput
from headcount.sweeps.worker import Kind
from headcount.sweeps.writer import SweepWriter
from headcount.training.engines.selection import EngineName
from headcount.training.spec import RunSpec

if TYPE_CHECKING:
    from distributed import Client, Future

_POLL = 0.5  # seconds between two looks at which workers are there
_PATIENCE = 60.0  # seconds that a scheduler may be gone
_ALONE = 300.0  # seconds that it may be without workers
_LOSSES = 4  # workers that may die while they train one run

Spec = TypeVar("Spec", RunSpec, BlockSpec)
Notice = Callable[[str], None]
Connect = Callable[[float], "Client"]  # given the seconds that it may take


class Cluster:
    """Dask workers and the shards that they train."""

    def __init__(self, client: Client, connect: Connect | None, notice: Notice) -> None:
        """`connect` makes the connection again, where the scheduler may come back."""
        # Typed as Any: its methods are coroutines or not, by a setting that types do not see.
        self._client: Any = client
        self._connect, self._notice = connect, notice
        self._workers: dict[str, Worker[Any]] = {}
        self._losses: Counter[Any] = Counter()
        self._alone_since: float | None = None

    def run(self, queue: ShardQueue[Spec], writer: SweepWriter) -> None:
        """Train everything in the queue."""
        self._losses.clear()
        try:
            while queue.waiting() or any(worker.shard for worker in self._workers.values()):
                try:
                    self._update_workers(queue)
                    self._assign(queue)
                    self._collect(queue)
                except OSError:  # the connection to the scheduler
                    self._reconnect(queue)
                writer.check()
        finally:
            self._release()

    def disconnect(self) -> None:
        """Close the connection to the scheduler; its workers stay."""
        with suppress(Exception):
            self._client.close(timeout=5)

    def _update_workers(self, queue: ShardQueue[Any]) -> None:
        """Prepare workers that have come, and take back the shards of those that are gone."""
        there = self._client.nthreads()
        for name in set(self._workers) - set(there):
            self._lose(queue, self._workers.pop(name), f"worker {name} has gone")
        for name in set(there) - set(self._workers):
            function, arguments = queue.description()
            task = self._submit(name, function, *arguments)
            self._workers[name] = Worker(task, threads=there[name])
        self._require_workers(bool(there))
        refused = [worker.refused for worker in self._workers.values()]
        if refused and all(refused):
            raise InputError(f"no worker of the cluster can be used: {refused[0]}")

    def _require_workers(self, there: bool) -> None:
        """Say that there are no workers, and give up when none comes."""
        if there:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
            self._notice(f"the cluster has no workers; waiting {_ALONE:.0f} s for one")
        elif time.monotonic() - self._alone_since > _ALONE:
            raise InputError(
                f"no worker has come in {_ALONE:.0f} s; start some with: dask worker ADDRESS, and "
                "then the same command again"
            )

    def _submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Future:
        with warnings.catch_warnings():
            # dask advises against large arguments; tables and states have to travel once.
            warnings.simplefilter("ignore")
            return self._client.submit(
                function, *arguments, workers=[name], allow_other_workers=False, pure=False
            )

    def _assign(self, queue: ShardQueue[Any]) -> None:
        """Give every idle worker a shard."""
        kinds = [worker.kind for worker in self._workers.values()]
        for name, worker in self._workers.items():
            if worker.task is None and worker.kind and (shard := queue.next_shard(worker, kinds)):
                worker.shard = shard
                worker.task = self._submit(name, shard.function, *shard.arguments)

    def _collect(self, queue: ShardQueue[Any]) -> None:
        """Wait a moment for shards, and take their results."""
        deadline = time.monotonic() + _POLL
        tasks = [worker.task for worker in self._workers.values() if worker.task]
        while time.monotonic() < deadline and not any(task.done() for task in tasks):
            time.sleep(0.02)
        for name, worker in list(self._workers.items()):
            if worker.task is None or not worker.task.done():
                continue
            task, worker.task = worker.task, None
            if task.status != "finished":
                self._fail(queue, name, worker, task)
            elif not (brought := self._result(name, task)):
                self._lose(queue, worker, f"worker {name} has gone")
            elif worker.kind is None:
                self._register(name, worker, *brought[0])
            else:
                queue.take(worker, brought[0])
                worker.shard = None

    def _result(self, name: str, task: Future) -> list[Any]:
        """The result of a finished task; nothing if the worker died before handing it over.

        dask keeps a result with its worker until it is fetched, so waiting for it without an end
        would hang when the worker dies just then.
        """
        while True:
            try:
                return [task.result(timeout=1)]
            except TimeoutError:
                if name not in self._client.nthreads():
                    return []

    def _register(self, name: str, worker: Worker[Any], kind: Kind, version: str) -> None:
        worker.kind, worker.throughput = kind, Throughput.of(kind[0], worker.threads)
        if (here := versions()["headcount"]) != version:
            worker.kind = None
            worker.refused = f"worker {name} has headcount {version}, this process has {here}"

    def _fail(self, queue: ShardQueue[Any], name: str, worker: Worker[Any], task: Future) -> None:
        if task.status != "error":  # cancelled or lost: the scheduler has forgotten it
            raise ConnectionError
        error = task.exception()
        if worker.kind is None:
            worker.refused = f"worker {name}: {error}"
            self._notice(worker.refused)
        elif isinstance(error, InputError):
            raise error
        else:
            self._lose(queue, worker, f"worker {name}: {type(error).__name__}: {error}")

    def _lose(self, queue: ShardQueue[Any], worker: Worker[Any], reason: str) -> None:
        """Put the shard of a worker back into the queue, unless workers seem to die of its runs."""
        specs: Sequence[Any] = worker.shard.specs if worker.shard else ()
        if specs:
            self._notice(f"{reason}; its {len(specs)} runs go to another")
        for spec in specs:
            self._losses[spec] += 1
            if self._losses[spec] >= _LOSSES:
                raise InputError(
                    f"{_LOSSES} workers were lost while they trained {spec}; give them more memory"
                )
        queue.put_back(specs)
        worker.shard, worker.task = None, None

    def _reconnect(self, queue: ShardQueue[Any]) -> None:
        """Wait for a scheduler that is gone; what was being trained goes back into the queue."""
        for worker in self._workers.values():
            queue.put_back(worker.shard.specs if worker.shard else ())
        self._workers = {}
        self.disconnect()
        if self._connect:
            self._notice(f"the scheduler is gone; waiting {_PATIENCE:.0f} s for it")
            deadline = time.monotonic() + _PATIENCE
            while time.monotonic() < deadline:
                with suppress(InputError):
                    self._client = self._connect(2.0)
                    return
                time.sleep(1.0)
        raise InputError(
            "the scheduler is gone; what is finished is in the store, "
            "and the same command continues from there"
        )

    def _release(self) -> None:
        tasks = [worker.task for worker in self._workers.values() if worker.task]
        if tasks:
            with suppress(Exception):
                self._client.cancel(tasks, force=True)
        self._workers = {}


class ClusterExecutor:
    """Trains the runs of a sweep on a cluster."""

    def __init__(self, cluster: Cluster, engine: EngineName) -> None:
        self._cluster = cluster
        self._engine: EngineName = engine

    def run(self, specs: Sequence[RunSpec], writer: SweepWriter) -> None:
        self._cluster.run(RunQueue(specs, self._engine, writer), writer)
