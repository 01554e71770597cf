"""BlockOps: everything in a stacked block except matrix products, in plain torch.

Products run in the inputs' type (float32, or bfloat16 on CUDA); softmax, layer norm, loss and AdamW
in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from headcount.shapes import Float, Int
from headcount.training.adamw import BETAS, EPSILON

NORM_EPSILON = 1e-5


class BlockOps:
    """The operations in plain torch: any device, and the reference for the kernels.

    A channel is one head of one run. Positions are the slots, NULL and the query itself.
    """

    name = "torch"

    def normed_slots(
        self,
        table: Float[Tensor, "rows d_model"],
        contexts: Int[Tensor, "batch width"],
        kind: torch.dtype,
    ) -> Float[Tensor, "batch length d_model"]:
        """The layer norm of every x_i = E[a_i] + E[b_i]."""
        slots = table[contexts[:, 0::2]] + table[contexts[:, 1::2]]
        return functional.layer_norm(slots, slots.shape[-1:], eps=NORM_EPSILON).to(kind)

    def attend(
        self,
        absorbed: Float[Tensor, "channels batch d_model"],
        slots: Float[Tensor, "batch length d_model"],
        own: Float[Tensor, "runs batch d_model"],
        null: Float[Tensor, " d_model"],
        scales: Float[Tensor, " channels"],
    ) -> tuple[Float[Tensor, "channels batch d_model"], Float[Tensor, "channels batch positions"]]:
        """The mix of normed inputs that each channel takes in, and its attention pattern.

        `absorbed` is the query times W_K: its product with an input is the score.
        """
        pattern = (_against(absorbed, slots, own, null) * scales[:, None, None]).softmax(-1)
        return _mixed(pattern, slots, own, null), pattern

    def attend_back(
        self,
        gradient: Float[Tensor, "channels batch d_model"],
        slots: Float[Tensor, "batch length d_model"],
        own: Float[Tensor, "runs batch d_model"],
        null: Float[Tensor, " d_model"],
        scales: Float[Tensor, " channels"],
        pattern: Float[Tensor, "channels batch positions"],
    ) -> Float[Tensor, "channels batch d_model"]:
        """From the gradient of the mix to that of `absorbed`.

        The same two products as in `attend`, with the softmax's derivative between them.
        """
        slope = _against(gradient, slots, own, null)
        slope = pattern * (slope - (pattern * slope).sum(-1, keepdim=True)) * scales[:, None, None]
        return _mixed(slope, slots, own, null)

    def add_and_norm(
        self,
        table: Float[Tensor, "rows d_model"],
        q: Int[Tensor, "runs batch"],
        attended: Float[Tensor, "runs batch d_model"],
        bias: Float[Tensor, "runs 1 d_model"],
    ) -> tuple[
        Float[Tensor, "runs batch d_model"],
        Float[Tensor, "runs batch d_model"],
        Float[Tensor, "runs batch"],
    ]:
        """For x = E[q] + attended: x + bias, the layer norm of x, and 1/σ of x.

        The MLP's output is added to x + bias, so its last bias costs no pass of its own.
        """
        x = table[q].float() + attended.float()
        centred = x - x.mean(-1, keepdim=True)
        inverse = (centred.square().mean(-1) + NORM_EPSILON).rsqrt()
        return (
            (x + bias).to(attended.dtype),
            (centred * inverse[..., None]).to(attended.dtype),
            inverse,
        )

    def add_and_norm_back(
        self,
        straight: Float[Tensor, "runs batch d_model"],
        gradient: Float[Tensor, "runs batch d_model"],
        normed: Float[Tensor, "runs batch d_model"],
        inverse: Float[Tensor, "runs batch"],
    ) -> Float[Tensor, "runs batch d_model"]:
        """The gradient of x: `straight` along the residual, `gradient` through the layer norm."""
        g, z = gradient.float(), normed.float()
        through = g - g.mean(-1, keepdim=True) - z * (g * z).mean(-1, keepdim=True)
        return (straight.float() + inverse[..., None] * through).to(straight.dtype)

    def cross_entropy_(
        self,
        logits: Float[Tensor, "count padded"],
        rows: int,
        labels: Int[Tensor, " count"],
        barred: Int[Tensor, " count"],
        weights: Float[Tensor, " count"],
    ) -> Float[Tensor, " count"]:
        """The loss of each line; `logits` becomes the weighted gradient, zero beyond `rows`.

        In place, because the logits are the largest tensor of a step. `barred` is an answer that is
        not allowed, never the label, or −1.
        """
        x = logits[:, :rows].float()
        x = x.masked_fill(torch.arange(rows, device=x.device) == barred[:, None], -torch.inf)
        total, right = x.logsumexp(-1), x.gather(1, labels[:, None])
        gradient = (
            (x - total[:, None]).exp().scatter_add(1, labels[:, None], -torch.ones_like(right))
        )
        logits.zero_()
        logits[:, :rows] = gradient * weights[:, None]
        return total - right[:, 0]

    def adamw_(
        self,
        weight: Float[Tensor, "runs ..."],
        gradient: Float[Tensor, "runs ..."],
        first: Float[Tensor, "runs ..."],
        second: Float[Tensor, "runs ..."],
        low: Float[Tensor, "runs ..."],
        rates: Float[Tensor, " runs"],
        decays: Float[Tensor, " runs"],
        corrections: Float[Tensor, " two"],
    ) -> None:
        """One AdamW step of every run's weight at the run's own rate.

        `corrections` are 1 − β₁ⁿ and 1 − β₂ⁿ; `low` is the copy of the weight that products use.
        """
        g, shape = gradient.float(), (-1, *[1] * (weight.ndim - 1))
        rate, decay = rates.view(shape), decays.view(shape)
        first.lerp_(g, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
        move = first / corrections[0] / ((second / corrections[1]).sqrt() + EPSILON)
        weight.mul_(1 - rate * decay).sub_(rate * move)
        if low is not weight:
            low.copy_(weight)


def _against(vectors: Tensor, slots: Tensor, own: Tensor, null: Tensor) -> Tensor:
    """Each channel's vector times every position's input, in float32."""
    heads = len(vectors) // len(own)
    on_slots = torch.bmm(vectors.transpose(0, 1), slots.mT).transpose(0, 1).float()
    on_null = vectors.float() @ null.float()
    on_own = (
        (vectors.unflatten(0, (-1, heads)).float() * own[:, None].float()).sum(-1).flatten(0, 1)
    )
    return torch.cat([on_slots, on_null[..., None], on_own[..., None]], -1)


def _mixed(shares: Tensor, slots: Tensor, own: Tensor, null: Tensor) -> Tensor:
    """The positions' inputs, summed with these shares."""
    heads = len(shares) // len(own)
    mix = torch.bmm(shares[..., :-2].transpose(0, 1).to(slots.dtype), slots).transpose(0, 1).float()
    own_part = shares[..., -1:].unflatten(0, (-1, heads)) * own[:, None].float()
    return (mix + shares[..., -2:-1] * null.float() + own_part.flatten(0, 1)).to(slots.dtype)
