"""Figure 6: retrieval through a value channel, by mean squared error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged
from headcount.report.figures.comparison_rows import finding_row, runs_row
from headcount.report.formatting import counted, listed, num, percent
from headcount.report.readings.frames import curves_on, least_seeds, rows
from headcount.report.readings.paper_numbers import paper_integers, paper_value, quoted
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence

APART = rule("C7")["apart"]  # a quarter more error is a clear separation
LATE_GAIN = rule("C7")["late_gain"]  # with less in its upper budgets one head plateaus


@dataclass(frozen=True)
class ValuePanel:
    """Mean squared errors at one d_model.

    `lowest` has, by head count, the lowest error, the ends of its interval, and its budget.
    """

    d_model: int
    lowest: dict[int, tuple[float, float, float, int]]
    late_gain: float | None  # share that one head still gains over the upper half of its budgets
    low_budget_loss: int | None  # least budget at which one head beats 16, if any

    @property
    def several(self) -> float:
        """The lowest error with 4 heads or more, the head counts that the paper names."""
        least = paper_value("value.least-heads")
        return min(error for heads, (error, *_) in self.lowest.items() if heads >= least)

    @property
    def gap(self) -> float:
        """One head's lowest error over that of several heads."""
        return self.lowest[1][0] / self.several

    @property
    def separated(self) -> bool:
        """Whether one head's lowest error lies clearly above."""
        return self.gap >= APART

    @property
    def plateaus(self) -> bool | None:
        """Whether one head hardly improves over the upper half of its budgets; None if unknown."""
        return None if self.late_gain is None else self.late_gain <= LATE_GAIN

    @property
    def least_heads(self) -> int | None:
        """The fewest heads whose lowest error is clearly below that of one head, if any."""
        one = self.lowest[1][0]
        return min(
            (heads for heads, (error, *_) in self.lowest.items() if one >= APART * error),
            default=None,
        )

    @property
    def late_text(self) -> str:
        """How one head's error changes over the upper half of its budgets."""
        return (
            f"it changes by {percent(1 - (self.late_gain or 0.0), 1)} over the upper half of its "
            "D_K"
        )

    @property
    def best_heads(self) -> int:
        return min(self.lowest, key=lambda heads: self.lowest[heads][0])

    @property
    def best_text(self) -> str:
        """The best head count and those that tie with it: "2 heads, tied with 4 and 8"."""
        tied = [str(heads) for heads in self.tied_heads if heads != self.best_heads]
        return counted(self.best_heads, "head") + (f", tied with {listed(tied)}" if tied else "")

    @property
    def paper_heads(self) -> tuple[int, ...]:
        """Of the head counts that the paper finds best, those that are best or tied here."""
        return tuple(
            heads
            for heads in paper_integers("value.relaxed.best-heads")
            if heads in self.tied_heads
        )

    @property
    def tied_heads(self) -> tuple[int, ...]:
        """Head counts whose lowest error's interval meets that of the best."""
        _, low, high, _ = self.lowest[self.best_heads]
        return tuple(
            sorted(
                heads
                for heads, entry in self.lowest.items()
                if entry[1] <= high and entry[2] >= low
            )
        )


def value_panel(evidence: Evidence, d_model: int) -> ValuePanel | None:
    """One panel of Fig. 6; None where one head or 4 heads and more were not measured."""
    curves = curves_on(evidence, "value", d_model=d_model)
    lowest = {}
    for heads, curve in curves.groupby("heads"):
        error, low, high, budget = next(
            rows(curve.nsmallest(1, "mean"), "mean", "low", "high", "budget")
        )
        ends = (error if low is None else low, error if high is None else high)
        lowest[int(heads)] = (error, *ends, budget)  # pyright: ignore[reportArgumentType]
    if 1 not in lowest or max(lowest) < paper_value("value.least-heads"):
        return None
    one = curves.loc[curves["heads"] == 1].sort_values("budget")
    upper = one.loc[2 * one["budget"] >= one["budget"].max(), "mean"].tolist()
    gain = 1 - upper[-1] / upper[0] if len(upper) > 1 else None
    many = curves.loc[
        curves["heads"] == paper_value("value.relaxed.fragmented"), ["budget", "mean"]
    ]
    beaten = (
        one.merge(many, on="budget", suffixes=("", "_many"))
        .query("mean < mean_many")["budget"]
        .min()
    )
    return ValuePanel(d_model, lowest, gain, None if pd.isna(beaten) else int(beaten))


def draw(evidence: Evidence) -> Any:
    """Mean squared error of value retrieval, one panel per d_model."""
    from headcount.report.drawing.curve_panels import curve_panels, grid_curves

    curves = grid_curves(evidence, "value")
    return curve_panels(
        curves,
        "Value retrieval: mean squared error against D_K",
        columns=2,
        width=330,
        height=260,
        metric="MSE",
    )


def value_channel(evidence: Evidence) -> Claim:
    """C7: judged by the lowest mean squared error of one head and of 4 or more."""
    narrow, wide = (value_panel(evidence, d_model) for d_model in paper_integers("value.d-model"))
    checks = [Check(None, "")]
    if narrow is not None:
        text = (
            f"d_model = {narrow.d_model}: one head's lowest error is {num(narrow.gap)} times that "
            "of several"
        )
        checks = [Check(narrow.separated, text)]
        checks.append(
            Check(narrow.plateaus, narrow.late_text if narrow.late_gain is not None else "")
        )
        checks.append(_check_relaxed(wide))
    seeds = least_seeds(curves_on(evidence, "value"))
    measured = {"panels": sum(panel is not None for panel in (narrow, wide)), "seeds": seeds}
    return judged("C7", checks, measured, _error_brief(narrow, wide))


def _error_brief(narrow: ValuePanel | None, wide: ValuePanel | None) -> str:
    if narrow is None:
        return ""
    text = f"one head's error is {num(narrow.gap)} times as large at d_model = {narrow.d_model}"
    return text if wide is None else f"{text}, {num(wide.gap)} at {wide.d_model} (competitive)"


def _check_relaxed(wide: ValuePanel | None) -> Check:
    """The panel d_model = 32: one head is competitive, and several heads end lowest."""
    if wide is None:
        return Check(None, "d_model = 32 not measured")
    text = f"d_model = {wide.d_model}: {num(wide.gap)} times, lowest with {wide.best_text}"
    return Check(not wide.separated and wide.best_heads > 1, text)


def compare(evidence: Evidence) -> list[Comparison]:
    """What the paper says of both panels."""
    narrow, wide = paper_integers("value.d-model")
    compared = []
    panel = value_panel(evidence, narrow)
    if panel is not None:
        compared += _compressed_rows(panel)
    relaxed = value_panel(evidence, wide)
    if relaxed is not None:
        compared += _relaxed_rows(relaxed)
    return compared + runs_row("value.runs", curves_on(evidence, "value"))


def _compressed_rows(panel: ValuePanel) -> list[Comparison]:
    """d_model = 16: one head plateaus, several fall."""
    text = f"lowest error {num(panel.gap)} times that of several heads"
    gain = "" if panel.late_gain is None else f"; {panel.late_text}"
    least, tested = panel.least_heads, listed([str(heads) for heads in panel.lowest])
    falls = f"{'none' if least is None else least} of {tested}"
    return [
        finding_row(
            "value.single-head", panel.separated and panel.plateaus is not False, text + gain
        ),
        finding_row("value.least-heads", least == paper_value("value.least-heads"), falls),
    ]


def _relaxed_rows(panel: ValuePanel) -> list[Comparison]:
    """d_model = 32: one head is competitive."""
    beaten = panel.low_budget_loss
    low = "never lower" if beaten is None else f"one head lower at D_K {beaten}"
    text = f"lowest error {num(panel.gap)} times that of several heads"
    return [
        finding_row("value.relaxed.single-head", not panel.separated, text),
        finding_row(
            "value.relaxed.fragmented",
            beaten is not None,
            low,
            "a head count that one head beats at some D_K: 16",
        ),
        finding_row("value.relaxed.best-heads", bool(panel.paper_heads), panel.best_text),
    ]


def meaning(evidence: Evidence) -> str:
    """Where one head ends beside several."""
    narrow, wide = (value_panel(evidence, d_model) for d_model in paper_integers("value.d-model"))
    if narrow is None:
        return UNMEASURED
    verdict = (
        "fails where several succeed, as in"
        if narrow.separated
        else "is not clearly worse than several, unlike in"
    )
    first = (
        f"At d_model = {narrow.d_model} one head ends at {num(narrow.gap)} times the error of 4 "
        f"heads or more, so it {verdict} the paper."
    )
    if wide is None:
        return f"{first} The less compressed panel was not measured."
    return (
        f"{first} At d_model = {wide.d_model} the lowest error comes with {wide.best_text} "
        f"(paper: {quoted('value.relaxed.best-heads')}), and one head ends at {num(wide.gap)} "
        f"times that of 4 or more: {_relaxed_text(wide)}."
    )


def _relaxed_text(wide: ValuePanel) -> str:
    """What of the paper's two findings at d_model = 32 differs."""
    if wide.separated:
        return (
            'only that one head is "competitive" differs'
            if wide.paper_heads
            else "both differ from the paper"
        )
    return "both as in the paper" if wide.paper_heads else "only the best head counts differ"


FIGURE = Figure(
    id="fig6",
    title="Figure 6. Value retrieval",
    grids=("value",),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(value_channel,),
)
