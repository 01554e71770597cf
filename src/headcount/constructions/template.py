"""The template of every construction: partition → signatures → one-hot-space rows → de-embedding.

Head k is responsible for a matching M_k with sources V_k and targets T_k = π_k(V_k). In one-hot space its
templates W'_Q, W'_K hold the signature w_{π_k(i)} in row i ∈ V_k and w_j in row j ∈ T_k, zero elsewhere
(Alg. 1, lines 7–8). De-embedding multiplies them by an approximate inverse of the embedding (line 9), so only
the rows of V_k and T_k are ever touched: O(|M_k|·d_model·d_k) a head, linear in m in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from headcount.attention.key_query import Aggregation, KeyQuery
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.streams import generator
from headcount.shapes import Float, Int

UNIT_NORM = 1e-3  # how far from 1 the norm of a row may be
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

    Column by column from one stream: a wider draw with the same seed begins with the narrower one.
    """

    kind: SignatureKind = "rademacher"
    sparsity: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise InputError(
                f"sparsity {self.sparsity} is no probability between 0 and 1; choose one, or leave it out"
            )

    def draw(self, items: int, key_dim: int) -> Float[Tensor, "items key_dim"]:
        """W_sig."""
        rng = generator(self.seed, 0x519)
        if self.kind == "rademacher":
            entries = rng.integers(0, 2, size=(key_dim, items), dtype=np.int8) * 2.0 - 1.0
        else:
            entries = (rng.random((key_dim, items)) < self.sparsity).astype(np.float64)
        return torch.from_numpy(np.ascontiguousarray(entries.T)).float()

    def threshold(self, key_dim: int) -> float:
        """τ = d_k/2 (Alg. 1, line 3), or halfway between the means p·d_k and p²·d_k (Alg. 3, line 7)."""
        return (
            key_dim / 2
            if self.kind == "rademacher"
            else (self.sparsity + self.sparsity**2) / 2 * key_dim
        )


def inverter(inverse: Inverse, scale: float = 1.0) -> Callable[[Tensor], Tensor]:
    """How rows [block, d_model] are de-embedded to [d_model, block].

    `transpose`: the paper's X_inv = Xᵀ/μ (Def. B.4; μ = 1 in Alg. 1). `pinv`: the block's own pseudo-inverse, which
    leaves no leakage inside a block (δ_{i,s} = 0 for i, s ∈ V_k) and so needs far smaller widths.
    """
    if inverse == "transpose":
        return lambda rows: rows.T / scale
    if inverse == "pinv":
        return _pseudo_inverse
    raise InputError(f"inverse {inverse!r} is unknown; use transpose or pinv")


def _pseudo_inverse(rows: Float[Tensor, "block d_model"]) -> Float[Tensor, "d_model block"]:
    """Xᵀ(XXᵀ)⁻¹ by Cholesky where the rows are independent enough for that, else by singular values."""
    exact = rows.double()
    if not len(rows):
        return rows.T
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
    *,
    aggregation: Aggregation = "max",
    threshold: float | None = None,
    notes: Mapping[str, str],
) -> KeyQuery:
    """Weights of one head a matching."""
    if key_dim < 1:
        raise InputError(f"key_dim {key_dim} leaves no room for a signature; choose at least 1")
    w = signatures.draw(len(table), key_dim).to(table)
    queries = table.new_zeros(max(len(matchings), 1), table.shape[1], key_dim)
    keys = torch.zeros_like(queries)
    for k, matching in enumerate(matchings):
        sources, targets = (
            torch.from_numpy(part).to(table.device) for part in (matching.sources, matching.targets)
        )
        queries[k] = invert(table[sources]) @ w[targets]
        keys[k] = invert(table[targets]) @ w[targets]
    tau = signatures.threshold(key_dim) if threshold is None else threshold
    described = {"signatures": signatures.kind, "seed": str(signatures.seed), **notes}
    return KeyQuery(queries, keys, tau, aggregation, notes=described)


def require_permutation(graph: Graph, method: str) -> None:
    """Refuse a graph in which some item has not exactly one target and one source."""
    if not graph.is_permutation:
        raise InputError(
            f"the {method} construction needs a permutation graph (one edge out of and into each item); "
            "use method general-graph"
        )


def require_unit_norm(table: Float[Tensor, "items d_model"], method: str) -> None:
    """Refuse a table whose rows are not of norm one, which Xᵀ as an inverse takes for granted."""
    norms = table.double().norm(dim=1)
    worst = int((norms - 1).abs().argmax())
    if abs(float(norms[worst]) - 1) > UNIT_NORM:
        raise InputError(
            f"the {method} construction with Xᵀ as inverse needs rows of norm 1, row {worst} has "
            f"{float(norms[worst]):.4g}; use inverse pinv, or normalise the table"
        )


def split_sources(graph: Graph, heads: int) -> list[Matching]:
    """A permutation's edges in `heads` blocks of consecutive sources, sizes as equal as can be (Alg. 1, line 4)."""
    if not 1 <= heads <= graph.items:
        raise InputError(f"{heads} heads cannot share {graph.items} items; choose 1…{graph.items}")
    return [
        Matching(block, graph.targets[block])
        for block in np.array_split(np.arange(graph.items), heads)
    ]
