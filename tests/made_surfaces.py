"""Surfaces of F1 over runs, and searches on them."""

from collections.abc import Callable, Iterable
from itertools import product

import numpy as np
import pandas as pd

from headcount.sweeps.search import Outcome, ThresholdSearch, ThresholdSearches
from headcount.training.result import RunResult
from headcount.training.spec import RunSpec

Surface = dict[RunSpec, float]


def result(spec: RunSpec, value: float, steps: int = 1, diverged: int | None = None) -> RunResult:
    """A result made up."""
    return RunResult(spec, value, steps, 0.0, (), diverged, "none", "none", 0.0)


def grid_frame(surface: Surface) -> pd.DataFrame:
    """The full grid as the analysis takes it, with what a store adds."""
    names = ("hash", "variant", "degree", "items", "d_model", "heads", "key_dim", "budget", "seed")
    rows = [
        {name: getattr(spec, name) for name in names} | {"value": value}
        for spec, value in surface.items()
    ]
    return pd.DataFrame(rows).assign(diverged=None, steps=1)


def explore(search: ThresholdSearch, surface: Surface) -> Outcome:
    """Run a search to its end on a surface; no batch may hold a run that is known or foreign."""
    known: set[RunSpec] = set()
    while batch := search.next_batch():
        assert len(set(batch)) == len(batch)
        assert not known & set(batch)
        assert set(batch) <= set(surface)
        known |= set(batch)
        assert search.observe(result(spec, surface[spec]) for spec in batch) == len(batch)
    outcome = search.outcome()
    assert outcome.settled
    assert outcome.runs == outcome.steps == len(known)
    assert outcome.grid_runs == len(surface)
    return outcome


def search_all(
    grid: Iterable[RunSpec],
    run: Callable[[list[RunSpec]], list[RunResult]],
    known: list[RunResult] | pd.DataFrame | None = None,
) -> list[Outcome]:
    """Search every point of a grid, until all are settled or a batch brings nothing new."""
    searches = ThresholdSearches(grid)
    searches.observe([] if known is None else known)
    while batch := searches.next_batch():
        if not searches.observe(run(batch)):
            break
    return searches.outcomes()


def ladder(
    heads: int, means: list[float], seeds: int = 10, noise: float = 0.0, seed: int = 0
) -> Surface:
    """One head count whose rungs d_k = 1, 2, … have these means.

    Runs spread by a part of their distance from 1.
    """
    rng = np.random.default_rng([seed, heads])
    surface = {}
    for (row, mean), run in product(enumerate(means), range(seeds)):
        score = mean + noise * min(1 - mean, 0.1) * rng.normal()
        surface[RunSpec(32, 16, heads, row + 1, seed=run)] = float(np.clip(score, 0, 1))
    return surface


def sigmoid(rungs: int, centre: float, width: float, top: float = 1.0) -> list[float]:
    """Means that rise to a plateau."""
    return [float(top / (1 + np.exp(-(row + 1 - centre) / width))) for row in range(rungs)]
