"""A sweep as a TOML file: read, checked, and turned into a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, get_args

from headcount.analysis.thresholds import LEVEL
from headcount.files import existing_file
from headcount.problem.contents import SourceFile
from headcount.store.store import Store
from headcount.sweeps.cluster_address import TlsFiles, tls_files
from headcount.sweeps.grid import MOST_RUNS, grid_runs, grid_table
from headcount.sweeps.plans import CombinedPlan, GridPlan
from headcount.sweeps.search import ThresholdSearches
from headcount.sweeps.toml_table import TomlTable, read_toml, tables
from headcount.training.engines.selection import EngineName
from headcount.training.problem_files import ProblemFiles
from headcount.training.spec import RunSpec

_KEYS = ("name", "engine", "store", "cluster", "grid", "search")


@dataclass(frozen=True)
class GridPart:
    """One [grid] table."""

    runs: tuple[RunSpec, ...]
    paper: str | None = None  # the grid of the paper whose runs these are
    names_draws: bool = False


@dataclass(frozen=True)
class SearchPart:
    """One [search] table: the grid that the search takes its runs from, and the F1 to reach."""

    runs: tuple[RunSpec, ...]
    level: float
    paper: str | None = None
    names_draws: bool = False


_Part = TypeVar("_Part", GridPart, SearchPart)


@dataclass(frozen=True)
class SweepFile:
    """A sweep file, read and checked."""

    path: Path
    name: str
    engine: EngineName
    store: Path
    grids: tuple[GridPart, ...]
    searches: tuple[SearchPart, ...] = ()
    files: Mapping[Path, SourceFile] = field(default_factory=dict)  # graphs, tables, names
    tls: TlsFiles | None = None  # certificates of a tls:// scheduler

    @cached_property
    def runs(self) -> tuple[RunSpec, ...]:
        """Those of the grids, without repetitions."""
        return tuple(dict.fromkeys(chain.from_iterable(part.runs for part in self.grids)))

    @cached_property
    def all_runs(self) -> tuple[RunSpec, ...]:
        """The runs of the grids and all that the searches could ask for."""
        return tuple(dict.fromkeys(chain(self.runs, *(part.runs for part in self.searches))))

    def plan(self) -> CombinedPlan:
        """A new plan of everything in it: the grids and the searches at once."""
        searches = (ThresholdSearches(part.runs, part.level) for part in self.searches)
        return CombinedPlan([GridPlan(self.runs), *searches])

    def as_begun(self, store: Store) -> SweepFile:
        """The same sweep, with the draws of release 0.1.0 where that release began it in the store.

        Runs of other draws would not go on from it, and are not to be averaged with its own. A part
        of the file that names `draws` is left as it is.
        """
        before = replace(
            self,
            grids=tuple(map(_drawn_before, self.grids)),
            searches=tuple(map(_drawn_before, self.searches)),
        )
        own = set(self.all_runs)
        return before if store.has_begun(s for s in before.all_runs if s not in own) else self


def read_sweep(path: str | os.PathLike[str]) -> SweepFile:
    """Read a sweep file.

    Graphs and tables that it names by path are relative to its folder.
    Unknown keys, wrong types and impossible runs are refused with the file and the place.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "two.toml"
    >>> grid = "items = 64\\nd_model = 16\\nheads = [1, 4]\\nbudget = 20\\nseeds = 3\\n"
    >>> _ = path.write_text("[grid]\\n" + grid)
    >>> sweep = read_sweep(path)
    >>> sweep.name, sweep.store.name, len(sweep.runs), sweep.runs[-1].key_dim
    ('two', 'two.sqlite', 6, 5)
    """
    path = existing_file(path)
    top = TomlTable(str(path), read_toml(path), _KEYS)
    if "grid" not in top and "search" not in top:
        raise top.wrong("has neither a [grid] nor a [search] table; add one")
    name = top.one("name", str, path.stem)
    if not name.strip() or Path(name).name != name or not name.isprintable():
        raise top.wrong(f"name {name!r} cannot name a file; use letters, digits and dashes")
    engine = top.one("engine", str, "auto")
    if engine not in get_args(EngineName):
        raise top.wrong(f"engine {engine!r} is unknown; use {', '.join(get_args(EngineName))}")
    named = top.one("store", str, f"{name}.sqlite")
    if "\0" in named:
        raise top.wrong(f"store {named!r} cannot name a file; use letters, digits and dashes")
    store = path.parent / named
    files = ProblemFiles(path.parent)
    grids, searches, left = list[GridPart](), list[SearchPart](), MOST_RUNS

    def count(part: _Part) -> _Part:
        nonlocal left
        left -= len(part.runs)
        if left < 0:
            raise top.wrong(f"more than {MOST_RUNS:,} runs are too many for one sweep; split it")
        return part

    for found in tables(top, "grid"):
        grids.append(count(_grid(*found, files, left)))
    for found in tables(top, "search"):
        searches.append(count(_search(*found, files, left)))
    tls = tls_files(top, path.parent)
    return SweepFile(path, name, engine, store, tuple(grids), tuple(searches), files.files, tls)


def _drawn_before(part: _Part) -> _Part:
    """A part with the draws of release 0.1.0, unless its file names others."""
    if part.names_draws:
        return part
    return replace(part, runs=tuple(replace(spec, draws=1) for spec in part.runs))


def _grid(place: str, values: Any, files: ProblemFiles, most: int) -> GridPart:
    table = grid_table(place, values)
    # One run more than allowed, and no further: a product of long lists would fill the memory.
    runs = tuple(dict.fromkeys(islice(grid_runs(table, files, most=most), most + 1)))
    return GridPart(runs, table.one("paper", str), "draws" in table)


def _search(place: str, values: Any, files: ProblemFiles, most: int) -> SearchPart:
    table = grid_table(place, values, "level")
    level = table.one("level", float, LEVEL)
    if not 0 < level < 1:
        raise table.wrong(f"level {level} is not between 0 and 1; the paper uses 0.99")
    found = grid_runs(table, files, by_law=True, most=most)
    runs = tuple(dict.fromkeys(islice(found, most + 1)))
    table.located(lambda: ThresholdSearches(runs, level))
    return SearchPart(runs, level, table.one("paper", str), "draws" in table)
