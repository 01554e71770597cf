"""A sweep on dask.distributed: workers train shards, and the driver alone writes the store.

Every shard goes to one named worker. A worker that dies costs its shard: those runs go back into
the queue. The workers need no file system in common with the driver.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
    from distributed import Client, Future, LocalCluster

_POLL = 0.5  # seconds between two looks at which workers are there
_PATIENCE = 60.0  # seconds that a scheduler may be gone
_LOSSES = 4  # workers that may die while they train one run

Spec = TypeVar("Spec", RunSpec, BlockSpec)
Notice = Callable[[str], None]


@contextmanager
def connected_cluster(address: str, notice: Notice) -> Iterator[Cluster]:
    """Workers at `local:N` (N processes here) or at the scheduler `tcp://host:port`."""
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise InputError(
            "--cluster needs the package distributed; install it with: pip install distributed"
        ) from None
    for name in [*logging.root.manager.loggerDict]:
        if name.startswith(("distributed", "tornado")):
            # What matters is reported in our own words.
            logging.getLogger(name).setLevel(logging.CRITICAL)
    kind, _, rest = address.partition(":")
    if kind == "local":
        if not rest.isdecimal() or not 1 <= int(rest) <= 1024:
            raise InputError(
                f"--cluster {address} does not say how many processes; "
                "write local:4, up to local:1024"
            )
        with _local_cluster(int(rest)) as local, Client(local, set_as_default=False) as client:
            yield Cluster(client, None, notice)
        return
    if "://" not in address:
        raise InputError(f"--cluster {address} is not an address; write local:4 or tcp://host:8786")
    cluster = Cluster(_client(address, 10.0), address, notice)
    try:
        yield cluster
    finally:
        cluster.disconnect()


def _local_cluster(workers: int) -> LocalCluster:
    """Worker processes on this machine."""
    from distributed import LocalCluster

    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # only its pages can be switched off, not the server
            scheduler_kwargs={"dashboard": False},
            preload=["headcount.sweeps.worker"],
            silence_logs=logging.CRITICAL,
        )
    except (RuntimeError, OSError, TimeoutError) as error:
        raise InputError(
            f"the {workers} worker processes did not start ({error}); try fewer, or try again"
        ) from error


def _client(address: str, timeout: float) -> Client:
    from distributed import Client

    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"no scheduler answers at {address} ({reason}); start one with: dask scheduler"
        ) from None


class Cluster:
    """Dask workers and the shards that they train."""

    def __init__(self, client: Client, address: str | None, notice: Notice) -> None:
        # Typed as Any: its methods are coroutines or not, by a setting that types do not see.
        self._client: Any = client
        self._address, self._notice = address, notice
        self._workers: dict[str, Worker[Any]] = {}
        self._losses: Counter[Any] = Counter()
        self._alone = False

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
        if not there and not self._alone:
            self._notice("the cluster has no workers; waiting for one")
        self._alone = not there
        refused = [worker.refused for worker in self._workers.values()]
        if refused and all(refused):
            raise InputError(f"no worker of the cluster can be used: {refused[0]}")

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
        worker.kind, worker.throughput = kind, Throughput.of(kind[0])
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
        if self._address:
            self._notice(f"the scheduler {self._address} is gone; waiting {_PATIENCE:.0f} s for it")
            deadline = time.monotonic() + _PATIENCE
            while time.monotonic() < deadline:
                with suppress(InputError):
                    self._client = _client(self._address, 2.0)
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
