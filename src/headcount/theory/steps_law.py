"""How many steps training takes: the capacity ratio with a cost in time, fitted to our runs.

    steps = T · exp(C/R'),    R' = h·k'(2d − k')/N,    k' = k − c

R' is the capacity ratio R of `capacity_law` for heads that lose c columns each. T, C and c are
powers of the sizes; `headcount.analysis.steps_fit` fits them to the runs that are shipped. Steps
are those of the paper's protocol (Section 6, A.2: one context of ℓ = 16 items per step, AdamW with
a rate of 10⁻³) until the validation F1 stays at 0.99.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from scipy.special import expit

from headcount.theory.capacity_law import freedom_needed

CENTRE = {"items": 250.0, "d_model": 60.0}  # sizes at which a power of them is 1
SOFTNESS = 0.4  # columns over which a width that is too small turns into none at all
WIDE_TABLE = 32  # d_model from which on the chance of success does not depend on it


@dataclass(frozen=True)
class Power:
    """A product of powers of the sizes, relative to `CENTRE`."""

    scale: float
    items: float = 0.0
    d_model: float = 0.0
    degree: float = 0.0
    heads: float = 0.0
    share: float = 0.0  # of k/d

    def __call__(self, items: Any, degree: Any, d_model: Any, heads: Any, share: Any) -> Any:
        return self.scale * np.exp(
            self.items * np.log(items / CENTRE["items"])
            + self.d_model * np.log(d_model / CENTRE["d_model"])
            + self.degree * np.log(degree)
            + self.heads * np.log(heads)
            + self.share * np.log(share)
        )


@dataclass(frozen=True)
class StepsLaw:
    """The fitted law, and the chance that a run given some steps succeeds.

    The chance is logistic in ln(steps given/steps predicted), and lower for d_model below 32, where
    some seeds get stuck. It was fitted to predictions for points that the fit had not seen.
    """

    base: Power  # T
    barrier: Power  # C
    lost: Power  # c
    odds: tuple[float, float, float]  # intercept, slope, slope in ln(d_model/32) below 32

    def steps(self, items: Any, edges: Any, d_model: Any, heads: Any, key_dim: Any) -> Any:
        """The steps that training takes, for numbers or arrays.

        >>> 10_000 < float(STEPS_LAW.steps(256, 256, 32, 8, 7)) < 30_000
        True
        """
        return np.exp(self.log_steps(_needed(items, edges), items, edges, d_model, heads, key_dim))

    def log_steps(
        self, needed: Any, items: Any, edges: Any, d_model: Any, heads: Any, key_dim: Any
    ) -> Any:
        """ln(steps), where `needed` is `freedom_needed(items, edges)`."""
        degree = edges / items
        sizes = (items, degree, d_model, heads, np.minimum(key_dim, d_model) / d_model)
        # A softened max(k − c, 0), at most d.
        left = SOFTNESS * np.logaddexp(0, (key_dim - self.lost(*sizes)) / SOFTNESS)
        width = np.clip(left, 1e-9, d_model)  # no column left: as good as never
        ratio = heads * width * (2 * d_model - width) / needed
        return np.log(self.base(*sizes)) + self.barrier(*sizes) / ratio

    def chance(
        self, items: int, edges: int, d_model: int, heads: int, key_dim: float, steps: float
    ) -> float:
        """The chance that training reaches a mean F1 of 0.99 in these steps."""
        predicted = self.log_steps(
            freedom_needed(items, edges), items, edges, d_model, heads, key_dim
        )
        return float(expit(self._logit(log(steps) - predicted, d_model)))

    def steps_for(self, predicted: Any, d_model: Any, chance: float) -> Any:
        """The steps that give this chance where the law predicts `predicted` steps."""
        spare = (log(chance / (1 - chance)) - self._logit(0.0, d_model)) / self.odds[1]
        return predicted * np.exp(spare)

    def _logit(self, spare: Any, d_model: Any) -> Any:
        """ln(odds) of success with `spare` = ln(steps given/steps predicted)."""
        intercept, slope, narrow = self.odds
        small = np.minimum(np.log(np.asarray(d_model) / WIDE_TABLE), 0.0)
        return intercept + slope * spare + narrow * small


def _needed(items: Any, edges: Any) -> Any:
    if np.ndim(items) == 0:
        return freedom_needed(int(items), int(edges))
    pairs = zip(np.asarray(items).tolist(), np.asarray(edges).tolist(), strict=True)
    return np.array([freedom_needed(int(m), int(edge)) for m, edge in pairs])


# `headcount.analysis.steps_fit.fit_steps` on the shipped runs; a test fits it again.
STEPS_LAW = StepsLaw(
    base=Power(16.99, items=-1.689, d_model=1.395, degree=-1.015, heads=1.32),
    barrier=Power(16.27, items=-0.5754, d_model=1.404, degree=-0.3875, heads=0.6059, share=0.7042),
    lost=Power(3.106, items=1.098, d_model=-1.584, degree=0.7033, heads=-0.8049),
    odds=(-0.06418, 5.4, 3.113),
)
