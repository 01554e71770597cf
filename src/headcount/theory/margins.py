"""Theorem 9.2 with its constants: what a margin costs, in a norm that the constructions keep.

The norm of a factor is N(U) = max over items v and heads k of ‖x_v U_k‖: the longest query (for V,
the longest key) that the table forms. The paper's Eq. (26) bounds ‖U‖_F and ‖x_v‖ instead. No
constant margin survives that, because ‖U‖_F² sums over heads and items, while a score sees one pair
in one head.

Lipschitz. With N(U), N(V) ≤ 1 a head's score ⟨x_u U_k, x_v V_k⟩ moves by at most N(ΔU) + N(ΔV):
add and subtract ⟨x_u Ũ_k, x_v V_k⟩ and use Cauchy–Schwarz twice. A maximum over heads moves no
further. A sum is one head of width D_K, so there N runs over items alone: max_v ‖x_v U‖.

Packing. The decisions of max and sum stay as they are when U, V and τ become aU, bV and abτ with
a, b > 0. So take one (U, V) for each graph with N(U) = N(V) = 1; the margin γ is then Definition
9.1's over N(U)·N(V). Of two graphs with as many edges, each has a pair that the other lacks; the
four margins add up to 4γ, the two thresholds cancel, and one of the two scores moves by 2γ or more.
So N(ΔU) + N(ΔV) ≥ 2γ, and the larger of the two is γ or more: in the norm max{N(U), N(V)} on R^P,
P = 2·d_model·D_K, the points lie in the unit ball at distances ≥ γ. Balls of radius γ/2 around them
are disjoint and lie in the ball of radius 1 + γ/2. Volumes in R^P scale with the power P of the
radius in any norm, so there are at most (1 + 2/γ)^P graphs. (Where X has rank below d_model, N is a
norm on the weights that act on its rows: P is then smaller, and the bound stronger.)

Softmax is not scale-free, and its weights add up over heads. But ln A_ij moves by at most twice the
largest change of a logit: ln p_ij = L_ij − ln Σ_t exp L_it does so in every head, and ln Σ_k p_k
moves no more than the ln p_k. Let the weights of all graphs have N(U)·N(V)/√d_k ≤ R, and let γ be
½ ln(lowest edge/highest non-edge) over R. Then the same packing holds in contexts of any length,
with 4/γ in the place of 2/γ.
"""

from __future__ import annotations

from math import inf, log, log2, sqrt
from typing import get_args

import torch
from torch import Tensor

from headcount.attention.aggregation import Aggregation
from headcount.attention.key_query import KeyQuery
from headcount.attention.recovery import Recovery
from headcount.errors import InputError
from headcount.shapes import Float

# Theorem 4.1's scores lie d_k/4 from τ. Its Lemma B.3(2) has ‖δ_i‖² ≤ C₂ = 2 on a block of d_model
# items, so a query or key has squared length d_k·(1 + C₂), up to a third by its d_k ≥ C ln m signs.
_SCORE_MARGIN, _LEAKAGE, _SPREAD = 1 / 4, 2, 4 / 3


def factor_norm(
    table: Float[Tensor, "items d_model"], factor: Float[Tensor, "heads d_model key_dim"]
) -> float:
    """N(U) = max over items v and heads k of ‖x_v U_k‖, in float64.

    >>> factor_norm(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[[3.0], [4.0]]]))
    8.0
    """
    rows = table.double()
    return max(float((rows @ head).norm(dim=1).max()) for head in factor.double())


def measured_margin(
    weights: KeyQuery, table: Float[Tensor, "items d_model"], found: Recovery
) -> float:
    """γ of Theorem 9.2: half the gap between edges and non-edges, over N(U)·N(V).

    `found` is what `verify` reports of these weights, under max or sum. Definition 9.1 leaves τ
    open, so this is the margin at the best one. It is negative where no threshold separates, and
    infinite where all pairs are edges or none is.
    """
    if weights.aggregation == "softmax":
        raise InputError("softmax scores depend on the context; give weights of max or sum")
    if weights.aggregation == "logsumexp":
        raise InputError("scaling the weights changes logsumexp; give weights of max or sum")
    if found.lowest_edge is None or found.highest_non_edge is None:
        return inf
    queries, keys = weights.queries, weights.keys_per_head
    if weights.aggregation == "sum":  # one head of width D_K
        queries, keys = (torch.cat(list(factor), dim=1)[None] for factor in (queries, keys))
    scale = factor_norm(table, queries) * factor_norm(table, keys)
    return (found.lowest_edge.score - found.highest_non_edge.score) / (2 * scale)


def default_margin(items: int, d_model: int, aggregation: Aggregation = "max") -> float:
    """The margin γ that the paper's own weights keep, from Theorem 4.1 and Lemma B.3.

    Construction II has blocks of d_model edges: its scores lie d_k/4 from τ, and N(U)·N(V) ≤ 4·d_k.
    A sum is a single head with a block of m edges. Algorithm 2 has the weights of Construction II;
    its edges have A ≥ 3/4 and its non-edges A ≤ 1/4, at N(U)·N(V)/√d_k ≤ 4·√d_k, taken at d_k =
    d_model.

    >>> default_margin(256, 32)  # 1/4 over 4/3·(1 + 2)
    0.0625
    """
    _require_margin(aggregation)
    if aggregation == "softmax":
        return log(3) / 2 / (_SPREAD * (1 + _LEAKAGE) * sqrt(d_model))
    block = items if aggregation == "sum" else d_model  # edges per head
    return _SCORE_MARGIN / (_SPREAD * (1 + _LEAKAGE * block / d_model))


def margin_bits(
    d_model: int, budget: int, margin: float, aggregation: Aggregation = "max"
) -> float:
    """The bits that weights with margin γ hold: 2·d_model·D_K·log2(1 + 2L/γ) (Theorem 9.2).

    L is 1 for max and sum and 2 for softmax; the module's text has the proof.
    """
    if not 0 < margin < 1:
        raise InputError(
            f"margin = {margin}: it must be between 0 and 1; divide it by the norms of U and V"
        )
    _require_margin(aggregation)
    lipschitz = 2 if aggregation == "softmax" else 1
    return 2 * d_model * budget * log2(1 + 2 * lipschitz / margin)


def margin_assumption(margin: float, aggregation: Aggregation = "max") -> str:
    """What the bound assumes of the weights, in words."""
    _require_margin(aggregation)
    if aggregation == "softmax":
        return (
            f"½ ln(lowest edge/highest non-edge) is {margin:.3g} or more of N(U)·N(V)/√d_k, "
            "N(U) = max ‖x_v U_k‖."
        )
    norm = "max ‖x_v U‖" if aggregation == "sum" else "max ‖x_v U_k‖"
    return f"Every score is {margin:.3g}·N(U)·N(V) or more from τ, N(U) = {norm}."


def _require_margin(aggregation: str) -> None:
    """Refuse an aggregation for which the module's text has no proof."""
    if aggregation not in get_args(Aggregation):
        known = ", ".join(get_args(Aggregation))
        raise InputError(f"no margin is defined under {aggregation!r}; use {known}")
