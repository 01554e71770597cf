"""What a sweep found: the thresholds of its points, or curves where there is no threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from headcount.analysis.curves import POINT, curves
from headcount.analysis.thresholds import thresholds
from headcount.store.frames import specs_frame
from headcount.store.store import Store
from headcount.sweeps.file import SearchPart, SweepFile
from headcount.sweeps.search import ThresholdSearches, outcomes_frame
from headcount.training.spec import RunSpec

_WITHIN_CURVE = ("heads", "key_dim", "seed")  # what differs between the runs of one curve
_PROTOCOL = [item.name for item in fields(RunSpec) if item.name not in (*POINT, *_WITHIN_CURVE)]
_LIMIT = {"steps": "limit"}  # of a run, which may take fewer


@dataclass(frozen=True)
class Summary:
    """Three frames, each possibly empty: thresholds of grids and of searches, and curves.

    Thresholds have one row per point. Runs of one point under several protocols (two learning
    rates, say) are kept apart, and what differs gets a column.
    """

    thresholds: pd.DataFrame
    searches: pd.DataFrame
    curves: pd.DataFrame


def summarise(sweep: SweepFile, store: Store) -> Summary:
    """The thresholds and curves of a sweep's finished runs, whether it is complete or not."""
    sweep = sweep.as_begun(store)
    found = summarise_runs(sweep.runs, store.frame(hash=[spec.hash for spec in sweep.runs]))
    return Summary(found.thresholds, _searches(sweep.searches, store), found.curves)


def summarise_runs(specs: Sequence[RunSpec], frame: pd.DataFrame) -> Summary:
    """Thresholds of the points with F1 at several budgets, and the curves of all others.

    `frame` holds the finished runs of the specs.
    """
    protocols = _protocols(specs, ["hash"])
    also = [name for name in protocols if name in frame and name != "hash"]
    table = frame.drop(columns=also).merge(protocols, on="hash", validate="one_to_one")
    varied = _varied(table)
    found: dict[str, list[pd.DataFrame]] = {"thresholds": [], "curves": []}
    for _, runs in table.groupby([*POINT, *varied], sort=True):
        crossing = "value" not in set(runs["variant"]) and len(set(runs["budget"])) > 1
        kind, judge = ("thresholds", thresholds) if crossing else ("curves", curves)
        found[kind].append(judge(runs).assign(**{name: runs[name].iloc[0] for name in varied}))
    return Summary(
        _joined(found["thresholds"], varied), pd.DataFrame(), _joined(found["curves"], varied)
    )


def _searches(parts: Sequence[SearchPart], store: Store) -> pd.DataFrame:
    if not parts:
        return pd.DataFrame()
    outcomes = []
    for part in parts:
        searches = ThresholdSearches(part.runs, part.level)
        searches.replay(store.frame(hash=[spec.hash for spec in part.runs]))
        outcomes += searches.outcomes()
    found = outcomes_frame(outcomes)
    # Searches go by point and protocol in the order of their grid: one spec stands for each.
    one_each = [
        spec for part in parts for spec in {_shared(spec): spec for spec in part.runs}.values()
    ]
    protocols = _protocols(one_each, [])
    varied = _varied(pd.concat([found[POINT], protocols], axis=1))
    return _joined([pd.concat([found, protocols[varied]], axis=1)], varied)


def _shared(spec: RunSpec) -> tuple[Any, ...]:
    return tuple(getattr(spec, name) for name in (*POINT, *_PROTOCOL))


def _protocols(specs: Sequence[RunSpec], more: list[str]) -> pd.DataFrame:
    """One row per spec: how it is trained."""
    return specs_frame(specs, [*more, *_PROTOCOL]).rename(columns=_LIMIT)


def _varied(table: pd.DataFrame) -> list[str]:
    """The columns of the protocol that differ within a point."""
    points = table.groupby(POINT)
    names = (_LIMIT.get(name, name) for name in _PROTOCOL)
    return [name for name in names if max(points[name].nunique(), default=1) > 1]


def _joined(tables: list[pd.DataFrame], varied: list[str]) -> pd.DataFrame:
    if not tables:
        return pd.DataFrame()
    whole = pd.concat(tables, ignore_index=True)
    rest = [str(name) for name in whole.columns if name not in (*POINT, *varied)]
    return whole.loc[:, [*POINT, *varied, *rest]]
