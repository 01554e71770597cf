"""Evidence: the results of a reproduction, in the frames from which the report is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from headcount.analysis.curves import POINT, curves
from headcount.analysis.thresholds import thresholds, thresholds_by_heads
from headcount.errors import InputError
from headcount.store.frames import specs_frame
from headcount.sweeps.block_frame import block_frame
from headcount.sweeps.file import SearchPart, SweepFile
from headcount.sweeps.search import ThresholdSearches, outcomes_frame

KEY = [*POINT, "heads", "key_dim", "seed"]  # tells the runs of the paper's protocol apart
_BUDGETS = ("central", "optimistic", "conservative")
_HEADS = ("heads", "key_dim", "mean", "heads_low", "heads_high", "runs")
COLUMNS = {
    "curves": ["grid", *POINT, "heads", "budget", "mean", "low", "high", "runs", "diverged"],
    "thresholds": ["grid", *POINT, *_BUDGETS, *_HEADS],
    "by_heads": ["grid", *POINT, "heads", *_BUDGETS, "key_dim", "mean"],
    "bounds": ["items", "d_model", "degree", "kind", "name", "heads", "key_dim", "budget"],
}


@dataclass(frozen=True, eq=False)  # frames have no equality: what is read from it can be cached
class Evidence:
    """Frames of results with the columns of `COLUMNS`; any may be empty.

    `grid` names one of the paper's grids. `curves` are those of `analysis.curves`; `thresholds` and
    `by_heads` are those of `analysis.thresholds`, with values missing where nothing passed;
    `bounds` are those of `bounds_table`. In `curves` and `thresholds`, `runs` counts the seeds.
    `block` has the runs of Section 7.3, one row each; `block_is_shipped` where they are not the
    folder's own but those that come with headcount. `provenance` says how the runs were made.
    """

    curves: pd.DataFrame
    thresholds: pd.DataFrame
    by_heads: pd.DataFrame
    bounds: pd.DataFrame
    provenance: Mapping[str, Any] = field(default_factory=dict)
    block: pd.DataFrame = field(default_factory=lambda: block_frame([]))
    block_provenance: Mapping[str, Any] = field(default_factory=dict)
    block_is_shipped: bool = False

    def on(self, grid: str, frame: str = "curves", **at: int | str) -> pd.DataFrame:
        """The rows of one grid, and of one point if `at` names it.

        For instance, `on("regular", "thresholds", degree=2)`.
        """
        rows: pd.DataFrame = getattr(self, frame)
        if rows.empty:
            return pd.DataFrame(columns=pd.Index(COLUMNS[frame]))
        rows = rows.loc[rows["grid"] == grid]
        for name, value in at.items():
            rows = rows.loc[rows[name] == value]
        return rows.reset_index(drop=True)

    def own(self) -> Evidence:
        """The same without runs that come with headcount: what this folder's runs show."""
        return replace(self, block=block_frame([])) if self.block_is_shipped else self

    def require_shipped(self) -> None:
        """Refuse a figure whose runs are shipped: they go with results at the paper's scale only.

        >>> nothing = pd.DataFrame()
        >>> Evidence(nothing, nothing, nothing, nothing, {"preset": "paper"}).require_shipped()
        """
        preset = self.provenance.get("preset")
        if preset != "paper":
            raise InputError(f"not measured by the preset “{preset}”" if preset else "not measured")

    def law_points(self) -> pd.DataFrame:
        """The thresholds behind the laws of Section 6.1.

        These are the base grid and the second point with m/d_model = 32.
        """
        rows = pd.concat([self.on("base", "thresholds"), self.on("extreme", "thresholds")])
        return rows.drop_duplicates(POINT, ignore_index=True)


def gather(
    runs: pd.DataFrame,
    sweep: SweepFile,
    bounds: pd.DataFrame | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Evidence:
    """Evaluate the finished runs of a sweep over grids of the paper, each part by itself.

    A search that is settled gives its point's threshold. A [grid] gives curves and thresholds at
    the points where none of its runs is missing. Where a search has judged a point too, its
    threshold is kept: it has more seeds.
    """
    frames: dict[str, list[pd.DataFrame]] = {"curves": [], "thresholds": [], "by_heads": []}
    for part in sweep.searches:
        frames["thresholds"].append(_searched(runs, part).assign(grid=part.paper))
    for part in sweep.grids:
        rows = _whole_points(
            specs_frame(part.runs, KEY).merge(runs, on=KEY, how="left", validate="one_to_one")
        )
        judged = rows.loc[rows["variant"] != "value"]
        if len(rows):
            frames["curves"].append(curves(rows).assign(grid=part.paper))
        if len(judged):
            seeds = judged.groupby(POINT)["seed"].nunique().rename("runs").reset_index()
            frames["thresholds"].append(
                thresholds(judged).merge(seeds, on=POINT).assign(grid=part.paper)
            )
            frames["by_heads"].append(thresholds_by_heads(judged).assign(grid=part.paper))
    found: dict[str, Any] = {name: _joined(name, tables) for name, tables in frames.items()}
    found["thresholds"] = found["thresholds"].drop_duplicates(["grid", *POINT], ignore_index=True)
    return Evidence(**found, bounds=_joined("bounds", [bounds]), provenance=provenance or {})


def _whole_points(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of points whose runs are all there."""
    there = rows["steps"].notna().groupby([rows[name] for name in POINT]).transform("all")
    return rows.loc[there].astype({"steps": "int64", "budget": "int64"})


def _searched(runs: pd.DataFrame, part: SearchPart) -> pd.DataFrame:
    searches = ThresholdSearches(part.runs, part.level)
    asked = specs_frame(part.runs, [*KEY, "hash"])  # a search knows its runs by their hashes
    searches.observe(
        asked.merge(runs.drop(columns="hash", errors="ignore"), on=KEY, validate="one_to_one")
    )
    found = outcomes_frame(searches.outcomes())
    seeds = len({spec.seed for spec in part.runs})
    return found.loc[found["settled"]].assign(runs=seeds)


def _joined(name: str, tables: Sequence[pd.DataFrame | None]) -> pd.DataFrame:
    """One frame with the columns of `Evidence`, in order."""
    columns = COLUMNS[name]
    given = [table.loc[:, columns] for table in tables if table is not None and len(table)]
    return pd.concat(given, ignore_index=True) if given else pd.DataFrame(columns=columns)
