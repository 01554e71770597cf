"""How far a computed score can be from the true one, and exact decisions where that is too far.

Notation: u = 2⁻⁵³ (float64) or 2⁻²⁴ (float32), γ_n = n·u/(1 − n·u). A dot product of n terms, in
any order, is off by at most γ_n·Σ|a||b| ≤ γ_n·‖a‖‖b‖ (Higham, Accuracy and Stability of Numerical
Algorithms, §3.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.logsumexp import joined_above, joining_error
from headcount.attention.tiles import Projections
from headcount.shapes import Bool, Float, Int

_UNIT = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
_TINY = {torch.float32: 2.0**-126, torch.float64: 2.0**-1022}  # flushing to zero costs at most this
_SLACK = 1 + 1e-6  # covers the rounding of the bounds themselves
_FLUSHED = 2.0**-1000  # far more than flushing can cost a projection of numbers in the safe range
_LARGE = 1e37  # float32 ends at 3.4e38; sums of this size on the way stay well below
_CHUNK = 4096  # pairs decided by Python integers at a time


@dataclass(frozen=True)
class ErrorBound:
    """No computed score is further than this from its true value, by dtype of the pass."""

    float64: float
    float32: float

    def of(self, dtype: torch.dtype) -> float:
        return self.float64 if dtype == torch.float64 else self.float32

    @classmethod
    def of_scores(
        cls, weights: KeyQuery, table: Float[Tensor, "items d_model"], parts: Projections
    ) -> ErrorBound:
        """Under max no pair is off by more than the worst head; sum is one head of width D_K.

        Nor under logsumexp, which moves no more than the score that moves most; computing it adds
        an error of its own.
        """
        rows, total = table.double(), weights.aggregation == "sum"
        row_grid = _grid(rows)
        # Error of a projection x·W, as a multiple of ‖W‖_F: |x|·|W| has norm at most ‖x‖‖W‖_F.
        drift = _gamma(rows.shape[1], torch.float64) * _largest_norm(rows)
        bounds, all_keys = [], weights.keys_per_head
        for k, (query, key) in enumerate(zip(parts.queries, parts.keys, strict=True)):
            query_weights, key_weights = (
                part.double() if total else part[k].double() for part in (weights.queries, all_keys)
            )
            norms = _Norms(
                _norm(query_weights), _norm(key_weights), _largest_norm(query), _largest_norm(key)
            )
            exact = False, False
            if not norms.too_fine(row_grid):
                exact = _exact_dtypes(rows, row_grid, query_weights, key_weights, query, key)
            double, single = _head_errors(drift, norms, query.shape[1])
            # What overflows float32 is not exact there, however coarse its grid.
            single_exact = exact[1] and math.isfinite(single)
            bounds.append((0.0 if exact[0] else double, 0.0 if single_exact else single))
        double, single = (max(column) for column in zip(*bounds, strict=True))
        if parts.temperature is not None:
            sides = zip(parts.queries, parts.keys, strict=True)
            peak = max(_largest_norm(query) * _largest_norm(key) for query, key in sides)
            joining = (len(parts.queries), parts.temperature, peak)
            double += joining_error(*joining, _UNIT[torch.float64])
            fits = peak / parts.temperature <= _LARGE
            single += joining_error(*joining, _UNIT[torch.float32]) if fits else math.inf
        return cls(double, single)


@dataclass(frozen=True)
class _Norms:
    """Of one head: of its weights as a whole, and the largest of its queries and keys."""

    query_weights: float
    key_weights: float
    query: float
    key: float

    def too_fine(self, row_grid: float) -> bool:
        """Whether scores need more than 53 bits on any grid that holds rows and weights.

        No grid of weights is coarser than their norm, so this spares a look at every entry.
        """
        coarsest = row_grid**2 * self.query_weights * self.key_weights
        return self.query * self.key > 2.0**53 * coarsest


def _head_errors(drift: float, norms: _Norms, width: int) -> tuple[float, float]:
    """How far scores of one head can be off in float64 and in float32, all steps counted."""
    query_drift, key_drift = (
        drift * norm + _FLUSHED for norm in (norms.query_weights, norms.key_weights)
    )
    # (q + δq)·(k + δk) − q·k, with each factor bounded by its norm.
    projected = query_drift * (norms.key + key_drift) + norms.query * key_drift
    double = projected + _product_error(width, norms.query, norms.key, torch.float64)
    if max(norms.query, norms.key, norms.query * norms.key) > _LARGE:  # float32 could overflow
        return double * _SLACK, math.inf
    # Rounding the projections to float32 counts as two more roundings per term.
    single = projected + _product_error(width + 2, norms.query, norms.key, torch.float32)
    return double * _SLACK, single * _SLACK


@dataclass
class PairDecider:
    """Decides pairs in up to three steps: by the pass's own score, in float64, exactly."""

    weights: KeyQuery
    table: Float[Tensor, "items d_model"]
    parts: Projections
    bound: ErrorBound

    @classmethod
    def of(cls, weights: KeyQuery, table: Float[Tensor, "items d_model"]) -> PairDecider:
        parts = Projections.of(weights, table)
        return cls(weights, table, parts, ErrorBound.of_scores(weights, table, parts))

    def predicted(
        self,
        scores: Float[Tensor, " pairs"],
        sources: Int[Tensor, " pairs"],
        targets: Int[Tensor, " pairs"],
    ) -> Bool[Tensor, " pairs"]:
        """Which pairs are truly above τ, given their computed scores."""
        low, high = cuts(self.weights.threshold, self.bound.of(scores.dtype), scores.dtype)
        above = scores > high
        unclear = (~above & (scores > low)).nonzero().squeeze(1)
        if unclear.numel():
            pairs = sources[unclear], targets[unclear]
            if scores.dtype == torch.float64:
                above[unclear] = predicted_exactly(self.weights, self.table, *pairs)
            else:
                above[unclear] = self.predicted(self.parts.at(*pairs), *pairs)
        return above


def cuts(threshold: float, error: float, dtype: torch.dtype) -> tuple[float, float]:
    """(low, high): a computed score ≤ low is surely not above τ, one > high surely is.

    Between the two the decision is open.
    Both are rounded down to `dtype`, which leaves comparisons with numbers of that dtype unchanged.
    """
    if error:  # τ ± error is itself rounded
        error += 2.0**-50 * (abs(threshold) + error)
    low, high = threshold - error, threshold + error
    return rounded_down(low, dtype), rounded_down(high, dtype)


def predicted_exactly(
    weights: KeyQuery,
    table: Float[Tensor, "items d_model"],
    sources: Int[Tensor, " pairs"],
    targets: Int[Tensor, " pairs"],
) -> Bool[Tensor, " pairs"]:
    """Whether each pair's score is above τ in exact arithmetic; for the few pairs that need it."""
    if weights.aggregation == "logsumexp" and weights.heads > 1:
        pairs = _exact_head_scores(weights, table, sources, targets)
        above = [joined_above(weights, list(pair)) for pair in pairs]
    else:
        threshold = Fraction(weights.threshold)
        above = [score > threshold for score in exact_scores(weights, table, sources, targets)]
    return torch.tensor(above, dtype=torch.bool, device=sources.device)


def exact_scores(
    weights: KeyQuery,
    table: Float[Tensor, "items d_model"],
    sources: Int[Tensor, " pairs"],
    targets: Int[Tensor, " pairs"],
) -> list[Fraction]:
    """Each pair's score under max or sum, without rounding."""
    join = sum if weights.aggregation == "sum" else max
    return [Fraction(join(pair)) for pair in _exact_head_scores(weights, table, sources, targets)]


def _exact_head_scores(
    weights: KeyQuery,
    table: Float[Tensor, "items d_model"],
    sources: Int[Tensor, " pairs"],
    targets: Int[Tensor, " pairs"],
) -> Iterator[tuple[Fraction, ...]]:
    """Each pair's scores in all heads.

    Every float is an integer times a power of two, so Python's integers suffice.
    """
    query_weights, query_exponent = _integers(weights.queries)
    key_weights, key_exponent = _integers(weights.keys)
    for left, right in zip(sources.cpu().split(_CHUNK), targets.cpu().split(_CHUNK), strict=True):
        used, places = np.unique(np.concatenate([left, right]), return_inverse=True)
        rows, row_exponent = _integers(table[torch.from_numpy(used).to(table.device)])
        heads = []
        keys = [(rows @ key)[places[left.numel() :]] for key in key_weights]
        for k, query in enumerate(query_weights):
            products = (rows @ query)[places[: left.numel()]] * keys[weights.key_head(k)]
            heads.append(products.sum(axis=1))
        unit = Fraction(2) ** (2 * row_exponent + query_exponent + key_exponent)
        for pair in zip(*heads, strict=True):
            yield tuple(int(score) * unit for score in pair)


def _product_error(width: int, query_norm: float, key_norm: float, dtype: torch.dtype) -> float:
    flushed = _TINY[dtype] * (math.sqrt(width) * (query_norm + key_norm) + 2 * width)
    return _gamma(width, dtype) * query_norm * key_norm + flushed


def _gamma(terms: int, dtype: torch.dtype) -> float:
    return terms * _UNIT[dtype] / (1 - terms * _UNIT[dtype])


def _largest_norm(rows: Float[Tensor, "items _"]) -> float:
    return _scaled(rows, lambda part: part.norm(dim=1).max())


def _norm(values: Tensor) -> float:
    return _scaled(values, torch.Tensor.norm)


def _scaled(values: Tensor, norm: Callable[[Tensor], Tensor]) -> float:
    """A norm that neither underflows nor overflows on the way, rounded up."""
    peak = float(values.abs().max())
    return float(norm(values / peak)) * peak * _SLACK if peak else 0.0


def _exact_dtypes(
    rows: Tensor,
    row_grid: float,
    query_weights: Tensor,
    key_weights: Tensor,
    query: Tensor,
    key: Tensor,
) -> tuple[bool, bool]:
    """Whether float64 and float32 compute every score without any rounding.

    They do when all numbers are integers times a power of two (the grid), no partial sum needs more
    than 53 or 24 bits on it, and the grid is not too fine for the exponent range: one-hot, binary
    and signature matrices.
    """
    query_grid, key_grid = row_grid * _grid(query_weights), row_grid * _grid(key_weights)
    finest = min(query_grid, key_grid, query_grid * key_grid)
    if finest < 2.0**-1000:
        return False, False
    scores = _largest_norm(query) * _largest_norm(key) / (query_grid * key_grid)
    if scores >= 2.0**53:
        return False, False
    mass = float(rows.abs().sum(1).max()) * _SLACK
    projected = mass * max(
        float(query_weights.abs().max()) / query_grid, float(key_weights.abs().max()) / key_grid
    )
    entries = max(float(query.abs().max()) / query_grid, float(key.abs().max()) / key_grid)
    double = projected < 2.0**53
    return double, double and max(entries, scores) < 2.0**24 and finest > 2.0**-120


def _grid(values: Tensor) -> float:
    """The largest power of two of which every entry is a multiple (1 for all zeros)."""
    mantissa, exponent = torch.frexp(values.double().flatten())
    whole = (mantissa * 2.0**53).long()
    used = whole != 0
    if not used.any():
        return 1.0
    lowest_bit = torch.frexp((whole & -whole)[used].double())[1] - 1
    return math.ldexp(1.0, int((exponent[used] - 53 + lowest_bit).min()))


def _integers(values: Tensor) -> tuple[np.ndarray, int]:
    """Python integers n and one exponent e with values = n·2^e, exactly."""
    mantissa, exponent = np.frexp(values.double().cpu().numpy())
    whole = (mantissa * 2.0**53).astype(np.int64)
    lowest = int(exponent[whole != 0].min(initial=0))
    shift = np.where(whole != 0, exponent - lowest, 0)
    return whole.astype(object) << shift.astype(object), lowest - 53


def rounded_down(value: float, dtype: torch.dtype) -> float:
    """The largest number of a dtype that is not above a value."""
    if dtype == torch.float64:
        return value
    with np.errstate(over="ignore"):
        single = np.float32(value)
        return float(
            single if float(single) <= value else np.nextafter(single, np.float32(-np.inf))
        )
