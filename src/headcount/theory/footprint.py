"""What a key–query channel costs: parameters, flops and bytes (Appendix C)."""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_PARAMETER = 4  # float32, in which weights are trained and stored


@dataclass(frozen=True)
class Footprint:
    """The leading costs of one channel; a flop is one multiplication or one addition."""

    parameters: int  # W_Q, W_K and the threshold
    projection_flops: int  # to form q and k, for each token
    logit_flops: int  # to form one score in every head, for each ordered pair of tokens
    bytes: int  # in float32

    def context_flops(self, length: int) -> int:
        """Flops for a context of ℓ tokens: ℓ projections and ℓ² scores."""
        return length * self.projection_flops + length**2 * self.logit_flops


def parameters(d_model: int, budget: int, key_budget: int | None = None) -> int:
    """Count the reals in W_Q, W_K and τ: d_model·(D_Q + D_K) + 1 (Section 9).

    `budget` is the query width; `key_budget` differs from it only where heads share
    keys (GQA, MQA). Otherwise the count is 2·d_model·D_K + 1.

    >>> parameters(d_model=32, budget=64)
    4097
    >>> parameters(d_model=32, budget=64, key_budget=16)
    2561
    """
    return d_model * (budget + (budget if key_budget is None else key_budget)) + 1


def footprint(d_model: int, budget: int, *, key_budget: int | None = None) -> Footprint:
    """Cost a channel of total key dimension `budget` (Appendix C).

    That is 4·d_model·D_K flops per token and 2·D_K per pair.

    >>> cost = footprint(d_model=32, budget=64)
    >>> cost.projection_flops, cost.logit_flops, cost.bytes
    (8192, 128, 16388)
    >>> cost.context_flops(16)
    163840
    """
    count = parameters(d_model, budget, key_budget)
    return Footprint(
        parameters=count,
        projection_flops=2 * (count - 1),
        logit_flops=2 * budget,
        bytes=count * BYTES_PER_PARAMETER,
    )
