"""The results store: every finished run, keyed by its spec's hash, and the states of those under way."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import pandas as pd
from safetensors import SafetensorError
from safetensors.torch import load, save

from headcount.store import runs as run_table
from headcount.store import sweeps as sweep_log
from headcount.store.database import Database
from headcount.store.export import Format, export
from headcount.store.runs import Filter
from headcount.store.schema import COLUMNS, digest
from headcount.store.sweeps import Ending, Sweep
from headcount.training.engines.base import State
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec

History = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Partial:
    """A run under way: all that is needed to go on with it."""

    spec: RunSpec
    state: State
    history: History
    engine: str
    device: str
    seconds: float = 0.0  # so far


class Store:
    """One SQLite file of results; several processes may write to it at once.

    A missing file is created; a file that is damaged, newer, or not a store is refused and left as it is.

    >>> import tempfile
    >>> spec = RunSpec(items=64, d_model=16, heads=4, key_dim=5)
    >>> result = RunResult(spec, 0.99, 20_000, 0.5, ((500, 0.7),), None, "torch", "cpu", 1.0)
    >>> with Store(tempfile.mkdtemp() + "/results.sqlite") as store:
    ...     store.add([result]), store.add([result]), store.get(spec) == result, len(store.frame(items=64))
    (1, 0, True, 1)
    """

    def __init__(self, path: str | os.PathLike[str], read_only: bool = False) -> None:
        self._database = Database(path, read_only)
        self.path = self._database.path

    def add(self, results: Iterable[RunResult]) -> int:
        """Store these runs in one transaction and drop their checkpoints; returns how many are new.

        Of two results for one spec the first is kept. Weights are not stored.
        """
        rows = [run_table.row_of(result) for result in results]
        names, places = ", ".join(COLUMNS), ", ".join("?" * len(COLUMNS))
        new = 0
        with self._database.transaction() as connection:
            for row in rows:
                query = f"INSERT INTO runs ({names}, digest) VALUES ({places}, ?) ON CONFLICT (hash) DO NOTHING"
                new += connection.execute(query, (*row, digest(row))).rowcount
                connection.execute("DELETE FROM checkpoints WHERE hash = ?", row[:1])
        return new

    def get(self, spec: RunSpec) -> RunResult | None:
        """The result of a spec, if it is there."""
        return next(self.results(hash=spec.hash), None)

    def known(self, specs: Iterable[RunSpec]) -> set[str]:
        """The hashes of those specs whose results are there."""
        wanted = json.dumps([spec.hash for spec in specs])
        query = "SELECT hash FROM runs WHERE hash IN (SELECT value FROM json_each(?))"
        return {found for (found,) in self._database.read(query, [wanted])}

    def results(self, **filters: Filter) -> Iterator[RunResult]:
        """Results in the order of their specs: `results(items=[64, 128], budget=range(10, 41), variant="max")`."""
        return (run_table.result_of(row) for row in run_table.rows(self._database, filters))

    def frame(self, **filters: Filter) -> pd.DataFrame:
        """A row per run, in the order of their specs, without specs, histories and versions."""
        return run_table.frame(self._database, filters)

    def export(
        self, out: str | os.PathLike[str], form: Format | None = None, **filters: Filter
    ) -> int:
        """Write runs to a parquet, CSV or JSON-lines file; returns how many."""
        return export(self._database, out, form, filters)

    def __len__(self) -> int:
        return run_table.count(self._database, {})

    def checkpoint(
        self,
        spec: RunSpec,
        state: State,
        history: History,
        engine: str,
        device: str,
        seconds: float = 0.0,
    ) -> None:
        """Keep the state of a run under way."""
        self.checkpoint_all([Partial(spec, state, history, engine, device, seconds)])

    def checkpoint_all(self, partials: Iterable[Partial]) -> None:
        """Keep the states of runs under way, in one transaction.

        A finished run gets none, and a state never replaces a later one of the same engine: another sweep may be at
        the same run.
        """
        rows = [_checkpoint_row(partial) for partial in partials]
        with self._database.transaction() as connection:
            for row in rows:
                connection.execute(
                    """INSERT INTO checkpoints (hash, taken, engine, device, seconds, history, state, digest)
                    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS (SELECT 1 FROM runs WHERE hash = ?1)
                    ON CONFLICT (hash) DO UPDATE SET taken = excluded.taken, engine = excluded.engine,
                    device = excluded.device, seconds = excluded.seconds, history = excluded.history,
                    state = excluded.state, digest = excluded.digest
                    WHERE excluded.taken >= taken OR excluded.engine != engine OR excluded.device != device""",
                    row,
                )

    def resume(
        self, spec: RunSpec, engine: str | None = None, device: str | None = None
    ) -> Partial | None:
        """Where a run was left; one of another engine or device is not given, as the last bits may differ there.

        A damaged one is not given either: it only saves time, and the run begins again.
        """
        query = "SELECT taken, engine, device, seconds, history, state, digest FROM checkpoints WHERE hash = ?"
        found = self._database.read(query, [spec.hash])
        if not found:
            return None
        taken, by, on, seconds, history, state, seal = found[0]
        if seal != _seal(spec.hash, taken, by, on, seconds, history, state):
            return None
        if engine not in (None, by) or device not in (None, on):
            return None
        try:
            tensors = load(state)
            whole = State(
                tensors["weights"], tensors["first"], tensors["second"], tensors["threshold"], taken
            )
        except (SafetensorError, KeyError):
            return None
        return Partial(spec, whole, run_table.history_of(history), by, on, seconds)

    def begin_sweep(self, name: str, runs: int, steps: int, known: int = 0) -> int:
        """Enter a sweep: runs and run-steps it has to do, and runs stored before; returns its number."""
        return sweep_log.begin_sweep(self._database, name, runs, steps, known)

    def update_sweep(
        self,
        sweep: int,
        done_runs: int,
        steps_taken: int,
        settled_steps: int | None = None,
        *,
        total_runs: int | None = None,
        total_steps: int | None = None,
    ) -> None:
        """Say how far a sweep is, about once a second (see `sweep_log.update_sweep`)."""
        sweep_log.update_sweep(
            self._database,
            sweep,
            done_runs,
            steps_taken,
            settled_steps,
            total_runs=total_runs,
            total_steps=total_steps,
        )

    def end_sweep(self, sweep: int, state: Ending = "finished") -> None:
        """Close the record of a sweep."""
        sweep_log.end_sweep(self._database, sweep, state)

    def sweeps(self) -> list[Sweep]:
        """Every sweep, in the order in which they began."""
        return sweep_log.sweeps(self._database)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _checkpoint_row(partial: Partial) -> tuple[str, int, str, str, float, str, bytes, str]:
    state = partial.state
    parts = {
        "weights": state.weights,
        "first": state.first,
        "second": state.second,
        "threshold": state.threshold,
    }
    blob = save({name: part.detach().cpu().contiguous() for name, part in parts.items()})
    history = run_table.history_json(partial.history)
    row = (
        partial.spec.hash,
        state.taken,
        partial.engine,
        partial.device,
        partial.seconds,
        history,
        blob,
    )
    return (*row, _seal(*row))


def _seal(
    key: str, taken: int, engine: str, device: str, seconds: float, history: str, state: bytes
) -> str:
    return digest(
        [key, taken, engine, device, seconds, history, hashlib.blake2b(state).hexdigest()]
    )
