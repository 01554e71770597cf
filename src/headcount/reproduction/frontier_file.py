"""The file of a frontier: its columns, and how it is read and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.errors import InputError
from headcount.files import replacing

KEY = ["items", "d_model", "degree", "seed"]  # tell rows apart: one graph and one table each
KNOWN = ["trained", "constructed", "lower_bound"]  # other D_K at the same sizes
_FOUND = ["budget", "heads", "widths", "relative_margin", "bits", "bits_per_parameter"]
COLUMNS = [*KEY, *_FOUND, *KNOWN, "seconds", "time_limit", "machine"]
_WHOLE = dict.fromkeys(KEY, "int64") | dict.fromkeys(["budget", "heads", *KNOWN], "Int64")
_REAL = dict.fromkeys(
    ["relative_margin", "bits", "bits_per_parameter", "seconds", "time_limit"], "float64"
)
_TEXT = dict.fromkeys(["widths", "machine"], "string")


def frontier_table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a frame with all columns, sorted by degree and size."""
    frame = pd.DataFrame(list(rows), columns=COLUMNS).astype(_WHOLE | _REAL | _TEXT)
    return frame.sort_values(["degree", "items", "d_model", "seed"], ignore_index=True)


def read_frontier(path: Path) -> pd.DataFrame:
    """Read a frontier that `write_frontier` wrote."""
    try:
        found = pd.read_csv(path)
        if missing := sorted(set(COLUMNS) - set(found.columns)):
            raise ValueError(f"it has no column {missing[0]}")
        return frontier_table(found.to_dict("records"))
    except (ValueError, TypeError, OSError) as error:
        raise InputError(f"{path}: is not a frontier ({error}); name another file") from None


def write_frontier(table: pd.DataFrame, path: Path) -> None:
    """Write the table, whole or not at all."""
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False, float_format="%.5g")
