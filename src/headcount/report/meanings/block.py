"""Meanings of Fig. 7 and of the controls of the transformer block."""

from __future__ import annotations

from headcount.report.meanings.permutations import UNMEASURED
from headcount.report.readings.block import COLLAPSED, NEAR, Setting, collapse_counts, panels
from headcount.report.readings.block_controls import (
    CLOSED,
    OPEN,
    Control,
    controls,
    most_controlled,
)
from headcount.report.readings.frames import whole
from headcount.report.words import counted, interval_text, listed, num
from headcount.reproduction.evidence import Evidence

_STILL = 0.005  # accuracy gained in the last quarter of training from which a run is not at its end


def fig7(evidence: Evidence) -> str:
    """Whether one head saturates, several come near 1 and 8 are too many, on the first table; then the other tables."""
    found = [panel for panel in panels(evidence) if panel.gaps]
    if not found:
        return UNMEASURED
    first, *others = found
    too_many = _too_many(first)
    more = f"; {too_many}" if too_many else ""
    ending = "No other table was measured."
    if others:
        ending = f"Elsewhere, {'; '.join(_other(panel) for panel in others)}."
    return f"On {first.title} {_one_head(first)}; {_several(first)}{more}. {ending}"


def block(evidence: Evidence) -> str:
    """How much of the gap between one head and several each control closes, and what follows."""
    found = controls(evidence)
    if not found:
        return UNMEASURED
    here = most_controlled(found)
    if not here:
        return f"No control was run without scaled rows. {_scaled(found)}"
    first = here[0].plain
    told = [_closing(control) for control in here if control.share is not None]
    if not told:
        return (
            f"On {first.title} several heads are nowhere clearly ahead of one, so there is no gap for a control to "
            f"close. {_scaled(found)}"
        )
    budgets = list(here[0].closed)
    last = first.one(budgets[-1])
    share = None if last is None else last.errors_s
    errors = (
        "" if share is None else f" ({_percent(share)} of its errors answer s at {budgets[-1]})"
    )
    return (
        f"On {first.title} one head is behind several at D_K = {listed([str(at) for at in budgets])}{errors}, and of "
        f"that gap {listed(told)}: {_verdict(here)}. {_scaled(found)}"
    )


def _one_head(panel: Setting) -> str:
    """Where the runs of one head end that do not collapse, whether they still rise with D_K, and how many collapse."""
    cells = [cell for budget in panel.gaps if (cell := panel.one(budget)) is not None]
    learnt = [cell for (heads, _), cell in panel.without_collapsed().cells.items() if heads == 1]
    collapsed, runs = collapse_counts(cells)
    if not learnt:
        return f"all {counted(runs, 'run')} with one head end below {COLLAPSED}"
    last = learnt[-1]
    text = f"one head reaches {num(last.mean)} at D_K = {last.budget}"
    text += f" (95 %: {interval_text(last.interval)})" if last.interval else ""
    if len(learnt) > 1:
        rise = last.mean - learnt[-2].mean
        text += f" after {num(learnt[-2].mean)} at {learnt[-2].budget}, "
        text += (
            "rising with D_K" if rise >= NEAR else "level" if rise > -NEAR else "falling with D_K"
        )
    if last.late_gain is not None:
        text += f", its last quarter of training {'still adding' if last.late_gain >= _STILL else 'adding'} "
        text += num(last.late_gain)
    fallen = listed([f"{cell.collapsed} at {cell.budget}" for cell in cells if cell.collapsed])
    apart = f", besides {collapsed} of {counted(runs, 'run')} that end below {COLLAPSED} ({fallen})"
    return f"{text}{apart if collapsed else ', and none of its runs collapses'}"


def _several(panel: Setting) -> str:
    """Where several heads end."""
    budget = max(panel.gaps)
    cells = panel.several(budget)
    each = listed([f"{num(cell.mean)} with {cell.heads}" for cell in cells])
    near = sum(cell.near_perfect for cell in cells)
    how = (
        "all near 1"
        if near == len(cells)
        else "none near 1"
        if near == 0
        else f"{near} of {len(cells)} near 1"
    )
    return f"several reach {each} at {budget}, {how}"


def _too_many(panel: Setting) -> str:
    """Whether the paper's example of too many heads is one here."""
    heads, budget, _ = whole("block.too-many-heads")
    most, best = panel.cells.get((heads, budget)), panel.best(budget)
    if most is None or best is None:
        return ""
    if best.heads == heads:
        return f"{heads} heads at D_K = {budget} are the best, {num(best.mean)}, not too many as in the paper"
    gap = f"{num(most.mean)} against {num(best.mean)} with {best.heads}"
    return f"{heads} heads at D_K = {budget} are too many, as in the paper: {gap}"


def _other(panel: Setting) -> str:
    """One head and the best of several at the largest D_K of another table."""
    budget = max(panel.gaps)
    one, best, learnt = panel.one(budget), panel.best(budget), panel.without_collapsed().one(budget)
    assert one is not None
    assert best is not None
    fallen = (
        f" besides {one.collapsed} of {counted(len(one.seeds), 'run')} below {COLLAPSED}"
        if one.collapsed
        else ""
    )
    alone = f"{num(learnt.mean)}{fallen}" if learnt else f"{len(one.seeds)} runs below {COLLAPSED}"
    return f"on {panel.title} at D_K = {budget} one head has {alone}, and {best.heads} heads have {num(best.mean)}"


def _closing(control: Control) -> str:
    """The share that one control closes."""
    shares = list(control.closed.values())
    low, high = _percent(min(shares)), _percent(max(shares))
    span = "" if low == high else f" (from {low} to {high})"
    return f"“{control.name}” closes {_percent(control.share or 0.0)}{span}"


def _verdict(here: list[Control]) -> str:
    """What the second head gives, by the control that closes most: with s away, one head lacks capacity or nothing."""
    most = max(control.share for control in here if control.share is not None)
    if most >= CLOSED:
        return "what the second head gives here is mainly a way to take s out of the answer, not key–query capacity"
    if most <= OPEN:
        return "what the second head gives here is not a way to take s out of the answer"
    return "a way to take s out of the answer is a part of what the second head gives here, not all of it"


def _scaled(found: list[Control]) -> str:
    """Whether one head collapses more often on scaled rows."""
    told = []
    for control in found:
        if control.scaled:
            collapsed, runs = collapse_counts(control.cells)
            as_they_are = [
                cell
                for at in control.setting.budgets
                if (cell := control.plain.one(at)) is not None
            ]
            beside = "{} of {}".format(*collapse_counts(as_they_are))
            told.append(
                f"{collapsed} of {runs} with {control.name} on {control.plain.name} ({beside} unscaled)"
            )
    if not told:
        return "Scaled rows were not tried."
    return f"One-head runs that end below {COLLAPSED} on scaled rows: {listed(told)}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %".replace("-", "−")
