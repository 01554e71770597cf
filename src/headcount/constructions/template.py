"""The template of every construction: partition → signatures → one-hot-space rows → de-embedding.

Head k is responsible for a matching M_k with sources V_k and targets T_k = π_k(V_k). In one-hot space its
templates W'_Q, W'_K hold the signature w_{π_k(i)} in row i ∈ V_k and w_j in row j ∈ T_k, zero elsewhere
(Alg. 1, lines 7–8). De-embedding multiplies them by an approximate inverse of the embedding (line 9), so only
the rows of V_k and T_k are ever touched: O(|M_k|·d_model·d_k) a head, linear in m in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from headcount.attention.key_query import Aggregation, KeyQuery
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Float, Int

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

    def draw(self, items: int, key_dim: int) -> Float[Tensor, "items key_dim"]:
        """W_sig."""
        rng = np.random.default_rng([self.seed, 0x519])
        if self.kind == "rademacher":
            entries = rng.integers(0, 2, size=(key_dim, items), dtype=np.int8) * 2.0 - 1.0
        else:
            entries = (rng.random((key_dim, items)) < self.sparsity).astype(np.float64)
        return torch.from_numpy(np.ascontiguousarray(entries.T)).float()

    def threshold(self, key_dim: int) -> float:
        """τ = d_k/2 (Alg. 1, line 3), or halfway between the means p·d_k and p²·d_k (Alg. 3, line 7)."""
        return key_dim / 2 if self.kind == "rademacher" else (self.sparsity + self.sparsity**2) / 2 * key_dim


def transposed(
    scale: float = 1.0,
) -> Callable[[Float[Tensor, "block d_model"]], Float[Tensor, "d_model block"]]:
    """The paper's approximate inverse X_inv = Xᵀ/μ (Def. B.4; μ = 1 in Alg. 1)."""
    return lambda rows: rows.T / scale


def pseudo_inverse(rows: Float[Tensor, "block d_model"]) -> Float[Tensor, "d_model block"]:
    """The block's own pseudo-inverse: within a block there is no leakage at all (δ_{i,s} = 0 for i, s ∈ V_k)."""
    return torch.linalg.pinv(rows.double()).to(rows.dtype)


def fill(
    table: Float[Tensor, "items d_model"],
    matchings: Sequence[Matching],
    signatures: Signatures,
    key_dim: int,
    invert: Callable[[Float[Tensor, "block d_model"]], Float[Tensor, "d_model block"]],
    *,
    aggregation: Aggregation = "max",
    threshold: float | None = None,
    notes: Mapping[str, str],
) -> KeyQuery:
    """Weights of one head a matching."""
    if key_dim < 1:
        raise InputError(f"key_dim {key_dim} leaves no room for a signature; choose at least 1")
    w = signatures.draw(len(table), key_dim)
    queries = torch.zeros(max(len(matchings), 1), table.shape[1], key_dim, dtype=table.dtype)
    keys = torch.zeros_like(queries)
    for k, matching in enumerate(matchings):
        sources, targets = torch.from_numpy(matching.sources), torch.from_numpy(matching.targets)
        signed = w[targets].to(table.dtype)
        queries[k] = invert(table[sources]) @ signed
        keys[k] = invert(table[targets]) @ signed
    tau = signatures.threshold(key_dim) if threshold is None else threshold
    described = {"signatures": signatures.kind, "seed": str(signatures.seed), **notes}
    return KeyQuery(queries, keys, tau, aggregation, notes=described)


def split_sources(graph: Graph, heads: int) -> Iterator[Matching]:
    """A permutation's edges in `heads` blocks of consecutive sources, sizes as equal as can be."""
    for block in np.array_split(np.arange(graph.items), heads):
        yield Matching(block, graph.targets[block])


def require_permutation(graph: Graph, method: str) -> None:
    """Refuse a graph in which some item has not exactly one target and one source."""
    if not graph.is_permutation:
        raise InputError(
            f"the {method} construction needs a permutation graph (one edge out of and into each item); "
            "use method 'general-graph'"
        )
