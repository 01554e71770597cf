"""Runs of the transformer block in a folder.

runs.sqlite    the results store: finished runs, and the record of the commands that made them
runs.parquet   the same as a table
states/        stacks of runs that are not finished
manifest.json  for every time it was worked on: command, commit, machine, versions, durations
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.block.spec import BlockResult
from headcount.errors import InputError
from headcount.files import load_frame, lock, made_folder, save_frame
from headcount.store.store import Store
from headcount.sweeps.block_frame import block_frame, read_block_frame
from headcount.sweeps.block_states import StateFolder
from headcount.sweeps.manifest import Manifest, provenance


@dataclass(frozen=True)
class BlockFolder:
    """A folder with the files above; any of them may be missing."""

    path: Path

    @property
    def store(self) -> Path:
        return self.path / "runs.sqlite"

    @property
    def states(self) -> StateFolder:
        return StateFolder(self.path / "states")

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """The store, for writing; other processes are kept from training here meanwhile.

        The store alone could be shared, but not the work: all stacks begin at once, so a second
        process would train the same runs. The system releases the lock when this process ends,
        however it ends.
        """
        made_folder(self.path)
        with (self.path / ".lock").open("w") as file:
            try:
                lock(file.fileno(), wait=False)
            except OSError:
                raise InputError(
                    f"{self.path}: another process trains there; wait for it, or name another"
                ) from None
            with Store(self.store) as store:
                self._take_over(store)
                yield store

    def results(self) -> list[BlockResult]:
        """The finished runs, in the order of their specs."""
        if not self.store.is_file():
            return _released_results(self._released)
        with Store(self.store, read_only=True) as store:
            return list(store.block_results())

    def write_table(self, store: Store) -> None:
        """Write the finished runs as a table."""
        save_frame(block_frame(store.block_results()), self._table)

    def lacks_table(self, runs: int) -> bool:
        """Whether the table is not one of so many runs: it was lost, or is of another folder."""
        try:
            return not self._table.is_file() or len(load_frame(self._table)) != runs
        except ValueError:
            return True

    def frame(self) -> pd.DataFrame:
        """The finished runs as a table; empty where there are none.

        They come from the store, which notices when a row has changed, and from the table alone
        where that is all there is.
        """
        file = self._table
        if self.store.is_file() or not file.is_file():
            return block_frame(self.results())
        try:
            return read_block_frame(file)
        except (ValueError, KeyError, OSError) as error:
            raise InputError(
                f"{file}: cannot be read ({error}); remove it and run the command again"
            ) from None

    @property
    def manifest(self) -> Manifest:
        """How the runs were made."""
        return Manifest(self.path / "manifest.json")

    def provenance(self) -> dict[str, Any]:
        """How most of it was made, and how much there is of it."""
        made = self.manifest.history()
        return provenance(made) | {"runs": len(self.frame())} if made else {}

    def is_filled(self) -> bool:
        """Whether it has runs."""
        return any(file.is_file() for file in (self.store, self._table, self._released))

    @property
    def _table(self) -> Path:
        return self.path / "runs.parquet"

    @property
    def _released(self) -> Path:
        """Where release 0.1.0 wrote finished runs, one JSON object per line."""
        return self.path / "runs.jsonl"

    def _take_over(self, store: Store) -> None:
        """Move the runs of release 0.1.0 into the store.

        The store has them, synced, before the file gets another name; after a kill in between they
        are found in both, and the store keeps each run once.
        """
        if self._released.is_file():
            results = _released_results(self._released)
            finished = datetime.fromtimestamp(self._released.stat().st_mtime, UTC)
            store.add(results, finished)
            self.states.drop(result.spec for result in results)
            self._released.rename(self.path / "runs-0.1.0.jsonl")


def _released_results(file: Path) -> list[BlockResult]:
    """The runs in a file of release 0.1.0; a last line cut short by a crash is skipped."""
    if not file.is_file():
        return []
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
        return [BlockResult.from_json(line) for line in lines[:-1]]
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{file}: holds a line that is not a run ({error}); remove it and start again"
        ) from None
