"""Problems at sizes that float64 can multiply: scaled by powers of two, which change no digit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError
from headcount.shapes import Float

# With all entries within this factor of 1, no float64 step overflows and no norm underflows.
_SAFE = 2.0**200


def rescaled(
    weights: KeyQuery, table: Float[Tensor, "items d_model"]
) -> tuple[KeyQuery, Float[Tensor, "items d_model"], int]:
    """The same problem with entries that float64 can multiply, and e: scores are 2ᵉ times as large.

    Scaling by powers of two changes no digit. Entries within 2^±200 are left alone.
    """
    parts = (table, weights.queries, weights.keys)
    exponents = [_excess_exponent(part) for part in parts]
    if not any(exponents):
        return weights, table, 0
    rows, queries, keys = (
        _shifted(part.double(), -exponent) for part, exponent in zip(parts, exponents, strict=True)
    )
    total = 2 * exponents[0] + exponents[1] + exponents[2]

    def moved(value: float) -> float:
        return float(_shifted(torch.tensor(value, dtype=torch.float64), -total))

    tempered = weights.aggregation == "logsumexp"
    temperature = moved(weights.temperature) if tempered else weights.temperature
    sizes = {"threshold": moved(weights.threshold), "temperature": temperature}
    return replace(weights, queries=queries, keys=keys, **sizes), rows, total


def scaled_back(score: float, exponent: int) -> float:
    """A score of the rescaled problem at its original size."""
    try:
        return math.ldexp(score, exponent)
    except OverflowError:
        raise InputError(
            "the scores overflow float64; scale the weights or the table down"
        ) from None


def scaled_back_bound(error: float, exponent: int) -> float:
    """A bound on the error of scores at their original size, where they may underflow."""
    smallest = 2.0**-1073  # twice what a score and the bound lose when they fall below 2⁻¹⁰²²
    return scaled_back(error, exponent) + (smallest if exponent < 0 else 0.0)


def _shifted(values: Tensor, exponent: int) -> Tensor:
    """values·2^exponent, refused where float64 cannot hold that."""
    before = values.cpu().numpy()
    with np.errstate(over="ignore", under="ignore"):
        moved = np.ldexp(before, exponent)
        if not np.array_equal(np.ldexp(moved, -exponent), before):
            raise InputError(
                "the weights, the table and the threshold differ in size by more than float64 "
                "can hold; scale them"
            )
    return torch.from_numpy(np.asarray(moved)).to(values.device)


def _excess_exponent(values: Tensor) -> int:
    peak = float(values.abs().max())
    return 0 if peak == 0 or 1 / _SAFE < peak < _SAFE else math.frexp(peak)[1]
