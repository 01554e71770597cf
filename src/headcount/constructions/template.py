"""The template of every construction: matchings → signatures → one-hot-space rows → de-embedding.

Head k is responsible for a matching M_k with sources V_k and targets T_k = π_k(V_k). In one-hot
space its templates W'_Q, W'_K hold the signature w_{π_k(i)} in row i ∈ V_k and w_j in row j ∈ T_k,
and zero elsewhere (Alg. 1, lines 7–8). De-embedding multiplies them by an approximate inverse of
the embedding (line 9), so only the rows of V_k and T_k are ever touched: O(|M_k|·d_model·d_k) per
head, linear in m over all heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.streams import generator
from headcount.shapes import Float, Int

_SALT = 0x519  # keeps signatures apart from the graph and the table of the same seed

Inverse = Literal["transpose", "pinv"]
SignatureKind = Literal["rademacher", "bernoulli"]


@dataclass(frozen=True)
class Matching:
    """M_k: edges (sources[e], targets[e]) with no source and no target twice."""

    sources: Int[np.ndarray, " size"]
    targets: Int[np.ndarray, " size"]


@dataclass(frozen=True)
class Signatures:
    """i.i.d. rows w_j: Rademacher ±1 entries, or Bernoulli(sparsity) 0/1 entries.

    They are drawn column by column from one stream, so a wider draw with the same seed begins with
    the narrower one. A search over widths relies on that.
    """

    kind: SignatureKind = "rademacher"
    sparsity: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise InputError(
                f"sparsity {self.sparsity} must be between 0 and 1; change it or leave it out"
            )

    def draw(self, items: int, key_dim: int) -> Float[Tensor, "items key_dim"]:
        """W_sig (Alg. 1, line 5)."""
        rng = generator(self.seed, _SALT)
        if self.kind == "rademacher":
            entries = rng.integers(0, 2, size=(key_dim, items), dtype=np.int8) * 2.0 - 1.0
        else:
            entries = (rng.random((key_dim, items)) < self.sparsity).astype(np.float64)
        return torch.from_numpy(np.ascontiguousarray(entries.T)).float()

    def threshold(self, key_dim: int) -> float:
        """τ = d_k/2 (Alg. 1, line 3), or halfway between p·d_k and p²·d_k (Alg. 3, line 7)."""
        if self.kind == "rademacher":
            return key_dim / 2
        return (self.sparsity + self.sparsity**2) / 2 * key_dim


def inverter(inverse: Inverse, scale: float = 1.0) -> Callable[[Tensor], Tensor]:
    """The approximate inverse that maps rows [block, d_model] to [d_model, block].

    `transpose`: the paper's X_inv = Xᵀ/μ (Def. B.4; μ = 1 in Alg. 1). `pinv`: the block's own
    pseudo-inverse, which leaves no leakage inside a block (δ_{i,s} = 0 for i, s ∈ V_k) and so needs
    far smaller widths.
    """
    if inverse == "transpose":
        return lambda rows: rows.T / scale
    if inverse == "pinv":
        return _pseudo_inverse
    raise InputError(f"inverse {inverse!r} is unknown; use transpose or pinv")


def _pseudo_inverse(rows: Float[Tensor, "block d_model"]) -> Float[Tensor, "d_model block"]:
    """Xᵀ(XXᵀ)⁻¹ in float64 by Cholesky, or by singular values where the rows are dependent."""
    exact = rows.double()
    if not len(rows):
        return rows.T
    # Cholesky squares the condition number; the residual says whether enough digits are left.
    factor, failed = torch.linalg.cholesky_ex(exact @ exact.T)
    if not failed:
        found = torch.cholesky_solve(exact, factor).T
        if (exact @ found).sub_(torch.eye(len(rows), device=rows.device)).abs().max() < 1e-8:
            return found.to(rows.dtype)
    return torch.linalg.pinv(exact).to(rows.dtype)


def fill(
    table: Float[Tensor, "items d_model"],
    matchings: Sequence[Matching],
    signatures: Signatures,
    key_dim: int,
    invert: Callable[[Tensor], Tensor],
    notes: Mapping[str, str] | None = None,
) -> KeyQuery:
    """Weights with one head per matching, under max with the signatures' threshold."""
    if key_dim < 1:
        raise InputError(f"key_dim {key_dim} leaves no room for a signature; choose at least 1")
    w = signatures.draw(len(table), key_dim).to(table)  # Alg. 1, line 5
    queries = table.new_zeros(max(len(matchings), 1), table.shape[1], key_dim)
    keys = torch.zeros_like(queries)
    for k, matching in enumerate(matchings):
        sources, targets = (
            torch.from_numpy(part).to(table.device) for part in (matching.sources, matching.targets)
        )
        # Lines 7–9 without the zero rows of the templates, which add nothing to the product.
        queries[k] = invert(table[sources]) @ w[targets]
        keys[k] = invert(table[targets]) @ w[targets]
    described = {"signatures": signatures.kind, "seed": str(signatures.seed), **(notes or {})}
    return KeyQuery(queries, keys, signatures.threshold(key_dim), notes=described)


def split_sources(graph: Graph, heads: int) -> list[Matching]:
    """A permutation's edges in `heads` blocks of consecutive sources (Alg. 1, line 4).

    Block sizes differ by at most one.
    """
    if not 1 <= heads <= graph.items:
        raise InputError(f"{heads} heads cannot share {graph.items} items; choose 1…{graph.items}")
    return [
        Matching(block, graph.targets[block])
        for block in np.array_split(np.arange(graph.items), heads)
    ]
