"""How charts and tables show the seeds of the transformer block at one (h, D_K)."""

from __future__ import annotations

from collections.abc import Iterator

from headcount.report.formatting import MISSING
from headcount.report.readings.block_runs import Cell, Setting

CELL_TOOLTIPS = {
    "value": "accuracy|.4f",
    "seed": "seed",
    "interval": "95 % interval of the mean",
    "errors": "errors that are s",
    "collapsed": "collapsed runs",
    "heads": "h|d",
    "budget": "D_K|d",
    "items": "m|d",
    "d_model": "d_model|d",
}


def cell_marks(cell: Cell) -> Iterator[dict[str, object]]:
    """Rows of a chart: the mean, then each seed."""
    share, ends = cell.errors_s, cell.interval
    low, high = ends or (None, None)
    shared = {
        "heads": cell.heads,
        "budget": cell.budget,
        "interval": "–" if ends is None else f"{ends[0]:.4f} … {ends[1]:.4f}",
        "errors": "–" if share is None else f"{100 * share:.0f} %",
        "collapsed": f"{cell.collapsed} of {len(cell.seeds)}",
    }
    yield shared | {"kind": "mean", "seed": "mean", "value": cell.mean, "low": low, "high": high}
    for seed, score in cell.seeds.items():
        yield shared | {"kind": "seed", "seed": str(seed), "value": score}


def cell_columns(setting: Setting, cell: Cell) -> dict[str, object]:
    """Columns that the tables of the transformer block share."""
    ends = cell.interval
    return {
        "table": setting.name,
        "m": setting.items,
        "d_model": setting.d_model,
        "h": cell.heads,
        "D_K": cell.budget,
        "test accuracy": f"{cell.mean:.4f}",
        "95 % interval": MISSING if ends is None else f"{ends[0]:.4f}\u00a0…\u00a0{ends[1]:.4f}",
        "runs": len(cell.seeds),
        "collapsed": cell.collapsed,
    }
