"""The arithmetic that the kernels of a fleet share: products, scores, labels, losses, AdamW.

Sizes are padded to what the tensor cores take: contexts to L ≥ 16 positions, d_model to DM, heads
to H, their width to DK; D = H·DK. Padded entries are zero and stay zero, because a zero column pair
of W_Q and W_K has zero gradient and a zero embedding column moves nothing. Everything a run
computes follows from its own arguments, so its bits do not depend on the other runs of a launch.

SHARE heads have one key; each key has room for SPREAD of them, a power of two, so that the heads of
a key are next to each other among the H. A padded head beside a real key must have no slope. Where
all heads have keys of their own, both are 1.
"""

from __future__ import annotations

import triton.language as tl
from triton import jit


@jit
def high(a):
    """The leading 11 bits of the mantissa: what a tf32 operand keeps."""
    # Truncated here, so that a − high is exact and the split does not depend on how the hardware
    # rounds its operands.
    return (a.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@jit
def product(a, b):
    """a·b to about 2⁻²¹ in three tf32 products, float32 in effect.

    Each factor is split into two tf32 numbers, because tensor cores have no float32 mode; the
    product that is dropped, low·low, is smaller still.
    """
    a_high, b_high = high(a), high(b)
    # Small terms first: they would be rounded away against the large one.
    total = tl.dot(a - a_high, b_high, input_precision="tf32")
    total = tl.dot(a_high, b - b_high, acc=total, input_precision="tf32")
    return tl.dot(a_high, b_high, acc=total, input_precision="tf32")


@jit
def _reciprocal(a):
    """1/a for a > 0 to a few units in the last place, in 2 instructions; a division takes 10."""
    root = tl.rsqrt(a)
    return root * root


@jit
def adam(w, gradient, first, second, rate, scale):
    """AdamW: W − rate·m/(√v·scale + ε), `rate` and `scale` from `adam_scales`."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient * gradient
    return w - rate * first * _reciprocal(tl.sqrt(second) * scale + 1e-8), first, second


@jit
def by_head(a, L: tl.constexpr, H: tl.constexpr, DK: tl.constexpr):
    """[L, D] as [H, L, DK]."""
    return tl.permute(tl.reshape(a, (L, H, DK)), (1, 0, 2))


@jit
def side_by_side(a, L: tl.constexpr, D: tl.constexpr):
    """[H, L, DK] as [L, D]."""
    return tl.reshape(tl.permute(a, (1, 0, 2)), (L, D))


@jit
def _widened(a, H: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """A contraction must be at least 16 long: zeros between narrow columns.

    Where the zeros are does not matter, as Q and K are widened alike; `join` is cheapest.
    """
    if DK < 16:
        a = tl.reshape(tl.join(a, tl.zeros_like(a)), (H, L, 2 * DK))
    return a


@jit
def _stacked(a, H: tl.constexpr, KEYS: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """[H, L, DK] with the heads of each of KEYS keys on top of each other: [KEYS, H/KEYS·L, DK]."""
    if H != KEYS:
        a = tl.reshape(a, (KEYS, H // KEYS * L, DK))
    return a


@jit
def _unstacked(a, H: tl.constexpr, KEYS: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """The inverse of `_stacked`."""
    if H != KEYS:
        a = tl.reshape(a, (H, L, DK))
    return a


@jit
def _each(a, b, KEYS: tl.constexpr, DK: tl.constexpr):
    """The products of KEYS pairs of matrices.

    Up to Triton 3.6, a warp takes whole pairs, so every warp would compute all of a single pair. As
    plain matrices they are divided between warps. A narrow head has one warp only.
    """
    if KEYS == 1 and DK >= 64:
        one = product(tl.reshape(a, a.shape[1:]), tl.reshape(b, b.shape[1:]))
        products = tl.expand_dims(one, 0)
    else:
        products = product(a, b)
    return products


@jit
def head_scores(q, k, H: tl.constexpr, KEYS: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """S⁽ᵏ⁾ = Q⁽ᵏ⁾K⁽ᵏ⁾ᵀ as [H, L, L], with KEYS keys [L, DK] for H heads."""
    rows: tl.constexpr = H // KEYS * L
    q = _widened(_stacked(q, H, KEYS, L, DK), KEYS, rows, DK)
    s = _each(q, tl.permute(_widened(k, KEYS, L, DK), (0, 2, 1)), KEYS, DK)
    return _unstacked(s, H, KEYS, L, L)


@jit
def query_slopes(s, k, H: tl.constexpr, KEYS: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """∂L/∂Q⁽ᵏ⁾ [H, L, DK] from the slopes of the scores."""
    return _unstacked(_each(_stacked(s, H, KEYS, L, L), k, KEYS, DK), H, KEYS, L, DK)


@jit
def key_slopes(s, q, H: tl.constexpr, KEYS: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """∂L/∂K [KEYS, L, DK]: the product sums over the heads that share a key."""
    s = tl.permute(_stacked(s, H, KEYS, L, L), (0, 2, 1))
    return _each(s, _stacked(q, H, KEYS, L, DK), KEYS, DK)


@jit
def repeated_sums(dk, H: tl.constexpr, SPREAD: tl.constexpr, L: tl.constexpr, DK: tl.constexpr):
    """The slopes [H, L, DK] of keys repeated for their heads: each is the sum over its key's."""
    total = tl.sum(tl.reshape(dk, (H // SPREAD, SPREAD, L, DK)), axis=1)
    total = tl.broadcast_to(tl.expand_dims(total, 1), (H // SPREAD, SPREAD, L, DK))
    return tl.reshape(total, (H, L, DK))


@jit
def key_column(column, SPREAD: tl.constexpr, DK: tl.constexpr):
    """The column of W_K that belongs to a column of W_Q."""
    if SPREAD > 1:
        column = column // (SPREAD * DK) * DK + column % DK
    return column


@jit
def _real(head, HEADS: tl.constexpr, SHARE: tl.constexpr, SPREAD: tl.constexpr, H: tl.constexpr):
    """Which of the H heads from `head` on are not padding, as [H, 1, 1]."""
    n = head + tl.arange(0, H)
    real = n // SPREAD * SHARE < HEADS
    if SHARE != SPREAD:
        real = real & (n % SPREAD < SHARE)
    return real[:, None, None]


@jit
def shares(s, scale, head, VARIANT: tl.constexpr, HEADS: tl.constexpr, SHARE: tl.constexpr,
           SPREAD: tl.constexpr, H: tl.constexpr, LENGTH: tl.constexpr,
           L: tl.constexpr):  # fmt: skip
    """Softmax along the context, where the variant has it; padded heads never win or add."""
    padded: tl.constexpr = SHARE != SPREAD or HEADS // SHARE * SPREAD % H != 0
    if VARIANT == "softmax":
        s *= scale
        if LENGTH < L:
            s = tl.where((tl.arange(0, L) < LENGTH)[None, None, :], s, float("-inf"))
        s = tl.exp(s - tl.max(s, axis=2)[:, :, None])
        s = s * _reciprocal(tl.sum(s, axis=2))[:, :, None]
        if padded:
            s = tl.where(_real(head, HEADS, SHARE, SPREAD, H), s, 0.0)
    elif padded and VARIANT != "sum":  # there they are 0 already
        s = tl.where(_real(head, HEADS, SHARE, SPREAD, H), s, float("-inf"))
    return s


@jit
def joined_scores(s, scale, VARIANT: tl.constexpr):
    """Scores joined across heads, [L, L]: the largest, the sum of the shares, or log Σ exp."""
    if VARIANT == "softmax" or VARIANT == "sum":
        joined = tl.sum(s, axis=0)
    else:
        joined = tl.max(s, axis=0)
        if VARIANT == "logsumexp":
            joined += tl.log(tl.sum(tl.exp((s - joined[None, :, :]) * scale), axis=0)) / scale
    return joined


@jit
def nothing_joined(L: tl.constexpr, VARIANT: tl.constexpr):
    """What `with_more` begins with."""
    start: tl.constexpr = 0.0 if VARIANT == "softmax" or VARIANT == "sum" else float("-inf")
    return tl.full((L, L), start, tl.float32)


@jit
def with_more(joined, more, scale, VARIANT: tl.constexpr):
    """The joined scores of some heads, and of more of them, as those of all."""
    if VARIANT == "softmax" or VARIANT == "sum":
        joined = joined + more
    elif VARIANT == "logsumexp":
        top = tl.maximum(joined, more)
        both = tl.exp((joined - top) * scale) + tl.exp((more - top) * scale)
        joined = top + tl.log(both) / scale
    else:
        joined = tl.maximum(joined, more)
    return joined


@jit
def among(targets, first, end, item, halvings):
    """Whether each item is one of the sorted targets first … end − 1, by bisection."""
    low, high = first + tl.zeros_like(item), end + tl.zeros_like(item)
    for _ in range(halvings):
        middle = (low + high) // 2
        less = tl.load(targets + middle, mask=low < high, other=0) < item
        low, high = tl.where((low < high) & less, middle + 1, low), tl.where(less, high, middle)
    return tl.load(targets + low, mask=low < end, other=-2) == item


@jit
def labels(targets, starts, looks, row, item, TARGETS: tl.constexpr, LENGTH: tl.constexpr,
           L: tl.constexpr):  # fmt: skip
    """y_pq as [L, L]: is item q an out-neighbour of item p?

    TARGETS is 1: one target for each item. 2: `looks` targets for each. 0: any number of them, for
    item i targets[starts[i]:starts[i + 1]], among which an item is found in `looks` halvings.
    """
    # Padded positions hold item −1 and load target −2: they match nothing, nor each other.
    inside = tl.arange(0, L) < LENGTH
    if TARGETS == 0:
        first = tl.load(starts + row + item, mask=inside, other=0)
        end = tl.load(starts + row + item + 1, mask=inside, other=0)
        item = tl.broadcast_to(item[None, :], (L, L))
        y = among(targets, first[:, None], end[:, None], item, looks)
    else:
        each = 1 if TARGETS == 1 else looks
        y = tl.zeros((L, L), tl.int1)
        for j in range(each):
            target = tl.load(targets + (row + item) * each + j, mask=inside, other=-2)
            y |= target[:, None] == item[None, :]
    return y


@jit
def messages_of(messages, row, item, b, LENGTH: tl.constexpr, L: tl.constexpr, DM: tl.constexpr,
                BLOCK: tl.constexpr):  # fmt: skip
    """Columns b … b + BLOCK of the context's messages V."""
    inside = tl.arange(0, L) < LENGTH
    at = messages + (row + item)[:, None] * DM + (b + tl.arange(0, BLOCK))[None, :]
    return tl.load(at, mask=inside[:, None], other=0.0)


@jit
def message_products(messages, row, item, VARIANT: tl.constexpr, LENGTH: tl.constexpr,
                     L: tl.constexpr, DM: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """V Vᵀ [L, L], which only `value` has; it needs no scores, so it waits for nothing."""
    products = 0.0
    if VARIANT == "value":
        products = tl.zeros((L, L), tl.float32)
        for b in range(0, DM, BLOCK):
            v = messages_of(messages, row, item, b, LENGTH, L, DM, BLOCK)
            products += product(v, tl.trans(v))
    return products


@jit
def deviations(joined, y):
    """S − y of the rows that have a target in the context, and which these are."""
    valid = tl.max(y.to(tl.int32), axis=1) > 0
    return tl.where(valid[:, None], joined - y.to(tl.float32), 0.0), valid


@jit
def slope_of(joined, y, tau, alpha, products, VARIANT: tl.constexpr, TARGETS: tl.constexpr,
             LENGTH: tl.constexpr, L: tl.constexpr):  # fmt: skip
    """∂L/∂S of the joined scores [L, L]: the logistic loss, or (S − y) V Vᵀ by Eq. (4)."""
    if VARIANT == "value":
        deviation, valid = deviations(joined, y)
        count = tl.maximum(tl.sum(valid.to(tl.int32)), 1).to(tl.float32)
        slope = product(deviation, products) * (2.0 / count)
    else:
        chance = _reciprocal(1.0 + tl.exp(-alpha * (joined - tau)))
        if TARGETS == 1:  # a permutation
            weight = LENGTH - 1.0
        else:  # Eq. (30)
            count = tl.sum(y.to(tl.float32))
            weight = tl.where(count > 0, (LENGTH * LENGTH - count) / tl.maximum(count, 1.0), 0.0)
        slope = tl.where(y, (chance - 1.0) * weight, chance) * (alpha / (LENGTH * LENGTH))
    if LENGTH < L:  # padded positions are not in the context
        inside = tl.arange(0, L) < LENGTH
        slope = tl.where(inside[:, None] & inside[None, :], slope, 0.0)
    return slope


@jit
def head_slopes(s, joined, slope, scale, head, VARIANT: tl.constexpr, HEADS: tl.constexpr,
                SHARE: tl.constexpr, SPREAD: tl.constexpr, H: tl.constexpr):  # fmt: skip
    """∂L/∂S⁽ᵏ⁾ [H, L, L] from the slope of the joined scores."""
    if VARIANT == "softmax":
        s = s * (slope[None, :, :] - tl.sum(s * slope[None, :, :], axis=2)[:, :, None]) * scale
    elif VARIANT == "logsumexp":
        s = tl.exp((s - joined[None, :, :]) * scale) * slope[None, :, :]
    elif VARIANT == "sum":
        s = tl.where(_real(head, HEADS, SHARE, SPREAD, H), slope[None, :, :], tl.zeros_like(s))
    else:
        # Only the winning head moves. Where heads tie to the last bit all of them do, while the
        # reference takes the first: finding it would take another pass, and such ties are rare.
        s = tl.where(s == joined[None, :, :], slope[None, :, :], 0.0)
    return s


@jit
def slope_total(slope, joined):
    """The summed slope; not finite as soon as a score is not."""
    # 0·score carries NaN and ∞ over: tl.max drops NaN and may end as −∞, whose slope is finite.
    return tl.sum(slope + 0.0 * joined)


@jit
def project(x_at, inside, weights, D: tl.constexpr, DM: tl.constexpr, L: tl.constexpr,
            WIDE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Rows [L, DM] times WIDE columns of weights [DM, D] in memory, BLOCK rows at a time."""
    total = tl.zeros((L, WIDE), tl.float32)
    for b in range(0, DM, BLOCK):
        i = b + tl.arange(0, BLOCK)
        x = tl.load(x_at[:, None] + i[None, :], mask=inside[:, None], other=0.0)
        total += product(x, tl.load(weights + i[:, None] * D + tl.arange(0, WIDE)[None, :]))
    return total
