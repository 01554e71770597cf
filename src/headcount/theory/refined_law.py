"""Where the capacity law needs more than a count of degrees of freedom: narrow heads, and hubs.

Narrow heads. Matrices of rank k are not a linear space. Gordon's inequality (1988) bounds what any
set of matrices can label on independent Gaussian patterns by its squared Gaussian width ω², which
is the number of degrees of freedom for a linear space only. For matrices of rank k, ω² is the sum
of the k largest squared singular values of a Gaussian d × d matrix: d² for k = d, but close to 4dk,
twice the degrees of freedom, for k ≪ d.

Shared keys. The n = h/g heads of a group have one W_K. Stacked, their forms are one nd × d matrix
of rank k, and ω² is that of an nd × d matrix: kd(1 + √n)² for k ≪ d.

Hubs. The pairs of one target are m patterns in the d dimensions of W x_j alone. An item with n
edges thus needs m/α_c(n/m) of d degrees of freedom, whatever all other items need.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import atan, pi, sin, sqrt, tan
from typing import Any

import numpy as np
from scipy.optimize import brentq

from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.theory.capacity_law import (
    degrees_of_freedom,
    freedom_needed,
    gardner_capacity,
)


def effective_freedom(d_model: int, heads: int, key_dim: int, kv_heads: int | None = None) -> float:
    """g·ω²(k), the squared Gaussian width of h forms of rank k with g keys, for large d.

    >>> effective_freedom(32, 1, 32), round(effective_freedom(1000, 1, 1) / 1000, 1)
    (1024.0, 4.0)
    >>> round(effective_freedom(10_000, 4, 1, kv_heads=1) / 10_000, 1)  # (1 + √4)², not 4 × 4
    9.0
    """
    degrees_of_freedom(d_model, heads, key_dim, kv_heads)  # checks the sizes
    if key_dim >= d_model:
        return float(heads * d_model**2)
    shared_by = 1 if kv_heads is None else heads // kv_heads
    return heads * d_model**2 * (2 / pi) * _top_share(shared_by, key_dim / d_model)


def squared_width(rows: float, columns: int, rank: float) -> float:
    """ω² of matrices of this shape and rank: of a Gaussian one, the sum of the largest λ.

    With n = rows/columns ≥ 1, the squared singular values λ of a Gaussian matrix are
    columns·(n + 1 + 2√n·cos 2φ), where φ in (0, π/2) is distributed such that the share with an
    angle below φ is ((n + 1)φ − √n·sin 2φ − (n − 1)·arctan(c·tan φ))/π, c = (√n − 1)/(√n + 1)
    (Marchenko and Pastur 1967). The largest λ up to φ add up to rows·columns·(2/π)(φ − sin(4φ)/4).

    >>> squared_width(64, 32, 32), round(squared_width(64, 32, 8))  # of 8·(64 + 32 − 8) = 704
    (2048.0, 1037)
    """
    if rows < columns:
        raise InputError(f"{rows} rows are fewer than {columns} columns; give the transpose")
    if rank >= columns:
        return float(rows * columns)
    return rows * columns * (2 / pi) * _top_share(rows / columns, rank / columns)


def _top_share(n: float, share: float) -> float:
    """φ − sin(4φ)/4 at the φ below which this share of the singular values is; n as above."""
    inner = (sqrt(n) - 1) / (sqrt(n) + 1)

    def surplus(angle: float) -> float:
        part = (n + 1) * angle - sqrt(n) * sin(2 * angle) - (n - 1) * atan(inner * tan(angle))
        return part / pi - share

    end: Any = brentq(surplus, 0, pi / 2)
    return end - sin(4 * end) / 4


def width_ratio(
    items: int,
    edges: int,
    d_model: int,
    heads: int,
    key_dim: int,
    kv_heads: int | None = None,
) -> float:
    """G: the effective freedom over N. For one head it must exceed 1; at k = d it is R.

    >>> round(width_ratio(128, 128, 64, heads=1, key_dim=4), 2)  # where R is 0.70
    1.21
    """
    return effective_freedom(d_model, heads, key_dim, kv_heads) / freedom_needed(items, edges)


def hub_ratio(graph: Graph, d_model: int, heads: int = 1) -> float:
    """The least d·h·α_c(n/m)/m over all items, n being an item's edges in either direction.

    Below 1 an item of the graph alone has more edges than its d·h degrees of freedom can hold.

    >>> from headcount import permutation_graph, skewed_graph
    >>> round(hub_ratio(permutation_graph(128), 32), 2)
    5.79
    >>> round(hub_ratio(skewed_graph(128, 256), 32), 2)
    0.57
    """
    degrees = np.concatenate([graph.in_degrees, graph.out_degrees])
    counts = [int(n) for n in np.unique(degrees) if 0 < n < graph.items]
    if not counts:
        raise InputError("every item has all edges or none; the law needs an item between")
    hardest = min(gardner_capacity(n / graph.items) for n in counts)
    return d_model * heads * hardest / graph.items


@dataclass(frozen=True)
class LawReading:
    """What the capacity law and its two refinements say of a channel; docs/law.md explains it."""

    needed: float  # N
    freedom: int  # d(h + g)k − gk², which is h·k(2d − k) where every head has keys of its own
    effective_freedom: float  # g·ω²(k)
    hub_ratio: float  # H

    @property
    def ratio(self) -> float:
        """R = freedom/N: the law's own ratio, exact for one head of full width."""
        return self.freedom / self.needed

    @property
    def width_ratio(self) -> float:
        """G = effective freedom/N: where narrow heads turn."""
        return self.effective_freedom / self.needed

    @property
    def possible(self) -> bool:
        """Whether G and H exceed 1, without which one head has no weights."""
        return self.width_ratio > 1 and self.hub_ratio > 1


def law(
    graph: Graph,
    d_model: int,
    heads: int = 1,
    key_dim: int | None = None,
    kv_heads: int | None = None,
) -> LawReading:
    """Read the capacity law at a graph and a channel; without `key_dim`, heads of full width.

    With `kv_heads` that many keys are shared by the heads (docs/shared-keys.md).

    >>> from headcount import permutation_graph, skewed_graph
    >>> reading = law(permutation_graph(256), 32)
    >>> round(reading.ratio, 2), reading.possible
    (0.62, False)
    >>> law(skewed_graph(91, 182), 32).possible  # R is 1.33, but its largest hub has H = 0.75
    False
    """
    width = d_model if key_dim is None else key_dim
    return LawReading(
        freedom_needed(graph.items, graph.edges),
        degrees_of_freedom(d_model, heads, width, kv_heads),
        effective_freedom(d_model, heads, width, kv_heads),
        hub_ratio(graph, d_model, heads),
    )
