"""How narrow the keys may be when queries cost nothing: what limits the key cache alone.

Let h heads share one key of width k. Where an edge s → t is found under max, some head has a query
q with q·κ_t > τ, and q·κ_u ≤ τ for all items u that are no targets of s. So for a permutation every
key κ_t must be cut off from all other keys by a plane: it must be a corner of their convex hull.
However many heads there are, their queries are then no better than one free query per source.

Proved, for any table: `corner_width` and `packing_width`. Heuristic: `random_key_width`, for keys
that are not trained, and `free_query_width`, for keys that are. docs/shared-keys.md explains them.
"""

from __future__ import annotations

from math import ceil, log
from typing import Any

from scipy.optimize import brentq

from headcount.errors import InputError
from headcount.theory.capacity_law import freedom_needed, gardner_capacity
from headcount.theory.refined_law import squared_width


def corner_width(targets: int, kv_heads: int = 1) -> int:
    """The least width that corners allow: 1 for two targets per key head, 2 for any number.

    Keys of width 1 are points on a line, of which only the first and the last can be cut off. In
    the plane all points of a circle can. This holds for any queries, any table and max over heads,
    where each source has one target.

    >>> corner_width(2), corner_width(64), corner_width(64, kv_heads=32)
    (1, 2, 1)
    """
    if min(targets, kv_heads) < 1:
        raise InputError("targets and kv_heads must be at least 1")
    return 1 if targets <= 2 * kv_heads else 2


def packing_width(targets: int, margin: float) -> int:
    """The least number of key columns D_KV if keys and queries are bounded and scores have a gap.

    The keys of an item in all groups together have norm at most 1, and so has the query of the head
    that finds an edge. Its score is to exceed those of non-edges by `margin` γ. Two targets that
    are not found from the same sources then have keys at a distance of γ or more, and (1 + 2/γ)^D
    such points fit into a unit ball of D dimensions.

    >>> packing_width(1024, margin=0.1), packing_width(1024, margin=1.0)
    (3, 7)
    """
    if targets < 1 or not 0 < margin <= 2:
        raise InputError("packing needs at least 1 target and a margin above 0 and up to 2")
    return ceil(log(targets) / log(1 + 2 / margin) - 1e-12)


def random_key_width(items: int, degree: int = 1) -> float:
    """The width that keys drawn at random need: k = m/α_c(r/m).

    The row of a source is then a perceptron with k weights that has to tell its r targets from the
    other keys. It concerns a typical source, so that all m sources need somewhat more.

    >>> round(random_key_width(64), 2), round(random_key_width(1024), 2)
    (4.65, 8.45)
    """
    return items / gardner_capacity(degree / items)


def free_query_width(items: int, edges: int, d_model: int) -> float:
    """The width that trained keys need under one free query per source, by the refined law.

    Queries of m sources and keys of d columns are an m × d matrix of rank k. Its squared Gaussian
    width must exceed N. As the law is not a bound for these patterns, neither is this.

    >>> round(free_query_width(64, 64, 16), 1), round(free_query_width(1024, 1024, 128), 1)
    (2.5, 4.9)
    """
    needed, shape = freedom_needed(items, edges), sorted((items, d_model))
    if needed >= items * d_model:
        raise InputError(
            f"{edges:,} edges on {items:,} items need more than the {d_model} columns of the table"
        )
    least, most = 1e-9, shape[0]
    found: Any = brentq(lambda k: squared_width(shape[1], shape[0], k) - needed, least, most)
    return float(found)
