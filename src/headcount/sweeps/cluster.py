"""A sweep on dask.distributed: workers train shards of some seconds, the driver alone writes the store.

Every shard goes to one named worker, cut to that worker's measured pace. A worker that dies costs its shard: those
runs go back into the queue. Runs longer than a shard come back as states, which the driver stores and hands on.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headcount.errors import InputError
from headcount.provenance import versions
from headcount.sweeps.cost import Pace, work
from headcount.sweeps.worker import Kind, Report, introduce, run_shard
from headcount.training.engines.selection import EngineName
from headcount.training.spec import RunSpec
from headcount.training.train import UnderWay

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

    from headcount.sweeps.runner import Log

_SHARD = 10.0  # seconds of work sent to a worker at once
_WIDE_SHARD = 30.0  # to one with a GPU, which needs many runs
_LEAST_SHARD = 1.0
_LEG = 30.0  # seconds after which a shard ends and gives back what is under way
_LOOK = 0.5  # seconds between two looks at who is there
_PATIENCE = 60.0  # seconds that a scheduler may be gone
_LOSSES = 4  # workers that may die of one run


@contextmanager
def hired(address: str, engine: EngineName, notice: Callable[[str], None]) -> Iterator[Cluster]:
    """A crew at `local:N` (N processes here) or at the scheduler `tcp://host:port`."""
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise InputError(
            "--cluster needs the package distributed; install it with: pip install 'headcount[cluster]'"
        ) from None
    for name in [*logging.root.manager.loggerDict]:
        if name.startswith(("distributed", "tornado")):
            logging.getLogger(name).setLevel(
                logging.CRITICAL
            )  # what matters is said in our own words
    kind, _, rest = address.partition(":")
    if kind == "local":
        if not rest.isdecimal() or not 1 <= int(rest) <= 1024:
            raise InputError(
                f"--cluster {address} does not say how many processes; write local:4, up to local:1024"
            )
        with _started(int(rest)) as local, Client(local, set_as_default=False) as client:
            yield Cluster(client, None, engine, notice)
        return
    if "://" not in address:
        raise InputError(f"--cluster {address} is no address; write local:4 or tcp://host:8786")
    crew = Cluster(_connected(address, 10.0), address, engine, notice)
    try:
        yield crew
    finally:
        crew.leave()


def _started(workers: int) -> LocalCluster:
    """Worker processes on this machine."""
    from distributed import LocalCluster

    try:
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # its HTTP server cannot be switched off, only the pages
            scheduler_kwargs={"dashboard": False},
            preload=["headcount.sweeps.worker"],
            silence_logs=logging.CRITICAL,
        )
    except (RuntimeError, OSError, TimeoutError) as error:
        raise InputError(
            f"the {workers} worker processes did not start ({error}); try fewer, or try again"
        ) from error


def _connected(address: str, timeout: float) -> Client:
    from distributed import Client

    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"no scheduler answers at {address} ({reason}); start one with: dask scheduler"
        ) from None


@dataclass
class _Hand:
    """A worker as the driver sees it."""

    task: Future | None = None  # the introduction, then a shard
    shard: list[RunSpec] = field(default_factory=list)
    kind: Kind | None = None
    pace: Pace = field(default_factory=lambda: Pace(1.0))
    refused: str = ""


class Cluster:
    """A crew of dask workers."""

    def __init__(
        self, client: Client, address: str | None, engine: EngineName, notice: Callable[[str], None]
    ) -> None:
        self._client: Any = (
            client  # its methods are coroutines or not, by a setting that types do not see
        )
        self._address, self._engine, self._notice = address, engine, notice
        self._hands: dict[str, _Hand] = {}
        self._alone = False

    def run(self, specs: Sequence[RunSpec], log: Log) -> None:
        self._fresh, self._begun = deque(specs), dict[Kind, deque[RunSpec]]()
        self._losses: Counter[RunSpec] = Counter()
        try:
            while self._open():
                try:
                    self._look()
                    self._assign(log)
                    self._collect(log)
                except OSError:  # the connection to the scheduler
                    self._reconnect()
                log.go_on()
        finally:
            self._release()

    def leave(self) -> None:
        """Let go of the scheduler; its workers stay."""
        with suppress(Exception):
            self._client.close(timeout=5)

    def _open(self) -> bool:
        return bool(
            self._fresh
            or any(self._begun.values())
            or any(hand.shard for hand in self._hands.values())
        )

    def _look(self) -> None:
        """Greet workers that have come, and take back the shards of those that have gone."""
        there = self._client.nthreads()
        for name in set(self._hands) - set(there):
            self._lose(self._hands.pop(name), f"worker {name} has gone")
        for name in set(there) - set(self._hands):
            hand = _Hand(self._submit(name, introduce, self._engine))
            self._hands[name] = hand
        if not there and not self._alone:
            self._notice("the cluster has no workers; waiting for one")
        self._alone = not there
        refused = [hand.refused for hand in self._hands.values()]
        if refused and all(refused):
            raise InputError(f"no worker of the cluster can be used: {refused[0]}")

    def _submit(self, name: str, work_: Callable[..., Any], *arguments: Any) -> Future:
        return self._client.submit(
            work_, *arguments, workers=[name], allow_other_workers=False, pure=False
        )

    def _assign(self, log: Log) -> None:
        """Give every idle worker a shard."""
        for name, hand in self._hands.items():
            if hand.task is None and hand.kind and (shard := self._shard(hand, log)):
                begun = {run.spec: run for run in log.left(shard, *hand.kind)}
                hand.shard = shard
                runs = [begun.get(spec) or UnderWay(spec) for spec in shard]
                hand.task = self._submit(name, run_shard, runs, self._engine, _LEG)

    def _shard(self, hand: _Hand, log: Log) -> list[RunSpec]:
        """The next runs for a worker: what its kind has begun, then new ones, then what no one else can go on with."""
        assert hand.kind is not None
        kinds = {other.kind for other in self._hands.values()}
        orphans = [queue for kind, queue in self._begun.items() if kind not in kinds]
        for queue in (self._begun.get(hand.kind, deque()), self._fresh, *orphans):
            while queue:
                # Towards the end shards get smaller, so that all workers end together.
                fair = sum(map(work, queue)) / hand.pace.rate / (2 * len(self._hands))
                most = _WIDE_SHARD if hand.kind[1].startswith("cuda") else _SHARD
                asked = [
                    queue.popleft()
                    for _ in range(hand.pace.piece(queue, min(most, max(fair, _LEAST_SHARD))))
                ]
                shard = log.missing(asked)
                log.found(set(asked) - set(shard))
                if shard:
                    return shard
        return []

    def _collect(self, log: Log) -> None:
        """Wait a moment for shards, and take what they bring."""
        deadline = time.monotonic() + _LOOK
        while time.monotonic() < deadline and not any(
            hand.task.done() for hand in self._hands.values() if hand.task
        ):
            time.sleep(0.02)
        for name, hand in list(self._hands.items()):
            if hand.task is None or not hand.task.done():
                continue
            task, hand.task = hand.task, None
            if task.status != "finished":
                self._fail(name, hand, task)
            elif not (brought := self._brought(name, task)):
                self._lose(hand, f"worker {name} has gone")
            elif hand.kind is None:
                self._meet(name, hand, *brought[0])
            else:
                self._take(hand, brought[0], log)

    def _brought(self, name: str, task: Future) -> list[Any]:
        """What a finished task has brought; nothing if the worker died before it was handed over."""
        while True:
            try:
                return [task.result(timeout=1)]
            except TimeoutError:
                if name not in self._client.nthreads():
                    return []

    def _meet(self, name: str, hand: _Hand, kind: Kind, version: str) -> None:
        hand.kind, hand.pace = kind, Pace.of(kind[0])
        if version != versions()["headcount"]:
            hand.kind, hand.refused = (
                None,
                f"worker {name} has headcount {version}, here is another",
            )

    def _take(self, hand: _Hand, report: Report, log: Log) -> None:
        assert hand.kind is not None
        for result in report.results:
            log.add(result)
        log.took(report.steps)
        log.keep(report.left, *hand.kind)
        for run in reversed(report.left):
            queue = self._begun.setdefault(hand.kind, deque()) if run.state else self._fresh
            queue.appendleft(run.spec)
        hand.shard = []
        hand.pace.learn(
            sum(work(result.spec, result.steps) for result in report.results), report.seconds
        )

    def _fail(self, name: str, hand: _Hand, task: Future) -> None:
        if task.status != "error":  # cancelled or lost: the scheduler has forgotten it
            raise ConnectionError
        error = task.exception()
        if hand.kind is None:
            hand.refused = f"worker {name}: {error}"
            self._notice(hand.refused)
        elif isinstance(error, InputError):
            raise error
        else:
            self._lose(hand, f"worker {name}: {type(error).__name__}: {error}")

    def _lose(self, hand: _Hand, reason: str) -> None:
        """Put the shard of a worker back into the queue, unless its runs seem to be what workers die of."""
        if hand.shard:
            self._notice(f"{reason}; its {len(hand.shard)} runs go to another")
        for spec in hand.shard:
            self._losses[spec] += 1
            if self._losses[spec] >= _LOSSES:
                raise InputError(
                    f"{_LOSSES} workers were lost while they trained {spec}; give them more memory"
                )
        self._fresh.extendleft(reversed(hand.shard))
        hand.shard, hand.task = [], None

    def _reconnect(self) -> None:
        """Wait for a scheduler that is gone; what was being trained there goes back into the queue."""
        for hand in self._hands.values():
            self._fresh.extendleft(reversed(hand.shard))
        self._hands = {}
        self.leave()
        if self._address:
            self._notice(f"the scheduler {self._address} is gone; waiting {_PATIENCE:.0f} s for it")
            deadline = time.monotonic() + _PATIENCE
            while time.monotonic() < deadline:
                with suppress(InputError):
                    self._client = _connected(self._address, 2.0)
                    return
                time.sleep(1.0)
        raise InputError(
            "the scheduler is gone; what is finished is in the store, the same command goes on from there"
        )

    def _release(self) -> None:
        tasks = [hand.task for hand in self._hands.values() if hand.task]
        if tasks:
            with suppress(Exception):
                self._client.cancel(tasks, force=True)
        self._hands = {}
