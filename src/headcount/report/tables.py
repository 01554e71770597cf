"""Tables 1 and 2, and those of the transformer block and of compiled weights, as frames that a page shows."""

from __future__ import annotations

import pandas as pd

from headcount.paper import data as paper
from headcount.report.readings.block import Cell, Setting, panels
from headcount.report.readings.block_controls import AT_TEST, Control, controls
from headcount.report.readings.compiled import compiled_frontier
from headcount.report.readings.frames import passing, rows
from headcount.report.readings.paper_widths import paper_widths
from headcount.report.words import widths_text
from headcount.reproduction.evidence import Evidence

MISSING = "–"


def table1(evidence: Evidence) -> pd.DataFrame:
    """d_k* of every base point of the paper, ours beside it, with D_K* and h*, and the paper's width in our runs.

    Intervals stand in brackets: D_K* from optimistic to conservative, h* with the counts that are not told from it.
    """
    ours = {(point.items, point.d_model): point for point in paper_widths(evidence)}
    ends = _ends(evidence)
    lines = []
    for m, d, width in rows(paper.table_1(), "items", "d_model", "key_dim"):
        point = ours.get((m, d))
        budget, heads = ends.get((m, d), (MISSING, MISSING))
        split = point and (point.passing or point.nearest)
        lines.append(
            {
                "m": m,
                "d_model": d,
                "d_k* (paper)": width,
                "d_k* (ours)": str(point.key_dim) if point else MISSING,
                "D_K* (ours)": budget,
                "h* (ours)": heads,
                "the paper's d_k in our runs": split.text if split else MISSING,
            }
        )
    return pd.DataFrame(lines)


def table2(evidence: Evidence | None = None) -> pd.DataFrame:
    """The step cutoffs: the paper's, and ours where it lists none. They do not depend on the evidence."""
    lines = [
        {
            "m": m,
            "d_model": d,
            "steps (paper)": f"{steps:,}",
            "steps (ours)": f"{paper.step_cutoff(m, d):,}",
            "note": "",
        }
        for m, d, steps in rows(paper.table_2(), "items", "d_model", "steps")
    ]
    lines += [
        {
            "m": m,
            "d_model": d,
            "steps (paper)": MISSING,
            "steps (ours)": f"{paper.step_cutoff(m, d):,}",
            "note": "not in Table 2; our choice",
        }
        for m, d in unlisted_points()
    ]
    return pd.DataFrame(lines)


def unlisted_points() -> tuple[tuple[int, int], ...]:
    """The points of the paper's sweeps under max that Table 2 leaves out.

    >>> unlisted_points()
    ((1024, 32),)
    """
    listed = set(rows(paper.table_2(), "items", "d_model"))
    swept = {
        point
        for name in paper.grids()
        if paper.grid(name).variant == "max"
        for point in paper.grid(name).points
    }
    return tuple(sorted(swept - listed))


def frontier(evidence: Evidence) -> pd.DataFrame:
    """The smallest compiled D_K of every point beside the others."""
    table = compiled_frontier(evidence)
    return pd.DataFrame(
        {
            "m": table["items"],
            "d_model": table["d_model"],
            "r": table["degree"],
            "compiled D_K": table["budget"],
            "heads × width": [widths_text(widths) for widths in table["widths"]],
            "trained D_K*": table["trained"],
            "smallest construction": table["constructed"],
            "largest lower bound": table["lower_bound"],
            "bits per parameter": table["bits_per_parameter"],
            "relative margin": table["relative_margin"],
            "seconds": table["seconds"],
            "machine": table["machine"],
        }
    )


def fig7(evidence: Evidence) -> pd.DataFrame:
    """Accuracy of the transformer block by table, h and D_K, with s and q barred at the test beside it."""
    lines = []
    for panel in panels(evidence):
        barred = panel.barred_at_test.cells
        for at, cell in panel.cells.items():
            more = {
                "accuracy with s and q barred": f"{barred[at].mean:.4f}",
                "errors that are s": _percent(cell.errors_s),
                "gain in the last quarter of training": MISSING
                if cell.late_gain is None
                else f"{cell.late_gain:.4f}",
                "steps": panel.steps,
            }
            lines.append(_block_line(panel, cell) | more)
    return pd.DataFrame(lines)


def block(evidence: Evidence) -> pd.DataFrame:
    """One head under every control: the gap to several heads that is closed, and what its final answers are."""
    found = controls(evidence)
    plain = {
        control.plain.title: Control("none", control.plain, control.plain) for control in found
    }
    lines = []
    for control in (every for none in plain.values() for every in (none, *_of_table(found, none))):
        for cell in control.cells:
            kinds = {
                "correct": "correct",
                "s": "s",
                "another of the context": "context",
                "NULL": "null",
            }
            answers = {kind: f"{cell.answers(kind):.4f}" for kind in kinds.values()}
            if control.name == AT_TEST:  # its answers are those of the row without a control
                answers = dict.fromkeys(answers, MISSING)
            start = {"table": control.plain.name, "control": control.name}
            more = {
                "gap to several heads closed": _percent(control.closed.get(cell.budget)),
                **{f"answers: {text}": answers[kind] for text, kind in kinds.items()},
                "attention on the target": f"{cell.runs['target_best'].mean():.3f}",
                "steps": control.setting.steps,
            }
            lines.append(start | _block_line(control.setting, cell) | more)
    return pd.DataFrame(lines)


def _of_table(found: list[Control], none: Control) -> list[Control]:
    return [control for control in found if control.plain is none.plain]


def _block_line(setting: Setting, cell: Cell) -> dict[str, object]:
    """What the rows on the transformer block share."""
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


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.0f} %".replace("-", "−")


def _ends(evidence: Evidence) -> dict[tuple[int, int], tuple[str, str]]:
    """D_K* and h* of every base point, with their intervals."""
    names = (
        "items",
        "d_model",
        "central",
        "optimistic",
        "conservative",
        "heads",
        "heads_low",
        "heads_high",
    )
    return {
        (m, d): (_with_ends(budget, low, high), _with_ends(heads, few, many))
        for m, d, budget, low, high, heads, few, many in rows(passing(evidence, "base"), *names)
    }


def _with_ends(middle: int, low: int | None, high: int | None) -> str:
    """Write "56 [48, 64]"; an end that nothing reached as "–"."""
    return f"{middle} [{MISSING if low is None else low}, {MISSING if high is None else high}]"
