"""Tables of the page: every cell a text, columns of numbers aligned to the right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd

from headcount.report.figures.base import Comparison
from headcount.report.formatting import MISSING, num

_NUMBER = re.compile(r"–?|[−+-]?[\d,.]+( ?%)?")  # a dash and nothing count as numbers
_COMPARED = (
    "what",
    "the paper’s",
    "ours",
    "difference",
    "in our 95 % interval",
    "where in the paper",
)


@dataclass(frozen=True)
class PageTable:
    """A table as the page shows it."""

    columns: list[str]
    rows: list[list[str]]
    numeric: list[bool]  # by column: whether it is aligned to the right


def frame_table(frame: pd.DataFrame) -> PageTable:
    """A frame, without its index."""
    return _table(list(frame.columns), list(frame.itertuples(index=False, name=None)))


def comparison_table(comparisons: Sequence[Comparison]) -> PageTable | None:
    """The paper's numbers beside ours; None where there is nothing to compare."""
    if not comparisons:
        return None
    names = [field.name for field in fields(Comparison)]
    return _table(_COMPARED, [[getattr(line, name) for name in names] for line in comparisons])


def cell_text(value: Any) -> str:
    """A value as a reader writes it.

    >>> [cell_text(value) for value in (12_345, 0.123456, 50_298.8, float("nan"), True, "a < b")]
    ['12,345', '0.1235', '50,299', '–', 'yes', 'a < b']
    """
    if isinstance(value, str):
        return value
    if value is None or value is pd.NA or (isinstance(value, Real) and not isfinite(value)):
        return MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    return num(float(value), 4) if isinstance(value, Real) else str(value)


def _table(columns: Sequence[Any], rows: Sequence[Sequence[Any]]) -> PageTable:
    cells = [[cell_text(value) for value in row] for row in rows]
    numeric = [
        all(_NUMBER.fullmatch(text) for text in column)
        and any(text.strip(MISSING) for text in column)
        for column in zip(*cells, strict=True)
    ]
    return PageTable([str(name) for name in columns], cells, numeric)
