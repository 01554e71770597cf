"""Construction II: permutations under compressive embeddings (Section 4, Algorithm 1, Theorem 4.1 = B.2)."""

from __future__ import annotations

from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.constructions.template import (
    Inverse,
    Signatures,
    fill,
    inverter,
    require_permutation,
    require_unit_norm,
    split_sources,
)
from headcount.problem.graph import Graph
from headcount.shapes import Float


def compressive(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """h = ⌈m/d_model⌉ heads, each for a block of sources; Rademacher signatures; τ = d_k/2 (Alg. 1).

    More heads make smaller blocks and less leakage noise. d_model need not divide m.
    """
    require_permutation(graph, "compressive")
    if inverse == "transpose":
        require_unit_norm(table, "compressive")
    matchings = split_sources(graph, -(-graph.items // table.shape[1]) if heads is None else heads)
    notes = {"method": "compressive", "inverse": inverse}
    return fill(
        table, matchings, signatures or Signatures(), key_dim, inverter(inverse), notes=notes
    )
