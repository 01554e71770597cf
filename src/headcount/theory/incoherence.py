"""Restricted self-incoherence of a table at block size B (Definition B.4, Theorem B.5).

With δ_i(s) = ⟨x_i, x_s⟩/μ − [i = s] and |S| ≤ B, the worst S takes the B largest terms, so ρ is a
sum of B largest squares: exact for every table, in m²·d_model work. So is γ: Definition B.4(3)
names every i and j, hence i = j, where Σ_{a ∈ S} δ_i(a)² is a case; by Cauchy–Schwarz no other pair
exceeds the largest of these. So

    γ = max_i max_{|S| ≤ B} Σ_{a ∈ S} δ_i(a)²,   S ⊆ [m] with i allowed,   and   ρ ≤ γ ≤ ρ + ε_d².

Over distinct pairs i ≠ j the maximum is smaller and takes m³ work: exact up to a limit, beyond it a
bracket.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.problem.tables import TableLike, as_table
from headcount.shapes import Float, Int
from headcount.theory.noise import leakage

_TILE = 2**23  # entries of δ held at a time


@dataclass(frozen=True)
class Incoherence:
    """What Definition B.4 asks of a table, at its smallest: (μ, ε_d, B; ρ, γ)."""

    scale: float  # μ
    block: int  # B
    diagonal: float  # ε_d
    leakage: float  # ρ
    cross_leakage: float  # γ, over every i and j
    distinct: tuple[float, float]  # γ over i ≠ j alone lies between these two

    @property
    def exact(self) -> bool:
        """Whether the bracket of the distinct pairs is closed; ε_d, ρ and γ always are exact."""
        return self.distinct[0] == self.distinct[1]

    def constants_needed(self, items: int) -> tuple[float, float]:
        """The least c₂ and c₃ of Theorem B.5 on a table of m items: ρ·ln m and γ·ln m."""
        growth = log(max(items, 2))
        return self.leakage * growth, self.cross_leakage * growth

    @property
    def margin(self) -> float:
        """How far from τ = d_k/2 each score stays, over d_k, as d_k → ∞.

        It is taken over the worst permutation and the worst blocks of B items. For Rademacher
        signatures a score over d_k tends to L_ij = Σ_{s ∈ V_k} u_i(s)·u_j(π(s)). By Cauchy–Schwarz
        L ≥ (1 − ε_d)² − ρ on an edge in its own head, and on a non-edge in any head
        |L| ≤ 2(1 + ε_d)√ρ (ρ + (1 + ε_d)² where ρ is above (1 + ε_d)²). Scores lie within O(√(d_k
        ln m)) of the limit, so a positive margin proves Theorem B.5's claim for d_k = C·ln m with C
        large. It asks nothing of γ, and ρ below a constant (1/16 at ε_d = 0) in place of c₂/ln m.
        """
        edge = (1 - min(self.diagonal, 1)) ** 2 - self.leakage
        own, leaked = 1 + self.diagonal, sqrt(self.leakage)
        other = 2 * own * leaked if leaked <= own else leaked**2 + own**2
        return min(edge - 0.5, 0.5 - other)


def balanced_scale(table: Float[Tensor, "items d_model"]) -> float:
    """The μ with the smallest ε_d: halfway between the smallest and the largest ‖x_i‖².

    >>> balanced_scale(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    1.5
    """
    norms = table.double().square().sum(1)
    scale = float(norms.min() + norms.max()) / 2
    if scale == 0:
        raise InputError(
            "every row of the table is zero, so no scale makes it an inverse; give another table"
        )
    return scale


def default_block(items: int, d_model: int) -> int:
    """B = d_model/ln m, rounded, from 1 to m: the order of Corollary B.7's block.

    >>> default_block(256, 64)  # 64/5.545
    12
    """
    return min(max(round(d_model / log(max(items, 2))), 1), items)


def incoherence(
    table: TableLike,
    block: int | None = None,
    scale: float | None = None,
    *,
    work: int = 40_000_000,
    seed: int = 0,
) -> Incoherence:
    """Definition B.4's ε_d, ρ and γ at block size B, `default_block` unless given.

    μ is `balanced_scale` unless given (Corollary B.7 has d·p_B). A pair i ≠ j takes m products,
    `work` in all: every pair where that suffices (m ≤ 431). Else the bracket's lower end comes from
    the most similar rows and from random pairs, half each, its upper end from Cauchy–Schwarz.

    >>> found = incoherence(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), block=1)
    >>> round(found.leakage, 6), round(found.cross_leakage, 6), found.exact
    (0.36, 0.36, True)
    """
    table = as_table(table)
    items, d_model = table.shape
    block = default_block(items, d_model) if block is None else block
    if not 1 <= block <= items:
        raise InputError(f"block {block} does not fit {items} items; choose 1…{items}")
    scale = balanced_scale(table) if scale is None else scale
    ends = [
        (rows.off[:, -1], rows.whole[:, -1], rows.off[:, 0], rows.nearest)
        for rows in _rows(table, block, scale)
    ]
    off, whole, similarity, nearest = (torch.cat(part) for part in zip(*ends, strict=True))
    heaviest = whole.sort(descending=True).values
    every = items * (items - 1) // 2 * items <= work
    first, second = (
        np.triu_indices(items, 1)
        if every
        else _likely_pairs(similarity, nearest, work // items, seed)
    )
    low = float(cross_leakage(table, first, second, block, scale).max()) if len(first) else 0.0
    high = low if every else float(heaviest[:2].prod().sqrt())  # |Σ δ_i δ_j| ≤ √(γ_i γ_j), two rows
    return Incoherence(
        scale, block, _diagonal(table, scale), float(off.max()), float(heaviest[0]), (low, high)
    )


def cross_leakage(
    table: Float[Tensor, "items d_model"],
    first: Int[np.ndarray, " pairs"],
    second: Int[np.ndarray, " pairs"],
    block: int,
    scale: float = 1.0,
) -> Float[Tensor, " pairs"]:
    """max_{|S| ≤ B} |Σ_{a ∈ S} δ_i(a)·δ_j(a)| of chosen pairs (i, j).

    The worst S takes the B largest products or the B lowest ones.
    """
    chunk = max(1, _TILE // (4 * len(table)))
    found = [torch.empty(0, dtype=torch.float64)]
    for top in range(0, len(first), chunk):
        part = slice(top, top + chunk)
        rows, place = np.unique(np.stack([first[part], second[part]]), return_inverse=True)
        products = leakage(table, rows, scale=scale)[place.reshape(2, -1)].prod(0)
        above, below = (
            (sign * products).topk(min(block, len(table)), dim=1).values.clamp(min=0).sum(1)
            for sign in (1, -1)
        )
        found.append(torch.maximum(above, below))
    return torch.cat(found)


def largest_block(
    table: Float[Tensor, "items d_model"],
    c_diagonal: float = 0.1,
    c_leakage: float = 1 / 3,
    c_cross: float = 1 / 3,
    scale: float | None = None,
) -> int:
    """The largest B with ε_d ≤ c₁, ρ ≤ c₂/ln m and γ ≤ c₃/ln m (Theorem B.5); 0 if there is none.

    The theorem leaves c₁, c₂, c₃ open. With the defaults `Incoherence.margin` is positive for every
    m ≥ 635: (1 − c₁)² − c₂/ln m > 1/2 > 2(1 + c₁)·√(c₂/ln m), so there the theorem's claim is
    proved. They are strict, since ρ and γ take the worst set of B items: raise them to see what a
    block would need.

    >>> largest_block(torch.eye(8)), largest_block(torch.ones(8, 2))
    (8, 0)
    """
    for name, constant in (
        ("c_diagonal", c_diagonal),
        ("c_leakage", c_leakage),
        ("c_cross", c_cross),
    ):
        if not 0 <= constant < inf:
            raise InputError(
                f"{name} = {constant}: Theorem B.5's constants are finite; choose a positive number"
            )
    items = len(table)
    scale = balanced_scale(table) if scale is None else scale
    if _diagonal(table, scale) > c_diagonal:
        return 0
    over = 1 / log(items) if items > 1 else inf
    limit = min(items, 64)
    while True:
        found = limit
        for rows in _rows(table, limit, scale):
            fits = (rows.off <= c_leakage * over) & (rows.whole <= c_cross * over)
            found = min(found, int(fits.sum(1).min()))  # both sums grow with B
            if found == 0:
                return 0
        if found < limit or limit == items:
            return found
        limit = min(items, 16 * limit)


class _Rows(NamedTuple):
    """Of some rows i: sums of the 1 … limit largest δ_i(s)², and the most similar other item."""

    off: Tensor  # over s ≠ i
    whole: Tensor  # over all s
    nearest: Tensor


def _rows(table: Tensor, limit: int, scale: float) -> Iterator[_Rows]:
    step = max(1, _TILE // len(table))
    for top in range(0, len(table), step):
        rows = np.arange(top, min(top + step, len(table)))
        squares = leakage(table, rows, scale=scale).square_()
        diagonal = np.arange(len(rows)), rows
        own = squares[diagonal]
        squares[diagonal] = -1  # sorted last, then counted as nothing
        largest = squares.topk(limit, dim=1)
        off = largest.values.clamp(min=0).cumsum(1)
        with_own = torch.nn.functional.pad(off[:, :-1], (1, 0)) + own[:, None]
        yield _Rows(off, torch.maximum(off, with_own), largest.indices[:, 0])


def _diagonal(table: Tensor, scale: float) -> float:
    return float((table.double().square().sum(1) / scale - 1).abs().max())


def _likely_pairs(
    similarity: Tensor, nearest: Tensor, pairs: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs i ≠ j: each row with its nearest, most similar first, and as many random ones."""
    items, half = len(nearest), max(pairs // 2, 1)
    rng = np.random.default_rng(seed)
    close = similarity.topk(min(half, items)).indices.numpy()
    drawn = rng.integers(items, size=half)
    shifted = (drawn + rng.integers(1, items, size=half)) % items
    return np.concatenate([close, drawn]), np.concatenate([nearest.numpy()[close], shifted])
