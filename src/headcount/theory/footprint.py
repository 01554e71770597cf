"""What a key–query channel costs: parameters, flops and bytes (Appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2

from headcount.errors import InputError

ALGORITHMS = (1, 2, 3, 4, 5)  # of the paper
SCORE_FLOPS = 4  # per head and pair under softmax: scaling, exponential, sum, division
BYTES_PER_PARAMETER = 4  # float32, in which weights are trained and stored
CACHE_BYTES = 2.0  # per number of a key cache: bfloat16 or float16


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


def check_cache_bytes(bytes_per_number: float) -> None:
    """Refuse cached numbers that take no memory."""
    if not 0 < bytes_per_number < inf:
        raise InputError(
            f"bytes_per_number = {bytes_per_number:g}: a number takes more than 0 bytes; "
            "the usual one takes 2"
        )


def score_flops(heads: int, length: int) -> int:
    """Flops on the scores of a context of ℓ tokens once they are formed: heads·ℓ² of them.

    Appendix C counts the products alone, which depend on D_K. This part grows with the head count.

    >>> score_flops(heads=8, length=16)
    8192
    """
    return SCORE_FLOPS * heads * length**2


def training_flops(d_model: int, budget: int, length: int, steps: int) -> int:
    """Flops to train a channel on one context per step: forward, and twice that backward.

    >>> training_flops(d_model=32, budget=64, length=16, steps=1)
    491520
    """
    return 3 * steps * footprint(d_model, budget).context_flops(length)


def construction_flops(
    algorithm: int, items: int, d_model: int, edges: int, *, key_dim: float | None = None
) -> float:
    """Count the flops of one of the paper's algorithms, the constant of its width set to 1.

    Each of the m' edges adds two outer products, of its item's row and the signature, to W_Q and
    W_K. Algorithm 3 has one-hot rows and only writes the signatures. Algorithm 2 has heads of width
    log² m. Algorithm 5 also colours its edges, m' log m' at least.

    >>> construction_flops(1, items=256, d_model=32, edges=256) / (256 * 32 * 8)
    4.0
    >>> construction_flops(2, items=256, d_model=32, edges=256) / (256 * 32 * 8)
    32.0
    """
    width = key_dim or (log2(items) ** 2 if algorithm == 2 else log2(items))
    if algorithm == 3:
        return 2 * items * width
    colouring = edges * log2(edges) if algorithm == 5 else 0
    return 4 * edges * d_model * width + colouring
