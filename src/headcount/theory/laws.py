"""Laws fitted to trained channels (Section 6.1, Appendix A.3), and one fitted to compiled ones.

A law is a line in one feature of the sizes. The paper's laws come without prediction intervals;
those fitted to our own runs have one (`headcount.analysis.laws.fit_law` makes such a law).
Logarithms are to base 2: Eqs. (31)–(32) say so, and Section 6.1's "log" must be read so too, or its
slopes contradict its Table 1 (docs/deviations.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headcount.theory.counting import check_sizes

Form = Literal["edges·log2(items)/d_model", "edges/d_model"]
PlannedAggregation = Literal["max", "softmax"]  # aggregations that laws of training cover

FEATURES: dict[Form, Callable[[Any, Any, Any], Any]] = {  # of numbers, or of arrays of them
    "edges·log2(items)/d_model": lambda items, edges, d_model: edges * np.log2(items) / d_model,
    "edges/d_model": lambda items, edges, d_model: edges / d_model,
}


@dataclass(frozen=True)
class TrainedLaw:
    """A quantity at the trained threshold: slope · form + intercept, at least 1.

    `interval` is a 95 % prediction interval as two factors of the value, None where none is known.

    >>> round(BUDGET(256, 256, 32), 1)  # 1.19·256·8/32
    76.2
    """

    name: str
    quantity: Literal["budget", "heads"]
    form: Form
    slope: float
    source: str
    intercept: float = 0.0
    r_squared: float | None = None
    interval: tuple[float, float] | None = None

    def __call__(self, items: int, edges: int, d_model: int) -> float:
        check_sizes(items, edges, d_model)
        feature = FEATURES[self.form](float(items), float(edges), float(d_model))
        return max(1.0, float(self.slope * feature + self.intercept))

    def interval_at(self, items: int, edges: int, d_model: int) -> tuple[float, float] | None:
        """Give the ends of the prediction interval at these sizes, or None where none is known."""
        value = self(items, edges, d_model)
        return self.interval and (self.interval[0] * value, self.interval[1] * value)


BUDGET = TrainedLaw(
    name="permutations",
    quantity="budget",
    form="edges·log2(items)/d_model",
    slope=1.19,
    r_squared=0.944,
    source="Section 6.1, Fig. 3: 1.19 m log₂ m/d_model",
)
BUDGET_WIDE = TrainedLaw(
    name="wide",
    quantity="budget",
    form="edges·log2(items)/d_model",
    slope=0.966,
    r_squared=0.992,
    source="Section 6.1: 0.966 m log₂ m/d_model without the points d_model = 16, m > 64",
)
BUDGET_REGULAR = TrainedLaw(
    name="regular",
    quantity="budget",
    form="edges·log2(items)/d_model",
    slope=0.46,
    source="Appendix A.3, Eqs. (31)–(32): 0.46 m' log₂ m/d_model, "
    "fitted at (m, d_model) = (128, 32)",
)
COMPILED = TrainedLaw(
    name="compiled",
    quantity="budget",
    form="edges·log2(items)/d_model",
    slope=0.321,
    r_squared=0.985,
    interval=(0.644, 1.377),
    source="Our compiler: 0.321 m log₂ m/d_model over 14 points",
)


def paper_laws(items: int, edges: int, d_model: int) -> list[TrainedLaw]:
    """The main fit, and a second where it applies.

    Beyond permutations that is Eq. (32), for permutations the fit without d_model = 16.
    """
    if edges > items:
        return [BUDGET, BUDGET_REGULAR]
    return [BUDGET, BUDGET_WIDE] if d_model > 16 else [BUDGET]


def law_reason(law: TrainedLaw, variant: PlannedAggregation) -> str:
    """Where a trained law comes from, and what it leaves out."""
    caveat = "; fitted for max, and softmax needs more (Fig. 5)" if variant == "softmax" else ""
    return f"{law.source}{caveat}."
