"""Signal and noise of a de-embedded score (Section 5; proof of Theorem B.2, Lemma B.3).

Head k is a matching: sources V_k, targets T_k = π(V_k), given as two integer arrays of one length.
With u_i = x_i Xᵀ/μ = e_i + δ_i its score splits into Signal + N₁ + N₂ + N₃. The leakage δ is taken
only at the rows and columns that a head touches. Signatures are Rademacher wherever an expectation
is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, sqrt

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.shapes import Float, Int

Head = tuple[Int[np.ndarray, " _"], Int[np.ndarray, " _"]]  # V_k and T_k, edge by edge

_ENTRIES = 2**22  # entries of a tile of scores: 32 MB in float64


def leakage(
    table: Float[Tensor, "items d_model"],
    rows: Int[np.ndarray, " a"] | None = None,
    columns: Int[np.ndarray, " b"] | None = None,
    scale: float = 1.0,
) -> Float[Tensor, "a b"]:
    """δ_i(s) = ⟨x_i, x_s⟩/μ − [i = s] for i in `rows`, s in `columns` (all by default), in float64.

    >>> leakage(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), np.array([0])).tolist()[0][0]
    0.0
    """
    if not 0 < scale < inf:
        raise InputError(f"scale {scale} cannot divide a Gram matrix; choose a positive one")
    rows = np.arange(len(table)) if rows is None else rows
    columns = np.arange(len(table)) if columns is None else columns
    delta = table[torch.tensor(rows)].double() @ table[torch.tensor(columns)].double().T / scale
    delta[np.nonzero(rows[:, None] == columns)] -= 1
    return delta


@dataclass(frozen=True)
class Decomposition:
    """The four parts of one head's scores, sources × targets; they sum to the score."""

    signal: Float[Tensor, "a b"]
    n1: Float[Tensor, "a b"]
    n2: Float[Tensor, "a b"]
    n3: Float[Tensor, "a b"]

    @property
    def score(self) -> Float[Tensor, "a b"]:
        """S_ij = Signal + N₁ + N₂ + N₃."""
        return self.signal + self.n1 + self.n2 + self.n3


def decompose(
    table: Float[Tensor, "items d_model"],
    sources: Int[np.ndarray, " size"],
    targets: Int[np.ndarray, " size"],
    signatures: Float[Tensor, "items key_dim"],
    scale: float = 1.0,
    *,
    rows: Int[np.ndarray, " a"] | None = None,
    columns: Int[np.ndarray, " b"] | None = None,
) -> Decomposition:
    """Signal, N₁, N₂ and N₃ of S_ij for i in `rows` and j in `columns` (proof of Theorem B.2).

    The proof's second display is for i ∈ V_k. For any other i the identity part e_i W'_Q is zero,
    so Signal = N₁ = 0.

    >>> parts = decompose(torch.eye(2), np.array([0]), np.array([1]), torch.ones(2, 3))
    >>> parts.signal.tolist(), float(parts.n3.abs().max())
    ([[0.0, 3.0], [0.0, 0.0]], 0.0)
    """
    return _decompose(
        table, (sources, targets), signatures[torch.tensor(targets)], scale, rows, columns
    )


def expected(
    table: Float[Tensor, "items d_model"],
    sources: Int[np.ndarray, " size"],
    targets: Int[np.ndarray, " size"],
    key_dim: int,
    scale: float = 1.0,
    *,
    rows: Int[np.ndarray, " a"] | None = None,
    columns: Int[np.ndarray, " b"] | None = None,
) -> Decomposition:
    """The same parts in the mean over Rademacher signatures, given X.

    E[w_s·w_t] = d_k·[s = t], so any signatures with exactly these products give the mean: √d_k
    times the unit vectors. Signal: d_k·[j = π(i)]. N₁: d_k·δ_j(π(i)) for i ∈ V_k. N₂:
    d_k·δ_i(π⁻¹(j)) for j ∈ T_k. N₃: d_k·Σ_{a ∈ T_k} δ_i(π⁻¹(a))·δ_j(a).
    """
    orthogonal = torch.eye(len(targets), dtype=torch.float64) * sqrt(key_dim)
    return _decompose(table, (sources, targets), orthogonal, scale, rows, columns)


def _decompose(
    table: Tensor,
    head: Head,
    signed: Tensor,
    scale: float,
    rows: np.ndarray | None,
    columns: np.ndarray | None,
) -> Decomposition:
    signed = signed.double()
    query, query_leak = _identity_and_leak(table, head[0], signed, scale, rows)
    key, key_leak = _identity_and_leak(table, head[1], signed, scale, columns)
    return Decomposition(
        query @ key.T, query @ key_leak.T, query_leak @ key.T, query_leak @ key_leak.T
    )


def _identity_and_leak(
    table: Tensor, members: np.ndarray, signed: Tensor, scale: float, rows: np.ndarray | None
) -> tuple[Tensor, Tensor]:
    """e_i W' and δ_i W' for a template W' with the rows `signed` at `members`, zero elsewhere."""
    if np.unique(members).size != members.size:
        raise InputError(
            "an item appears twice among the sources or the targets of a head; give a matching"
        )
    rows = np.arange(len(table)) if rows is None else rows
    own, place = np.nonzero(rows[:, None] == members)
    identity = torch.zeros(len(rows), signed.shape[1], dtype=torch.float64)
    identity[own] = signed[place]
    return identity, leakage(table, rows, members, scale) @ signed


@dataclass(frozen=True)
class Concentration:
    """Lemma B.3's three quantities on one table and one partition into heads.

    The diagonal term counts as the leakage has it: δ_i(i) = 0 for unit-norm rows, also where i ∈
    T_k. (The lemma's middle expression Σ_{s ∈ T_k} ⟨x_i, x_s⟩² would count 1 there.)
    """

    diagonal: float  # max |u_i(i) − 1| (item 1)
    leakage_mass: float  # max ‖δ_{i,S}‖² over S ∈ {V_k∖{i}, T_k} (item 2): the least C₂
    cross_correlation: float  # max |Σ_{a ∈ T_k} δ_i(π⁻¹(a)) δ_j(a)| over all i, j, k (item 3)
    worst: tuple[int, int, int]  # the (i, j, k) of that maximum
    c3: float  # the least C₃: cross_correlation·√(d_model/ln m)


def concentration(
    table: Float[Tensor, "items d_model"], heads: Sequence[Head], scale: float = 1.0
) -> Concentration:
    """Measure Lemma B.3 for all i, j and k: 2·m²·Σ|V_k| multiplications, in tiles of rows.

    >>> concentration(torch.eye(4), [(np.arange(4), np.arange(4))]).leakage_mass
    0.0
    """
    items, d_model = table.shape
    norms = table.double().square().sum(1) / scale
    mass, cross, worst = 0.0, 0.0, (0, 0, 0)
    for k, (sources, targets) in enumerate(heads):
        into = leakage(table, columns=targets, scale=scale)
        mass = max(mass, float(into.square().sum(1).max()))
        for rows in np.array_split(np.arange(items), -(-items * items // _ENTRIES)):
            out = leakage(table, rows, sources, scale)
            others = out * torch.from_numpy(rows[:, None] != sources)
            mass = max(mass, float(others.square().sum(1).max()))
            products = (out @ into.T).abs()
            if products.max() > cross:
                cross, place = float(products.max()), int(products.argmax())
                worst = (int(rows[place // items]), place % items, k)
    growth = sqrt(d_model / log(max(items, 2)))
    return Concentration(float((norms - 1).abs().max()), mass, cross, worst, cross * growth)


def noise_summary(
    table: Float[Tensor, "items d_model"],
    heads: Sequence[Head],
    signatures: Float[Tensor, "items key_dim"],
    scale: float = 1.0,
) -> pd.DataFrame:
    """Root mean square and maximum of each part over all heads, and of its mean given X.

    Each part is taken over the (i, j, k) where it can be non-zero: N₁ over i ∈ V_k, N₂ over j ∈
    T_k, N₃ over all. Signal is taken over i ∈ V_k, j ∈ T_k without the edges themselves: what two
    different signatures have in common.
    """
    items, key_dim = signatures.shape
    gathered = {name: _Gathered() for name in ("signal", "n1", "n2", "n3")}
    for sources, targets in heads:
        target = np.full(items, -1)
        target[sources] = targets
        ending = np.isin(np.arange(items), targets)
        for rows in np.array_split(np.arange(items), -(-items * items // _ENTRIES)):
            parts = decompose(table, sources, targets, signatures, scale, rows=rows)
            means = expected(table, sources, targets, key_dim, scale, rows=rows)
            inside = target[rows] >= 0
            non_edge = ending & (np.arange(items) != target[rows][:, None])
            kept = {
                "signal": inside[:, None] & non_edge,
                "n1": inside,
                "n2": (slice(None), ending),
                "n3": slice(None),
            }
            for name, chosen in kept.items():
                gathered[name].add(getattr(parts, name)[chosen], getattr(means, name)[chosen])
    return pd.DataFrame([{"part": name, **found.as_dict()} for name, found in gathered.items()])


@dataclass
class _Gathered:
    count: int = 0
    squares: float = 0.0
    largest: float = 0.0
    mean: float = 0.0

    def add(self, values: Tensor, means: Tensor) -> None:
        if values.numel():
            self.count += values.numel()
            self.squares += float(values.square().sum())
            self.largest = max(self.largest, float(values.abs().max()))
            self.mean = max(self.mean, float(means.abs().max()))

    def as_dict(self) -> dict[str, float]:
        return {
            "rms": sqrt(self.squares / max(self.count, 1)),
            "max": self.largest,
            "max_mean": self.mean,
        }
