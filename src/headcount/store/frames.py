"""Specs and results as data frames, with the columns that the analysis and `Store.frame` share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from headcount.store.runs import OF_SPEC, SCALARS

if TYPE_CHECKING:
    from headcount.block.spec import BlockSpec
    from headcount.training.result import RunResult
    from headcount.training.spec import RunSpec

_OF_RESULT = tuple(name for name in SCALARS if name not in (*OF_SPEC, "finished_at"))
_NUMBERS = ("value", "threshold", "seconds")
_TEXTS = ("hash", "variant", "graph", "table", "engine", "device")


def specs_frame(
    specs: Iterable[RunSpec | BlockSpec], names: Sequence[str] = OF_SPEC
) -> pd.DataFrame:
    """One row per spec, in their order, with the named fields and properties as columns."""
    rows = [[getattr(spec, name) for name in names] for spec in specs]
    return pd.DataFrame(rows, columns=pd.Index(names))


def results_frame(results: Iterable[RunResult]) -> pd.DataFrame:
    """One row per result, in their order, as the analysis takes them.

    The columns are those of `Store.frame` without `finished_at`.

    >>> from headcount.training.result import RunResult
    >>> from headcount.training.spec import RunSpec
    >>> spec = RunSpec(items=64, d_model=16, heads=4, key_dim=5)
    >>> result = RunResult(spec, 0.99, 20_000, 0.5, ((500, 0.7),), None, "torch", "cpu", 1.0)
    >>> results_frame([result])[["heads", "budget", "value"]].iloc[0].tolist()
    [4.0, 20.0, 0.99]
    """
    known = list(results)
    table = specs_frame(result.spec for result in known)
    for name in _OF_RESULT:
        table[name] = pd.Series([getattr(result, name) for result in known], dtype=object)
    return typed_frame(table)


def typed_frame(table: pd.DataFrame) -> pd.DataFrame:
    """The same types whatever the rows hold, also where there are none; NULL is NaN or missing."""
    whole = [
        str(name)
        for name in table.columns
        if name not in (*_NUMBERS, *_TEXTS, "diverged", "finished_at")
    ]
    types: dict[str, Any] = dict.fromkeys(whole, "int64") | dict.fromkeys(_NUMBERS, "float64")
    return table.astype(types | dict.fromkeys(_TEXTS, "str") | {"diverged": "Int64"})


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of Python's own values; None for what is missing."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]
