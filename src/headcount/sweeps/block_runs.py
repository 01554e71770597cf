"""`run_blocks`: train the runs of a block plan that a folder lacks, here or on a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from headcount.block.spec import BlockResult, BlockSpec
from headcount.block.state import StackState
from headcount.block.train import choose_device, train_blocks
from headcount.interrupts import Stop
from headcount.problem.token_tables import TokenTable
from headcount.provenance import commit, machine, versions
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_plan import BlockPlan
from headcount.sweeps.writer import OnBeat, SweepWriter


@dataclass(frozen=True)
class BlockCounts:
    """Runs of a plan that are finished, and those still to do."""

    finished: int
    missing: int


@runtime_checkable
class BlockExecutor(Protocol):
    """Trains block runs: in this process or on a cluster."""

    device: str

    def run(self, specs: Sequence[BlockSpec], table: TokenTable, record: BlockRecord) -> None:
        """Train these runs, give states and results to the record, and stop when it is asked to."""
        ...


def run_blocks(
    plan: BlockPlan,
    folder: BlockFolder | Path,
    command: str = "run_blocks",
    executor: BlockExecutor | None = None,
    *,
    progress: bool = True,
    time_limit: float | None = None,
    on_beat: OnBeat | None = None,
    stop: Stop | None = None,
) -> BlockCounts:
    """Train what the folder lacks, by default in this process, where `progress` prints notices.

    Finished stacks are stored at once, the states of others about every 20 seconds. `command` is
    what the manifest says the folder was made with. An interrupt and `time_limit` (seconds) stop
    the training; the next call continues from there.
    """
    folder = folder if isinstance(folder, BlockFolder) else BlockFolder(folder)
    chosen = executor or LocalBlockExecutor(progress=progress)
    with folder.opened() as store:
        manifest = _ManifestEntry(folder, command, chosen.device)
        try:
            with SweepWriter(store, plan.name, on_beat, stop) as writer:
                if todo := writer.begin_batch(plan.specs):
                    record = BlockRecord(writer, folder, manifest, time_limit)
                    chosen.run(todo, plan.table, record)
        except KeyboardInterrupt:
            if not stop or not stop.asked:
                raise
        finally:
            if manifest.trained:
                manifest.write()
                folder.write_table(store)
        if len(folder.frame()) != store.count(variant="block"):  # lost, or of another folder
            folder.write_table(store)
        known = len(store.known(plan.specs))
    return BlockCounts(known, len(plan.specs) - known)


class _ManifestEntry:
    """What the folder's manifest says about this time that it was worked on."""

    def __init__(self, folder: BlockFolder, command: str, device: str) -> None:
        self._folder, self._before = folder, folder.made()
        self._command, self._device = command, device
        self._began, self._started = time.monotonic(), datetime.now(UTC)
        self.trained = 0

    def write(self) -> None:
        entry: dict[str, Any] = {
            "command": self._command,
            "commit": commit(),
            "date": self._started.strftime("%Y-%m-%d %H:%M UTC"),
            "machine": machine(),
            "device": torch.cuda.get_device_name() if self._device == "cuda" else self._device,
            "versions": versions(),
            "trained": self.trained,
            "seconds": round(time.monotonic() - self._began, 1),
        }
        self._folder.write_made([*self._before, entry])


class BlockRecord:
    """Takes states and results from an executor, and writes them to the folder."""

    def __init__(
        self,
        writer: SweepWriter,
        folder: BlockFolder,
        manifest: _ManifestEntry,
        time_limit: float | None,
    ) -> None:
        self.writer, self.states = writer, folder.states
        self._folder, self._manifest = folder, manifest
        self._deadline = float("inf") if time_limit is None else time.monotonic() + time_limit
        self._taken: dict[frozenset[BlockSpec], int] = {}
        self._lock = threading.Lock()  # stacks on the CPU report from threads of their own

    @property
    def seconds_left(self) -> float:
        """Until the time limit; may be negative."""
        return self._deadline - time.monotonic()

    def resumable(self, specs: Iterable[BlockSpec]) -> list[StackState]:
        """The states that these runs can be resumed from; their steps count as taken before."""
        found = self.states.load(specs)
        for state in found:
            stack = frozenset(state.specs)
            if stack not in self._taken:  # not a state of this sweep, whose steps are counted
                self._taken[stack] = state.taken
                self.writer.count_saved(state.taken * len(stack))
        return found

    def on_check(self, state: StackState) -> None:
        """Save a state; raises KeyboardInterrupt when the sweep is to stop."""
        self.save_state(state)
        self.writer.check()

    def save_state(self, state: StackState) -> None:
        """Write the state of a stack, and count its steps since the last one."""
        self.states.save(state)
        with self._lock:
            stack = frozenset(state.specs)
            self.writer.count_steps((state.taken - self._taken.get(stack, 0)) * len(stack))
            self._taken[stack] = state.taken

    def add(self, results: Sequence[BlockResult]) -> None:
        """Store finished runs, and only then drop their states."""
        for result in results:
            self.writer.add(result)
        self.writer.write()
        store = self.writer.store
        self.states.drop(result.spec for result in store.block_results())
        self._manifest.trained += len(results)
        self._manifest.write()
        self._folder.write_table(store)


class LocalBlockExecutor:
    """Trains block runs in this process."""

    def __init__(self, device: str = "auto", progress: bool = True) -> None:
        self.device, self._progress = choose_device(device), progress

    def run(self, specs: Sequence[BlockSpec], table: TokenTable, record: BlockRecord) -> None:
        limit = record.seconds_left
        train_blocks(
            specs,
            table.embeddings,
            table.null,
            device=self.device,
            progress=self._progress,
            on_check=record.on_check,
            on_results=record.add,
            resume=record.resumable(specs),
            time_limit=None if limit == float("inf") else limit,
        )
