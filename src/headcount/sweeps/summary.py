"""What a sweep came to: the thresholds of its points, or the curves where there is no threshold to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from headcount.analysis.curves import POINT, curves
from headcount.analysis.thresholds import thresholds
from headcount.sweeps.file import SearchPart
from headcount.sweeps.search import Searches, outcomes_frame
from headcount.training.spec import RunSpec

_OWN = ("heads", "key_dim", "seed")  # what differs between the runs of one curve
_PROTOCOL = [item.name for item in fields(RunSpec) if item.name not in (*POINT, *_OWN)]
_LIMIT = {"steps": "limit"}  # of a run, which may take fewer


@dataclass(frozen=True)
class Summary:
    """Three frames, each may be empty: thresholds of grids and of searches, a row a point, and curves."""

    thresholds: pd.DataFrame
    searches: pd.DataFrame
    curves: pd.DataFrame


def summarise(
    specs: Sequence[RunSpec],
    frame: pd.DataFrame,
    searches: Sequence[tuple[SearchPart, Searches]] = (),
) -> Summary:
    """The thresholds of points with F1 at several budgets, those that searches found, and the curves of all else.

    `frame` holds the runs of the specs. Runs of one point under several protocols (two learning rates, say) are told
    apart, and what differs gets a column.
    """
    table = frame.merge(_protocols(specs, ["hash"]), on="hash", validate="one_to_one")
    told = _told(table)
    found: dict[str, list[pd.DataFrame]] = {"thresholds": [], "curves": []}
    for _, runs in table.groupby([*POINT, *told], sort=True):
        crossing = "value" not in set(runs["variant"]) and len(set(runs["budget"])) > 1
        kind, judge = ("thresholds", thresholds) if crossing else ("curves", curves)
        found[kind].append(judge(runs).assign(**{name: runs[name].iloc[0] for name in told}))
    return Summary(
        _joined(found["thresholds"], told), _of_searches(searches), _joined(found["curves"], told)
    )


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of Python's own values; None for what is missing."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _of_searches(searches: Sequence[tuple[SearchPart, Searches]]) -> pd.DataFrame:
    if not searches:
        return pd.DataFrame()
    found = outcomes_frame(outcome for _, search in searches for outcome in search.outcomes())
    # Searches go by point and protocol in the order of their grid: one spec stands for each.
    one_each = [
        spec
        for part, _ in searches
        for spec in {_shared(spec): spec for spec in part.runs}.values()
    ]
    protocols = _protocols(one_each, [])
    told = _told(pd.concat([found[POINT], protocols], axis=1))
    return _joined([pd.concat([found, protocols[told]], axis=1)], told)


def _shared(spec: RunSpec) -> tuple[Any, ...]:
    return tuple(getattr(spec, name) for name in (*POINT, *_PROTOCOL))


def _protocols(specs: Sequence[RunSpec], more: list[str]) -> pd.DataFrame:
    """A row a spec: how it is trained."""
    names = [*more, *_PROTOCOL]
    rows = [[getattr(spec, name) for name in names] for spec in specs]
    return pd.DataFrame(rows, columns=pd.Index(names)).rename(columns=_LIMIT)


def _told(table: pd.DataFrame) -> list[str]:
    """The columns of the protocol that differ within a point."""
    points = table.groupby(POINT)
    return [
        name
        for name in (_LIMIT.get(name, name) for name in _PROTOCOL)
        if max(points[name].nunique(), default=1) > 1
    ]


def _joined(tables: list[pd.DataFrame], told: list[str]) -> pd.DataFrame:
    if not tables:
        return pd.DataFrame()
    whole = pd.concat(tables, ignore_index=True)
    rest = [str(name) for name in whole.columns if name not in (*POINT, *told)]
    return whole.loc[:, [*POINT, *told, *rest]]
