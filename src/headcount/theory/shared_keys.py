"""What sharing keys costs: widths at which g shared keys are worth as much as keys of their own.

By the capacity law two channels on the same table are worth the same if their R is equal. For
heads much narrower than the table that is an equal sum of columns, D_Q + D_KV = (h + g)k.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Literal

from scipy.optimize import brentq

from headcount.errors import InputError
from headcount.theory.refined_law import squared_width

Measure = Literal["R", "G"]  # degrees of freedom, or the squared Gaussian width


def shared_width(
    own: float, d_model: int, heads: int, kv_heads: int, measure: Measure = "R"
) -> float:
    """The width k at which h heads with g keys have the R (or G) of h heads with keys of their own.

    `own` is the width of the latter. Where no width up to d_model suffices, d_model.

    >>> round(shared_width(7, 32, 8, 1), 1), round(shared_width(7, 32, 8, 1, "G"), 1)
    (11.5, 13.5)
    >>> shared_width(7, 32, 8, 8)
    7.0
    """
    _check(heads, kv_heads)
    own = min(own, d_model)
    if heads == kv_heads:
        return float(own)
    if measure == "R":
        wanted = heads * own * (2 * d_model - own)
        return width_with_freedom(wanted, d_model, heads, kv_heads) or float(d_model)
    wanted = heads * squared_width(d_model, d_model, own) / kv_heads
    rows = heads // kv_heads * d_model
    if wanted >= squared_width(rows, d_model, d_model):
        return float(d_model)
    found: Any = brentq(lambda k: squared_width(rows, d_model, k) - wanted, 1e-9, d_model)
    return float(found)


def width_with_freedom(freedom: float, d_model: int, heads: int, kv_heads: int) -> float | None:
    """The width at which h heads with g keys have these degrees of freedom; None if none has.

    >>> width_with_freedom(3072, 32, 4, 4), width_with_freedom(1e6, 32, 4, 4)
    (16.0, None)
    """
    _check(heads, kv_heads)
    if freedom > heads * d_model**2 * (1 + 1e-12):
        return None
    half = d_model * (heads + kv_heads) / 2  # the smaller root of d(h + g)k − gk² = freedom
    root = sqrt(max(half**2 - kv_heads * freedom, 0.0))
    return min((half - root) / kv_heads, float(d_model))


def own_width(key_dim: float, d_model: int, heads: int, kv_heads: int) -> float:
    """The width at which heads with keys of their own have the R of these: inverts `shared_width`.

    >>> round(own_width(11.5, 32, 8, 1), 1), own_width(7, 32, 8, 8)
    (7.0, 7.0)
    """
    _check(heads, kv_heads)
    if heads == kv_heads:
        return float(key_dim)
    width = min(key_dim, d_model)
    freedom = d_model * (heads + kv_heads) * width - kv_heads * width**2
    return d_model - sqrt(max(d_model**2 - freedom / heads, 0.0))


def _check(heads: int, kv_heads: int) -> None:
    if min(heads, kv_heads) < 1 or heads % kv_heads:
        raise InputError(f"kv_heads = {kv_heads}: does not divide {heads} heads; pass a divisor")
