"""The softmax construction: permutations under scaled softmax, summed over heads (Section 8, Alg. 2, Thm 8.1)."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.constructions.compressive import compressive
from headcount.constructions.template import Inverse, Signatures
from headcount.problem.graph import Graph
from headcount.shapes import Float


def softmax(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """Construction II's weights, read by softmax over the context with τ = 1/2 (Alg. 2, lines 4–6).

    Contexts must be long, ℓ ≥ C_ℓ·max(h, ln m): a head that owns neither source nor target spreads about 1/ℓ on
    every pair, and h − 1 such shares must stay below 1/2.
    """
    weights = compressive(graph, table, key_dim, heads, signatures, inverse)
    notes = {**weights.notes, "method": "softmax"}
    return replace(weights, aggregation="softmax", threshold=0.5, notes=notes)
