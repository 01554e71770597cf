"""Triton kernels: one run per program, hundreds of steps per launch.

Sizes are padded to what the tensor cores take: contexts to L ≥ 16 positions, d_model to DM, heads to H, their width to
DK; D = H·DK. Padded entries are zero and stay zero, because a zero column pair of W_Q and W_K has zero gradient and a
zero embedding column moves nothing. Products are float32 in effect: each factor is split into two tf32 numbers
(`product`). Everything a run computes follows from its own arguments, so a run does not feel its neighbours.
"""

from __future__ import annotations

import triton.language as tl
from triton import jit


@jit
def _high(a):
    """The leading 11 bits of the mantissa: what a tf32 operand keeps."""
    return (a.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@jit
def product(a, b):
    """a·b to about 2⁻²¹ in three tf32 products; the dropped one, low·low, is smaller still."""
    a_high, b_high = _high(a), _high(b)
    total = tl.dot(a - a_high, b_high, input_precision="tf32")
    total = tl.dot(a_high, b - b_high, acc=total, input_precision="tf32")
    return tl.dot(a_high, b_high, acc=total, input_precision="tf32")


@jit
def _reciprocal(a):
    """1/a for a > 0, to a few units in the last place: two instructions where a division takes ten."""
    root = tl.rsqrt(a)
    return root * root


@jit
def _adam(w, gradient, first, second, rate, scale):
    """AdamW: W − rate·m/(√v·scale + ε)."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient * gradient
    return w - rate * first * _reciprocal(tl.sqrt(second) * scale + 1e-8), first, second


@jit
def _by_head(a, L: tl.constexpr, H: tl.constexpr, DK: tl.constexpr):
    """[L, D] as [H, L, DK]."""
    return tl.permute(tl.reshape(a, (L, H, DK)), (1, 0, 2))


@jit
def _side_by_side(a, L: tl.constexpr, D: tl.constexpr):
    """[H, L, DK] as [L, D]."""
    return tl.reshape(tl.permute(a, (1, 0, 2)), (L, D))


@jit
def _widened(a, H: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """A contraction must be at least 16 long: zeros between narrow columns."""
    if DK < 16:
        a = tl.reshape(tl.join(a, tl.zeros_like(a)), (H, L, 2 * DK))
    return a


@jit
def head_scores(q, k, H: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """S⁽ᵏ⁾ = Q⁽ᵏ⁾K⁽ᵏ⁾ᵀ as [H, L, L]."""
    return product(_widened(q, H, L, DK), tl.permute(_widened(k, H, L, DK), (0, 2, 1)))


@jit
def shares(s, scale, head, VARIANT: tl.constexpr, HEADS: tl.constexpr, H: tl.constexpr, LENGTH: tl.constexpr,
           L: tl.constexpr):  # fmt: skip
    """Softmax along the context, where the variant has it; padded heads never win and share nothing."""
    if VARIANT == "softmax":
        s *= scale
        if LENGTH < L:
            s = tl.where((tl.arange(0, L) < LENGTH)[None, None, :], s, float("-inf"))
        s = tl.exp(s - tl.max(s, axis=2)[:, :, None])
        s = s * _reciprocal(tl.sum(s, axis=2))[:, :, None]
        if HEADS % H != 0:
            s = tl.where((head + tl.arange(0, H) < HEADS)[:, None, None], s, 0.0)
    elif HEADS % H != 0:
        s = tl.where((head + tl.arange(0, H) < HEADS)[:, None, None], s, float("-inf"))
    return s


@jit
def joined_scores(s, VARIANT: tl.constexpr):
    """Scores joined across heads, [L, L]: the largest, or the sum of the shares."""
    return tl.sum(s, axis=0) if VARIANT == "softmax" else tl.max(s, axis=0)


@jit
def labels(targets, row, item, DEGREE: tl.constexpr, LENGTH: tl.constexpr, L: tl.constexpr):
    """y_pq as [L, L]: is item q an out-neighbour of item p? Padded positions hold −1 and have none."""
    inside = tl.arange(0, L) < LENGTH
    y = tl.zeros((L, L), tl.int1)
    for j in range(DEGREE):
        target = tl.load(targets + (row + item) * DEGREE + j, mask=inside, other=-2)
        y |= target[:, None] == item[None, :]
    return y


@jit
def retrieval_error(joined, y, valid, messages, row, item, b, LENGTH: tl.constexpr, L: tl.constexpr,
                     DM: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Columns b … b + BLOCK of the messages and of the error ((S − y) V) of the valid rows."""
    inside = tl.arange(0, L) < LENGTH
    v = tl.load(
        messages + (row + item)[:, None] * DM + (b + tl.arange(0, BLOCK))[None, :],
        mask=inside[:, None],
        other=0.0,
    )
    return v, product(tl.where(valid[:, None], joined - y.to(tl.float32), 0.0), v)


@jit
def _slope(joined, y, tau, alpha, messages, row, item, VARIANT: tl.constexpr, DEGREE: tl.constexpr,
           LENGTH: tl.constexpr, L: tl.constexpr, DM: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """∂L/∂S of the joined scores [L, L]: the logistic loss, or Eq. (4)."""
    if VARIANT == "value":
        valid = tl.max(y.to(tl.int32), axis=1) > 0
        count = tl.maximum(tl.sum(valid.to(tl.int32)), 1).to(tl.float32)
        slope = tl.zeros((L, L), tl.float32)
        for b in range(0, DM, BLOCK):
            v, error = retrieval_error(
                joined, y, valid, messages, row, item, b, LENGTH, L, DM, BLOCK
            )
            slope += product(error, tl.trans(v))
        slope = tl.where(valid[:, None], slope, 0.0) * (2.0 / count)
    else:
        chance = _reciprocal(1.0 + tl.exp(-alpha * (joined - tau)))
        if DEGREE == 1:
            weight = LENGTH - 1.0
        else:  # Eq. (30)
            count = tl.sum(y.to(tl.float32))
            weight = tl.where(count > 0, (LENGTH * LENGTH - count) / tl.maximum(count, 1.0), 0.0)
        slope = tl.where(y, (chance - 1.0) * weight, chance) * (alpha / (LENGTH * LENGTH))
    if LENGTH < L:
        inside = tl.arange(0, L) < LENGTH
        slope = tl.where(inside[:, None] & inside[None, :], slope, 0.0)
    return slope


@jit
def _head_slopes(s, joined, slope, scale, VARIANT: tl.constexpr):
    """∂L/∂S⁽ᵏ⁾ [H, L, L] from the slope of the joined scores."""
    if VARIANT == "softmax":
        s = s * (slope[None, :, :] - tl.sum(s * slope[None, :, :], axis=2)[:, :, None]) * scale
    else:  # only the winning head moves; all that win where heads tie to the last bit
        s = tl.where(s == joined[None, :, :], slope[None, :, :], 0.0)
    return s


@jit
def _total(slope, joined):
    """The summed slope; not finite as soon as a score is not (a maximum passes over NaN and may end as −∞)."""
    return tl.sum(slope + 0.0 * joined)


@jit
def _end_of_step(
    total, n, tau, tau_first, tau_second, diverged, rate, scale, VARIANT: tl.constexpr
):
    """Move τ, and note the step at which a run's slopes stop being finite."""
    if VARIANT != "value":
        tau, tau_first, tau_second = _adam(tau, -total, tau_first, tau_second, rate, scale)
    finite = (total - total) == 0.0
    return tau, tau_first, tau_second, tl.where((diverged == 0) & (finite == 0), n, diverged)


@jit
def _threshold(thresholds, run):
    """τ and its moments."""
    return (
        tl.load(thresholds + run * 3),
        tl.load(thresholds + run * 3 + 1),
        tl.load(thresholds + run * 3 + 2),
    )


@jit
def _store_threshold(thresholds, diverged_at, run, tau, tau_first, tau_second, diverged):
    """Write back what `_threshold` read, and the step at which the run diverged."""
    tl.store(thresholds + run * 3, tau)
    tl.store(thresholds + run * 3 + 1, tau_first)
    tl.store(thresholds + run * 3 + 2, tau_second)
    tl.store(diverged_at + run, diverged)


@jit(do_not_specialize=["steps", "taken"])
def train_resident(weights, firsts, seconds, thresholds, diverged_at, contexts, rows, targets, messages, first_row,
                   scales, head_scales, steps, taken, alpha, VARIANT: tl.constexpr, DEGREE: tl.constexpr,
                   HEADS: tl.constexpr, H: tl.constexpr, LENGTH: tl.constexpr, L: tl.constexpr, DM: tl.constexpr,
                   DK: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """`steps` steps of one run with its whole state in registers."""
    run = tl.program_id(0).to(tl.int64)
    D: tl.constexpr = H * DK
    i, position = tl.arange(0, DM), tl.arange(0, L)
    at_q = run * (2 * DM * D) + i[:, None] * D + tl.arange(0, D)[None, :]
    at_k = at_q + DM * D
    wq, wk = tl.load(weights + at_q), tl.load(weights + at_k)
    mq, mk = tl.load(firsts + at_q), tl.load(firsts + at_k)
    vq, vk = tl.load(seconds + at_q), tl.load(seconds + at_k)
    tau, tau_first, tau_second = _threshold(thresholds, run)
    row, head_scale, diverged = (
        tl.load(first_row + run),
        tl.load(head_scales + run),
        tl.load(diverged_at + run),
    )
    for n in range(steps):
        item = tl.load(contexts + (run * steps + n) * L + position)
        y = labels(targets, row, item, DEGREE, LENGTH, L)
        x = tl.load(
            rows + (row + item)[:, None] * DM + i[None, :],
            mask=(position < LENGTH)[:, None],
            other=0.0,
        )
        rate, scale = tl.load(scales + 2 * n), tl.load(scales + 2 * n + 1)
        q, k = _by_head(product(x, wq), L, H, DK), _by_head(product(x, wk), L, H, DK)
        s = shares(head_scores(q, k, H, L, DK), head_scale, 0, VARIANT, HEADS, H, LENGTH, L)
        joined = joined_scores(s, VARIANT)
        slope = _slope(
            joined, y, tau, alpha, messages, row, item, VARIANT, DEGREE, LENGTH, L, DM, BLOCK
        )
        s = _head_slopes(s, joined, slope, head_scale, VARIANT)
        dq, dk = (
            _side_by_side(product(s, k), L, D),
            _side_by_side(product(tl.permute(s, (0, 2, 1)), q), L, D),
        )
        total = _total(slope, joined)
        wq, mq, vq = _adam(wq, product(tl.trans(x), dq), mq, vq, rate, scale)
        wk, mk, vk = _adam(wk, product(tl.trans(x), dk), mk, vk, rate, scale)
        tau, tau_first, tau_second, diverged = _end_of_step(
            total, taken + n + 1, tau, tau_first, tau_second, diverged, rate, scale, VARIANT
        )
    tl.store(weights + at_q, wq)
    tl.store(weights + at_k, wk)
    tl.store(firsts + at_q, mq)
    tl.store(firsts + at_k, mk)
    tl.store(seconds + at_q, vq)
    tl.store(seconds + at_k, vk)
    _store_threshold(thresholds, diverged_at, run, tau, tau_first, tau_second, diverged)


@jit
def project(x_at, inside, weights, D: tl.constexpr, DM: tl.constexpr, L: tl.constexpr, WIDE: tl.constexpr,
            BLOCK: tl.constexpr):  # fmt: skip
    """Rows [L, DM] times WIDE columns of a weight matrix [DM, D] in memory, BLOCK rows of it at a time."""
    total = tl.zeros((L, WIDE), tl.float32)
    for b in range(0, DM, BLOCK):
        i = b + tl.arange(0, BLOCK)
        x = tl.load(x_at[:, None] + i[None, :], mask=inside[:, None], other=0.0)
        total += product(x, tl.load(weights + i[:, None] * D + tl.arange(0, WIDE)[None, :]))
    return total


@jit
def _update(x_at, inside, gradient, weights, firsts, seconds, at, rate, scale, D: tl.constexpr, DM: tl.constexpr,
            WIDE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """AdamW on WIDE columns of a weight matrix in memory."""
    for b in range(0, DM, BLOCK):
        i = b + tl.arange(0, BLOCK)
        x = tl.load(x_at[:, None] + i[None, :], mask=inside[:, None], other=0.0)
        here = at + i[:, None] * D + tl.arange(0, WIDE)[None, :]
        w, m, v = tl.load(weights + here), tl.load(firsts + here), tl.load(seconds + here)
        w, m, v = _adam(w, product(tl.trans(x), gradient), m, v, rate, scale)
        tl.store(weights + here, w)
        tl.store(firsts + here, m)
        tl.store(seconds + here, v)


@jit(do_not_specialize=["steps", "taken"])
def train_streaming(weights, firsts, seconds, thresholds, diverged_at, contexts, rows, targets, messages, first_row,
                    scales, head_scales, scratch, steps, taken, alpha, VARIANT: tl.constexpr, DEGREE: tl.constexpr,
                    HEADS: tl.constexpr, H: tl.constexpr, LENGTH: tl.constexpr, L: tl.constexpr, DM: tl.constexpr,
                    DK: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, PART: tl.constexpr):  # fmt: skip
    """`steps` steps of one run whose state is too large for registers: it streams from cache, twice a step.

    GROUP heads are handled at a time, PART columns of each. Q, K [L, D] and the scores [H, L, L] wait in `scratch`.
    """
    run = tl.program_id(0).to(tl.int64)
    D: tl.constexpr = H * DK
    WIDE: tl.constexpr = GROUP * PART
    column, position = tl.arange(0, WIDE), tl.arange(0, L)
    at_q = run * (2 * DM * D)
    at_k = at_q + DM * D
    q_at = scratch + run * (2 * L * D + H * L * L) + position[:, None] * D + column[None, :]
    k_at = q_at + L * D
    s_at = scratch + run * (2 * L * D + H * L * L) + 2 * L * D
    s_at += (
        tl.arange(0, GROUP)[:, None, None] * (L * L)
        + position[None, :, None] * L
        + position[None, None, :]
    )
    tau, tau_first, tau_second = _threshold(thresholds, run)
    row, head_scale, diverged = (
        tl.load(first_row + run),
        tl.load(head_scales + run),
        tl.load(diverged_at + run),
    )
    inside = position < LENGTH
    for n in range(steps):
        item = tl.load(contexts + (run * steps + n) * L + position)
        y = labels(targets, row, item, DEGREE, LENGTH, L)
        x_at = rows + (row + item) * DM
        rate, scale = tl.load(scales + 2 * n), tl.load(scales + 2 * n + 1)
        joined = tl.full((L, L), 0.0 if VARIANT == "softmax" else float("-inf"), tl.float32)
        for head in range(0, HEADS, GROUP):
            s = tl.zeros((GROUP, L, L), tl.float32)
            for a in range(0, DK, PART):
                at = head * DK + a
                q = project(x_at, inside, weights + at_q + at, D, DM, L, WIDE, BLOCK)
                k = project(x_at, inside, weights + at_k + at, D, DM, L, WIDE, BLOCK)
                tl.store(q_at + at, q)
                tl.store(k_at + at, k)
                s += head_scores(
                    _by_head(q, L, GROUP, PART), _by_head(k, L, GROUP, PART), GROUP, L, PART
                )
            s = shares(s, head_scale, head, VARIANT, HEADS, GROUP, LENGTH, L)
            tl.store(s_at + head * (L * L), s)
            more = joined_scores(s, VARIANT)
            joined = joined + more if VARIANT == "softmax" else tl.maximum(joined, more)
        slope = _slope(
            joined, y, tau, alpha, messages, row, item, VARIANT, DEGREE, LENGTH, L, DM, BLOCK
        )
        tl.debug_barrier()  # what follows reads what other threads have written
        for head in range(0, HEADS, GROUP):
            s = _head_slopes(tl.load(s_at + head * (L * L)), joined, slope, head_scale, VARIANT)
            for a in range(0, DK, PART):
                at = head * DK + a
                k, q = tl.load(k_at + at), tl.load(q_at + at)
                dq = _side_by_side(product(s, _by_head(k, L, GROUP, PART)), L, WIDE)
                dk = _side_by_side(
                    product(tl.permute(s, (0, 2, 1)), _by_head(q, L, GROUP, PART)), L, WIDE
                )
                _update(
                    x_at,
                    inside,
                    dq,
                    weights,
                    firsts,
                    seconds,
                    at_q + at,
                    rate,
                    scale,
                    D,
                    DM,
                    WIDE,
                    BLOCK,
                )
                _update(
                    x_at,
                    inside,
                    dk,
                    weights,
                    firsts,
                    seconds,
                    at_k + at,
                    rate,
                    scale,
                    D,
                    DM,
                    WIDE,
                    BLOCK,
                )
        tl.debug_barrier()
        tau, tau_first, tau_second, diverged = _end_of_step(
            _total(slope, joined),
            taken + n + 1,
            tau,
            tau_first,
            tau_second,
            diverged,
            rate,
            scale,
            VARIANT,
        )
    _store_threshold(thresholds, diverged_at, run, tau, tau_first, tau_second, diverged)
