"""Runs of the transformer block on a cluster: shards of whole stacks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headcount.block.spec import BlockSpec
from headcount.block.stack import group
from headcount.problem.token_tables import TokenTable
from headcount.sweeps.block_runs import BlockRecord
from headcount.sweeps.cluster import Cluster
from headcount.sweeps.cluster_queue import Shard, Worker
from headcount.sweeps.worker import BlockReport, Kind, receive_table, run_block_shard

# Seconds after which a shard ends and returns its states. A stack's state has four copies of its
# weights, so it travels less often than the states of plain runs.
SHARD_LIMIT = 120.0


class BlockQueue:
    """Block runs that wait for a worker: stacks that were begun, then new runs.

    A stack is resumed as a whole, by any worker. The driver alone keeps states, as files.
    """

    def __init__(
        self, specs: Sequence[BlockSpec], table: TokenTable, device: str, record: BlockRecord
    ) -> None:
        self._table, self._device, self._record = table, device, record
        self._fresh, self._begun = deque[BlockSpec](), deque[list[BlockSpec]]()
        self.put_back(specs)

    def description(self) -> tuple[Callable[..., tuple[Kind, str]], tuple[Any, ...]]:
        table = self._table
        return receive_table, (table.hash, table.embeddings, table.null, self._device)

    def waiting(self) -> bool:
        return bool(self._fresh or self._begun) and self._record.seconds_left > 0

    def next_shard(
        self, worker: Worker[BlockSpec], kinds: Sequence[Kind | None]
    ) -> Shard[BlockSpec] | None:
        """One stack that was begun, or new runs that fill the worker."""
        if not self.waiting():
            return None
        specs = self._begun.popleft() if self._begun else self._cut(worker, kinds)
        states = self._record.resumable(specs)
        limit = min(SHARD_LIMIT, self._record.seconds_left)
        arguments = (specs, states, self._table.hash, self._device, limit)
        return Shard(specs, run_block_shard, arguments)

    def _cut(self, worker: Worker[BlockSpec], kinds: Sequence[Kind | None]) -> list[BlockSpec]:
        """New runs that can share a stack: on a CPU one per thread, on a GPU a fair share of all.

        On the CPU each run is a stack of its own. A GPU stacks what fits into its memory.
        """
        number = worker.threads
        if worker.kind and worker.kind[1] == "cuda":
            number = -(-len(self._fresh) // kinds.count(worker.kind))
        kind = group(self._fresh[0])
        chosen = [spec for spec in self._fresh if group(spec) == kind][:number]
        self._fresh = deque(spec for spec in self._fresh if spec not in set(chosen))
        return chosen

    def take(self, worker: Worker[BlockSpec], report: BlockReport) -> None:
        assert worker.shard is not None
        if report.results:
            self._record.add(report.results)
        saved = self._record.writer.progress.taken
        for state in report.states:
            self._record.save_state(state)
        # Steps of the stacks that have ended, which leave no state.
        counted = self._record.writer.progress.taken - saved
        self._record.writer.count_steps(report.steps - counted)
        finished = {result.spec for result in report.results}
        self.put_back(spec for spec in worker.shard.specs if spec not in finished)

    def put_back(self, specs: Iterable[BlockSpec]) -> None:
        waiting = list(specs)
        stacks = self._record.states.stacks(waiting)
        begun = {spec for stack in stacks for spec in stack}
        self._begun.extend(stacks)
        self._fresh.extendleft(spec for spec in reversed(waiting) if spec not in begun)


class ClusterBlockExecutor:
    """Trains block runs on a cluster."""

    def __init__(self, cluster: Cluster, address: str, device: str = "auto") -> None:
        self.device = f"cluster {address}"
        self._cluster, self._worker_device = cluster, device

    def run(self, specs: Sequence[BlockSpec], table: TokenTable, record: BlockRecord) -> None:
        self._cluster.run(BlockQueue(specs, table, self._worker_device, record), record.writer)
