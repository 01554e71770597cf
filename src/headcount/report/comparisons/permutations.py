"""Comparisons of the permutation runs: Figs. 1–4 and 8–10."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.analysis.fits import LineFit
from headcount.analysis.laws import feature
from headcount.paper import data as paper
from headcount.report.figure import Comparison
from headcount.report.readings.diagonal import diagonal
from headcount.report.readings.frames import curves_on, pairs, passing, rows
from headcount.report.readings.permutations import (
    budget_line,
    heads_line,
    rank_correlation,
    rise,
    steps,
    with_heads,
)
from headcount.report.side_by_side import in_words, measured, runs_row
from headcount.report.words import allowed_text, counted, f1_text, num, pairs_text, percent
from headcount.reproduction.evidence import Evidence


def fig1(evidence: Evidence) -> list[Comparison]:
    """One head at (256, 32)."""
    at = dict(paper.number("fig-1.single-head").at)
    told = [
        in_words(
            "fig-1.single-head",
            few.worse,
            f"one head reaches F1 {f1_text(few.best)} up to D_K {few.scanned}; "
            f"{counted(few.best_heads, 'head')} pass from D_K {few.budget}",
        )
        for few in with_heads(evidence, "base")
        if (few.items, few.d_model) == (at["items"], at["d_model"])
    ]
    return told + runs_row("fig-1.runs", curves_on(evidence, "base", **at))


def fig2(evidence: Evidence) -> list[Comparison]:
    """h* by m and d_model."""
    table = passing(evidence, "base")
    by_items, by_width = steps(table, "heads", "items"), steps(table, "heads", "d_model")
    told = []
    if by_items.all and by_width.all:
        holds = not by_items.down and not by_width.up and by_items.up > 0 and by_width.down > 0
        text = (
            f"with m up in {by_items.up} and level in {by_items.level} of {counted(by_items.all, 'step')}; "
            f"with d_model down in {by_width.down} and level in {by_width.level} of {by_width.all}"
        )
        told.append(in_words("fig-2.heads-rise", holds, text))
    rank = rank_correlation(
        [m / d for m, d in rows(table, "items", "d_model")], [h for (h,) in rows(table, "heads")]
    )
    if rank is not None:
        text = f"rank correlation of h* with λ {num(rank)}, {counted(len(table), 'point')}"
        told.append(in_words("fig-2.compression", rank > 0, text))
    return told


def fig3(evidence: Evidence) -> list[Comparison]:
    """The capacity law."""
    told = []
    for base, part, text in _readings(
        (("budget", "all points"), ("wide", "without d_model = 16, m > 64")), evidence
    ):
        line = budget_line(evidence, wide=part == "wide", base=base)
        if line is not None:
            told += _line(
                line,
                f"D_K* against m log₂ m/d_model, {text}",
                f"law.{part}.slope",
                f"law.{part}.r2",
            )
    wide = budget_line(evidence, wide=True)
    table = passing(evidence, "base")
    narrow = table.loc[(table["d_model"] == 16) & (table["items"] > 64)]
    if wide is not None and len(narrow):
        x = feature(narrow, "edges·log2(items)/d_model")
        above = int((narrow["central"].to_numpy(dtype=float) > wide.slope * x).sum())
        told.append(
            in_words("law.wide.above", above == len(narrow), f"{above} of {len(narrow)} lie above")
        )
    return told


def fig4(evidence: Evidence) -> list[Comparison]:
    """The diagonal m/d_model = 8."""
    found, told = diagonal(evidence), []
    if found.growth is not None:
        ours, logarithm = found.growth
        first, last = found.items[found.large[0]], found.items[found.large[-1]]
        points = counted(len(found.large), "point")
        steps_allowed = f"; Table 2: {found.step_limits}" if found.step_limits else ""
        told.append(
            Comparison(
                what=f"growth of D_K* from m = {first:,} to {last:,}; the paper's is that of log m",
                paper=f"× {num(logarithm)}",
                ours=f"× {num(ours)} ({allowed_text(found.growth_interval)}; {points}{steps_allowed})",
                difference=percent(ours, logarithm),
                overlap=None,
                place=paper.number("diagonal.logarithmic-from").place,
            )
        )
    if found.above is not None:
        above, small = found.above
        told.append(in_words("diagonal.first-two", above == small, f"{above} of {small} lie above"))
    if found.level is not None:
        text = f"h* {', '.join(str(h) for h in found.heads)} at m = {', '.join(str(m) for m in found.items)}"
        told.append(in_words("diagonal.heads", found.level, text))
    return told


def fig8(evidence: Evidence) -> list[Comparison]:
    """D_K* by m and d_model."""
    table = passing(evidence, "base")
    by_items, by_width = steps(table, "central", "items"), steps(table, "central", "d_model")
    if not by_items.all or not by_width.all:
        return []
    holds = by_items.up == by_items.all and by_width.down == by_width.all
    text = f"up in {by_items.up} of {counted(by_items.all, 'step')} in m, down in {by_width.down} of {by_width.all}"
    return [in_words("thresholds.trend", holds, f"{text} in d_model")]


def fig9(evidence: Evidence) -> list[Comparison]:
    """One head at the points that the paper names, and how fast F1 rises."""
    named = pairs("single-head.fails")
    found = {(few.items, few.d_model): few for few in with_heads(evidence, "base")}
    seen = [point for point in named if point in found]
    told = []
    if seen:
        failed = [point for point in seen if found[point].fails]
        missing = "" if len(seen) == len(named) else f"; measured: {pairs_text(seen)}"
        told.append(in_words("single-head.fails", failed == seen, f"{pairs_text(failed)}{missing}"))
    speed = rise(evidence, ["base"])
    if speed is not None:
        told.append(
            in_words(
                "transition.sharp", speed.narrow_top and speed.narrow_whole is True, speed.text
            )
        )
    return told + runs_row("fig-9.runs", curves_on(evidence, "base"))


def fig10(evidence: Evidence) -> list[Comparison]:
    """The law of heads."""
    told = []
    for base, _, text in _readings((("heads", "all points"),), evidence):
        line = heads_line(evidence, base=base)
        if line is not None:
            what = f"h* against m/d_model, {text}"
            slope, r2 = _line(line, what, "law.heads.slope", "law.heads.r2")
            ends = line.intercept_interval()
            told += [
                slope,
                measured("law.heads.intercept", f"{what}: intercept", line.intercept, ends),
                r2,
            ]
    return told


def _readings(parts: Sequence[tuple[str, str]], evidence: Evidence) -> list[tuple[bool, str, str]]:
    """Each part over all points of the law, then over the base grid alone where that is less."""
    found = [(False, name, text) for name, text in parts]
    if len(evidence.law_points()) > len(passing(evidence, "base")):
        found += [(True, name, f"{text} of the base grid") for name, text in parts]
    return found


def _line(line: LineFit, what: str, slope: str, r2: str) -> list[Comparison]:
    """Slope and R² of a fit."""
    points = counted(line.points, "point")
    return [
        measured(slope, f"{what}: slope", line.slope, line.slope_interval(), points),
        measured(r2, f"{what}: R²", line.r_squared, detail=points, relative=False),
    ]
