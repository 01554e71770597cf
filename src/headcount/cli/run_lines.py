"""Tables in the terminal: aligned columns, and runs in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headcount.progress import in_one_line

if TYPE_CHECKING:
    from headcount.store.store import Store

_USUAL = {"graph": "regular", "table": "gaussian", "kv_heads": 0}
_SHORT = {"kv_heads": "g"}
RUN_COLUMNS = (
    *("variant", "r", "m", "d_model", "h", "d_k", "D_K", "seed"),
    *("steps", "value", "seconds", "engine"),
)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns under their names, numbers to the right; never cut, so that pipes get all of it.

    >>> print(aligned([("name", "runs"), ("base", "7"), ("softmax", "12")]))
    name     runs
    base        7
    softmax    12
    """
    rows = [[in_one_line(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def with_paths(opened: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in which graphs and tables of one's own are called by their files, else by 8 digits."""
    from headcount.training.spec import is_content_hash

    named = ("graph", "table")
    own = {row[name] for row in rows for name in named if is_content_hash(row.get(name) or "")}
    if not own:
        return rows
    paths = opened.contents.paths()
    called = {key: paths.get(key, key[:8]) for key in own}
    return [
        row | {name: called.get(row[name], row[name]) for name in named if name in row}
        for row in rows
    ]


def run_lines(rows: Sequence[dict[str, Any]]) -> str:
    """Runs under RUN_COLUMNS, and under graph, table and g where some are not the usual ones."""
    more = [name for name, usual in _USUAL.items() if any(row[name] != usual for row in rows)]
    cells = ([*run_cells(row), *(str(row[name]) for name in more)] for row in rows)
    return aligned([(*RUN_COLUMNS, *(_SHORT.get(name, name) for name in more)), *cells])


def run_cells(row: dict[str, Any]) -> list[str]:
    """A run in the columns RUN_COLUMNS."""
    value = f"lost at {row['diverged']:,}" if row["diverged"] is not None else cell(row["value"])
    names = ("variant", "degree", "items", "d_model", "heads", "key_dim", "budget", "seed", "steps")
    return [*(str(row[name]) for name in names), value, f"{row['seconds'] or 0:.3g}", row["engine"]]


def cell(value: Any) -> str:
    """A value in a table."""
    if value is None:
        return "–"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
