"""Lower bounds on D_K and exact constructions, to compare with what training finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pandas as pd

from headcount.constructions.construct import construct
from headcount.errors import NoSolution
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import graph_of_degree
from headcount.progress import time_left
from headcount.reproduction.evidence import Evidence
from headcount.reproduction.results_folder import ResultsFolder
from headcount.sweeps.manifest import ManifestEntry
from headcount.theory.counting import family_of
from headcount.theory.lower_bounds import lower_bounds
from headcount.threads import torch_threads

MOST_DEGREE = 16  # of the graphs that are constructed; the paper's Fig. 12 compares none beyond
_SPLIT = ("heads", "key_dim", "budget")
COLUMNS = ("items", "d_model", "degree", "kind", "name", *_SPLIT)
Report = Callable[[str], None]


def bounds_table(
    points: Sequence[tuple[int, int]],
    degrees: Sequence[int] = (1,),
    seed: int = 0,
    progress: Report | None = None,
) -> pd.DataFrame:
    """Give the D_K that a graph needs and the D_K that it can be built with, at each size.

    A size is an (items, d_model) of `points` with one of the `degrees`. A lower bound is one of
    `lower_bounds`: it holds for the family of all permutations (regular graphs) and any split.
    A construction is built for one random graph and Gaussian table, and is exact on all pairs at
    its `budget`; `construct` finds that budget by bisection, so a smaller one may exist.

    - "as printed": Construction II, or IV from degree 2 on, with Xᵀ and the paper's heads and τ;
      d_k up to max(4·d_model, 32 ln m), as far as `construct` goes. The edges are spread evenly
      over the heads, so no matching has more than d_model of them.
    - "pseudo-inverse": the pseudo-inverse of each block, with the heads that need the least, and τ
      at the midpoint. One head of width 1 per edge suffices unless two rows are parallel, so the
      search ends at D_K = m'.

    A value is missing where nothing was found.

    >>> bounds_table([(64, 64)])[["name", "heads", "key_dim", "budget"]]
                 name  heads  key_dim  budget
    0      bit budget   <NA>     <NA>       1
    1          margin   <NA>     <NA>       1
    2   sign patterns   <NA>     <NA>       1
    3      as printed   <NA>     <NA>    <NA>
    4  pseudo-inverse      1       14      14
    """
    report = progress or (lambda line: None)
    rows = []
    with torch_threads(1):
        for degree in degrees:
            for items, d_model in points:
                point = {"items": items, "d_model": d_model, "degree": degree}
                rows += [point | row for row in _lower_bounds(items, d_model, degree)]
                rows += [point | row for row in _built(items, d_model, degree, seed, report)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(_SPLIT, "Int64"))


def _lower_bounds(items: int, d_model: int, degree: int) -> Iterator[dict[str, Any]]:
    family = family_of(items, items * degree, degree)
    for bound in lower_bounds(items, items * degree, d_model, family=family, max_degree=degree):
        yield {"kind": "lower bound", "name": bound.name, "budget": int(bound.budget)}


def with_lower_bounds(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every lower bound computed anew."""
    budgets = table["budget"].copy()
    lower = table.loc[table["kind"] == "lower bound"]
    for size, rows in lower.groupby(["items", "d_model", "degree"]):
        known = {row["name"]: row["budget"] for row in _lower_bounds(*map(int, size))}
        budgets.loc[rows.index] = rows["name"].map(known)
    return table.assign(budget=budgets)


def _built(
    items: int, d_model: int, degree: int, seed: int, report: Report
) -> Iterator[dict[str, Any]]:
    edges = items * degree
    graph = graph_of_degree(items, degree, seed)
    table = gaussian_embeddings(items, d_model, seed)
    method = "compressive" if degree == 1 else "general-graph"
    refined = {"inverse": "pinv", "threshold": "midpoint"}
    searches: dict[str, list[dict[str, Any]]] = {  # the first that finds something
        # ⌈m/d_model⌉ heads in Algorithm 1, ⌈m'/d_model⌉ + Δ in Algorithm 5 (line 2 of each).
        "as printed": [
            {"heads": -(-edges // d_model) + (degree if degree > 1 else 0), "threshold": "paper"}
        ],
        "pseudo-inverse": [
            refined | {"budget": edges - 1},
            refined | {"heads": edges, "budget": edges},
        ],
    }
    for name, attempts in searches.items():
        row: dict[str, Any] = {"kind": "construction", "name": name}
        for options in attempts:
            try:
                found = construct(graph, table, method, seed=seed, progress=report, **options)
            except NoSolution:
                continue
            row |= {"heads": found.heads, "key_dim": found.key_dim, "budget": found.budget}
            break
        yield row


def with_bounds(
    evidence: Evidence, folder: ResultsFolder, entry: ManifestEntry, tell: Report
) -> Evidence:
    """The evidence with bounds and constructions at the sizes of its thresholds.

    Those that the folder lacks are computed; each is written at once, so an interrupt loses one.
    Lower bounds take no time, so those of an earlier release are replaced by today's.
    """
    sizes = ["degree", "items", "d_model"]
    found, have = evidence.thresholds, folder.bounds()
    if have is not None and not have.equals(fresh := with_lower_bounds(have)):
        have = fresh
        folder.write_bounds(have)
    wanted = found.loc[(found["variant"] == "max") & (found["degree"] <= MOST_DEGREE), sizes]
    known = [] if have is None else have[sizes].itertuples(index=False, name=None)
    missing = sorted(set(wanted.itertuples(index=False, name=None)) - set(known))
    with entry.timed("bounds") if missing else nullcontext():
        began = time.monotonic()
        for number, (degree, items, d_model) in enumerate(missing):
            point = f"m = {items:,}, d_model = {d_model}, r = {degree}"
            left = time_left(began, number, len(missing))
            tell(f"bounds and constructions {number + 1} of {len(missing)}, at {point}{left}")
            more = bounds_table([(items, d_model)], [degree])
            have = more if have is None else pd.concat([have, more], ignore_index=True)
            folder.write_bounds(have)
    return evidence if have is None else replace(evidence, bounds=have)
