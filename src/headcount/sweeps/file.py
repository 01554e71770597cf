"""A sweep as a TOML file: what it asks for, and the plan that asks for it batch by batch."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, get_args, runtime_checkable

from headcount.analysis.thresholds import LEVEL
from headcount.errors import InputError
from headcount.files import existing_file
from headcount.sweeps.grid import MOST_RUNS, Table, grid_runs, grid_table
from headcount.sweeps.search import Searches
from headcount.training.engines.selection import EngineName
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec

_KEYS = ("name", "engine", "store", "grid", "search")


@runtime_checkable
class Plan(Protocol):
    """What is to be run: batches that may depend on the results of those before."""

    def next_batch(self) -> list[RunSpec]:
        """The next runs, in no order; none when the plan is through."""
        ...

    def observe(self, results: Iterable[RunResult]) -> object:
        """Take the results of the last batch."""
        ...


class Grid:
    """A plan of one batch."""

    def __init__(self, specs: Iterable[RunSpec]) -> None:
        self._specs = list(dict.fromkeys(specs))

    def next_batch(self) -> list[RunSpec]:
        batch, self._specs = self._specs, []
        return batch

    def observe(self, results: Iterable[RunResult]) -> None:
        pass


class Together:
    """Several plans at once: each gets the results of the runs it asked for."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans, self._asked = list(plans), list[tuple[Plan, set[RunSpec]]]()

    def next_batch(self) -> list[RunSpec]:
        batches = [(plan, plan.next_batch()) for plan in self._plans]
        self._asked = [(plan, set(batch)) for plan, batch in batches if batch]
        self._plans = [plan for plan, _ in self._asked]
        return list(dict.fromkeys(chain.from_iterable(batch for _, batch in batches)))

    def observe(self, results: Iterable[RunResult]) -> None:
        found = list(results)
        for plan, asked in self._asked:
            plan.observe([result for result in found if result.spec in asked])


@dataclass(frozen=True)
class GridPart:
    """One [grid] table."""

    runs: tuple[RunSpec, ...]
    paper: str | None = None  # the grid of the paper whose runs these are


@dataclass(frozen=True)
class SearchPart:
    """One [search] table: the grid that the search saves, and the F1 to reach."""

    runs: tuple[RunSpec, ...]
    level: float
    paper: str | None = None


@dataclass(frozen=True)
class SweepFile:
    """A sweep file, read and checked."""

    path: Path
    name: str
    engine: EngineName
    store: Path
    grids: tuple[GridPart, ...]
    searches: tuple[SearchPart, ...] = ()

    @cached_property
    def runs(self) -> tuple[RunSpec, ...]:
        """Those of the grids, without repetitions."""
        return tuple(dict.fromkeys(chain.from_iterable(part.runs for part in self.grids)))

    def plan(self) -> SweepPlan:
        """The plan of everything in it."""
        return SweepPlan(self)

    def range(self) -> tuple[list[RunSpec], list[RunSpec]]:
        """The least and the most that is run: of a search its first batch, or all of its grid."""
        most = dict.fromkeys(chain(self.runs, *(part.runs for part in self.searches)))
        return self.plan().next_batch(), list(most)


class SweepPlan(Together):
    """The grids and the searches of a sweep file at once."""

    def __init__(self, sweep: SweepFile) -> None:
        self.searches = tuple((part, Searches(part.runs, part.level)) for part in sweep.searches)
        super().__init__([Grid(sweep.runs), *(search for _, search in self.searches)])


def read_sweep(path: str | os.PathLike[str]) -> SweepFile:
    """Read a sweep file; unknown keys, wrong types and runs that cannot be are refused with the file and the place.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.toml"
    >>> _ = path.write_text('[grid]\\nitems = 64\\nd_model = 16\\nheads = [1, 4]\\nbudget = 20\\nseeds = 3\\n')
    >>> sweep = read_sweep(path)
    >>> sweep.name, sweep.store.name, len(sweep.runs), sweep.runs[-1].key_dim
    ('two', 'two.sqlite', 6, 5)
    """
    path = existing_file(path)
    top = Table(str(path), read_toml(path), _KEYS)
    if "grid" not in top and "search" not in top:
        raise top.wrong("has neither a [grid] nor a [search] table; add one")
    name = top.one("name", str, path.stem)
    if not name.strip() or Path(name).name != name:
        raise top.wrong(f"name {name!r} cannot name a file; use letters, digits and dashes")
    engine = top.one("engine", str, "auto")
    if engine not in get_args(EngineName):
        raise top.wrong(f"engine {engine!r} is unknown; use {', '.join(get_args(EngineName))}")
    store = path.parent / top.one("store", str, f"{name}.sqlite")
    grids = tuple(_grid(*found) for found in tables(top, "grid"))
    searches = tuple(_search(*found) for found in tables(top, "search"))
    if sum(len(part.runs) for part in (*grids, *searches)) > MOST_RUNS:
        raise top.wrong(f"more than {MOST_RUNS:,} runs are too many for one sweep; split it")
    return SweepFile(path, name, engine, store, grids, searches)


def _grid(place: str, values: Any) -> GridPart:
    table = grid_table(place, values)
    return GridPart(
        tuple(dict.fromkeys(islice(grid_runs(table), MOST_RUNS + 1))), table.one("paper", str)
    )


def _search(place: str, values: Any) -> SearchPart:
    table = grid_table(place, values, "level")
    level = table.one("level", float, LEVEL)
    if not 0 < level < 1:
        raise table.wrong(f"level {level} is not between 0 and 1; the paper uses 0.99")
    runs = tuple(dict.fromkeys(islice(grid_runs(table, by_law=True), MOST_RUNS + 1)))
    table.say(lambda: Searches(runs, level))
    return SearchPart(runs, level, table.one("paper", str))


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file, or say in a sentence why not."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is not valid TOML: {error}; correct that line") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); check its permissions"
        ) from None


def tables(top: Table, name: str) -> list[tuple[str, Any]]:
    """The tables of one kind with their places: [grid] is one, [[grid]] may come several times."""
    found = top.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        return [(f"{top.place}: [{name}]", found)]
    if not found:
        raise top.wrong(f"{name} is an empty list; write [{name}] with its keys below")
    return [
        (f"{top.place}: [[{name}]] number {number}", values)
        for number, values in enumerate(found, 1)
    ]
