"""The frontier: the smallest D_K of compiled weights beside trained and constructed ones."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headcount.analysis.laws import fit_law
from headcount.compiler.compile import compile
from headcount.errors import InputError, NoSolution
from headcount.interrupts import stoppable
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import graph_of_degree
from headcount.progress import time_left
from headcount.provenance import machine
from headcount.reproduction.evidence import gather
from headcount.reproduction.frontier_file import (
    KEY,
    KNOWN,
    frontier_table,
    read_frontier,
    write_frontier,
)
from headcount.reproduction.presets import Need, preset, restricted
from headcount.reproduction.shipped import MEASURED, measured_runs
from headcount.theory.counting import check_sizes, family_of, log2_graphs
from headcount.theory.laws import TrainedLaw
from headcount.theory.lower_bounds import lower_bounds

TIME_LIMIT = 20.0  # seconds per point
_TRAINED_GRIDS = ("base", "regular", "diagonal", "extreme")  # with thresholds under max
Report = Callable[[str], None]
Size = tuple[int, int, int]  # items, d_model, degree


class FrontierPoint(NamedTuple):
    """What is compiled for one row: the sizes, and the seed of graph, table and descents."""

    items: int
    d_model: int
    degree: int = 1
    seed: int = 0

    @property
    def size(self) -> Size:
        """The point without its seed."""
        return self[:3]

    @property
    def name(self) -> str:
        """The point as it is printed.

        >>> FrontierPoint(64, 16).name, FrontierPoint(128, 32, 4, seed=1).name
        ('(64, 16)', '(128, 32), r = 4, seed 1')
        """
        degree = f", r = {self.degree}" if self.degree > 1 else ""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"({self.items}, {self.d_model}){degree}{seed}"


def frontier(
    points: Sequence[tuple[int, int]],
    degrees: Sequence[int] = (1,),
    seeds: int = 1,
    time_limit: float = TIME_LIMIT,
    seed: int = 0,
    progress: Report | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
) -> pd.DataFrame:
    """Compile a random graph on a Gaussian table at each (items, d_model), degree and seed.

    Gives one row each. `budget` is the smallest D_K that `compile` certified in `time_limit`
    seconds, in `heads` of the `widths`, with the `relative_margin` γ/|τ|; it is missing where none
    was certified. `bits` is log2 of the number of graphs, and `bits_per_parameter` is
    bits/(2·d_model·D_K). `trained` is the D_K* of our own runs and `constructed` the smallest exact
    construction, where they are known; `lower_bound` is the largest of `lower_bounds`.

    With `out`, a .csv file, rows are written as they are found, and those with a budget that it
    holds are not computed again. An interrupt (Ctrl-C) ends the search; the rows that are finished
    are returned. `device` is where `compile` searches: auto, cpu or cuda.

    >>> table = frontier([(16, 8)], time_limit=1)
    >>> table[["items", "d_model", "degree", "lower_bound"]].values.tolist()
    [[16, 8, 1, 1]]
    """
    if out is not None and Path(out).suffix.lower() != ".csv":
        raise InputError(f"{out}: the frontier is written as .csv; give the file that suffix")
    asked = frontier_points(points, degrees, seeds, seed)
    return compile_points(asked, time_limit, progress, out, device)


def frontier_points(
    points: Sequence[tuple[int, int]], degrees: Sequence[int] = (1,), seeds: int = 1, seed: int = 0
) -> list[FrontierPoint]:
    """The points of a grid; impossible sizes are refused before anything is computed."""
    if seeds < 1:
        raise InputError(f"seeds {seeds}: leaves nothing to compile; choose at least 1")
    asked = [
        FrontierPoint(*point, degree, seed + n)
        for degree in degrees
        for point in dict.fromkeys(points)
        for n in range(seeds)
    ]
    for one in asked:
        if not 1 <= one.degree < max(one.items, 2):
            raise InputError(
                f"degree {one.degree}: {one.items} items allow 1 to {one.items - 1}; "
                "choose one of these"
            )
        check_sizes(one.items, one.items * one.degree, one.d_model)
    return asked


def compile_points(
    asked: Sequence[FrontierPoint],
    time_limit: float = TIME_LIMIT,
    progress: Report | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
) -> pd.DataFrame:
    """The rows of these points, as `frontier` gives them."""
    path = Path(out) if out is not None else None
    kept = _records(read_frontier(path)) if path and path.exists() else {}
    # A search that found nothing is worth another try: it may have more time, or less company.
    rows = {point: kept[point] for point in asked if kept.get(point, {}).get("budget") is not None}
    missing = [point for point in asked if point not in rows]
    try:
        report = progress or (lambda line: None)
        for point, row in _compiled_rows(missing, time_limit, report, device):
            rows[point] = kept[point] = row
            if path is not None:
                write_frontier(frontier_table(kept.values()), path)
    except KeyboardInterrupt:
        pass
    return frontier_table(rows.values())


def _records(table: pd.DataFrame) -> dict[FrontierPoint, dict[str, Any]]:
    """Rows of plain values, None where one is missing, by their points."""
    plain = table.astype(object).where(table.notna(), None).to_dict("records")
    return {FrontierPoint(*(row[name] for name in KEY)): row for row in plain}


def _compiled_rows(
    points: Sequence[FrontierPoint], time_limit: float, report: Report, device: str
) -> Iterator[tuple[FrontierPoint, dict[str, Any]]]:
    """The points with their rows, each when it is found."""
    if not points:
        return
    report("reading the trained thresholds")
    known, here, began = known_budgets(points), machine(), time.monotonic()
    for number, point in enumerate(points, 1):
        left = time_left(began, number - 1, len(points))
        name = f"{number} of {len(points)}{left}, {point.name}"
        tell = partial(_tell, report, name)
        found = _compiled(point, time_limit, tell, device)
        more = known[point.size] | {"time_limit": time_limit, "machine": here}
        yield point, point._asdict() | found | more


def _tell(report: Report, name: str, line: str) -> None:
    report(f"{name}: {line}")


def _compiled(
    point: FrontierPoint, time_limit: float, report: Report, device: str
) -> dict[str, Any]:
    items, d_model, degree, seed = point
    graph = graph_of_degree(items, degree, seed)
    bits = log2_graphs(items, graph.edges, family_of(items, graph.edges, degree), degree)
    row: dict[str, Any] = {"bits": bits}
    began = time.monotonic()
    with stoppable(raises=True) as stop:
        try:
            table = gaussian_embeddings(items, d_model, seed)
            options = {"time_limit": time_limit, "seed": seed, "device": device}
            found = compile(graph, table, progress=report, **options)
        except NoSolution as answer:
            report(str(answer))
        else:
            weights = found.weights
            row |= {
                "budget": weights.budget,
                "heads": weights.heads,
                "widths": " ".join(map(str, weights.widths)),
                "relative_margin": found.certificate.relative_margin,
                "bits_per_parameter": bits / (2 * d_model * weights.budget),
            }
    if stop.asked:  # `compile` answered with its best so far; the interrupt was meant for all
        raise KeyboardInterrupt
    return row | {"seconds": time.monotonic() - began}


def known_budgets(points: Sequence[FrontierPoint]) -> Mapping[Size, dict[str, int | None]]:
    """Other D_K at the same sizes: trained, constructed, and the largest lower bound."""
    sizes = sorted({point.size for point in points})
    trained, built = _trained(sizes), _constructed()
    return {
        size: dict(
            zip(KNOWN, (trained.get(size), built.get(size), _lower_bound(*size)), strict=True)
        )
        for size in sizes
    }


def _trained(sizes: Sequence[Size]) -> dict[Size, int]:
    points = tuple({(items, d_model) for items, d_model, _ in sizes})
    degrees = tuple({degree for *_, degree in sizes})
    if not sizes:
        return {}
    part = restricted(preset("paper"), [Need(grid, points, degrees) for grid in _TRAINED_GRIDS])
    return _least(gather(measured_runs(), part).thresholds, "central")


def _constructed() -> dict[Size, int]:
    bounds = MEASURED.bounds()
    assert bounds is not None
    return _least(bounds.loc[bounds["kind"] == "construction"], "budget")


def _least(frame: pd.DataFrame, column: str) -> dict[Size, int]:
    """The smallest value at each (items, d_model, degree)."""
    rows = frame.dropna(subset=[column]).sort_values(column, ascending=False)
    return {
        (int(m), int(d), int(r)): int(v)
        for m, d, r, v in rows[[*KEY[:3], column]].itertuples(index=False)
    }


def _lower_bound(items: int, d_model: int, degree: int) -> int:
    edges = items * degree
    found = lower_bounds(
        items, edges, d_model, family=family_of(items, edges, degree), max_degree=degree
    )
    return max(int(bound.budget) for bound in found)


def compiled_law(table: pd.DataFrame) -> TrainedLaw:
    """The law of compiled permutations: D_K against m log₂ m/d_model, a line through the origin."""
    rows = table.loc[(table["degree"] == 1) & table["budget"].notna()]
    fit = fit_law(rows.assign(variant="max", central=rows["budget"]), name="compiled")
    points = len(rows[["items", "d_model"]].drop_duplicates())
    source = f"Our compiler: {fit.slope:.3f} m log₂ m/d_model over {points} points"
    return TrainedLaw(
        fit.name, fit.quantity, fit.form, fit.slope, source, 0.0, fit.r_squared, fit.interval
    )
