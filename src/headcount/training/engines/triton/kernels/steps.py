"""Training kernels: one run per program, hundreds of steps per launch.

A program owns its run for the whole launch, so steps need no synchronisation between programs and
no round trip to the host.
"""

from __future__ import annotations

import triton.language as tl
from triton import jit

from headcount.training.engines.triton.kernels.arithmetic import (
    adam,
    by_head,
    head_scores,
    head_slopes,
    joined_scores,
    key_column,
    key_slopes,
    labels,
    message_products,
    nothing_joined,
    product,
    project,
    query_slopes,
    repeated_sums,
    shares,
    side_by_side,
    slope_of,
    slope_total,
    with_more,
)
from headcount.training.engines.triton.kernels.protocol import (
    end_of_step,
    load_threshold,
    step_scales,
    store_threshold,
)


@jit(do_not_specialize=["steps", "taken", "looks"])
def train_resident(weights, firsts, seconds, thresholds, diverged_at, contexts, rows, targets,
                   starts, messages, first_row, looks, scales, head_scales, steps, taken, alpha,
                   VARIANT: tl.constexpr, TARGETS: tl.constexpr, HEADS: tl.constexpr,
                   H: tl.constexpr, SHARE: tl.constexpr, SPREAD: tl.constexpr,
                   LENGTH: tl.constexpr, L: tl.constexpr, DM: tl.constexpr, DK: tl.constexpr,
                   BLOCK: tl.constexpr, REPEATED: tl.constexpr):  # fmt: skip
    """`steps` steps of one run with its whole state in registers.

    W, m and v are loaded once and stored once per launch; a step reads only its context, ℓ
    embedding rows and two scales, so it is bound by arithmetic and not by memory. With REPEATED,
    W_K is held once for every head: products of fewer keys than there are warps take longer.
    """
    run = tl.program_id(0).to(tl.int64)
    KEYS: tl.constexpr = H if REPEATED else H // SPREAD
    D: tl.constexpr = H * DK
    KD: tl.constexpr = D // SPREAD
    i, position = tl.arange(0, DM), tl.arange(0, L)
    at_q = run * (DM * (D + KD)) + i[:, None] * D + tl.arange(0, D)[None, :]
    at_k = at_q + DM * D
    if SPREAD > 1:
        column = tl.arange(0, KEYS * DK)
        if REPEATED:
            column = key_column(column, SPREAD, DK)
        at_k = run * (DM * (D + KD)) + DM * D + i[:, None] * KD + column[None, :]
    wq, wk = tl.load(weights + at_q), tl.load(weights + at_k)
    mq, mk = tl.load(firsts + at_q), tl.load(firsts + at_k)
    vq, vk = tl.load(seconds + at_q), tl.load(seconds + at_k)
    tau, tau_first, tau_second = load_threshold(thresholds, run)
    row, head_scale = tl.load(first_row + run), tl.load(head_scales + run)
    diverged = tl.load(diverged_at + run)
    for n in range(steps):
        item = tl.load(contexts + (run * steps + n) * L + position)
        y = labels(targets, starts, looks, row, item, TARGETS, LENGTH, L)
        x = tl.load(
            rows + (row + item)[:, None] * DM + i[None, :],
            mask=(position < LENGTH)[:, None],
            other=0.0,
        )
        products = message_products(messages, row, item, VARIANT, LENGTH, L, DM, BLOCK)
        rate, scale = step_scales(scales, taken + n)
        q, k = by_head(product(x, wq), L, H, DK), by_head(product(x, wk), L, KEYS, DK)
        s = head_scores(q, k, H, KEYS, L, DK)
        s = shares(s, head_scale, 0, VARIANT, HEADS, SHARE, SPREAD, H, LENGTH, L)
        joined = joined_scores(s, head_scale, VARIANT)
        slope = slope_of(joined, y, tau, alpha, products, VARIANT, TARGETS, LENGTH, L)
        s = head_slopes(s, joined, slope, head_scale, 0, VARIANT, HEADS, SHARE, SPREAD, H)
        dq = side_by_side(query_slopes(s, k, H, KEYS, L, DK), L, D)
        dk = key_slopes(s, q, H, KEYS, L, DK)
        if REPEATED:
            dk = repeated_sums(dk, H, SPREAD, L, DK)
        dk = side_by_side(dk, L, KEYS * DK)
        total = slope_total(slope, joined)
        wq, mq, vq = adam(wq, product(tl.trans(x), dq), mq, vq, rate, scale)
        wk, mk, vk = adam(wk, product(tl.trans(x), dk), mk, vk, rate, scale)
        tau, tau_first, tau_second, diverged = end_of_step(
            total, taken + n + 1, tau, tau_first, tau_second, diverged, rate, scale, VARIANT
        )
    tl.store(weights + at_q, wq)
    tl.store(weights + at_k, wk)
    tl.store(firsts + at_q, mq)
    tl.store(firsts + at_k, mk)
    tl.store(seconds + at_q, vq)
    tl.store(seconds + at_k, vk)
    store_threshold(thresholds, diverged_at, run, tau, tau_first, tau_second, diverged)


@jit
def _update(x_at, inside, gradient, weights, firsts, seconds, at, rate, scale, D: tl.constexpr,
            DM: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """AdamW on WIDE columns of a weight matrix in memory; the gradient is never stored."""
    for b in range(0, DM, BLOCK):
        i = b + tl.arange(0, BLOCK)
        x = tl.load(x_at[:, None] + i[None, :], mask=inside[:, None], other=0.0)
        here = at + i[:, None] * D + tl.arange(0, WIDE)[None, :]
        w, m, v = tl.load(weights + here), tl.load(firsts + here), tl.load(seconds + here)
        w, m, v = adam(w, product(tl.trans(x), gradient), m, v, rate, scale)
        tl.store(weights + here, w)
        tl.store(firsts + here, m)
        tl.store(seconds + here, v)


@jit(do_not_specialize=["steps", "taken", "looks"])
def train_streaming(weights, firsts, seconds, thresholds, diverged_at, contexts, rows, targets,
                    starts, messages, first_row, looks, scales, head_scales, scratch, steps,
                    taken, alpha,
                    VARIANT: tl.constexpr, TARGETS: tl.constexpr, HEADS: tl.constexpr,
                    H: tl.constexpr, SHARE: tl.constexpr, SPREAD: tl.constexpr,
                    LENGTH: tl.constexpr, L: tl.constexpr, DM: tl.constexpr, DK: tl.constexpr,
                    BLOCK: tl.constexpr, GROUP: tl.constexpr, PART: tl.constexpr):  # fmt: skip
    """`steps` steps of one run whose state is too large for registers.

    The state streams from cache twice per step. GROUP heads are handled at a time, PART columns of
    each. Between the passes, Q [L, D], K [L, KD] and the scores [H, L, L] are kept in `scratch`:
    the slope of a pair is known only when all heads are joined. GROUP heads have KEYS keys, or are
    some of one key's; then its projection comes first, and its gradient is summed over them.
    """
    run = tl.program_id(0).to(tl.int64)
    WITHIN: tl.constexpr = GROUP < SPREAD
    KEYS: tl.constexpr = 1 if WITHIN else GROUP // SPREAD
    # Places of a key's heads, less those whose whole group would be padding.
    ROOM: tl.constexpr = (SHARE + GROUP - 1) // GROUP * GROUP if WITHIN else SPREAD
    D: tl.constexpr = H * DK
    KD: tl.constexpr = D // SPREAD
    WIDE: tl.constexpr = GROUP * PART
    KEYS_WIDE: tl.constexpr = KEYS * PART
    column, position = tl.arange(0, WIDE), tl.arange(0, L)
    key_columns = tl.arange(0, KEYS_WIDE)
    at_q = run * (DM * (D + KD))
    at_k = at_q + DM * D
    own = scratch + run * (L * (D + KD) + H * L * L)
    q_at = own + position[:, None] * D + column[None, :]
    k_at = own + L * D + position[:, None] * KD + key_columns[None, :]
    s_at = own + L * (D + KD)
    s_at += (
        tl.arange(0, GROUP)[:, None, None] * (L * L)
        + position[None, :, None] * L
        + position[None, None, :]
    )
    tau, tau_first, tau_second = load_threshold(thresholds, run)
    row, head_scale = tl.load(first_row + run), tl.load(head_scales + run)
    diverged = tl.load(diverged_at + run)
    inside = position < LENGTH
    for n in range(steps):
        item = tl.load(contexts + (run * steps + n) * L + position)
        y = labels(targets, starts, looks, row, item, TARGETS, LENGTH, L)
        x_at = rows + (row + item) * DM
        products = message_products(messages, row, item, VARIANT, LENGTH, L, DM, BLOCK)
        rate, scale = step_scales(scales, taken + n)
        joined = nothing_joined(L, VARIANT)
        if WITHIN:
            for at in range(0, HEADS // SHARE * DK, PART):
                k = project(x_at, inside, weights + at_k + at, KD, DM, L, KEYS_WIDE, BLOCK)
                tl.store(k_at + at, k)
            tl.debug_barrier()
        for place in range(0, HEADS // SHARE * ROOM, GROUP):
            head = place
            if WITHIN:
                head = place // ROOM * SPREAD + place % ROOM
            s = tl.zeros((GROUP, L, L), tl.float32)
            for a in range(0, DK, PART):
                at = head * DK + a
                key_at = head // SPREAD * DK + a
                q = project(x_at, inside, weights + at_q + at, D, DM, L, WIDE, BLOCK)
                tl.store(q_at + at, q)
                if WITHIN:
                    k = tl.load(k_at + key_at)
                else:
                    k = project(x_at, inside, weights + at_k + key_at, KD, DM, L, KEYS_WIDE, BLOCK)
                    tl.store(k_at + key_at, k)
                s += head_scores(
                    by_head(q, L, GROUP, PART), by_head(k, L, KEYS, PART), GROUP, KEYS, L, PART
                )
            s = shares(s, head_scale, head, VARIANT, HEADS, SHARE, SPREAD, GROUP, LENGTH, L)
            tl.store(s_at + head * (L * L), s)
            more = joined_scores(s, head_scale, VARIANT)
            joined = with_more(joined, more, head_scale, VARIANT)
        slope = slope_of(joined, y, tau, alpha, products, VARIANT, TARGETS, LENGTH, L)
        # Memory is shared by the program's threads, and each reads below what others wrote above.
        tl.debug_barrier()
        for first in range(0, HEADS // SHARE * SPREAD, SPREAD if WITHIN else GROUP):
            if WITHIN:  # some heads of one key at a time, whose slopes add up in its gradient
                for a in range(0, DK, PART):
                    key_at = first // SPREAD * DK + a
                    k = by_head(tl.load(k_at + key_at), L, KEYS, PART)
                    dk = tl.zeros((KEYS, L, PART), tl.float32)
                    for head in range(first, first + SHARE, GROUP):
                        at = head * DK + a
                        s = head_slopes(tl.load(s_at + head * (L * L)), joined, slope, head_scale,
                                        head, VARIANT, HEADS, SHARE, SPREAD, GROUP)  # fmt: skip
                        q = by_head(tl.load(q_at + at), L, GROUP, PART)
                        dk += key_slopes(s, q, GROUP, KEYS, L, PART)
                        dq = side_by_side(query_slopes(s, k, GROUP, KEYS, L, PART), L, WIDE)
                        _update(x_at, inside, dq, weights, firsts, seconds, at_q + at, rate, scale,
                                D, DM, WIDE, BLOCK)  # fmt: skip
                    dk = side_by_side(dk, L, KEYS_WIDE)
                    _update(x_at, inside, dk, weights, firsts, seconds, at_k + key_at, rate, scale,
                            KD, DM, KEYS_WIDE, BLOCK)  # fmt: skip
            else:
                s = head_slopes(tl.load(s_at + first * (L * L)), joined, slope, head_scale, first,
                                VARIANT, HEADS, SHARE, SPREAD, GROUP)  # fmt: skip
                for a in range(0, DK, PART):
                    at = first * DK + a
                    key_at = first // SPREAD * DK + a
                    k, q = tl.load(k_at + key_at), tl.load(q_at + at)
                    k, q = by_head(k, L, KEYS, PART), by_head(q, L, GROUP, PART)
                    dq = side_by_side(query_slopes(s, k, GROUP, KEYS, L, PART), L, WIDE)
                    dk = side_by_side(key_slopes(s, q, GROUP, KEYS, L, PART), L, KEYS_WIDE)
                    _update(x_at, inside, dq, weights, firsts, seconds, at_q + at, rate, scale, D,
                            DM, WIDE, BLOCK)  # fmt: skip
                    _update(x_at, inside, dk, weights, firsts, seconds, at_k + key_at, rate, scale,
                            KD, DM, KEYS_WIDE, BLOCK)  # fmt: skip
        tl.debug_barrier()  # the next step reads the weights that other threads have just written
        total = slope_total(slope, joined)
        tau, tau_first, tau_second, diverged = end_of_step(
            total, taken + n + 1, tau, tau_first, tau_second, diverged, rate, scale, VARIANT
        )
    store_threshold(thresholds, diverged_at, run, tau, tau_first, tau_second, diverged)
