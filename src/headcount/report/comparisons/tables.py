"""Comparisons of Tables 1 and 2."""

from __future__ import annotations

from statistics import median

from headcount.paper import data as paper
from headcount.report.figure import Comparison
from headcount.report.readings.frames import rows, whole
from headcount.report.readings.paper_widths import PaperWidth, paper_widths
from headcount.report.side_by_side import measured
from headcount.report.words import allowed_text, counted, num, signed
from headcount.reproduction.evidence import Evidence


def table1(evidence: Evidence) -> list[Comparison]:
    """d_k* of every base point, with what the paper's own width does in our runs."""
    found = paper_widths(evidence)
    if not found:
        return []
    widths = [point.key_dim for point in found]
    points = counted(len(widths), "point")
    low, high = whole("key-dim.range")
    inside = sum(low <= width <= high for width in widths)
    ends = Comparison(
        what="least and largest d_k*",
        paper=f"[{low}, {high}]",
        ours=f"[{min(widths)}, {max(widths)}]; {inside} of {points} in the paper's",
        difference=f"{signed(min(widths) - low)}, {signed(max(widths) - high)}",
        overlap=None,
        place=paper.number("key-dim.range").place,
    )
    own = median(paper.table_1()["key_dim"].tolist())
    middle = f"median d_k* (the entries of Table 1 have {own:g})"
    return [
        *(_width(point) for point in found),
        _own_split(found),
        ends,
        measured("key-dim.median", middle, float(median(widths)), detail=points),
    ]


def table2(evidence: Evidence) -> list[Comparison]:
    """The step cutoffs, which are the paper's."""
    listed = list(rows(paper.table_2(), "items", "d_model", "steps"))
    same = sum(paper.step_cutoff(m, d) == cutoff for m, d, cutoff in listed)
    return [
        Comparison(
            what="training step cutoffs",
            paper=f"{counted(len(listed), 'point')} listed",
            ours=f"{same} of {len(listed)} the same",
            difference="same" if same == len(listed) else "differs",
            overlap=None,
            place="Table 2",
        )
    ]


def _width(point: PaperWidth) -> Comparison:
    """One entry of Table 1; the paper's width in our runs tells another search from another training."""
    heads = counted(point.heads, "head")
    tried = [split for split in (point.nearest, point.passing) if split is not None]
    own = (
        f"; the paper's width: {'; '.join(dict.fromkeys(split.text for split in tried))}"
        if tried
        else ""
    )
    return Comparison(
        what=f"d_k* at m = {point.items}, d_model = {point.d_model}",
        paper=str(point.width),
        ours=f"{point.key_dim} ({allowed_text(point.interval)}; D_K* {point.budget}, {heads}){own}",
        difference=signed(point.key_dim - point.width),
        overlap=None,
        place="Table 1",
    )


def _own_split(found: list[PaperWidth]) -> Comparison:
    """At how many of the points swept in full the paper's width passes with us, and with a budget near ours."""
    found = [point for point in found if point.nearest]
    passed = [point.passing.budget / point.budget for point in found if point.passing]
    lower = [point for point in found if point.key_dim < point.width]
    also = sum(point.passing is not None for point in lower)
    at = f", at × {num(min(passed))} to × {num(max(passed))} of our D_K*" if passed else ""
    return Comparison(
        what="points swept with every head count where the paper's width passes with one of them",
        paper=str(len(found)),
        ours=f"{len(passed)}{at}; of the {len(lower)} where ours is narrower {also}",
        difference=signed(len(passed) - len(found)),
        overlap=None,
        place="Table 1",
    )
