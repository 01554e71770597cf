"""t·log Σ_k exp(s_k/t) of the heads' scores: its rounding, and exact decisions (Section 9)."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError


def joining_error(heads: int, temperature: float, peak: float, unit: float) -> float:
    """How far the joined score can be off where the heads' scores, at most `peak`, are right.

    Each of the h terms takes a division, an exponential, an addition and a logarithm, all good to a
    few units in the last place (`unit`); what they round is at most peak/t + log h + 1 in size.
    """
    if peak / temperature > 1e300:
        raise InputError(
            f"temperature {temperature} is too small for scores of size {peak:.3g}; "
            "use the aggregation max"
        )
    size = peak + temperature * (math.log(heads) + 1)
    return 8 * (heads + 2) * unit * size


def joined_above(weights: KeyQuery, scores: list[Fraction]) -> bool:
    """Whether the joined score of a pair is above τ, for two heads or more, without any rounding.

    That is Σ_k exp((s_k − τ)/t) > 1. Both sides are never equal: exponentials of distinct rational
    numbers are independent over the rationals (Lindemann and Weierstrass), so two or more cannot
    add up to 1 = exp(0). Some number of digits decides.
    """
    threshold, temperature = Fraction(weights.threshold), Fraction(weights.temperature)
    powers = [(score - threshold) / temperature for score in scores]
    if max(powers) >= 0:
        return True
    digits = 40
    while True:
        with localcontext(Context(prec=digits)):
            # A term is at most 1 and off by 2 units of the last digit; sums add as much per term.
            terms = [_exponential(power, digits) for power in powers]
            gap = sum(terms, Decimal(-1))
            if abs(gap) > (len(powers) + 2) ** 2 * Decimal(10) ** (1 - digits):
                return gap > 0
        digits *= 2


def _exponential(power: Fraction, digits: int) -> Decimal:
    if power < -3 * digits:  # below the last digit
        return Decimal(0)
    return (Decimal(power.numerator) / Decimal(power.denominator)).exp()
