"""Figure 5: softmax over the context beside the maximum over heads."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import log2
from typing import Any

from headcount.paper import data as paper
from headcount.report.figures.base import UNMEASURED, Check, Claim, Comparison, Figure, judged
from headcount.report.figures.comparison_rows import finding_row, runs_row
from headcount.report.formatting import counted, listed, num, pairs_text, span_text
from headcount.report.readings.few_heads import FewHeads, with_heads
from headcount.report.readings.frames import by_point, curves_on, least_seeds, passing, rows
from headcount.report.readings.paper_numbers import paper_pairs, quoted
from headcount.report.rules import rule
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.presets import Need

LOG_SPREAD = rule("C20")["spread"]  # of the ratio of softmax to max over log m


@dataclass(frozen=True)
class SoftmaxPanel:
    """One point under softmax beside the same under max."""

    items: int
    d_model: int
    budget: int | None  # D_K* under softmax; None where no tested budget passes
    scanned: int
    under_max: int
    one_head: FewHeads | None

    @property
    def right(self) -> bool:
        """Whether softmax needs more than max; if it never passes, whether more was scanned."""
        return (self.budget or self.scanned) > self.under_max

    @property
    def compressed(self) -> bool:
        """Whether the paper expects a multi-head advantage here."""
        return (self.items, self.d_model) not in paper_pairs("softmax.exception")


def softmax_panels(evidence: Evidence) -> list[SoftmaxPanel]:
    """Every point measured under softmax and under max (Fig. 5)."""
    curves = curves_on(evidence, "softmax")
    under_max = {
        (m, d): budget
        for m, d, budget in rows(passing(evidence, "base"), "items", "d_model", "central")
    }
    passed = {
        (m, d): budget
        for m, d, budget in rows(passing(evidence, "softmax"), "items", "d_model", "central")
    }
    alone = {(few.items, few.d_model): few for few in with_heads(evidence, "softmax")}
    found = []
    for point, curve in by_point(curves):
        if point in under_max:
            largest = max(curve["budget"].tolist())
            found.append(
                SoftmaxPanel(*point, passed.get(point), largest, under_max[point], alone.get(point))
            )
    return found


def draw(evidence: Evidence) -> Any:
    """The curves under softmax, one panel per (m, d_model), with the D_K* of max if known."""
    from headcount.report.drawing.curve_panels import POINT_COLUMNS, curve_panels, grid_curves

    curves = grid_curves(evidence, "softmax")
    known = (
        evidence.on("base", "thresholds")
        .loc[:, [*POINT_COLUMNS, "central"]]
        .rename(columns={"central": "star"})
    )
    curves = curves.merge(known.astype({"star": float}), on=POINT_COLUMNS, how="left")
    note = (
        "dotted vertical line: D_K* of max over heads at the same point"
        if any(curves["star"].notna())
        else ""
    )
    return curve_panels(curves, "F1–D_K curves with softmax over the context", note, columns=3)


def softmax_right(evidence: Evidence) -> Claim:
    """C6: judged panel by panel against max at the same point."""
    panels = softmax_panels(evidence)
    right = [panel for panel in panels if panel.right]
    tested = [panel for panel in panels if panel.compressed and panel.one_head is not None]
    helped = [panel for panel in tested if panel.one_head is not None and panel.one_head.worse]
    checks, factors = [Check(None, "")], []
    if panels:
        factors = [panel.budget / panel.under_max for panel in panels if panel.budget is not None]
        size = f", {span_text(factors)} its D_K*" if factors else ""
        never = len(panels) - len(factors)
        gap = f", {never} of which never pass" if never else ""
        text = f"more than max in {len(right)} of {counted(len(panels), 'panel')}{size}{gap}"
        checks = [Check(2 * len(right) > len(panels), text), Check(len(right) == len(panels), "")]
        text = (
            f"several heads beat one in {len(helped)} of {counted(len(tested), 'compressed panel')}"
        )
        checks.append(Check(len(helped) == len(tested) if tested else None, text))
    measured = {"panels": len(panels), "seeds": least_seeds(curves_on(evidence, "softmax"))}
    brief = f"{span_text(factors)} the D_K* of max" if panels and factors else ""
    return judged("C6", checks, measured, brief)


def log_factor(evidence: Evidence) -> Claim:
    """C20: judged by D_K* under softmax over D_K* under max, along m."""
    ratios = {
        (panel.d_model, panel.items): panel.budget / panel.under_max
        for panel in softmax_panels(evidence)
        if panel.budget is not None
    }
    steps = [
        after - before
        for ((width, _), before), ((next_width, _), after) in pairwise(sorted(ratios.items()))
        if width == next_width
    ]
    if not steps:
        return judged("C20", [Check(None, "")])
    scaled = [ratio / log2(items) for (_, items), ratio in ratios.items()]
    spread, sizes = max(scaled) / min(scaled), {items for _, items in ratios}
    rising = sum(step > 0 for step in steps)
    each = [
        f"{num(ratio)} at ({items}, {width})" for (width, items), ratio in sorted(ratios.items())
    ]
    grows = f"it grows in {rising} of {counted(len(steps), 'step')} in m"
    span = log2(max(sizes)) / log2(min(sizes))
    checks = [
        Check(2 * rising > len(steps), f"D_K* over that of max is {listed(each)}: {grows}"),
        Check(
            spread <= LOG_SPREAD,
            f"over log m it varies × {num(spread)}, where log m itself varies × {num(span)}",
        ),
    ]
    measured = {"sizes": len(sizes), "seeds": least_seeds(curves_on(evidence, "softmax"))}
    brief = f"{span_text(list(ratios.values()))} the D_K* of max; {grows}"
    return judged("C20", checks, measured, brief)


def compare(evidence: Evidence) -> list[Comparison]:
    """Softmax beside max, and where several heads help."""
    panels, compared = softmax_panels(evidence), []
    if panels:
        factors = [
            f"({panel.items}, {panel.d_model}) {panel.under_max} → "
            f"{panel.budget or f'over {panel.scanned}'}"
            for panel in panels
        ]
        compared.append(
            finding_row("softmax.right", all(panel.right for panel in panels), ", ".join(factors))
        )
    seen = [panel for panel in panels if panel.one_head is not None]
    helped = [
        (panel.items, panel.d_model) for panel in seen if panel.one_head and panel.one_head.worse
    ]
    if seen:
        expected = [(panel.items, panel.d_model) for panel in seen if panel.compressed]
        text = f"{len(helped)} of {counted(len(seen), 'panel')}: {pairs_text(helped)}"
        compared.append(finding_row("softmax.advantage", helped == expected, text))
        if set(paper_pairs("softmax.exception")) <= {
            (panel.items, panel.d_model) for panel in seen
        }:
            without = [
                (panel.items, panel.d_model)
                for panel in seen
                if (panel.items, panel.d_model) not in helped
            ]
            compared.append(
                finding_row(
                    "softmax.exception",
                    set(without) == set(paper_pairs("softmax.exception")),
                    pairs_text(without),
                )
            )
    return compared + runs_row("softmax.runs", curves_on(evidence, "softmax"))


def meaning(evidence: Evidence) -> str:
    """How much more softmax needs than max."""
    panels = softmax_panels(evidence)
    if not panels:
        return UNMEASURED
    factors = [panel.budget / panel.under_max for panel in panels if panel.budget is not None]
    size = (
        f"needs {span_text(factors)} the D_K* of max"
        if factors
        else "never reaches 0.99 within the scanned D_K"
    )
    helped = [(p.items, p.d_model) for p in panels if p.one_head is not None and p.one_head.worse]
    expected = [(p.items, p.d_model) for p in panels if p.one_head is not None and p.compressed]
    ending = (
        ", as in the paper"
        if helped == expected
        else f"; the paper has it in all except {quoted('softmax.exception')}"
    )
    never = (
        f" ({len(panels) - len(factors)} never pass)"
        if factors and len(factors) < len(panels)
        else ""
    )
    right = "to the right" if all(panel.right for panel in panels) else "not always to the right"
    return (
        f"In the {counted(len(panels), 'panel')} measured softmax {size}{never}: its curves lie "
        f"{right}. Several heads beat one at {pairs_text(helped)}{ending}."
    )


FIGURE = Figure(
    id="fig5",
    title="Figure 5. F1 against D_K under softmax",
    grids=("softmax",),
    also=(Need("base", paper.grid("softmax").points),),
    draw=draw,
    compare=compare,
    meaning=meaning,
    claims=(softmax_right, log_factor),
)
