"""Beyond the paper: what the second head of the transformer block does."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headcount.report.figures.base import BEYOND, Check, Claim, Figure, judged
from headcount.report.figures.block_cells import cell_columns
from headcount.report.formatting import MISSING, counted, listed, num, share_text
from headcount.report.readings.block_controls import (
    AT_TEST,
    CLOSED,
    OPEN,
    Control,
    controls,
    most_controlled,
)
from headcount.report.readings.block_runs import COLLAPSED, block_command, collapse_counts
from headcount.report.readings.paper_numbers import LEVEL
from headcount.reproduction.evidence import Evidence
from headcount.theory.laws import BUDGET_WIDE


def draw(evidence: Evidence) -> Any:
    """One head under each control beside plain heads."""
    from headcount.report.figures.block_chart import controls_chart

    return controls_chart(evidence)


def table(evidence: Evidence) -> pd.DataFrame:
    """One head under every control: how much of the gap it closes, and what it answers."""
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
                "gap to several heads closed": share_text(control.closed.get(cell.budget)),
                **{f"answers: {text}": answers[kind] for text, kind in kinds.items()},
                "attention on the target": f"{cell.runs['target_best'].mean():.3f}",
                "steps": control.setting.steps,
            }
            lines.append(start | cell_columns(control.setting, cell) | more)
    return pd.DataFrame(lines)


def _of_table(found: list[Control], none: Control) -> list[Control]:
    return [control for control in found if control.plain is none.plain]


def meaning(evidence: Evidence) -> str:
    """How much of the gap between one head and several each control closes, and what follows."""
    found = controls(evidence)
    if not found:
        return BEYOND
    here = most_controlled(found)
    if not here:
        return f"No control was run without scaled rows. {_scaled(found)}"
    first = here[0].plain
    parts = [_closing(control) for control in here if control.share is not None]
    if not parts:
        return (
            f"On {first.title} several heads are nowhere clearly ahead of one, so there is no gap "
            f"for a control to close. {_scaled(found)}"
        )
    budgets = list(here[0].closed)
    last = first.one(budgets[-1])
    share = None if last is None else last.errors_s
    errors = (
        "" if share is None else f" ({share_text(share)} of its errors answer s at {budgets[-1]})"
    )
    return (
        f"On {first.title} one head is behind several at D_K = "
        f"{listed([str(at) for at in budgets])}{errors}, and of that gap {listed(parts)}: "
        f"{_verdict(here)}. {_scaled(found)}"
    )


def _closing(control: Control) -> str:
    """The share that one control closes."""
    shares = list(control.closed.values())
    low, high = share_text(min(shares)), share_text(max(shares))
    span = "" if low == high else f" (from {low} to {high})"
    return f"“{control.name}” closes {share_text(control.share or 0.0)}{span}"


def _verdict(here: list[Control]) -> str:
    """What the second head contributes, judged by the control that closes most of the gap."""
    most = max(control.share for control in here if control.share is not None)
    if most >= CLOSED:
        return (
            "what the second head gives here is mainly a way to take s out of the answer, not "
            "key–query capacity"
        )
    if most <= OPEN:
        return "what the second head gives here is not a way to take s out of the answer"
    return (
        "a way to take s out of the answer is a part of what the second head gives here, not all "
        "of it"
    )


def _scaled(found: list[Control]) -> str:
    """Whether one head collapses more often on scaled rows."""
    parts = []
    for control in found:
        if control.scaled:
            collapsed, runs = collapse_counts(control.cells)
            as_they_are = [
                cell
                for at in control.setting.budgets
                if (cell := control.plain.one(at)) is not None
            ]
            beside = "{} of {}".format(*collapse_counts(as_they_are))
            parts.append(
                f"{collapsed} of {runs} with {control.name} on {control.plain.name} ({beside} "
                "unscaled)"
            )
    if not parts:
        return "Scaled rows were not tried."
    return f"One-head runs that end below {COLLAPSED} on scaled rows: {listed(parts)}."


def capacity(evidence: Evidence) -> Claim:
    """C18: judged by how much of the gap each control closes that leaves keys and queries alone."""
    found = [
        control
        for control in controls(evidence)
        if control.plain.compressed and not control.scaled and control.closed
    ]
    if not found:
        return judged("C18", [Check(None, "")])
    shares = [control.share or 0.0 for control in found]
    parts = [
        f"{control.plain.name} with {control.name} {share_text(control.share)} "
        f"({counted(_seeds(control), 'seed')})"
        for control in found
    ]
    checks = [
        Check(max(shares) < CLOSED, f"share of the gap that is closed on {', on '.join(parts)}"),
        Check(max(shares) <= OPEN, _law_text(found)),
    ]
    # Barring s at the test needs no new runs: it has every table and all of their seeds.
    tests = [control for control in found if control.name == AT_TEST]
    measured = {
        "tables": len(tests),
        "seeds": min((_seeds(control) for control in tests), default=0),
    }
    low, high = share_text(min(shares)), share_text(max(shares))
    brief = f"controls that leave keys and queries alone close {low} to {high} of the gap"
    return judged("C18", checks, measured, brief)


def _seeds(control: Control) -> int:
    return min(len(cell.seeds) for cell in control.cells)


def _law_text(found: list[Control]) -> str:
    """Where one head crosses 0.99 with s barred in training, beside the capacity law."""
    for control in found:
        passed = [cell.budget for cell in control.cells if cell.mean >= LEVEL]
        below = [cell.budget for cell in control.cells if cell.mean < LEVEL]
        if control.setting.control != "barred" or not passed or not below:
            continue
        setting = control.setting
        law = BUDGET_WIDE(setting.items, setting.items, setting.d_model)
        return (
            f"with {control.name} one head crosses {LEVEL} between D_K = {max(below)} and "
            f"{min(passed)}, where the law of Section 6.1 has {num(law)}: this is consistent with "
            "the law, and the advantage of several heads does not carry over "
            f"({counted(_seeds(control), 'seed')}, one table, D_K known to a factor "
            f"{num(min(passed) / max(below))}: thin)"
        )
    return ""


FIGURE = Figure(
    id="block",
    title="Beyond the paper: what the second head does",
    draw=draw,
    table=table,
    meaning=meaning,
    claims=(capacity,),
    command=block_command,
)
