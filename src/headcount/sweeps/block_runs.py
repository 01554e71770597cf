"""`run_blocks`: train the runs of a block plan that a folder lacks, here or on a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from headcount.block.spec import BlockResult, BlockSpec
from headcount.block.state import StackState
from headcount.block.train import choose_device, train_blocks
from headcount.interrupts import Stop
from headcount.problem.token_tables import TokenTable
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_plan import BlockPlan
from headcount.sweeps.block_states import StateFolder
from headcount.sweeps.manifest import TRAINING, ManifestEntry, device_name
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
        folder.manifest.history()  # one that cannot be read is refused before the work
        place: int | None = None
        entry = ManifestEntry(command, device_name(chosen.device))

        def write() -> None:
            nonlocal place
            place = folder.manifest.put(entry.as_dict(), place)
            folder.write_table(store)

        try:
            with entry.timed(TRAINING), SweepWriter(store, plan.name, on_beat, stop) as writer:
                if todo := writer.begin_batch(plan.specs):
                    record = BlockRecord(writer, folder.states, entry, write, time_limit)
                    chosen.run(todo, plan.table, record)
        except KeyboardInterrupt:
            if not stop or not stop.asked:
                raise
        finally:
            if entry.trained:
                entry.complete = len(store.known(plan.specs)) == len(plan.specs)
                write()
        if folder.lacks_table(store.count(variant="block")):
            folder.write_table(store)
        known = len(store.known(plan.specs))
    return BlockCounts(known, len(plan.specs) - known)


class BlockRecord:
    """Takes states and results from an executor, and writes them to the folder."""

    def __init__(
        self,
        writer: SweepWriter,
        states: StateFolder,
        entry: ManifestEntry,
        write: Callable[[], None],  # the manifest and the table of the folder
        time_limit: float | None,
    ) -> None:
        self.writer, self.states = writer, states
        self._entry, self._write = entry, write
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
        self.states.drop(result.spec for result in self.writer.store.block_results())
        self._entry.trained += len(results)
        self._write()


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
