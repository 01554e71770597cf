"""Construction III: permutations under any embedding (Appendix B.3, Algorithm 4, Theorem B.5, Cors B.6–B.7)."""

from __future__ import annotations

from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.constructions.template import (
    Inverse,
    Signatures,
    fill,
    inverter,
    require_permutation,
    split_sources,
)
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Float
from headcount.theory.incoherence import balanced_scale


def general_embedding(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """h = ⌈m/B⌉ heads over X_inv = Xᵀ/μ; `heads` chooses B = ⌈m/heads⌉, by default B = d_model.

    Bernoulli(p) signatures with p ≤ 1/20 and τ = (p + p²)d_k/2 (Alg. 4), or Rademacher ones with τ = d_k/2
    ("Signature family", B.3), the default: they need less width. μ is the middle of the squared row norms, which
    makes ε_d of Definition B.4 smallest.
    """
    require_permutation(graph, "general-embedding")
    signatures = signatures or Signatures()
    if signatures.kind == "bernoulli" and not 0 < signatures.sparsity <= 1 / 20:
        raise InputError(
            f"sparsity {signatures.sparsity} is outside (0, 1/20], which Algorithm 4 needs"
        )
    norms = table.double().norm(dim=1)
    if norms.min() == 0:
        raise InputError(
            f"row {int(norms.argmin())} of the table is zero, so its item has no identity; replace it"
        )
    matchings = split_sources(graph, -(-graph.items // table.shape[1]) if heads is None else heads)
    notes = {"method": "general-embedding", "inverse": inverse}
    return fill(
        table, matchings, signatures, key_dim, inverter(inverse, balanced_scale(table)), notes=notes
    )
