"""Construction IV: any directed graph (Appendix B.4, Lemma B.8, Algorithm 5, Theorem B.9, Corollary B.10)."""

from __future__ import annotations

from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.constructions.packing import pack, pack_evenly
from headcount.constructions.template import Inverse, Signatures, fill, inverter, require_unit_norm
from headcount.problem.graph import Graph
from headcount.shapes import Float


def general_graph(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """One head a matching of at most d_model edges; signatures shared by all heads; τ = d_k/2 (Alg. 5).

    By default Lemma B.8 packs at most ⌈m'/d_model⌉ + Δ matchings. With `heads` ≥ Δ the edges are spread evenly over
    exactly that many.
    """
    if inverse == "transpose":
        require_unit_norm(table, "general-graph")
    matchings = pack(graph, block=table.shape[1]) if heads is None else pack_evenly(graph, heads)
    notes = {"method": "general-graph", "inverse": inverse}
    return fill(
        table, matchings, signatures or Signatures(), key_dim, inverter(inverse), notes=notes
    )
