"""What of a preset fits into some minutes where only a slow engine can train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headcount.reproduction.forecast import expected_runs
from headcount.store.store import Store
from headcount.sweeps.cost import estimate
from headcount.sweeps.file import GridPart, SearchPart, SweepFile
from headcount.training.engines.base import Engine
from headcount.training.spec import RunSpec

Point = tuple[int, int, int]  # m, d_model and degree


def fitting(
    sweep: SweepFile, engine: Engine, store: Store, seconds: float
) -> tuple[SweepFile, list[str]]:
    """The points of a sweep that train in about this time, and in words those that are left out.

    Points are taken in the order of their cost, the cheapest first and at least one. A run that is
    stored already costs nothing, so that the same command goes further the next time.
    """
    expected = expected_runs(sweep)
    known = store.known(expected)
    todo = [spec for spec in expected if spec.hash not in known]
    each = estimate(todo, engine).each
    prices = {
        spec: most * expected[spec] / spec.steps for spec, most in zip(todo, each, strict=True)
    }
    parts: list[GridPart | SearchPart] = [*sweep.grids, *sweep.searches]
    cells = {(n, _point(spec)): [] for n, part in enumerate(parts) for spec in part.runs}
    for n, part in enumerate(parts):
        for spec in part.runs:
            cells[n, _point(spec)].append(spec)
    taken: set[tuple[int, Point]] = set()
    paid: set[RunSpec] = set()
    left = seconds
    for cell in sorted(cells, key=lambda cell: sum(prices.get(spec, 0.0) for spec in cells[cell])):
        cost = sum(prices.get(spec, 0.0) for spec in cells[cell] if spec not in paid)
        if cost <= left or not taken:
            taken.add(cell)
            paid.update(cells[cell])
            left -= cost

    def kept(some: Iterable[GridPart | SearchPart]) -> tuple:
        shrunk = (
            replace(
                part, runs=tuple(s for s in part.runs if (parts.index(part), _point(s)) in taken)
            )
            for part in some
        )
        return tuple(part for part in shrunk if part.runs)

    left_out = [
        _in_words(part, [point for n, point in cells if n == number and (n, point) not in taken])
        for number, part in enumerate(parts)
    ]
    return (
        replace(sweep, grids=kept(sweep.grids), searches=kept(sweep.searches)),
        [words for words in left_out if words],
    )


def _point(spec: RunSpec) -> Point:
    return spec.items, spec.d_model, spec.degree


def _in_words(part: GridPart | SearchPart, points: list[Point]) -> str:
    """What is left out of a part, such as "thresholds of the grid base at (512, 64)"."""
    if not points:
        return ""
    what = "curves" if isinstance(part, GridPart) else "thresholds"
    several = len({spec.degree for spec in part.runs}) > 1
    each = [f"({m}, {d})" + (f" with r = {r}" if several else "") for m, d, r in points]
    return f"{what} of the grid {part.paper} at {', '.join(each)}"
