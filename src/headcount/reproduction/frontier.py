"""The frontier: the smallest D_K that compiled weights reach, beside what is trained, constructed and impossible."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

import pandas as pd

from headcount.analysis.laws import fit_law
from headcount.compiler.compile import compile
from headcount.errors import InputError, NoSolution
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import graph_of_degree
from headcount.provenance import machine
from headcount.reproduction.evidence import gather
from headcount.reproduction.frontier_table import KEY, KNOWN, frontier_table
from headcount.reproduction.presets import Need, preset, restricted
from headcount.reproduction.shipped import MEASURED, measured_runs
from headcount.theory.counting import check_sizes, family_of, log2_graphs
from headcount.theory.laws import TrainedLaw
from headcount.theory.lower_bounds import lower_bounds

TIME_LIMIT = 20.0  # seconds a search
_TRAINED = ("base", "regular", "diagonal", "extreme")  # grids with thresholds under max
Report = Callable[[str], None]


class Search(NamedTuple):
    """One search: the sizes, and the seed of its graph, its table and its descents."""

    items: int
    d_model: int
    degree: int = 1
    seed: int = 0

    @property
    def name(self) -> str:
        """In words.

        >>> Search(64, 16).name, Search(128, 32, 4, seed=1).name
        ('(64, 16)', '(128, 32), r = 4, seed 1')
        """
        degree = f", r = {self.degree}" if self.degree > 1 else ""
        return f"({self.items}, {self.d_model}){degree}" + (
            f", seed {self.seed}" if self.seed else ""
        )


def frontier(
    points: Sequence[tuple[int, int]],
    degrees: Sequence[int] = (1,),
    seeds: int = 1,
    time_limit: float = TIME_LIMIT,
    seed: int = 0,
    progress: Report | None = None,
) -> pd.DataFrame:
    """Compile a random graph on a Gaussian table at each (items, d_model), degree and seed; a row each.

    `budget` is the smallest D_K that `compile` certified in `time_limit` seconds, in `heads` of the `widths`, with
    the `relative_margin` γ/|τ|; missing where it certified none. `bits` is log2 of the number of graphs, and
    `bits_per_parameter` is bits/(2·d_model·D_K). `trained` is the D_K* of our own runs and `constructed` the smallest
    exact construction, where they are known; `lower_bound` is the largest of `lower_bounds`.

    >>> table = frontier([(16, 8)], time_limit=1)
    >>> table[["items", "d_model", "degree", "lower_bound"]].values.tolist()
    [[16, 8, 1, 1]]
    """
    return frontier_table(searched(searches(points, degrees, seeds, seed), time_limit, progress))


def searches(
    points: Sequence[tuple[int, int]], degrees: Sequence[int] = (1,), seeds: int = 1, seed: int = 0
) -> list[Search]:
    """The searches of a grid; impossible sizes are refused before anything is computed."""
    asked = [
        Search(*point, degree, seed + n)
        for degree in degrees
        for point in points
        for n in range(seeds)
    ]
    for one in asked:
        if not 1 <= one.degree < max(one.items, 2):
            raise InputError(
                f"degree {one.degree}: {one.items} items allow 1 to {one.items - 1}; choose one of these"
            )
        check_sizes(one.items, one.items * one.degree, one.d_model)
    return asked


def searched(
    asked: Sequence[Search], time_limit: float = TIME_LIMIT, progress: Report | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of these searches, each when it is found."""
    report = progress or (lambda line: None)
    if asked:
        report("reading the trained thresholds")
    known, here = known_budgets(asked), machine()
    for number, search in enumerate(asked, 1):
        name = f"{number} of {len(asked)}, {search.name}"
        found = _compiled(search, time_limit, lambda line, name=name: report(f"{name}: {line}"))
        beside = known[search.items, search.d_model, search.degree]
        yield search._asdict() | found | beside | {"time_limit": time_limit, "machine": here}


def _compiled(search: Search, time_limit: float, report: Report) -> dict[str, Any]:
    items, d_model, degree, seed = search
    graph = graph_of_degree(items, degree, seed)
    bits = log2_graphs(items, graph.edges, family_of(items, graph.edges, degree), degree)
    row: dict[str, Any] = {"bits": bits}
    began = time.monotonic()
    with _interrupts_pass():
        try:
            table = gaussian_embeddings(items, d_model, seed)
            found = compile(graph, table, time_limit=time_limit, seed=seed, progress=report)
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
    return row | {"seconds": time.monotonic() - began}


@contextmanager
def _interrupts_pass() -> Iterator[None]:
    """Raise a Ctrl-C that `compile` has answered with its best so far: it was meant for all searches."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def known_budgets(asked: Sequence[Search]) -> Mapping[tuple[int, int, int], dict[str, int | None]]:
    """The other D_K at the sizes of these searches: trained, constructed, and the largest lower bound."""
    sizes = sorted({search[:3] for search in asked})
    trained, built = _trained(sizes), _constructed()
    return {
        size: dict(
            zip(KNOWN, (trained.get(size), built.get(size), _lower_bound(*size)), strict=True)
        )
        for size in sizes
    }


def _trained(sizes: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int, int], int]:
    points = tuple({(items, d_model) for items, d_model, _ in sizes})
    degrees = tuple({degree for *_, degree in sizes})
    if not sizes:
        return {}
    part = restricted(preset("paper"), [Need(grid, points, degrees) for grid in _TRAINED])
    return _least(gather(measured_runs(), part).thresholds, "central")


def _constructed() -> dict[tuple[int, int, int], int]:
    ceilings = MEASURED.ceilings()
    return (
        {}
        if ceilings is None
        else _least(ceilings.loc[ceilings["kind"] == "construction"], "budget")
    )


def _least(frame: pd.DataFrame, column: str) -> dict[tuple[int, int, int], int]:
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
