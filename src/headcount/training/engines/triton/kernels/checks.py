"""Kernels around the steps: drawing contexts, and the tallies of a check."""

from __future__ import annotations

import triton.language as tl
from triton import jit

from headcount.training.engines.triton.kernels.arithmetic import (
    among,
    deviations,
    head_scores,
    high,
    joined_scores,
    labels,
    messages_of,
    nothing_joined,
    product,
    project,
    shares,
    with_more,
)

_GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)  # SplitMix64, as in problem/streams.py
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
_SECOND = tl.constexpr(0x94D049BB133111EB)


@jit
def _words(key, counter):
    """The 64-bit words of a stream, as (high, low) halves: problem/streams.py."""
    z = key.to(tl.uint64, bitcast=True) + (counter + 1).to(tl.uint64) * _GOLDEN
    z = (z ^ (z >> 30)) * _FIRST
    z = (z ^ (z >> 27)) * _SECOND
    z = z ^ (z >> 31)
    return (z >> 32).to(tl.uint32), z.to(tl.uint32)


@jit
def _below(uniform, bound):
    """A uniform 32-bit integer scaled to 0 … bound − 1."""
    return tl.umulhi(uniform, bound.to(tl.uint32)).to(tl.int32)


@jit
def _row(a, slot, j):
    """Row j of [L, BLOCK] as [1, BLOCK]."""
    return tl.sum(tl.where(slot == j, a, 0), axis=0)[None, :]


@jit(do_not_specialize=["looks", "steps", "taken", "chance"])
def draw_contexts(contexts, keys, items, first_row, targets, starts, looks, steps, taken, chance,
                  TARGETS: tl.constexpr, LENGTH: tl.constexpr, L: tl.constexpr,
                  BLOCK: tl.constexpr):  # fmt: skip
    """Contexts taken … taken + steps − 1 of every run's stream: ContextSampler, bit for bit.

    A context is a column, so that with one warp a thread holds the whole of it and its sequential
    steps need no exchange between threads.
    """
    run = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :].to(tl.int64)
    key, m, row = tl.load(keys + run), tl.load(items + run).to(tl.int32), tl.load(first_row + run)
    slot = tl.arange(0, L)[:, None]
    counter = ((n + taken) * LENGTH + slot) * 2
    pick, choose = _words(key, counter)
    place, which = _words(key, counter + 1)
    # Step 1: ℓ swaps of a Fisher–Yates shuffle, without the array of items: `moved` follows what
    # earlier swaps have left in the slots that later ones read.
    swapped = slot + _below(pick, m - slot)
    context, moved = swapped, tl.broadcast_to(slot, (L, BLOCK))
    for i in range(LENGTH - 1):
        to, what = _row(swapped, slot, i), _row(moved, slot, i)
        context = tl.where((slot > i) & (swapped == to), what, context)
        moved = tl.where((slot > i) & (slot == to), what, moved)
    context = tl.where(slot < LENGTH, context, -1)
    # Steps 2 and 3: each chosen source that is still in its slot brings a target in.
    drawn, chosen = context, (choose.to(tl.int64) < chance).to(tl.int32)
    other = _below(place, tl.zeros_like(slot) + (LENGTH - 1))
    other += (other >= slot).to(tl.int32)
    each = 1 if TARGETS == 1 else looks  # `labels` says what they are
    pointed = _below(which, tl.zeros_like(slot) + each)
    for p in range(LENGTH):
        source = _row(drawn, slot, p)
        acts = (_row(chosen, slot, p) > 0) & (_row(context, slot, p) == source) & (LENGTH > 1)
        if TARGETS == 0:
            first, end = tl.load(starts + row + source), tl.load(starts + row + source + 1)
            there = among(targets, first, end, context, looks).to(tl.int32)
            acts = acts & (end > first) & (tl.max(there, axis=0)[None, :] == 0)
            at = first + _below(_row(which, slot, p), (end - first).to(tl.int32))
            target = tl.load(targets + at, mask=acts, other=0)
        else:
            for j in range(each):
                neighbor = tl.load(targets + (row + source) * each + j)
                acts = acts & (tl.max((context == neighbor).to(tl.int32), axis=0)[None, :] == 0)
            target = tl.load(targets + (row + source) * each + _row(pointed, slot, p))
        context = tl.where(acts & (slot == _row(other, slot, p)), target, context)
    tl.store(contexts + (run * steps + n) * L + slot, context, mask=n < steps)


@jit(do_not_specialize=["places"])
def project_items(tables, weights, rows, items, first_row, first_place, places, DM: tl.constexpr,
                  D: tl.constexpr, COLUMNS: tl.constexpr, L: tl.constexpr, WIDE: tl.constexpr,
                  BLOCK: tl.constexpr):  # fmt: skip
    """Q = X W_Q and K = X W_K for all items of every run: tables [2, places, D], or one of both.

    COLUMNS are those of both matrices of a run.
    """
    run, side = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    item = tl.program_id(1) * L + tl.arange(0, L)
    inside = item < tl.load(items + run)
    x_at = rows + (tl.load(first_row + run) + item) * DM
    at = (side * places + tl.load(first_place + run) + item)[:, None] * D
    at = at + tl.arange(0, WIDE)[None, :]
    for a in range(0, D, WIDE):
        projected = project(
            x_at, inside, weights + run * (DM * COLUMNS) + side * (DM * D) + a, D, DM, L, WIDE,
            BLOCK,
        )  # fmt: skip
        tl.store(tables + at + a, projected, mask=inside[:, None])


@jit
def _product_of_eight(a, b):
    """a·bᵀ as `product` has it, where both hold the same eight columns twice.

    Those of a give way to their leading bits and to the rest, so two products do for three.
    """
    a_high, b_high = high(a), high(b)
    a = tl.where((tl.arange(0, 16) < 8)[None, :], a_high, a - a_high)
    total = tl.dot(a, tl.trans(b - b_high), input_precision="tf32")
    return tl.dot(a, tl.trans(b_high), acc=total, input_precision="tf32")


@jit(do_not_specialize=["places", "heads", "padded_heads"])
def tally_pairs(tallies, tables, thresholds, counts, first_count, items, first_place, places, heads,
                padded_heads, VARIANT: tl.constexpr, SHARE: tl.constexpr, SPREAD: tl.constexpr,
                DK: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr):  # fmt: skip
    """A tile of all m² pairs under max, or sum: hits and wrong decisions.

    They are weighted by how often a pair is in the contexts: `counts` holds that number for each
    ordered pair, negative where it is not an edge. Heads are taken one by one, so one kernel serves
    all numbers of them.
    """
    run, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    m, place = tl.load(items + run).to(tl.int32), tl.load(first_place + run)
    tau = tl.load(thresholds + run * 3)
    # The grid is that of the largest run; a smaller one finds its surplus tiles beyond its items.
    across = tl.cdiv(m, TILE)
    source = part // across * TILE + tl.arange(0, TILE)
    target = part % across * TILE + tl.arange(0, TILE)
    column = tl.arange(0, WIDE)
    D = padded_heads * DK
    KD = padded_heads // SPREAD * DK
    joined = nothing_joined(TILE, VARIANT)
    for h in range(heads):
        score = tl.zeros((TILE, TILE), tl.float32)
        for a in range(0, DK, WIDE):
            at_q = (place + source)[:, None] * D + (h // SHARE * SPREAD + h % SHARE) * DK
            at_k = places.to(tl.int64) * D + (place + target)[:, None] * KD + h // SHARE * DK
            # Eight columns are read twice: a product is over 16 at least.
            at_q, at_k = at_q + a + (column % DK)[None, :], at_k + a + (column % DK)[None, :]
            q = tl.load(tables + at_q, mask=(source < m)[:, None], other=0.0)
            k = tl.load(tables + at_k, mask=(target < m)[:, None], other=0.0)
            more = _product_of_eight(q, k) if DK == 8 else product(q, tl.trans(k))
            score = more if DK <= WIDE else score + more
        joined = joined + score if VARIANT == "sum" else tl.maximum(joined, score)
    of_run = counts + tl.load(first_count + run)
    inside = (source < m)[:, None] & (target < m)[None, :]
    count = tl.load(of_run + (source[:, None] * m + target[None, :]), mask=inside, other=0)
    # The threads that load counts are not those that have the scores. All that follows comes from
    # `turned`, the count or its complement, so that only the counts are exchanged between them.
    above = -(joined > tau).to(tl.int32)  # all bits or none
    turned = count ^ above
    at = tallies + (run * tl.num_programs(1) + part) * 2
    # Sums of integers are exact, so their order does not matter; Shape.of sees to it that they fit.
    tl.store(at, tl.sum(tl.maximum(~turned & above, 0)).to(tl.float64))
    tl.store(at + 1, tl.sum(tl.maximum(turned - above, 0)).to(tl.float64))


@jit(do_not_specialize=["looks", "places", "count"])
def tally_contexts(tallies, tables, thresholds, contexts, task, targets, starts, looks, messages,
                   first_row, first_place, head_scales, places, count, PER: tl.constexpr,
                   VARIANT: tl.constexpr, TARGETS: tl.constexpr, HEADS: tl.constexpr,
                   H: tl.constexpr, SHARE: tl.constexpr, SPREAD: tl.constexpr,
                   LENGTH: tl.constexpr, L: tl.constexpr, DM: tl.constexpr, DK: tl.constexpr,
                   BLOCK: tl.constexpr, GROUP: tl.constexpr, PART: tl.constexpr):  # fmt: skip
    """What PER contexts add to a run's metric.

    (hits, wrong decisions), or for `value` (squared error, valid positions).
    """
    run, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    WITHIN: tl.constexpr = GROUP < SPREAD  # GROUP heads are some of one key's, as in the steps
    KEYS: tl.constexpr = 1 if WITHIN else GROUP // SPREAD
    ROOM: tl.constexpr = (SHARE + GROUP - 1) // GROUP * GROUP if WITHIN else SPREAD
    D: tl.constexpr = H * DK
    KD: tl.constexpr = D // SPREAD
    position = tl.arange(0, L)
    inside = position < LENGTH
    column = tl.arange(0, GROUP)[:, None, None] * DK + tl.arange(0, PART)[None, None, :]
    key_column = tl.arange(0, KEYS)[:, None, None] * DK + tl.arange(0, PART)[None, None, :]
    tau = tl.load(thresholds + run * 3)
    row, place = tl.load(first_row + run), tl.load(first_place + run)
    head_scale, of_task = tl.load(head_scales + run), tl.load(task + run)
    keys = tables + places.to(tl.int64) * D  # after the queries of all items
    first, second = tl.zeros((L, L), tl.float32), tl.zeros((L, L), tl.float32)
    for j in range(part * PER, tl.minimum(part * PER + PER, count)):
        item = tl.load(contexts + (of_task * count + j) * L + position)
        y = labels(targets, starts, looks, row, item, TARGETS, LENGTH, L)
        joined = nothing_joined(L, VARIANT)
        for slot in range(0, HEADS // SHARE * ROOM, GROUP):
            head = slot
            if WITHIN:
                head = slot // ROOM * SPREAD + slot % ROOM
            s = tl.zeros((GROUP, L, L), tl.float32)
            for a in range(0, DK, PART):
                at = (place + item)[None, :, None] * D + head * DK + a + column
                q = tl.load(tables + at, mask=inside[None, :, None], other=0.0)
                at = (place + item)[None, :, None] * KD + head // SPREAD * DK + a + key_column
                k = tl.load(keys + at, mask=inside[None, :, None], other=0.0)
                s += head_scores(q, k, GROUP, KEYS, L, PART)
            s = shares(s, head_scale, head, VARIANT, HEADS, SHARE, SPREAD, GROUP, LENGTH, L)
            more = joined_scores(s, head_scale, VARIANT)
            joined = with_more(joined, more, head_scale, VARIANT)
        if VARIANT == "value":
            deviation, valid = deviations(joined, y)
            for b in range(0, DM, BLOCK):
                v = messages_of(messages, row, item, b, LENGTH, L, DM, BLOCK)
                error = product(deviation, v)
                # Spread over L columns, as `first` is summed as a whole; L is a power of two.
                first += tl.sum(error * error, axis=1)[:, None] / L
            second += valid.to(tl.float32)[:, None] / L
        else:
            above = joined > tau
            first += (above & y).to(tl.float32)
            second += (above ^ y).to(tl.float32)
    pair = inside[:, None] & inside[None, :]
    at = tallies + (run * tl.num_programs(1) + part) * 2
    if VARIANT != "value":
        first, second = tl.where(pair, first, 0.0), tl.where(pair, second, 0.0)
    tl.store(at, tl.sum(first).to(tl.float64))
    tl.store(at + 1, tl.sum(second).to(tl.float64))
