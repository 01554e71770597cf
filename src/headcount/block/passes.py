"""The forward and backward passes of stacked blocks (Section 7.3), with gradients by hand.

Only the last position's query matters, so keys are never computed: the query is multiplied by W_K
once (S = (Q W_Kᵀ)·z), and the inputs are mixed before W_V. All runs and heads share the slots'
inputs. Heads that share keys lie side by side, so their queries are multiplied by W_K as one longer
batch, and the product that gives its gradient also sums it over them. Everything except matrix
products is done by a `BlockOps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from headcount.block.ops import NORM_EPSILON, BlockOps
from headcount.block.weights import Weights
from headcount.shapes import Float, Int

_LOGIT_ROWS = 4096  # examples whose logits are held at a time
_ALIGNED = 16  # rows of logits begin at multiples of this, so that they are loaded in wide words


@dataclass(frozen=True)
class FrozenTable:
    """E with NULL as its last row, in the forms that a pass needs."""

    exact: Float[Tensor, "rows d_model"]  # float32
    rows: Float[Tensor, "padded d_model"]  # in the products' type, zero rows at the end
    normed: Float[Tensor, "rows d_model"]

    @classmethod
    def of(cls, exact: Float[Tensor, "rows d_model"], kind: torch.dtype) -> FrozenTable:
        rows = functional.pad(exact, (0, 0, 0, -len(exact) % _ALIGNED)).to(kind)
        normed = functional.layer_norm(exact, exact.shape[1:], eps=NORM_EPSILON)
        return cls(exact, rows, normed.to(kind))


@dataclass(frozen=True)
class Pass:
    """What a forward pass leaves: its output, the pattern, and what the backward pass needs."""

    output: Float[Tensor, "runs batch d_model"]
    pattern: Float[Tensor, "channels batch positions"]  # slots, NULL, the query itself; float32
    own: Float[Tensor, "runs batch d_model"]
    queries: Float[Tensor, "channels batch key_dim"]
    mixed: Float[Tensor, "channels batch d_model"]
    values: Float[Tensor, "runs batch d_model"]
    normed: Float[Tensor, "runs batch d_model"]
    inverse: Float[Tensor, "runs batch"]
    raised: Float[Tensor, "runs batch ff"]
    active: Float[Tensor, "runs batch ff"]


def forward(
    ops: BlockOps,
    weights: Mapping[str, Tensor],
    table: FrozenTable,
    scales: Float[Tensor, " channels"],
    q: Int[Tensor, "runs batch"],
    slots: Float[Tensor, "batch length d_model"],
) -> Pass:
    """h_last of every run and example."""
    runs, heads = weights["values"].shape[:2]
    own = functional.embedding(q, table.normed)
    queries = _by_channel(torch.bmm(own, weights["queries"].flatten(2)), heads)
    keys = weights["keys"].flatten(0, 1)
    absorbed = torch.bmm(_by_keys(queries, keys), keys).view(runs * heads, len(slots), -1)
    mixed, pattern = ops.attend(absorbed, slots, own, table.normed[-1], scales)
    values = _by_run(torch.bmm(mixed, weights["values"].flatten(0, 1)), runs)
    if "own_values" in weights:
        values = torch.baddbmm(values, own, weights["own_values"])
    attended = torch.bmm(values, weights["outputs"])
    stream, normed, inverse = ops.add_and_norm(table.rows, q, attended, weights["down_bias"])
    raised = torch.baddbmm(weights["up_bias"], normed, weights["up"])
    active = functional.gelu(raised)
    output = torch.baddbmm(stream, active, weights["down"])
    return Pass(output, pattern, own, queries, mixed, values, normed, inverse, raised, active)


def backward(
    ops: BlockOps,
    weights: Mapping[str, Tensor],
    table: FrozenTable,
    scales: Float[Tensor, " channels"],
    slots: Float[Tensor, "batch length d_model"],
    made: Pass,
    gradient: Float[Tensor, "runs batch d_model"],
) -> Weights:
    """The gradients of all weights from that of the output."""
    runs, heads = weights["values"].shape[:2]
    keys, values = weights["keys"].flatten(0, 1), weights["values"].flatten(0, 1)
    d_active = torch.bmm(gradient, weights["down"].mT)
    d_raised = torch.ops.aten.gelu_backward(d_active, made.raised)
    d_x = ops.add_and_norm_back(
        gradient, torch.bmm(d_raised, weights["up"].mT), made.normed, made.inverse
    )
    d_values = torch.bmm(d_x, weights["outputs"].mT)
    by_channel = _by_channel(d_values, heads)
    d_mixed = torch.bmm(by_channel, values.mT)
    d_absorbed = ops.attend_back(d_mixed, slots, made.own, table.normed[-1], scales, made.pattern)
    d_absorbed = _by_keys(d_absorbed, keys)
    d_queries = torch.bmm(d_absorbed, keys.mT).view_as(made.queries)
    gradients = {
        "queries": torch.bmm(made.own.mT, _by_run(d_queries, runs)),
        "keys": torch.bmm(_by_keys(made.queries, keys).mT, d_absorbed),
        "values": torch.bmm(made.mixed.mT, by_channel),
        "outputs": torch.bmm(made.values.mT, d_x),
        "up": torch.bmm(made.normed.mT, d_raised),
        "up_bias": d_raised.sum(1, keepdim=True),
        "down": torch.bmm(made.active.mT, gradient),
        "down_bias": gradient.sum(1, keepdim=True),
    }
    if "own_values" in weights:
        gradients["own_values"] = torch.bmm(made.own.mT, d_values)
    return {name: gradients[name].view_as(part) for name, part in weights.items()}


def loss_gradient(
    ops: BlockOps,
    table: FrozenTable,
    output: Float[Tensor, "runs batch d_model"],
    labels: Int[Tensor, " batch"],
    barred: Int[Tensor, "runs batch"],
    weights: Float[Tensor, "runs batch"],
) -> tuple[Float[Tensor, "runs batch d_model"], Float[Tensor, "runs batch"]]:
    """The gradient of Σ weight·cross-entropy with tied logits, and the losses.

    Some examples at a time: the logits of a whole batch would outweigh everything else in memory.
    """
    lines = output.flatten(0, 1)
    gradient, losses = torch.empty_like(lines), torch.empty(len(lines), device=lines.device)
    labels, barred, weights = labels.repeat(len(output)), barred.flatten(), weights.flatten()
    for first in range(0, len(lines), _LOGIT_ROWS):
        some = slice(first, first + _LOGIT_ROWS)
        logits = lines[some] @ table.rows.T
        losses[some] = ops.cross_entropy_(
            logits, len(table.exact), labels[some], barred[some], weights[some]
        )
        torch.mm(logits, table.rows, out=gradient[some])
    return gradient.view_as(output), losses.view(output.shape[:2])


def _by_channel(
    x: Float[Tensor, "runs batch wide"], heads: int
) -> Float[Tensor, "channels batch narrow"]:
    return x.unflatten(2, (heads, -1)).transpose(1, 2).flatten(0, 1).contiguous()


def _by_keys(
    x: Float[Tensor, "channels batch wide"], keys: Float[Tensor, "key_channels key_dim d_model"]
) -> Float[Tensor, "key_channels shared wide"]:
    """The examples of all channels that share keys, one after the other."""
    return x.reshape(len(keys), -1, x.shape[-1])


def _by_run(
    x: Float[Tensor, "channels batch narrow"], runs: int
) -> Float[Tensor, "runs batch wide"]:
    return x.unflatten(0, (runs, -1)).transpose(1, 2).flatten(2)
