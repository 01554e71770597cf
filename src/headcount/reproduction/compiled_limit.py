"""The smallest exact budget of compiled weights: preregistrations/compiled-limit/README.md."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from headcount.compiler.compile import compile
from headcount.compiler.head_counts import widths_of
from headcount.compiler.search import Compiled
from headcount.errors import NoSolution
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import graph_of_degree
from headcount.theory.capacity_law import degrees_of_freedom, freedom_needed
from headcount.theory.refined_law import effective_freedom

_FIRST = 1.15  # G of the first budget tried
_MORE = 8  # columns more that are tried where that fails
_SEEDS = range(900, 903)


@dataclass(frozen=True)
class LimitCase:
    """A regular graph on a Gaussian table, and the number of heads."""

    part: str
    items: int
    d_model: int
    degree: int
    heads: int
    seed: int

    def widths(self, budget: int) -> tuple[int, ...]:
        return widths_of(budget, self.heads, self.d_model)

    def ratio(self, budget: int) -> float:
        """R, summed over heads whose widths may differ by one."""
        freedom = (degrees_of_freedom(self.d_model, 1, width) for width in self.widths(budget))
        return sum(freedom) / self._needed

    def width_ratio(self, budget: int) -> float:
        """G, likewise."""
        freedom = (effective_freedom(self.d_model, 1, width) for width in self.widths(budget))
        return sum(freedom) / self._needed

    @property
    def _needed(self) -> float:
        return freedom_needed(self.items, self.items * self.degree)

    @property
    def first_budget(self) -> int:
        """The smallest D_K with G of at least 1.15."""
        budget = self.heads
        while self.width_ratio(budget) < _FIRST and budget < self.heads * self.d_model:
            budget += 1
        return budget


def cases() -> Iterator[LimitCase]:
    """All cases in the order of the preregistration: small ones first, seed by seed."""
    for seed in _SEEDS:
        for items in (64, 128, 256):
            for part, heads in (("one head", 1), ("heads", 2), ("more heads", 4)):
                if (items, heads) != (64, 1):  # no width suffices: d² < N
                    yield LimitCase(part, items, items // 4, 1, heads, seed)
        for items in (64, 128):
            yield LimitCase("degree 4", items, items // 4, 4, 8, seed)
    for seed in _SEEDS:
        yield LimitCase("heads", 512, 64, 1, 4, seed)
        yield LimitCase("one head", 512, 128, 1, 1, seed)
        yield LimitCase("heads", 512, 128, 1, 2, seed)
        yield LimitCase("degree 4", 256, 64, 4, 8, seed)


def measure(case: LimitCase) -> dict[str, Any]:
    """The case with the smallest exact D_K, the largest one below it that failed, and the cost."""
    begun, first = time.process_time(), case.first_budget
    budget, found = first, _compiled(case, first)
    while found is None and budget < first + _MORE:
        budget += 1
        found = _compiled(case, budget)
    best = found
    if budget == first:
        while found is not None and budget > case.heads:
            if (found := _compiled(case, budget - 1)) is not None:
                best, budget = found, budget - 1
    failed = budget - 1
    row = asdict(case) | {"seconds": round(time.process_time() - begun, 1)}
    if best is None:
        return row
    return row | {
        "budget": budget,
        "ratio": round(case.ratio(budget), 4),
        "width_ratio": round(case.width_ratio(budget), 4),
        "failed": failed,
        "failed_ratio": round(case.ratio(failed), 4),
        "failed_width_ratio": round(case.width_ratio(failed), 4),
        "relative_margin": float(f"{best.certificate.relative_margin:.3g}"),
    }


def _compiled(case: LimitCase, budget: int) -> Compiled | None:
    """Certified weights of the compiler's four rounds, without a limit of time."""
    graph = graph_of_degree(case.items, case.degree, case.seed)
    table = gaussian_embeddings(case.items, case.d_model, case.seed)
    given: Any = {"budget": budget, "heads": case.heads, "seed": case.seed, "device": "cpu"}
    try:
        return compile(graph, table, **given)
    except NoSolution:
        return None
