"""Triton kernels of the stacked block: what `BlockOps` does in torch, each in one pass over memory.

A channel is one head of one run; positions are the slots, NULL and the query itself. Triton reads
this source itself: plain functions, no type hints.
"""

# pyright: basic, reportArgumentType=false, reportOperatorIssue=false

from __future__ import annotations

import triton.language as tl
from triton import jit


@jit
def _normed(x, inside, D: tl.constexpr, EPSILON: tl.constexpr):
    """The layer norm of a row and 1/σ."""
    # Masked entries are 0 before centring and must be 0 after it, or they would count in σ.
    centred = tl.where(inside, x - tl.sum(x, 0) / D, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 0) / D + EPSILON)
    return centred * inverse, inverse


@jit
def normed_slots(
    table, contexts, slots, D: tl.constexpr, BLOCK: tl.constexpr, EPSILON: tl.constexpr
):
    """One slot per program: the layer norm of the sum of its two rows."""
    slot = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    inside = k < D
    x = tl.load(table + tl.load(contexts + 2 * slot) * D + k, mask=inside, other=0.0)
    x += tl.load(table + tl.load(contexts + 2 * slot + 1) * D + k, mask=inside, other=0.0)
    z, _ = _normed(x, inside, D, EPSILON)
    tl.store(slots + slot * D + k, z.to(slots.dtype.element_ty), mask=inside)


@jit
def _against(vectors, mine, slot_rows, here, own_rows, null, D: tl.constexpr, ROWS: tl.constexpr,
             COLUMNS: tl.constexpr, SLOTS: tl.constexpr):  # fmt: skip
    """Each channel's vector times the slots, NULL and the query's own input."""
    on_slots = tl.zeros((ROWS, SLOTS), tl.float32)
    on_null = tl.zeros((ROWS,), tl.float32)
    on_own = tl.zeros((ROWS,), tl.float32)
    # The slots are the same for all channels of an example: ROWS channels share one load of them
    # and a tensor-core product. NULL and the query's own input are single rows, so plain sums.
    for first in range(0, D, COLUMNS):
        k = first + tl.arange(0, COLUMNS)
        both = mine[:, None] & (k < D)[None, :]
        v = tl.load(vectors + k[None, :], mask=both, other=0.0)
        z = tl.load(slot_rows + k[None, :], mask=here[:, None] & (k < D)[None, :], other=0.0)
        on_slots += tl.dot(v, tl.trans(z), input_precision="ieee")
        own = tl.load(own_rows + k[None, :], mask=both, other=0.0).to(tl.float32)
        zero = tl.load(null + k, mask=k < D, other=0.0).to(tl.float32)
        on_own += tl.sum(v.to(tl.float32) * own, 1)
        on_null += tl.sum(v.to(tl.float32) * zero[None, :], 1)
    return on_slots, on_null, on_own


@jit
def _mix(out, mine, slot_rows, here, own_rows, null, on_slots, on_null, on_own, D: tl.constexpr,
         COLUMNS: tl.constexpr):  # fmt: skip
    """The positions' inputs summed with these shares, written to `out`."""
    kind = out.dtype.element_ty
    shares = on_slots.to(kind)
    for first in range(0, D, COLUMNS):
        k = first + tl.arange(0, COLUMNS)
        both = mine[:, None] & (k < D)[None, :]
        z = tl.load(slot_rows + k[None, :], mask=here[:, None] & (k < D)[None, :], other=0.0)
        own = tl.load(own_rows + k[None, :], mask=both, other=0.0).to(tl.float32)
        zero = tl.load(null + k, mask=k < D, other=0.0).to(tl.float32)
        mixed = (
            tl.dot(shares, z, input_precision="ieee")
            + on_own[:, None] * own
            + on_null[:, None] * zero[None, :]
        )
        tl.store(out + k[None, :], mixed.to(kind), mask=both)


@jit
def attend(absorbed, slots, own, null, scales, mixed, pattern, batch, channels, heads,
           D: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
           SLOTS: tl.constexpr):  # fmt: skip
    """One example and ROWS channels per program: scores, softmax, mix."""
    example = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    slot = tl.arange(0, SLOTS)
    mine, here = channel < channels, slot < LENGTH
    line = channel * batch + example
    slot_rows = slots + (example * LENGTH + slot)[:, None] * D
    own_rows = own + ((channel // heads) * batch + example)[:, None] * D
    s, s_null, s_own = _against(absorbed + line[:, None] * D, mine, slot_rows, here, own_rows, null,
                                D, ROWS, COLUMNS, SLOTS)  # fmt: skip
    scale = tl.load(scales + channel, mask=mine, other=0.0)
    s = tl.where(here[None, :], s * scale[:, None], -float("inf"))
    s_null, s_own = s_null * scale, s_own * scale
    top = tl.maximum(tl.max(s, 1), tl.maximum(s_null, s_own))
    e, e_null, e_own = tl.exp(s - top[:, None]), tl.exp(s_null - top), tl.exp(s_own - top)
    total = tl.sum(e, 1) + e_null + e_own
    p, p_null, p_own = e / total[:, None], e_null / total, e_own / total
    to = pattern + line * (LENGTH + 2)
    tl.store(to[:, None] + slot[None, :], p, mask=mine[:, None] & here[None, :])
    tl.store(to + LENGTH, p_null, mask=mine)
    tl.store(to + LENGTH + 1, p_own, mask=mine)
    _mix(mixed + line[:, None] * D, mine, slot_rows, here, own_rows, null, p, p_null, p_own, D,
         COLUMNS)  # fmt: skip


@jit
def attend_back(gradient, slots, own, null, scales, pattern, back, batch, channels, heads,
                D: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
                SLOTS: tl.constexpr):  # fmt: skip
    """The same two products as `attend`, with the softmax's derivative between them."""
    example = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    slot = tl.arange(0, SLOTS)
    mine, here = channel < channels, slot < LENGTH
    line = channel * batch + example
    slot_rows = slots + (example * LENGTH + slot)[:, None] * D
    own_rows = own + ((channel // heads) * batch + example)[:, None] * D
    g, g_null, g_own = _against(gradient + line[:, None] * D, mine, slot_rows, here, own_rows, null,
                                D, ROWS, COLUMNS, SLOTS)  # fmt: skip
    at = pattern + line * (LENGTH + 2)
    p = tl.load(at[:, None] + slot[None, :], mask=mine[:, None] & here[None, :], other=0.0)
    p_null = tl.load(at + LENGTH, mask=mine, other=0.0)
    p_own = tl.load(at + LENGTH + 1, mask=mine, other=0.0)
    scale = tl.load(scales + channel, mask=mine, other=0.0)
    mean = tl.sum(p * g, 1) + p_null * g_null + p_own * g_own
    g = p * (g - mean[:, None]) * scale[:, None]
    g_null, g_own = p_null * (g_null - mean) * scale, p_own * (g_own - mean) * scale
    _mix(back + line[:, None] * D, mine, slot_rows, here, own_rows, null, g, g_null, g_own, D,
         COLUMNS)  # fmt: skip


@jit
def add_and_norm(table, q, attended, bias, stream, normed, inverses, batch, D: tl.constexpr,
                 BLOCK: tl.constexpr, EPSILON: tl.constexpr):  # fmt: skip
    """One example of one run per program: for x = E[q] + attended, x + bias, its norm and 1/σ."""
    line = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    inside = k < D
    x = tl.load(table + tl.load(q + line) * D + k, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(attended + line * D + k, mask=inside, other=0.0).to(tl.float32)
    z, inverse = _normed(x, inside, D, EPSILON)
    x += tl.load(bias + line // batch * D + k, mask=inside, other=0.0).to(tl.float32)
    tl.store(stream + line * D + k, x.to(stream.dtype.element_ty), mask=inside)
    tl.store(normed + line * D + k, z.to(normed.dtype.element_ty), mask=inside)
    tl.store(inverses + line, inverse)


@jit
def add_and_norm_back(
    straight, gradient, normed, inverses, back, D: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient of x: straight + (g − mean g − z·mean(g z))/σ."""
    line = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    inside = k < D
    g = tl.load(gradient + line * D + k, mask=inside, other=0.0).to(tl.float32)
    z = tl.load(normed + line * D + k, mask=inside, other=0.0).to(tl.float32)
    through = tl.load(inverses + line) * (g - tl.sum(g, 0) / D - z * (tl.sum(g * z, 0) / D))
    x = tl.load(straight + line * D + k, mask=inside, other=0.0).to(tl.float32) + through
    tl.store(back + line * D + k, x.to(back.dtype.element_ty), mask=inside)


@jit
def cross_entropy(logits, labels, barred, weights, losses, rows, padded, BLOCK: tl.constexpr):
    """One example per program: its loss, and its logits turned into weight·(softmax − one-hot)."""
    line = tl.program_id(0).to(tl.int64)
    answer = tl.arange(0, BLOCK)
    label, weight = tl.load(labels + line), tl.load(weights + line)
    allowed = (answer < rows) & (answer != tl.load(barred + line))
    x = tl.load(logits + line * padded + answer, mask=answer < padded, other=0.0).to(tl.float32)
    x = tl.where(allowed, x, -float("inf"))
    right = answer == label
    top, x_right = tl.max(x, 0), tl.sum(tl.where(right, x, 0.0), 0)
    e = tl.exp(x - top)
    # The others are summed separately: 1 − p = others/total keeps its digits when p is near 1.
    others = tl.sum(tl.where(right, 0.0, e), 0)
    total = others + tl.exp(x_right - top)
    g = tl.where(right, -others, e) / total * weight
    tl.store(logits + line * padded + answer, g.to(logits.dtype.element_ty), mask=answer < padded)
    tl.store(losses + line, tl.log(total) + top - x_right)


@jit
def adamw(weight, gradient, first, second, low, rates, decays, corrections, size,
          BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
          BLOCK: tl.constexpr):  # fmt: skip
    """BLOCK entries of one run's weight per program; `low` is the copy that products use."""
    run = tl.program_id(0).to(tl.int64)
    entry = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = entry < size, run * size + entry
    rate, decay = tl.load(rates + run), tl.load(decays + run)
    g = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    m = tl.load(first + at, mask=inside, other=0.0)
    m += (1 - BETA1) * (g - m)
    v = tl.load(second + at, mask=inside, other=0.0) * BETA2 + (1 - BETA2) * g * g
    move = m / tl.load(corrections) / (tl.sqrt(v / tl.load(corrections + 1)) + EPSILON)
    w = tl.load(weight + at, mask=inside, other=0.0) * (1 - rate * decay) - rate * move
    tl.store(weight + at, w, mask=inside)
    tl.store(first + at, m, mask=inside)
    tl.store(second + at, v, mask=inside)
    tl.store(low + at, w.to(low.dtype.element_ty), mask=inside)
