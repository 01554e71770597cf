"""The objectives of Sections 6, 7.1, 7.2 and A.3, each with its gradient by hand.

Shapes: a batch of runs, h heads, contexts of ℓ items. `scores` holds S⁽ᵏ⁾ = Q⁽ᵏ⁾K⁽ᵏ⁾ᵀ, `positive`
holds y_pq. Every engine is tested against this reference, and the reference against autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from headcount.shapes import Bool, Float
from headcount.training.spec import Metric, RunSpec

LINE = 16  # floats of a cache line
Scores = Float[Tensor, "*runs heads length length"]
Pairs = Float[Tensor, "*runs length length"]
Labels = Bool[Tensor, "*runs length length"]


def aggregated(
    spec: RunSpec, scores: Float[Tensor, "*runs heads sources targets"]
) -> Float[Tensor, "*runs sources targets"]:
    """Scores joined across heads: max, sum, t·log Σ_k exp(S⁽ᵏ⁾/t), or Σ_k softmax(S⁽ᵏ⁾/√d_k)."""
    match spec.variant:
        case "max" | "value":
            return scores.amax(-3)
        case "sum":
            return scores.sum(-3)
        case "logsumexp":
            return _log_sum(spec, scores)[0]
        case "softmax":
            return (scores / math.sqrt(spec.key_dim)).softmax(-1).sum(-3)


def score_gradient(
    spec: RunSpec,
    scores: Scores,
    labels: Pairs,
    weights: Pairs,
    threshold: Float[Tensor, "*runs"],
    messages: Float[Tensor, "*runs length d_model"],
) -> tuple[Scores, Float[Tensor, "*runs"]]:
    """∂L/∂S⁽ᵏ⁾ and ∂L/∂τ of one context per run; `labels` are 0 or 1, `weights` `pair_weights`."""
    joined, parts = _joined(spec, scores)
    if spec.variant == "value":
        slope, down = _retrieval_slope(joined, labels, messages), torch.zeros_like(threshold)
    else:
        # ∂/∂S of Σ_pq weight·[y softplus(−z) + (1 − y) softplus(z)]/α, z = α(S − τ)
        chance = _evenly(
            torch.Tensor.sigmoid_, (joined - threshold[..., None, None]).mul_(spec.sharpness)
        )
        slope = chance.sub_(labels).mul_(weights)
        down = -slope.sum((-2, -1))
    return _to_heads(spec, scores, parts, slope), down


def _joined(spec: RunSpec, scores: Scores) -> tuple[Pairs, Tensor]:
    """What `aggregated` gives, and what the heads have of it: the winner, or a share of each."""
    match spec.variant:
        case "max" | "value":  # the first head where heads tie
            joined, winner = scores.max(-3, keepdim=True)  # `argmax` is 15 × slower on a CPU
            return joined.squeeze(-3), winner
        case "sum":
            return scores.sum(-3), scores.new_ones(())
        case "logsumexp":
            return _log_sum(spec, scores)
        case "softmax":
            share = (scores / math.sqrt(spec.key_dim)).softmax(-1)
            return share.sum(-3), share


def _log_sum(spec: RunSpec, scores: Scores) -> tuple[Pairs, Scores]:
    """t·log Σ_k exp(S⁽ᵏ⁾/t), and its derivatives by the heads' scores."""
    top = scores.amax(-3, keepdim=True)
    powers = _evenly(torch.Tensor.exp_, (scores - top).div_(spec.temperature))
    total = powers.sum(-3, keepdim=True)
    joined = top + spec.temperature * _evenly(torch.Tensor.log_, total.clone())
    return joined.squeeze(-3), powers / total


def pair_weights(spec: RunSpec, positive: Labels) -> Pairs:
    """The factor of each pair's slope in the logistic loss: α w₊/ℓ² or α/ℓ²."""
    weight = positive_weight(spec, positive)[..., None, None]
    return torch.where(positive, weight, 1.0).mul_(spec.sharpness / spec.length**2)


def _evenly(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """An elementwise function, in place where it can; each entry by one routine wherever it is.

    torch takes another one for the last entries of a tensor, and for those of each thread's share
    of a large one. Entries are therefore padded, and taken in parts that one thread does.
    """
    if z.numel() % 64 == 0 and z.numel() <= 2**14:
        return function(z)
    flat = torch.nn.functional.pad(z.flatten(), (0, -z.numel() % 64))
    for part in flat.split(2**14):
        function(part)
    return flat[: z.numel()].view(z.shape)


def positive_weight(spec: RunSpec, positive: Labels) -> Float[Tensor, "*runs"]:
    """ℓ − 1 for permutations, otherwise #negatives/#positives of the context (Eq. 30).

    A context without positives has weight 0, which multiplies nothing.
    """
    count = positive.sum((-2, -1))
    if spec.is_permutation:
        return torch.full_like(count, spec.length - 1, dtype=torch.float32)
    return torch.where(count > 0, (spec.length**2 - count) / count, 0.0)


def _retrieval_slope(
    joined: Pairs, labels: Pairs, messages: Float[Tensor, "*runs length d_model"]
) -> Pairs:
    """∂/∂S of Eq. (4).

    The wanted message is that of the target, or the sum over several: (y V)_i for a valid row, so
    that the error is ((S − y) V)_i, and the slope (S − y) V Vᵀ.
    """
    valid = labels.any(-1, keepdim=True)
    count = valid.sum((-2, -1), keepdim=True).clamp(min=1)
    length, d_model = messages.shape[-2:]
    deviation, fill, wide = (
        torch.where(valid, joined - labels, 0.0),
        -length % LINE,
        -d_model % LINE,
    )
    if fill or wide:  # a product may round differently where a matrix is aligned differently
        deviation = pad(deviation, (0, fill, 0, fill))
        messages = pad(messages, (0, wide, 0, fill))
    slope = deviation @ (messages @ messages.mT)
    return slope[..., :length, :length] * (2 / count)


def _to_heads(spec: RunSpec, scores: Scores, parts: Tensor, slope: Pairs) -> Scores:
    """From the slope of the joined score to that of every head's, with the parts of `_joined`."""
    slope = slope.unsqueeze(-3)
    match spec.variant:
        case "max" | "value":  # only the winning head of a pair moves
            return torch.zeros_like(scores).scatter_(-3, parts, slope)
        case "sum":
            return slope.expand_as(scores)
        case "logsumexp":  # every head moves, in proportion to exp(S⁽ᵏ⁾/t)
            return parts * slope
        case "softmax":
            mean = (parts * slope).sum(-1, keepdim=True)
            return parts * (slope - mean) / math.sqrt(spec.key_dim)


def tally(
    spec: RunSpec,
    scores: Scores,
    positive: Labels,
    threshold: Float[Tensor, "*runs"],
    messages: Float[Tensor, "*runs length d_model"],
) -> Float[Tensor, "*runs 2"]:
    """What a context adds to the metric.

    (hits, wrong decisions), or for `value` (squared error, valid positions): pairs that add up over
    contexts, so a check may go through them in any grouping.
    """
    joined = aggregated(spec, scores)
    if spec.variant == "value":
        valid = positive.any(-1, keepdim=True)
        error = torch.where(valid, joined - positive.float(), 0.0) @ messages
        return torch.stack([error.square().sum((-2, -1)), valid.sum((-2, -1)).float()], -1)
    predicted = joined > threshold[..., None, None]
    return torch.stack(
        [(predicted & positive).sum((-2, -1)), (predicted ^ positive).sum((-2, -1))], -1
    ).float()


def metrics(kind: Metric, tallies: Float[Tensor, "runs 2"]) -> list[float]:
    """The metric of each run from its summed tallies.

    Micro-F1 = 2·TP/(2·TP + FP + FN), 1 where there was nothing to find; or the mean of Eq. (4).
    """
    first, second = tallies.double().cpu().numpy().T
    with np.errstate(invalid="ignore", divide="ignore"):  # of runs that diverged
        if kind == "mse":
            return (first / second).tolist()
        return np.where(first + second > 0, 2 * first / (2 * first + second), 1.0).tolist()
