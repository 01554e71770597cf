"""The results store: every finished run, keyed by the hash of its spec."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from numbers import Integral
from sqlite3 import ProgrammingError
from types import TracebackType
from typing import TYPE_CHECKING, Any, overload

from headcount.errors import InputError
from headcount.store import runs as run_table
from headcount.store.database import Database
from headcount.store.runs import FILTERS, SCALARS, Filter
from headcount.store.schema import BLOCK, STORED, row_digest
from headcount.store.sweeps import SweepTable

if TYPE_CHECKING:  # torch and pandas load with the methods that need them: commands start at once
    import pandas as pd

    from headcount.block.spec import BlockResult, BlockSpec
    from headcount.store.checkpoints import Checkpoints
    from headcount.store.contents import Contents
    from headcount.store.export import Format
    from headcount.training.result import RunResult
    from headcount.training.spec import RunSpec

_GROUPS = tuple(name for name in FILTERS if name != "hash")


class Store:
    """One SQLite file of results; several processes may write to it at once.

    A missing file is created; a file that is damaged, newer, or not a store is refused and left as
    it is. `sweeps` has the record of the sweeps that filled it, `checkpoints` the states of runs
    that are not finished. Runs of the transformer block have the variant `block`, and their test
    accuracy is their value.

    >>> import tempfile
    >>> from headcount.training.result import RunResult
    >>> from headcount.training.spec import RunSpec
    >>> spec = RunSpec(items=64, d_model=16, heads=4, key_dim=5)
    >>> result = RunResult(spec, 0.99, 20_000, 0.5, ((500, 0.7),), None, "torch", "cpu", 1.0)
    >>> with Store(tempfile.mkdtemp() + "/results.sqlite") as store:
    ...     store.add([result]), store.add([result]), store.get(spec) == result, len(store.frame())
    (1, 0, True, 1)
    """

    def __init__(self, path: str | os.PathLike[str], read_only: bool = False) -> None:
        self._database = Database(path, read_only)
        self.path = self._database.path
        self.sweeps = SweepTable(self._database)

    @cached_property
    def checkpoints(self) -> Checkpoints:
        """The states of runs that are not finished."""
        from headcount.store.checkpoints import Checkpoints

        return Checkpoints(self._database)

    @cached_property
    def contents(self) -> Contents:
        """The graphs and tables of one's own that runs are trained on."""
        from headcount.store.contents import Contents

        return Contents(self._database)

    def add(
        self, results: Iterable[RunResult | BlockResult], finished: datetime | None = None
    ) -> int:
        """Store these runs in one transaction and drop their checkpoints; returns how many are new.

        Of two results for one spec the first is kept. Weights are not stored. `finished` is when
        the runs finished, by default now.
        """
        rows = [run_table.row_of(result, finished) for result in results]
        names, places = ", ".join(STORED), ", ".join("?" * len(STORED))
        query = f"""INSERT INTO runs ({names}, digest) VALUES ({places}, ?)
            ON CONFLICT (hash) DO NOTHING"""
        new = 0
        with self._database.transaction() as connection:
            for row in rows:
                new += connection.execute(query, (*row, row_digest(row))).rowcount
                connection.execute("DELETE FROM checkpoints WHERE hash = ?", row[:1])
        return new

    @overload
    def get(self, spec: RunSpec) -> RunResult | None: ...
    @overload
    def get(self, spec: BlockSpec) -> BlockResult | None: ...
    def get(self, spec: RunSpec | BlockSpec) -> RunResult | BlockResult | None:
        """The result of a spec, or None if the store does not have it."""
        from headcount.training.spec import RunSpec

        found = self.results if isinstance(spec, RunSpec) else self.block_results
        return next(found(hash=spec.hash), None)

    def known(self, specs: Iterable[RunSpec | BlockSpec]) -> set[str]:
        """The hashes of those specs whose results are stored."""
        wanted = json.dumps([spec.hash for spec in specs])
        query = "SELECT hash FROM runs WHERE hash IN (SELECT value FROM json_each(?))"
        return {found for (found,) in self._database.read(query, [wanted])}

    def has_begun(self, specs: Iterable[RunSpec]) -> bool:
        """Whether one of these runs is stored, finished or under way."""
        query = """SELECT EXISTS (SELECT 1 FROM json_each(?)
            WHERE value IN (SELECT hash FROM runs UNION ALL SELECT hash FROM checkpoints))"""
        return bool(self._database.read(query, [json.dumps([spec.hash for spec in specs])])[0][0])

    def results(self, **filters: Filter) -> Iterator[RunResult]:
        """Results in the order of their specs, without runs of the transformer block.

        Filters are one value, several or a range: `results(items=[64, 128], budget=range(10, 41))`.
        A graph or table of one's own is called by its file, or by the first digits of its hash.
        """
        return (run_table.result_of(row) for row in self._rows(filters) if row["variant"] != BLOCK)

    def block_results(self, **filters: Filter) -> Iterator[BlockResult]:
        """Results of the transformer block, in the order of their specs."""
        found = self._rows({"variant": BLOCK} | filters)
        return (run_table.block_result_of(row) for row in found if row["variant"] == BLOCK)

    def frame(self, **filters: Filter) -> pd.DataFrame:
        """One row per run, in the order of their specs, without specs, histories and versions."""
        return run_table.frame(self._database, self._by_hash(filters))

    def means(self, by: Sequence[str], **filters: Filter) -> pd.DataFrame:
        """One row per group: its runs, how many diverged, mean, least and greatest value.

        A run that diverged counts as a run and has no value.
        """
        for name in by:
            if name not in _GROUPS:
                raise InputError(f"{name!r} is not a column to group by; use {', '.join(_GROUPS)}")
        return (
            self.frame(**filters)
            .groupby(list(by), as_index=False)
            .agg(
                runs=("hash", "size"),
                diverged=("diverged", "count"),
                mean=("value", "mean"),
                least=("value", "min"),
                greatest=("value", "max"),
            )
        )

    def rows(self, limit: int | None = None, **filters: Filter) -> list[dict[str, Any]]:
        """The scalar columns of runs by name, in the order of their specs; needs no pandas."""
        return [{name: row[name] for name in SCALARS} for row in self._rows(filters, limit)]

    def latest(self, number: int = 5) -> list[dict[str, Any]]:
        """The scalar columns of the runs that were stored last, newest first."""
        return run_table.latest(self._database, number)

    def count(self, **filters: Filter) -> int:
        """How many runs pass the filters."""
        return run_table.count(self._database, self._by_hash(filters))

    def __len__(self) -> int:
        return self.count()

    def __repr__(self) -> str:
        try:
            number = len(self)
            runs = f"{number:,} run{'' if number == 1 else 's'}"
        except ProgrammingError:  # SQLite's, of a connection that is closed
            runs = "closed"
        return f"Store({str(self.path)!r}, {runs})"

    def export(
        self, out: str | os.PathLike[str], form: Format | None = None, **filters: Filter
    ) -> int:
        """Write runs to a parquet, CSV or JSON-lines file; returns how many."""
        from headcount.store.export import export

        return export(self._database, out, form, self._by_hash(filters))

    def close(self) -> None:
        """Close the file."""
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

    def _rows(
        self, filters: dict[str, Filter], limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        ids = run_table.selected(self._database, self._by_hash(filters), limit)
        return run_table.rows(self._database, ids)

    def _by_hash(self, filters: dict[str, Filter]) -> dict[str, Filter]:
        """Filters in which graphs and tables of one's own are named by their hashes."""
        meant = dict(filters)
        for column in ("graph", "table"):
            wanted = meant.get(column)
            if wanted is None or isinstance(wanted, int | Integral):
                continue
            names = [wanted] if isinstance(wanted, str) else list(wanted)
            meant[column] = [key for name in names for key in self.contents.meant(column, name)]
        return meant
