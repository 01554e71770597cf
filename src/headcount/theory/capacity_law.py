"""The capacity law: degrees of freedom against Gardner's capacity, with no fitted constant.

A head of width k on a d-wide table is a d × d matrix of rank at most k, which has k(2d − k) degrees
of freedom. Labelling m² ordered pairs, a share f of them edges, takes N = m²/α_c(f) of them, where
α_c is the capacity of a perceptron with a free threshold on random inputs (Gardner 1988; Cover 1965
for f = ½). The law says that training succeeds, given enough steps, where R = freedom/N exceeds 1.
For one head of full width that is also where weights cease to exist; narrow heads reach lower
(`refined_law`).
docs/law.md derives it and lists what it assumes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr

from headcount.errors import InputError

# R at the smallest split that trained: the 5th percentile, the median and the 95th percentile of
# the 111 points measured under max, and the least, middle and largest of five points under softmax.
TRAINED_RATIOS = {"max": (0.96, 1.32, 2.22), "softmax": (2.35, 2.81, 4.70)}


@lru_cache(maxsize=1024)  # a plan asks for the same share hundreds of times
def gardner_capacity(rate: float) -> float:
    """α_c(f): how many random patterns per weight a perceptron with a free threshold can label.

    1/α_c(f) = min over θ of f·A(θ) + (1 − f)·A(−θ), with A(θ) = (1 + θ²)Φ(θ) + θφ(θ), the mean of
    (θ + z)₊² for a standard normal z (Gardner 1988, Section 4, at zero margin).

    >>> gardner_capacity(0.5), round(gardner_capacity(1 / 64), 2)
    (2.0, 13.77)
    """
    if not 0 < rate < 1:
        raise InputError(f"the share of edges is {rate}; it must be strictly between 0 and 1")
    if rate == 0.5:
        return 2.0  # the minimum is at θ = 0, where both terms are 1/2
    # θ is where the labels would be cut if they were Gaussian: it grows like √(2 ln 1/f).
    sides = (-40.0, 1.0) if rate > 0.5 else (-1.0, 40.0)
    found: Any = minimize_scalar(
        lambda cut: rate * _mean_square(cut) + (1 - rate) * _mean_square(-cut),
        bounds=sides,
        method="bounded",
        options={"xatol": 1e-10},
    )
    return float(1 / found.fun)


def _mean_square(cut: float) -> float:
    """The mean of (θ + z)₊² over a standard normal z."""
    density = np.exp(-(cut**2) / 2) / np.sqrt(2 * np.pi)
    if cut > -20:
        return float((1 + cut**2) * ndtr(cut) + cut * density)
    # Far out the two terms cancel; the series 2φ(θ)/|θ|³ is then exact to 1 part in 30.
    return float(2 * np.exp(log_ndtr(cut)) / cut**2)


def freedom_needed(items: int, edges: int) -> float:
    """N = m²/α_c(m'/m²): the degrees of freedom that a graph of m' edges on m items takes.

    >>> round(freedom_needed(256, 256))
    1654
    """
    if items < 2 or not 0 < edges < items**2:
        raise InputError(
            f"{edges:,} edges on {items:,} items: the law needs at least one edge and one non-edge"
        )
    return items**2 / gardner_capacity(edges / items**2)


def degrees_of_freedom(d_model: int, heads: int, key_dim: int, kv_heads: int | None = None) -> int:
    """The degrees of freedom of h forms x W_Q W_Kᵀ yᵀ: h·k(2d − k); width past d adds nothing.

    With g key heads shared by h query heads they are d(h + g)k − gk²: the keys of a group may be
    changed by any invertible k × k matrix without changing a score.

    >>> degrees_of_freedom(32, 1, 32), degrees_of_freedom(32, 1, 64), degrees_of_freedom(32, 4, 8)
    (1024, 1024, 1792)
    """
    groups = heads if kv_heads is None else kv_heads
    if min(d_model, heads, key_dim, groups) < 1:
        raise InputError("d_model, heads, key_dim and kv_heads must be at least 1")
    if heads % groups:
        raise InputError(f"{groups} key heads do not divide {heads} heads; choose a divisor")
    width = min(key_dim, d_model)
    return d_model * (heads + groups) * width - groups * width**2


def latent_freedom(
    d_model: int, heads: int, key_dim: int, key_rank: int, query_rank: int | None = None
) -> int:
    """The degrees of freedom of heads that read one shared latent key of width c (MLA).

    With its up-projection absorbed into the queries, head e scores x·B_e·Aᵀyᵀ: the latent y A has
    c columns, and B_e has rank k = `key_dim` at most. Queries may come from a latent of their own
    of width p = `query_rank`. That is c(d − c) + p(d − p) + hk(p + c − k), where p = d without a
    query latent. At c = k it is the count of `degrees_of_freedom` for one shared key.

    >>> latent_freedom(64, 4, 8, key_rank=8) == degrees_of_freedom(64, 4, 8, kv_heads=1)
    True
    >>> latent_freedom(64, 4, 8, key_rank=32) == degrees_of_freedom(64, 4, 8)
    True
    """
    if min(d_model, heads, key_dim, key_rank, query_rank or 1) < 1:
        raise InputError("d_model, heads, key_dim and the latent ranks must be at least 1")
    width = min(key_dim, d_model, key_rank, query_rank or d_model)
    most = min(d_model, heads * width)  # what the heads together can use of a latent
    keys, queries = min(key_rank, most), min(query_rank or d_model, most)
    shared = keys * (d_model - keys) + queries * (d_model - queries)
    return shared + heads * width * (keys + queries - width)


def capacity_ratio(
    items: int,
    edges: int,
    d_model: int,
    heads: int,
    key_dim: int,
    kv_heads: int | None = None,
) -> float:
    """R: the degrees of freedom there are over those needed; one wide head needs R > 1.

    >>> round(capacity_ratio(256, 256, 32, heads=1, key_dim=32), 2)  # one head can never do it
    0.62
    >>> round(capacity_ratio(256, 256, 32, heads=2, key_dim=20), 2)
    1.06
    """
    return degrees_of_freedom(d_model, heads, key_dim, kv_heads) / freedom_needed(items, edges)


def items_held(d_model: int, heads: int, key_dim: int, degree: float = 1.0) -> float:
    """The number of items at R = 1 for a graph of `degree` edges per item, as a real number.

    >>> round(items_held(16, 1, 16), 1), round(items_held(32, 1, 32), 1)
    (56.9, 172.8)
    """
    return items_at_ratio(d_model, heads, key_dim, 1.0, degree)


def items_at_ratio(
    d_model: int, heads: int, key_dim: int, ratio: float, degree: float = 1.0
) -> float:
    """The number of items at a given R, as a real number."""
    return items_with_freedom(degrees_of_freedom(d_model, heads, key_dim) / ratio, degree)


def items_with_freedom(needed: float, degree: float = 1.0) -> float:
    """The number of items whose graphs of `degree` edges per item need this much freedom."""

    def surplus(items: float) -> float:
        return needed - items**2 / gardner_capacity(degree / items)

    # At the left end nearly all pairs are edges, which takes next to nothing; at the right end
    # α_c < items, so the demand exceeds items.
    low = max(degree, 1.0) * (1 + 1e-6)
    root: Any = brentq(surplus, low, max(4.0, needed) ** 2 + degree)
    return float(root)


def edges_at_ratio(freedom: float, items: int, ratio: float) -> int:
    """The most relations among `items` items whose graphs leave this capacity ratio; 0 if none.

    >>> edges_at_ratio(degrees_of_freedom(32, 2, 20), 256, 1.0)
    277
    """
    # The demand grows with the edges up to half of all pairs.
    low, high = 0, items**2 // 2
    while low < high:
        middle = (low + high + 1) // 2
        fits = freedom >= ratio * freedom_needed(items, middle)
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
