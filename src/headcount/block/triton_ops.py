"""TritonOps: the block's operations as Triton kernels, each in one pass over memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headcount.block import kernels as block_kernels
from headcount.block.ops import NORM_EPSILON, BlockOps
from headcount.shapes import Float, Int
from headcount.training.adamw import BETAS, EPSILON

kernels: Any = block_kernels  # a launch takes other arguments than their signatures say
_ADAM_ENTRIES = 1024  # per program


class TritonOps(BlockOps):
    """For CUDA, or interpreted with TRITON_INTERPRET=1; `BlockOps` says what each method does."""

    name = "triton"

    def normed_slots(
        self,
        table: Float[Tensor, "rows d_model"],
        contexts: Int[Tensor, "batch width"],
        kind: torch.dtype,
    ) -> Float[Tensor, "batch length d_model"]:
        batch, width = contexts.shape
        slots = torch.empty(batch, width // 2, table.shape[1], dtype=kind, device=table.device)
        kernels.normed_slots[(batch * width // 2,)](
            table, contexts.contiguous(), slots, **_row(table.shape[1]), EPSILON=NORM_EPSILON
        )
        return slots

    def attend(
        self,
        absorbed: Float[Tensor, "channels batch d_model"],
        slots: Float[Tensor, "batch length d_model"],
        own: Float[Tensor, "runs batch d_model"],
        null: Float[Tensor, " d_model"],
        scales: Float[Tensor, " channels"],
    ) -> tuple[Float[Tensor, "channels batch d_model"], Float[Tensor, "channels batch positions"]]:
        channels, batch, _ = absorbed.shape
        mixed = torch.empty_like(absorbed)
        pattern = torch.empty(channels, batch, slots.shape[1] + 2, device=absorbed.device)
        grid, sizes, tiles = _walk(absorbed, slots, own)
        kernels.attend[grid](absorbed, slots, own, null, scales, mixed, pattern, *sizes, **tiles)
        return mixed, pattern

    def attend_back(
        self,
        gradient: Float[Tensor, "channels batch d_model"],
        slots: Float[Tensor, "batch length d_model"],
        own: Float[Tensor, "runs batch d_model"],
        null: Float[Tensor, " d_model"],
        scales: Float[Tensor, " channels"],
        pattern: Float[Tensor, "channels batch positions"],
    ) -> Float[Tensor, "channels batch d_model"]:
        back = torch.empty_like(gradient)
        grid, sizes, tiles = _walk(gradient, slots, own)
        kernels.attend_back[grid](
            gradient, slots, own, null, scales, pattern, back, *sizes, **tiles
        )
        return back

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
        stream, normed = torch.empty_like(attended), torch.empty_like(attended)
        inverse = torch.empty(q.shape, device=q.device)
        kernels.add_and_norm[(q.numel(),)](
            table, q.contiguous(), attended, bias, stream, normed, inverse, q.shape[1],
            **_row(table.shape[1]), EPSILON=NORM_EPSILON,
        )  # fmt: skip
        return stream, normed, inverse

    def add_and_norm_back(
        self,
        straight: Float[Tensor, "runs batch d_model"],
        gradient: Float[Tensor, "runs batch d_model"],
        normed: Float[Tensor, "runs batch d_model"],
        inverse: Float[Tensor, "runs batch"],
    ) -> Float[Tensor, "runs batch d_model"]:
        back = torch.empty_like(straight)
        kernels.add_and_norm_back[(inverse.numel(),)](
            straight, gradient, normed, inverse, back, **_row(straight.shape[2])
        )
        return back

    def cross_entropy_(
        self,
        logits: Float[Tensor, "count padded"],
        rows: int,
        labels: Int[Tensor, " count"],
        barred: Int[Tensor, " count"],
        weights: Float[Tensor, " count"],
    ) -> Float[Tensor, " count"]:
        losses = torch.empty(len(logits), device=logits.device)
        kernels.cross_entropy[(len(logits),)](
            logits, labels, barred, weights, losses, rows, logits.shape[1],
            BLOCK=_power(logits.shape[1]), num_warps=8,
        )  # fmt: skip
        return losses

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
        size = weight[0].numel()
        kernels.adamw[len(weight), -(-size // _ADAM_ENTRIES)](
            weight, gradient.contiguous(), first, second, low, rates, decays, corrections, size,
            BETA1=BETAS[0], BETA2=BETAS[1], EPSILON=EPSILON, BLOCK=_ADAM_ENTRIES,
        )  # fmt: skip


def _row(d_model: int) -> dict[str, int]:
    """A program that takes a whole row."""
    return {"D": d_model, "BLOCK": _power(d_model)}


def _walk(
    vectors: Tensor, slots: Tensor, own: Tensor
) -> tuple[tuple[int, int], tuple[int, ...], dict[str, int]]:
    """Grid, sizes and tiles of the attention kernels; tensor cores take no tile below 16 × 16."""
    channels, batch, d_model = vectors.shape
    heads, length = channels // len(own), slots.shape[1]
    rows = min(64, max(16, _power(channels)))
    # Runs that have some of a program's channels, at most.
    runs = rows // heads if rows % heads == 0 else (rows - 2) // heads + 2
    # A tile that divides d_model needs no masked columns at the end.
    fallback = min(128, max(16, _power(d_model)))
    columns = next((size for size in (128, 64) if d_model % size == 0), fallback)
    tiles = {"D": d_model, "LENGTH": length, "ROWS": rows, "COLUMNS": columns}
    tiles["POSITIONS"] = max(16, _power(length + 1 + min(runs, len(own))))
    return (batch, -(-channels // rows)), (batch, channels, heads), tiles


def _power(size: int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << (size - 1).bit_length()
