"""Construction I: permutations with one-hot embeddings (Section 4; Appendix B.1, Algorithm 3, Theorem B.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.constructions.template import (
    Signatures,
    fill,
    inverter,
    require_permutation,
    split_sources,
)
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Float


def one_hot(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    signatures: Signatures | None = None,
) -> KeyQuery:
    """One head: k_j = w_j and q_i = w_{π(i)}; an edge scores ‖w‖², a non-edge a random inner product.

    Rademacher signatures with τ = d_k/2 (Section 4), or Bernoulli(p) with τ = (p + p²)d_k/2 (Alg. 3).

    >>> from headcount.problem.makers import permutation_graph
    >>> one_hot(permutation_graph(16), torch.eye(16), key_dim=24).budget
    24
    """
    require_permutation(graph, "one-hot")
    if table.shape[0] != table.shape[1] or not torch.equal(
        table, torch.eye(len(table), dtype=table.dtype)
    ):
        raise InputError(
            "the one-hot construction needs the identity as table; use method 'compressive' or another"
        )
    signatures = signatures or Signatures()
    if signatures.kind == "bernoulli" and not 0 < signatures.sparsity < 0.5:
        raise InputError(
            f"sparsity {signatures.sparsity} is outside (0, 1/2), which Algorithm 3 needs"
        )
    matchings = split_sources(graph, heads=1)
    return fill(
        table, matchings, signatures, key_dim, inverter("transpose"), notes={"method": "one-hot"}
    )
