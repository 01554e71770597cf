"""Training kernel for runs too large for the registers of one program: several share each run.

A program keeps its part of W_Q, W_K and their moments in registers for the whole launch. In each
step it sends what others need through the L2 cache: some kilobytes, where the state has up to 1.5
megabytes.

All programs of a launch must run at the same time, as they wait for one another: the launch is
cooperative, and each group of programs goes through several runs if there are more than fit.
"""

from __future__ import annotations

import triton.language as tl
from triton import jit

from headcount.training.engines.triton.kernels.arithmetic import (
    adam,
    head_scores,
    head_slopes,
    joined_scores,
    key_column,
    key_slopes,
    labels,
    messages_of,
    nothing_joined,
    product,
    query_slopes,
    repeated_sums,
    shares,
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

# A tile is a program's part of both matrices, transposed: [WIDE, TALL]. It has a head's columns of
# W_Q, then those of W_K, then the next head's, so that the queries and keys of a head are in the
# registers of one warp. A program has only a piece of a head that is wider than a tile. Heads that
# share a key have a copy of it each, in the same program, and the copies stay equal: the slope of
# each is the sum over all of them. A tile is held in PARTS, to be updated one by one: the gradient
# of all of it would not fit beside it.


@jit
def _tile_at(across, down, part, D: tl.constexpr, SPREAD: tl.constexpr, WIDTH: tl.constexpr,
             DM: tl.constexpr, WIDE: tl.constexpr, TALL: tl.constexpr,
             PARTS: tl.constexpr):  # fmt: skip
    """Where a part of a tile is in a run's memory: W_Q [DM, D], then W_K."""
    n = tl.arange(0, WIDE)
    column = across * (WIDE // 2) + n // (2 * WIDTH) * WIDTH + n % WIDTH
    i = down * TALL + part * (TALL // PARTS) + tl.arange(0, TALL // PARTS)
    if SPREAD == 1:
        at = (n // WIDTH % 2 * (DM * D) + column)[:, None] + i[None, :] * D
    else:
        is_key = n // WIDTH % 2 == 1
        column = tl.where(is_key, DM * D + key_column(column, SPREAD, WIDTH), column)
        at = column[:, None] + i[None, :] * tl.where(is_key, D // SPREAD, D)[:, None]
    return at


@jit
def _load_tile(memory, across, down, D: tl.constexpr, SPREAD: tl.constexpr, WIDTH: tl.constexpr,
               DM: tl.constexpr, WIDE: tl.constexpr, TALL: tl.constexpr,
               PARTS: tl.constexpr):  # fmt: skip
    tile = ()
    for part in tl.static_range(PARTS):
        at = _tile_at(across, down, part, D, SPREAD, WIDTH, DM, WIDE, TALL, PARTS)
        tile = tile + (tl.load(memory + at),)  # noqa: RUF005  (Triton has no other way)
    return tile


@jit
def _store_tile(tile, memory, across, down, D: tl.constexpr, SPREAD: tl.constexpr,
                WIDTH: tl.constexpr, DM: tl.constexpr, WIDE: tl.constexpr, TALL: tl.constexpr,
                PARTS: tl.constexpr):  # fmt: skip
    for part in tl.static_range(PARTS):
        at = _tile_at(across, down, part, D, SPREAD, WIDTH, DM, WIDE, TALL, PARTS)
        tl.store(memory + at, tile[part])


@jit
def _embeddings(x_at, LENGTH: tl.constexpr, L: tl.constexpr, TALL: tl.constexpr,
                PARTS: tl.constexpr):  # fmt: skip
    """The columns of the context's rows that each part of a tile multiplies, [L, TALL/PARTS]."""
    inside = (tl.arange(0, L) < LENGTH)[:, None]
    x = ()
    for part in tl.static_range(PARTS):
        i = part * (TALL // PARTS) + tl.arange(0, TALL // PARTS)
        x = x + (tl.load(x_at[:, None] + i[None, :], mask=inside, other=0.0),)  # noqa: RUF005
    return x


@jit
def _reordered(a, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Columns 0, 2, 4, 6, 1, 3, 5, 7 of every eight.

    Tensor cores give a thread two adjacent columns of a product, and take columns four apart of a
    factor. In this order, W as it came out of its update is a factor without an exchange between
    threads; a sum over all columns has the same terms in any order.
    """
    a = tl.reshape(a, (ROWS, COLUMNS // 8, 4, 2))
    return tl.reshape(tl.permute(a, (0, 1, 3, 2)), (ROWS, COLUMNS))


@jit
def _projection(w, x, L: tl.constexpr, WIDE: tl.constexpr, TALL: tl.constexpr,
                PARTS: tl.constexpr):  # fmt: skip
    """The tile times the context's rows: transposed queries and keys, [WIDE, L]."""
    total = tl.zeros((WIDE, L), tl.float32)
    for part in tl.static_range(PARTS):
        columns = tl.trans(_reordered(x[part], L, TALL // PARTS))
        total += product(_reordered(w[part], WIDE, TALL // PARTS), columns)
    return total


@jit
def _updated(w, first, second, slopes, x, rate, scale, PARTS: tl.constexpr):
    """AdamW on a tile, whose gradient is `slopes` [WIDE, L] times the context's rows."""
    ws, firsts, seconds = (), (), ()
    for part in tl.static_range(PARTS):
        new = adam(w[part], product(slopes, x[part]), first[part], second[part], rate, scale)
        ws, firsts = ws + (new[0],), firsts + (new[1],)  # noqa: RUF005
        seconds = seconds + (new[2],)  # noqa: RUF005
    return ws, firsts, seconds


# Programs exchange 64-bit words: the 32 bits of a number and the tag of the step. A word is written
# in one access, so a word with the tag holds the number of this step, and no fence is needed. Words
# go to two places by turns. A program that writes for the second time to one of them has received
# what the others sent in the step between, and they sent it after reading what is now overwritten.


@jit
def _send(words, values, tag):
    bits = values.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    tl.store(words, bits | (tag.to(tl.int64) << 32))


@jit
def _received(words, tag):
    """The numbers, and what is not 0 for those that have not come yet."""
    found = tl.load(words, volatile=True)
    return found.to(tl.int32).to(tl.float32, bitcast=True), (found >> 32).to(tl.int32) ^ tag


@jit
def _places(words, tag, WIDE: tl.constexpr, L: tl.constexpr, DOWN: tl.constexpr):
    """Where the first of DOWN programs sends its [WIDE, L]; the others' places follow."""
    at = words + tag % 2 * (DOWN * WIDE * L)
    return at + (tl.arange(0, WIDE)[:, None] * L + tl.arange(0, L)[None, :])


@jit
def _summed(at, tag, WIDE: tl.constexpr, L: tl.constexpr, DOWN: tl.constexpr):
    """The sum of what DOWN programs sent, in the same order in each of them."""
    total, waiting = tl.zeros((WIDE, L), tl.float32), 1
    while waiting > 0:
        total, late = tl.zeros((WIDE, L), tl.float32), tl.zeros((WIDE, L), tl.int32)
        for n in tl.static_range(DOWN):
            more, more_late = _received(at + n * (WIDE * L), tag)
            total, late = total + more, late | more_late
        waiting = tl.max((late != 0).to(tl.int32))
    return total


@jit
def _joined_by_all(own, words, number, tag, scale, L: tl.constexpr, ACROSS: tl.constexpr,
                   VARIANT: tl.constexpr):  # fmt: skip
    """The scores of ACROSS programs' heads, each joined already, joined."""
    at = words + tag % 2 * (ACROSS * L * L)
    at += tl.arange(0, L)[:, None] * L + tl.arange(0, L)[None, :]
    _send(at + number * (L * L), own, tag)
    joined, waiting = nothing_joined(L, VARIANT), 1
    while waiting > 0:
        joined, late = nothing_joined(L, VARIANT), tl.zeros((L, L), tl.int32)
        for n in tl.static_range(ACROSS):
            more, more_late = _received(at + n * (L * L), tag)
            joined, late = with_more(joined, more, scale, VARIANT), late | more_late
        waiting = tl.max((late != 0).to(tl.int32))
    return joined


@jit
def _scores_of_all(own, words, number, tag, L: tl.constexpr, H: tl.constexpr,
                   PIECES: tl.constexpr, ACROSS: tl.constexpr):  # fmt: skip
    """The scores of all heads [H, L, L], each the sum over its pieces."""
    at = words + tag % 2 * (ACROSS * L * L)
    at += tl.arange(0, L)[:, None] * L + tl.arange(0, L)[None, :]
    _send(at + number * (L * L), own, tag)
    head = tl.arange(0, H)[:, None, None]
    s, waiting = tl.zeros((H, L, L), tl.float32), 1
    while waiting > 0:
        s, late = tl.zeros((H, L, L), tl.float32), tl.zeros((L, L), tl.int32)
        for n in tl.static_range(ACROSS):
            more, more_late = _received(at + n * (L * L), tag)
            s, late = s + tl.where(head == n // PIECES, more[None, :, :], 0.0), late | more_late
        waiting = tl.max((late != 0).to(tl.int32))
    return s


@jit(do_not_specialize=["runs", "steps", "taken", "looks"])
def train_together(weights, firsts, seconds, thresholds, diverged_at, contexts, rows, targets,
                   starts, messages, first_row, looks, scales, head_scales, words, runs, steps,
                   taken, alpha,
                   VARIANT: tl.constexpr, TARGETS: tl.constexpr, HEADS: tl.constexpr,
                   H: tl.constexpr, SHARE: tl.constexpr, SPREAD: tl.constexpr,
                   LENGTH: tl.constexpr, L: tl.constexpr, DM: tl.constexpr, DK: tl.constexpr,
                   WIDE: tl.constexpr, ACROSS: tl.constexpr, DOWN: tl.constexpr,
                   PARTS: tl.constexpr):  # fmt: skip
    """`steps` steps of every run, each by ACROSS·DOWN programs; `words` are zeros.

    Programs beside each other have different columns of W, those below each other different rows.
    What all need, such as τ, each computes for itself, from the same numbers in the same order.
    """
    MEMBERS: tl.constexpr = ACROSS * DOWN
    D: tl.constexpr = H * DK
    TALL: tl.constexpr = DM // DOWN
    WIDTH: tl.constexpr = min(DK, WIDE // 2)
    PIECES: tl.constexpr = DK // WIDTH
    OWN: tl.constexpr = WIDE // 2 // WIDTH  # heads, or one of which this is a piece
    SLICES: tl.constexpr = min(MEMBERS & -MEMBERS, DM // 16)  # of the messages' columns
    KNOWN: tl.constexpr = H if PIECES > 1 else OWN  # heads whose scores a program has
    member, group = tl.program_id(0) % MEMBERS, (tl.program_id(0) // MEMBERS).to(tl.int64)
    groups = tl.num_programs(0) // MEMBERS
    across, down = member // DOWN, member % DOWN
    first = across * OWN if PIECES == 1 else 0
    # Of a group's words, each member has WIDE·L for projections, then L² for products of messages,
    # and L² for scores.
    sums = words + group * (2 * MEMBERS * (WIDE * L + 2 * L * L))
    grams = sums + 2 * MEMBERS * WIDE * L
    joins = sums + 2 * MEMBERS * (WIDE * L + L * L) + down * (2 * ACROSS * L * L)
    sums += across * (2 * DOWN * WIDE * L)
    position = tl.arange(0, L)
    for turn in range(tl.cdiv(runs - group, groups).to(tl.int32)):
        run = group + turn * groups
        at = run * (DM * (D + D // SPREAD))
        w = _load_tile(weights + at, across, down, D, SPREAD, WIDTH, DM, WIDE, TALL, PARTS)
        m = _load_tile(firsts + at, across, down, D, SPREAD, WIDTH, DM, WIDE, TALL, PARTS)
        v = _load_tile(seconds + at, across, down, D, SPREAD, WIDTH, DM, WIDE, TALL, PARTS)
        tau, tau_first, tau_second = load_threshold(thresholds, run)
        row, head_scale = tl.load(first_row + run), tl.load(head_scales + run)
        diverged = tl.load(diverged_at + run)
        item = tl.load(contexts + run * steps * L + position)
        for n in range(steps):
            tag = turn * steps + n + 1
            following = tl.minimum(n + 1, steps - 1)  # read ahead, as the rows to read depend on it
            following = tl.load(contexts + (run * steps + following) * L + position)
            y = labels(targets, starts, looks, row, item, TARGETS, LENGTH, L)
            rate, scale = step_scales(scales, taken + n)
            x_at = rows + (row + item) * DM + down * TALL
            x = _embeddings(x_at, LENGTH, L, TALL, PARTS)
            products = 0.0
            if VARIANT == "value":  # some columns of the messages each; the sum is needed later
                column = member % SLICES * (DM // SLICES)
                message = messages_of(messages, row, item, column, LENGTH, L, DM, DM // SLICES)
                products = product(message, tl.trans(message))
                if SLICES > 1:
                    products_at = _places(grams, tag, L, L, SLICES)
                    if member < SLICES:  # a word has one writer
                        _send(products_at + member * (L * L), products, tag)
            both = _projection(w, x, L, WIDE, TALL, PARTS)
            if DOWN > 1:
                both_at = _places(sums, tag, WIDE, L, DOWN)
                _send(both_at + down * (WIDE * L), both, tag)
                both = _summed(both_at, tag, WIDE, L, DOWN)
            q, k = tl.split(tl.permute(tl.reshape(both, (OWN, 2, WIDTH, L)), (0, 3, 2, 1)))
            s = head_scores(q, k, OWN, OWN, L, WIDTH)
            if PIECES > 1:
                s = tl.reshape(s, (L, L))
                s = _scores_of_all(s, joins, across, tag, L, H, PIECES, ACROSS)
            s = shares(s, head_scale, first, VARIANT, HEADS, SHARE, SPREAD, KNOWN, LENGTH, L)
            joined = joined_scores(s, head_scale, VARIANT)
            if ACROSS > 1 and PIECES == 1:
                joined = _joined_by_all(joined, joins, across, tag, head_scale, L, ACROSS, VARIANT)
            if VARIANT == "value" and SLICES > 1:
                products = _summed(products_at, tag, L, L, SLICES)
            slope = slope_of(joined, y, tau, alpha, products, VARIANT, TARGETS, LENGTH, L)
            s = head_slopes(
                s, joined, slope, head_scale, first, VARIANT, HEADS, SHARE, SPREAD, KNOWN
            )
            if PIECES > 1:
                own = (tl.arange(0, H) == across // PIECES)[:, None, None]
                s = tl.sum(tl.where(own, s, 0.0), axis=0)[None, :, :]
            total = slope_total(slope, joined)
            dq = query_slopes(s, k, OWN, OWN, L, WIDTH)
            dk = key_slopes(s, q, OWN, OWN, L, WIDTH)
            if SPREAD > 1:
                dk = repeated_sums(dk, OWN, SPREAD, L, WIDTH)
            slopes = tl.reshape(tl.permute(tl.join(dq, dk), (0, 3, 2, 1)), (WIDE, L))
            x = _embeddings(x_at, LENGTH, L, TALL, PARTS)  # again: to keep it would spill registers
            w, m, v = _updated(w, m, v, slopes, x, rate, scale, PARTS)
            tau, tau_first, tau_second, diverged = end_of_step(
                total, taken + n + 1, tau, tau_first, tau_second, diverged, rate, scale, VARIANT
            )
            item = following
        _store_tile(w, weights + at, across, down, D, SPREAD, WIDTH, DM, WIDE, TALL, PARTS)
        _store_tile(m, firsts + at, across, down, D, SPREAD, WIDTH, DM, WIDE, TALL, PARTS)
        _store_tile(v, seconds + at, across, down, D, SPREAD, WIDTH, DM, WIDE, TALL, PARTS)
        if member == MEMBERS - 1:
            store_threshold(thresholds, diverged_at, run, tau, tau_first, tau_second, diverged)
