"""A Triton kernel over all pairs: each row's highest non-edge, and the pairs above a level.

No score is ever written to memory. Triton reads this source itself: plain functions, no type hints.
"""

# pyright: basic, reportArgumentType=false, reportOperatorIssue=false

from __future__ import annotations

import triton.language as tl
from triton import jit


@jit
def rows_of(vectors, head, row, items, DK: tl.constexpr, first, WIDE: tl.constexpr):
    """WIDE columns of one head's rows; rows past the last are zero."""
    at = (head * items + row)[:, None] * DK + first + tl.arange(0, WIDE)[None, :]
    return tl.load(vectors + at, mask=(row < items)[:, None], other=0.0)


@jit
def _joined(queries, keys, row, column, items, HEADS: tl.constexpr, DK: tl.constexpr,
            CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """The largest score over heads of every pair of a tile."""
    best = tl.full((ROWS, COLUMNS), float("-inf"), tl.float32)
    for head in range(HEADS):
        scores = tl.zeros((ROWS, COLUMNS), tl.float32)
        if DK == CHUNK:  # no inner loop, so that Triton loads the next head's rows meanwhile
            q = rows_of(queries, head, row, items, DK, 0, CHUNK)
            k = rows_of(keys, head, column, items, DK, 0, CHUNK)
            scores = tl.dot(q, tl.trans(k), scores, input_precision="tf32x3")
        else:
            for first in range(0, DK, CHUNK):
                q = rows_of(queries, head, row, items, DK, first, CHUNK)
                k = rows_of(keys, head, column, items, DK, first, CHUNK)
                scores = tl.dot(q, tl.trans(k), scores, input_precision="tf32x3")
        best = tl.maximum(best, scores)
    return best


@jit(do_not_specialize=["items", "capacity"])
def sift(queries, keys, levels, begins, sources, targets, peaks, places, found, items, capacity,
         HEADS: tl.constexpr, DK: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
         COLUMNS: tl.constexpr, PARTS: tl.constexpr):  # fmt: skip
    """ROWS rows against every PARTS-th block of columns.

    `peaks` takes each row's highest non-edge, `places` the non-edges above their row's level, in
    no particular order and not beyond `capacity`; `found` counts them all.
    """
    block, part = tl.program_id(0), tl.program_id(1)
    row = block * ROWS + tl.arange(0, ROWS)
    across = tl.cdiv(items, COLUMNS)
    level = tl.load(levels + row, mask=row < items, other=float("inf"))
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    for tile in range(part, across, PARTS):
        column = tile * COLUMNS + tl.arange(0, COLUMNS)
        best = _joined(queries, keys, row, column, items, HEADS, DK, CHUNK, ROWS, COLUMNS)
        best = tl.where((column < items)[None, :], best, float("-inf"))
        begin = tl.load(begins + block * across + tile)
        for edge in range(begin, tl.load(begins + block * across + tile + 1)):
            same_row = row == tl.load(sources + edge)
            same_column = column == tl.load(targets + edge)
            best = tl.where(same_row[:, None] & same_column[None, :], float("-inf"), best)
        peak = tl.maximum(peak, tl.max(best, 1))
        above = best > level[:, None]
        count = tl.sum(above.to(tl.int32), 1)
        if tl.sum(count, 0) > 0:
            place = tl.atomic_add(
                found + tl.zeros((ROWS,), tl.int32), count.to(tl.int64), mask=count > 0
            )
            place = place[:, None] + tl.cumsum(above.to(tl.int32), 1) - 1
            pair = row.to(tl.int64)[:, None] * items + column[None, :]
            tl.store(places + place, pair, mask=above & (place < capacity))
    tl.store(peaks + part * items + row, peak, mask=row < items)
