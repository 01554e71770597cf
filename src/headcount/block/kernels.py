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
def _positions(slots, own, null, batch, channels, heads, D: tl.constexpr, LENGTH: tl.constexpr,
               ROWS: tl.constexpr, POSITIONS: tl.constexpr):  # fmt: skip
    """This program's ROWS channels, and where their positions' inputs for its example are.

    The slots and NULL are the same for all channels; after them come the queries' own inputs, one
    for each run that has some of these channels. So one tensor-core product serves all positions,
    and a channel ignores other runs' queries. Returns the line of each channel and whether there is
    such a channel, the same for the row of each position, the position's column in the pattern, and
    which positions a channel attends to.
    """
    example, first = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64) * ROWS
    channel, position = first + tl.arange(0, ROWS), tl.arange(0, POSITIONS)
    run = first // heads + position - (LENGTH + 1)  # of a query's own input
    rows = tl.where(position == LENGTH, null, own + (run * batch + example) * D)
    rows = tl.where(position < LENGTH, slots + (example * LENGTH + position) * D, rows)
    mine, there = channel < channels, (position <= LENGTH) | (run * heads < channels)
    its_own = (channel // heads)[:, None] == run[None, :]
    known = mine[:, None] & ((position <= LENGTH)[None, :] | its_own)
    column = tl.minimum(position, LENGTH + 1)[None, :]
    return channel * batch + example, mine, rows, there, column, known


@jit
def _against(vectors, mine, rows, there, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
             POSITIONS: tl.constexpr):  # fmt: skip
    """Each channel's vector times every position's input."""
    total = tl.zeros((ROWS, POSITIONS), tl.float32)
    for first in range(0, D, COLUMNS):
        k = first + tl.arange(0, COLUMNS)
        inside = (k < D)[None, :]
        v = tl.load(vectors + k[None, :], mask=mine[:, None] & inside, other=0.0)
        z = tl.load(rows[:, None] + k[None, :], mask=there[:, None] & inside, other=0.0)
        total += tl.dot(v, tl.trans(z), input_precision="ieee")
    return total


@jit
def _mix(out, mine, rows, there, shares, D: tl.constexpr, COLUMNS: tl.constexpr):
    """The positions' inputs summed with these shares, written to `out`."""
    kind = out.dtype.element_ty
    shares = shares.to(kind)
    for first in range(0, D, COLUMNS):
        k = first + tl.arange(0, COLUMNS)
        inside = (k < D)[None, :]
        z = tl.load(rows[:, None] + k[None, :], mask=there[:, None] & inside, other=0.0)
        mixed = tl.dot(shares, z, input_precision="ieee")
        tl.store(out + k[None, :], mixed.to(kind), mask=mine[:, None] & inside)


@jit
def attend(absorbed, slots, own, null, scales, mixed, pattern, batch, channels, heads,
           D: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
           POSITIONS: tl.constexpr):  # fmt: skip
    """One example and ROWS channels per program: scores, softmax, mix."""
    line, mine, rows, there, column, known = _positions(
        slots, own, null, batch, channels, heads, D, LENGTH, ROWS, POSITIONS
    )
    s = _against(absorbed + line[:, None] * D, mine, rows, there, D, ROWS, COLUMNS, POSITIONS)
    s *= tl.load(scales + line // batch, mask=mine, other=0.0)[:, None]
    s = tl.where(known, s, -float("inf"))
    top = tl.where(mine, tl.max(s, 1), 0.0)
    e = tl.exp(s - top[:, None])
    p = e / tl.where(mine, tl.sum(e, 1), 1.0)[:, None]
    tl.store(pattern + line[:, None] * (LENGTH + 2) + column, p, mask=known)
    _mix(mixed + line[:, None] * D, mine, rows, there, p, D, COLUMNS)


@jit
def attend_back(gradient, slots, own, null, scales, pattern, back, batch, channels, heads,
                D: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
                POSITIONS: tl.constexpr):  # fmt: skip
    """The same two products as `attend`, with the softmax's derivative between them."""
    line, mine, rows, there, column, known = _positions(
        slots, own, null, batch, channels, heads, D, LENGTH, ROWS, POSITIONS
    )
    g = _against(gradient + line[:, None] * D, mine, rows, there, D, ROWS, COLUMNS, POSITIONS)
    p = tl.load(pattern + line[:, None] * (LENGTH + 2) + column, mask=known, other=0.0)
    scale = tl.load(scales + line // batch, mask=mine, other=0.0)
    g = p * (g - tl.sum(p * g, 1)[:, None]) * scale[:, None]
    _mix(back + line[:, None] * D, mine, rows, there, g, D, COLUMNS)


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
    label, bar = tl.load(labels + line).to(tl.int32), tl.load(barred + line).to(tl.int32)
    row = logits + line * padded
    x_right = tl.load(row + label).to(tl.float32)
    # Up to `padded`, a multiple of what a thread loads at a time: a mask inside would narrow loads.
    x = tl.load(row + answer, mask=answer < padded, other=0.0).to(tl.float32)
    # The right answer is left to the end: 1 − p = others/total keeps its digits when p is near 1.
    other = (answer < rows) & (answer != bar) & (answer != label)
    x = tl.where(other, x, -float("inf"))
    top = tl.maximum(tl.max(x, 0), x_right)
    e = tl.exp(x - top)
    others = tl.sum(e, 0)
    total = others + tl.exp(x_right - top)
    share = tl.load(weights + line) / total
    kind = logits.dtype.element_ty
    tl.store(row + answer, (e * share).to(kind), mask=answer < padded)
    tl.debug_barrier()  # another thread has just written a zero there
    tl.store(row + label, (-others * share).to(kind))
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
