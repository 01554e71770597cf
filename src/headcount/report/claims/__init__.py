"""The paper's claims, judged by the evidence. Every rule stands in the claim's text; none knows its verdict."""

from __future__ import annotations

from headcount.report.claims.block import block_advantage, block_saturation
from headcount.report.claims.permutations import (
    budget_law,
    heads_law,
    log_growth,
    multi_head_advantage,
    sharp_transition,
    small_widths,
)
from headcount.report.claims.variants import (
    between_bounds,
    edges_not_vertices,
    heads_by_density,
    linear_control,
    softmax_right,
    value_channel,
)
from headcount.report.figure import Claim
from headcount.reproduction.evidence import Evidence

CLAIMS = (
    sharp_transition,
    multi_head_advantage,
    budget_law,
    heads_law,
    edges_not_vertices,
    softmax_right,
    value_channel,
    linear_control,
    log_growth,
    small_widths,
    heads_by_density,
    between_bounds,
    block_advantage,
    block_saturation,
)


def claims(evidence: Evidence) -> list[Claim]:
    """Judge every claim, C1 to C14."""
    return [judge(evidence) for judge in CLAIMS]
