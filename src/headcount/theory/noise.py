"""Signal and noise of a de-embedded score (Section 5; Appendix B.2: proof of Theorem B.2, Lemma B.3).

Head k is a matching: sources V_k, targets T_k = π(V_k), given as two integer arrays of one length. With
u_i = x_i Xᵀ/μ = e_i + δ_i its score splits into Signal + N₁ + N₂ + N₃; the leakage δ is taken only at the rows and
columns that a head touches. Signatures are Rademacher wherever an expectation is named.
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
from headcount.problem.embeddings import gaussian_embeddings
from headcount.shapes import Float, Int

Head = tuple[Int[np.ndarray, " _"], Int[np.ndarray, " _"]]  # V_k and T_k, edge by edge

_ENTRIES = 2**22  # of a tile of scores


def leakage(
    table: Float[Tensor, "items d_model"],
    rows: Int[np.ndarray, " a"] | None = None,
    columns: Int[np.ndarray, " b"] | None = None,
    scale: float = 1.0,
) -> Float[Tensor, "a b"]:
    """δ_i(s) = ⟨x_i, x_s⟩/μ − [i = s] for i in `rows` and s in `columns` (all by default), in float64.

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
    """Signal, N₁, N₂ and N₃ of S_ij for i in `rows` and j in `columns` (proof of Theorem B.2, second display).

    The display is for i ∈ V_k. For any other i the identity part e_i W'_Q is zero, so Signal = N₁ = 0.

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

    E[w_s·w_t] = d_k·[s = t], so any signatures with exactly these products give the mean: √d_k times the unit vectors.
    Signal: d_k·[j = π(i)]. N₁: d_k·δ_j(π(i)) for i ∈ V_k. N₂: d_k·δ_i(π⁻¹(j)) for j ∈ T_k.
    N₃: d_k·Σ_{a ∈ T_k} δ_i(π⁻¹(a))·δ_j(a).
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
    """e_i W' and δ_i W' for a template W' with the rows `signed` at `members` and zero elsewhere."""
    if np.unique(members).size != members.size:
        raise InputError(
            "an item stands twice among the sources or the targets of a head; give a matching"
        )
    rows = np.arange(len(table)) if rows is None else rows
    own, place = np.nonzero(rows[:, None] == members)
    identity = torch.zeros(len(rows), signed.shape[1], dtype=torch.float64)
    identity[own] = signed[place]
    return identity, leakage(table, rows, members, scale) @ signed


@dataclass(frozen=True)
class Concentration:
    """Lemma B.3's three quantities on one table and one partition into heads.

    The diagonal term counts as the leakage has it: δ_i(i) = 0 for unit-norm rows, also where i ∈ T_k. (The
    lemma's middle expression Σ_{s ∈ T_k} ⟨x_i, x_s⟩² would count 1 there.)
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
    """Root mean square and maximum of each part over all heads, and the maximum of its mean given X.

    Each part over the (i, j, k) where it can be non-zero, for N₁ i ∈ V_k, for N₂ j ∈ T_k, for N₃ all; for Signal
    both, without the edges themselves: what two different signatures have in common.
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


def predicted_n3(items: int, d_model: int, block: int, key_dim: int) -> float:
    """Eq. (1) with constant 1: N₃(B) = B/d_model·√(d_k ln m).

    >>> round(predicted_n3(1024, 64, 64, 16), 2)  # √(16·6.931)
    10.53
    """
    return block / d_model * sqrt(key_dim * log(items))


def predicted_n3_mean(items: int, d_model: int, block: int, key_dim: int) -> float:
    """Lemma B.3(3) at any block size, times d_k, with constant 1: E[N₃ | X] = d_k/d_model·√(B ln m).

    Eq. (1) leaves this part out; it is the larger one where d_k > B.
    """
    return key_dim / d_model * sqrt(block * log(items))


def measure_n3(
    items: int,
    d_model: int,
    blocks: Sequence[int],
    key_dims: Sequence[int],
    seed: int = 0,
    sample: int = 512,
) -> pd.DataFrame:
    """|N₃| of one head over `sample`² pairs, for every block size B and width d_k, against Eq. (1).

    A Gaussian unit-norm table, a uniform permutation, the head of B random sources. One line each for N₃ (`total`), its
    mean given X (`mean`: d_k⟨δ, δ⟩) and the rest (`centred`); `law` is Eq. (1), for `mean` its own law.
    """
    if not all(1 <= block <= items for block in blocks) or min(key_dims, default=0) < 1:
        raise InputError(
            f"blocks must lie in 1…{items} and key_dims be at least 1; choose such sizes"
        )
    rng = np.random.default_rng([seed, 0x3])
    table = gaussian_embeddings(items, d_model, seed)
    order, targets = rng.permutation(items), rng.permutation(items)
    rows, columns = (rng.permutation(items)[:sample] for _ in range(2))
    lines = []
    for block in blocks:
        out = leakage(table, rows, order[:block])
        into = leakage(table, columns, targets[:block])
        products = out @ into.T
        for key_dim in key_dims:
            signed = torch.from_numpy(rng.integers(0, 2, (block, key_dim)) * 2.0 - 1.0)
            total = (out @ signed) @ (into @ signed).T
            sizes = {"items": items, "d_model": d_model, "block": block, "key_dim": key_dim}
            law = predicted_n3(items, d_model, block, key_dim)
            mean_law = predicted_n3_mean(items, d_model, block, key_dim)
            lines += [
                sizes
                | {"part": part, **_spread(values), "law": mean_law if part == "mean" else law}
                for part, values in (
                    ("total", total),
                    ("centred", total - key_dim * products),
                    ("mean", key_dim * products),
                )
            ]
    return pd.DataFrame(lines)


def _spread(values: Tensor) -> dict[str, float]:
    sizes = values.abs().numpy().ravel()
    median, high = np.quantile(sizes, [0.5, 0.99])
    return {
        "rms": float(np.sqrt(np.square(sizes).mean())),
        "median": float(median),
        "q99": float(high),
        "max": float(sizes.max()),
    }
