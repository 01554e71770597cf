"""Beyond the paper: the control in which scores are summed over heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from headcount.paper import data as paper
from headcount.report.figures.base import BEYOND, Check, Claim, Comparison, Figure, judged
from headcount.report.formatting import counted, listed, num, pairs_text
from headcount.report.readings.few_heads import GRID_STEP
from headcount.report.readings.frames import by_point, curves_on, least_seeds, passing, rows
from headcount.report.readings.paper_numbers import LEVEL
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.presets import Need

EQUAL = rule("K1")["equal"]  # a smaller gap in F1 counts as none


@dataclass(frozen=True)
class LinearPoint:
    """One point with scores summed over heads."""

    items: int
    d_model: int
    gaps: tuple[float, ...]  # mean F1 of several heads minus that of one, at every common budget
    one_head: int | None  # smallest passing budget
    several: int | None
    under_max: int | None

    @property
    def gap(self) -> float | None:
        """The median size of a gap."""
        return median(abs(gap) for gap in self.gaps) if self.gaps else None

    @property
    def largest(self) -> float:
        """The largest size of a gap."""
        return max((abs(gap) for gap in self.gaps), default=0.0)

    @property
    def passes(self) -> bool:
        """Whether some budget passes, so that thresholds can be compared."""
        return self.one_head is not None or self.several is not None

    @property
    def equal(self) -> bool | None:
        """Whether several heads score as one does; None where no budget was tested with both."""
        return None if self.gap is None else self.gap <= EQUAL

    @property
    def saves(self) -> bool:
        """Whether several heads pass with less than one head needs, by over one budget step."""
        return self.several is not None and (
            self.one_head is None or self.one_head > GRID_STEP * self.several
        )


def linear_points(evidence: Evidence) -> list[LinearPoint]:
    """Every point of the linear control."""
    under_max = {
        (m, d): budget
        for m, d, budget in rows(passing(evidence, "base"), "items", "d_model", "central")
    }
    found = []
    for point, curve in by_point(curves_on(evidence, "linear")):
        single, many = curve.loc[curve["heads"] == 1], curve.loc[curve["heads"] > 1]
        both = many.merge(single[["budget", "mean"]], on="budget", suffixes=("", "_one"))
        gaps = tuple(float(gap) for gap in both["mean"] - both["mean_one"])
        found.append(
            LinearPoint(*point, gaps, _smallest(single), _smallest(many), under_max.get(point))
        )
    return found


def _smallest(curve: pd.DataFrame) -> int | None:
    found = curve.loc[curve["mean"] >= LEVEL, "budget"].min()
    return None if pd.isna(found) else int(found)


def draw(evidence: Evidence) -> Any:
    """The sum over heads (left) beside the maximum over heads at the same points (right)."""
    from headcount.report.drawing.curve_panels import (
        POINT_COLUMNS,
        curve_panels,
        grid_curves,
        point_labels,
    )

    control = grid_curves(evidence, "linear")
    core = evidence.on("base").merge(control[POINT_COLUMNS].drop_duplicates(), on=POINT_COLUMNS)
    core = core.assign(panel=point_labels(core)) if len(core) else core
    both = pd.concat(
        [control.assign(way="sum over heads"), core.assign(way="max over heads")], ignore_index=True
    )
    both = both.assign(
        panel=both["panel"] + ": " + both["way"], order=both["way"] != "sum over heads"
    )
    both = both.sort_values([*POINT_COLUMNS, "order", "heads", "budget"], ignore_index=True)
    note = (
        "left: a sum over heads is one bilinear form of rank D_K whatever h, so the lines should "
        "coincide"
    )
    return curve_panels(
        both,
        "Control: sum over heads beside max over heads",
        note,
        columns=2,
        width=330,
        height=190,
    )


def linear_control(evidence: Evidence) -> Claim:
    """K1: judged at equal budgets, and by whether several heads pass with less."""
    points = [point for point in linear_points(evidence) if point.gap is not None]
    checks, gaps = [Check(None, "")], []
    if points:
        gaps = [point.gap for point in points if point.gap is not None]
        pairs = sum(len(point.gaps) for point in points)
        largest = max(point.largest for point in points)
        text = (
            f"median gap in F1 at most {num(max(gaps), 2)} over {counted(len(points), 'point')} "
            f"({pairs} pairs; largest {num(largest, 2)})"
        )
        checks = [Check(all(point.equal for point in points), text), _no_saving(points)]
    measured = {"points": len(points), "seeds": least_seeds(curves_on(evidence, "linear"))}
    brief = f"median gap in F1 at most {num(max(gaps), 2)}" if points else ""
    return judged("K1", checks, measured, brief)


def _no_saving(points: Sequence[LinearPoint]) -> Check:
    """Whether several heads pass with less than one; the check is empty where nothing passes."""
    passed = [point for point in points if point.passes]
    saving = [(point.items, point.d_model) for point in passed if point.saves]
    empty = pairs_text((point.items, point.d_model) for point in points if not point.passes)
    rest = (
        ""
        if len(passed) == len(points)
        else f"nothing passes at {empty}, so thresholds say nothing there"
    )
    if not passed:
        return Check(None, rest)
    text = f"several heads pass with less at {len(saving)} of {counted(len(passed), 'point')}"
    text += f", {pairs_text(saving)}" if saving else ""
    return Check(not saving, f"{text}; {rest}" if rest else text)


def compare(evidence: Evidence) -> list[Comparison]:
    """Several heads whose scores are summed, beside one of the same budget."""
    grid = paper.grid("linear")
    return [
        Comparison(
            what=(
                f"F1 of several heads minus that of one at ({point.items}, {point.d_model}), "
                "median size"
            ),
            paper="0: equivalent to one head",
            ours=f"{num(point.gap, 2)} ({counted(len(point.gaps), 'pair')} at equal D_K; largest "
            f"{num(point.largest, 2)}{'' if point.passes else '; none passes'})",
            difference="same" if point.equal else "differs",
            overlap=None,
            place=grid.place,
        )
        for point in linear_points(evidence)
        if point.gap is not None
    ]


def meaning(evidence: Evidence) -> str:
    """Whether several heads whose scores are summed do better than one."""
    points = [point for point in linear_points(evidence) if point.gap is not None]
    if not points:
        return BEYOND
    gap, largest = max(point.gap or 0.0 for point in points), max(point.largest for point in points)
    parts = []
    for point in points:
        least = min(
            (budget for budget in (point.one_head, point.several) if budget is not None),
            default=None,
        )
        if point.under_max is not None:
            found = "at no tested D_K" if least is None else f"from D_K = {least}"
            parts.append(f"({point.items}, {point.d_model}) {found} (max: from {point.under_max})")
    passed = (
        f"Summed scores pass at {listed(parts)}."
        if parts
        else "The same points were not measured under max."
    )
    same = (
        "score like one head"
        if all(point.equal for point in points)
        else "do not score like one head"
    )
    return (
        f"Several heads whose scores are summed {same} of the same D_K: the median gap in F1 is "
        f"at most {num(gap, 2)} over {counted(len(points), 'point')}, and the largest gap is "
        f"{num(largest, 2)}. {passed}"
    )


FIGURE = Figure(
    id="linear",
    title="Beyond the paper: scores summed over heads",
    grids=("linear",),
    also=(Need("base", paper.grid("linear").points),),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(linear_control,),
)
