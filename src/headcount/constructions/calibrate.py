"""The constants that the theorems leave open, measured: success rates against d_k.

A trial draws a graph, a Gaussian unit-norm table and signatures, and verifies the construction with
the paper's heads and threshold. C is d_k/ln m ((ln m)² for softmax) at the smallest d_k at which 95
% of the trials succeed. With d_k → ∞ the signatures become orthogonal and only leakage is left;
where that limit already fails, no C is large enough: that is where the precondition d_model ≥ c₀ ln
m binds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.constructions.packing import pack, pack_evenly
from headcount.constructions.request import Request, ThresholdRule
from headcount.constructions.template import (
    Inverse,
    Matching,
    Signatures,
    fill,
    inverter,
    split_sources,
)
from headcount.errors import InputError
from headcount.problem.embeddings import binary_embeddings, gaussian_embeddings
from headcount.problem.makers import graph_of_degree
from headcount.shapes import Float
from headcount.theory.incoherence import balanced_scale

_TARGET = 0.95
_WIDEST = 2048


@dataclass(frozen=True)
class Calibration:
    """Success rates of one construction at one size; `rates` has one row per d_k tried."""

    method: str
    items: int
    edges: int
    d_model: int
    heads: int
    inverse: str
    trials: int
    rates: pd.DataFrame
    limit: float | None
    limit_interval: tuple[float, float] | None

    @property
    def key_dim(self) -> int | None:
        """The smallest d_k tried at which 95 % of the trials succeed."""
        passing = self.rates[self.rates.rate >= _TARGET]
        return None if passing.empty else int(passing.key_dim.min())

    @property
    def constant(self) -> float | None:
        """C = d_k/ln m, or d_k/(ln m)² for softmax."""
        return None if self.key_dim is None else self.key_dim / _growth(self.method, self.items)


def calibrate(
    method: str,
    items: int,
    d_model: int,
    *,
    degree: int = 1,
    heads: int | None = None,
    inverse: Inverse = "transpose",
    threshold: ThresholdRule = "paper",
    trials: int = 100,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Calibration:
    """Measure a construction's success rate: double d_k until 95 % succeed, then bisect.

    Every trial keeps its graph, table and signatures over all d_k. Intervals are Wilson's, 95 %.
    """
    if trials < 1:
        raise InputError(f"{trials} trials measure nothing; choose at least 1")
    if items < 2:
        raise InputError(f"{items} items leave nothing to tell apart; choose at least 2")
    if method == "one-hot" and d_model != items:
        raise InputError(f"one-hot tables have d_model = items; give --d-model {items}")
    report = progress or (lambda line: None)
    requests = [
        _draw(method, items, d_model, degree, inverse, threshold, seed + trial)
        for trial in range(trials)
    ]
    limit = None
    if method != "softmax":  # there, more width also sharpens the heads that own nothing: no limit
        limit = _successes(requests, lambda request: _without_width(request, heads))
        report(f"infinite width: {limit} of {trials} separate")

    def successes(key_dim: int) -> int:
        found = _successes(requests, lambda request: request.build(key_dim, heads))
        report(f"d_k = {key_dim}: {found} of {trials} succeed")
        return found

    wins = _successes_by_width(successes, _TARGET * trials, max(2, math.ceil(math.log(items))))
    return Calibration(
        method, items, requests[0].graph.edges, d_model,
        requests[0].build(2, heads).heads, inverse, trials,
        rates=_rates(wins, trials, _growth(method, items)),
        limit=None if limit is None else limit / trials,
        limit_interval=None if limit is None else wilson(limit, trials),
    )  # fmt: skip


def _successes(requests: list[Request], build: Callable[[Request], KeyQuery]) -> int:
    return sum(request.confirmed(build(request)) is not None for request in requests)


def _successes_by_width(
    successes: Callable[[int], int], target: float, first: int
) -> dict[int, int]:
    """Successes at every width tried: doubled up to the target, then bisected to about 6 %."""
    wins = {first: successes(first)}
    high = first
    while wins[high] < target and high < _WIDEST:
        high = min(2 * high, _WIDEST)
        wins[high] = successes(high)
    low = max((width for width in wins if width < high), default=1)
    while wins[high] >= target and high - low > max(1, high // 16):
        middle = (low + high) // 2
        wins[middle] = successes(middle)
        low, high = (low, middle) if wins[middle] >= target else (middle, high)
    return wins


def wilson(successes: int, trials: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The 95 % Wilson score interval of a success probability.

    >>> [round(bound, 4) for bound in wilson(95, 100)]
    [0.8882, 0.9785]
    """
    share, spread = successes / trials, z * z / trials
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def _growth(method: str, items: int) -> float:
    """What C multiplies: ln m, or (ln m)² for softmax."""
    return math.log(items) ** (2 if method == "softmax" else 1)


def _rates(wins: dict[int, int], trials: int, growth: float) -> pd.DataFrame:
    rows = [
        {"key_dim": key_dim, "C": key_dim / growth, "successes": count, "rate": count / trials}
        | dict(zip(("low", "high"), wilson(count, trials), strict=True))
        for key_dim, count in sorted(wins.items())
    ]
    return pd.DataFrame(rows)


def _draw(
    method: str,
    items: int,
    d_model: int,
    degree: int,
    inverse: Inverse,
    threshold: ThresholdRule,
    seed: int,
) -> Request:
    """One trial: a graph, a table of the kind that the construction is for, and signatures."""
    graph = graph_of_degree(items, degree, seed)
    if method == "one-hot":
        table = torch.eye(items)
    elif method == "general-embedding":
        table = binary_embeddings(items, d_model, seed)
    else:
        table = gaussian_embeddings(items, d_model, seed)
    table = table.to("cuda" if torch.cuda.is_available() else "cpu")
    return Request(
        graph, table, method, inverse, Signatures(seed=seed), threshold, context_length=None
    )


@dataclass(frozen=True)
class _Orthogonal(Signatures):
    """What signatures tend to, w_s·w_t/d_k → [s = t], within one matching."""

    places: tuple[int, ...] = ()

    def draw(self, items: int, key_dim: int) -> Float[Tensor, "items key_dim"]:
        rows = torch.zeros(items, key_dim)
        rows[torch.tensor(self.places), torch.arange(len(self.places))] = 1.0
        return rows

    def threshold(self, key_dim: int) -> float:
        return 0.5


def _without_width(request: Request, heads: int | None) -> KeyQuery:
    """The construction in the limit d_k → ∞, scores divided by d_k."""
    graph, table = request.graph, request.table
    if request.method == "general-graph":
        matchings = pack_evenly(graph, heads) if heads else pack(graph, table.shape[1])
    else:
        matchings = split_sources(graph, heads or -(-graph.items // table.shape[1]))
    scale = balanced_scale(table) if request.method == "general-embedding" else 1.0
    parts = [_orthogonal_head(table, matching, request.inverse, scale) for matching in matchings]
    return KeyQuery.from_heads([(part.queries[0], part.keys[0]) for part in parts], threshold=0.5)


def _orthogonal_head(table: Tensor, matching: Matching, inverse: Inverse, scale: float) -> KeyQuery:
    signatures = _Orthogonal(places=tuple(matching.targets.tolist()))
    return fill(table, [matching], signatures, matching.targets.size, inverter(inverse, scale))
