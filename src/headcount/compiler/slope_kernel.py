"""The Triton kernel of the compiler's loss: violations and their products, tile by tile.

No score is ever written to memory. Triton reads this source itself: plain functions, no type hints.
"""

# pyright: basic, reportArgumentType=false, reportOperatorIssue=false

from __future__ import annotations

import triton.language as tl
from triton import jit

from headcount.attention.pair_kernels import rows_of


@jit
def _same(row, column, rows, columns, pair):
    """Where in the tile a listed pair lies."""
    return (row == tl.load(rows + pair))[:, None] & (column == tl.load(columns + pair))[None, :]


@jit
def _pressed(excess, row, column, rows, columns, weights, begin, end):
    """The tile with its pressed pairs weighed."""
    for pair in range(begin, end):
        here = _same(row, column, rows, columns, pair)
        excess = tl.where(here, excess * tl.load(weights + pair), excess)
    return excess


@jit(do_not_specialize=["items", "edges"])
def violations(mine, others, unit, added, pulls, edge_begins, edge_rows, edge_columns,
               edge_order, pressed_begins, pressed_rows, pressed_columns, pressed_weights, slopes,
               losses, peaks, sums, items, edges, BY_QUERY: tl.constexpr, TOP: tl.constexpr,
               DK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """ROWS rows of one head against all columns: slopes, and by query the loss and the peaks.

    A pair's violation is max(score · unit + added, 0), for an edge minus its pull. `mine` are
    queries and `others` keys, or the other way round; `added` belongs to the queries. One program
    sums a row in a fixed order: results do not vary from run to run.
    """
    block, head = tl.program_id(0), tl.program_id(1)
    row = block * ROWS + tl.arange(0, ROWS)
    across = tl.cdiv(items, COLUMNS)
    own = rows_of(mine, head, row, items, DK, 0, DK)
    scale = tl.load(unit)
    shift = tl.load(added + row, mask=row < items, other=0.0)
    slope = tl.zeros((ROWS, DK), tl.float32)
    loss, total = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    peak = tl.zeros((ROWS,), tl.float32)
    for tile in range(across):
        column = tile * COLUMNS + tl.arange(0, COLUMNS)
        other = rows_of(others, head, column, items, DK, 0, DK)
        excess = tl.dot(own, tl.trans(other))
        if BY_QUERY:
            excess = tl.maximum(excess * scale + shift[:, None], 0.0)
        else:
            more = tl.load(added + column, mask=column < items, other=0.0)
            excess = tl.maximum(excess * scale + more[None, :], 0.0)
        if tile == across - 1:
            excess = tl.where((column < items)[None, :], excess, 0.0)
        at = block * across + tile
        for pair in range(tl.load(edge_begins + at), tl.load(edge_begins + at + 1)):
            pull = tl.load(pulls + head * edges + tl.load(edge_order + pair))
            excess = tl.where(_same(row, column, edge_rows, edge_columns, pair), -pull, excess)
        weighed = _pressed(
            excess, row, column, pressed_rows, pressed_columns, pressed_weights,
            tl.load(pressed_begins + at), tl.load(pressed_begins + at + 1),
        )  # fmt: skip
        if BY_QUERY:
            peak = tl.maximum(peak, tl.max(excess, 1))
            loss += tl.sum(tl.maximum(excess, 0.0) * weighed, 1)
            if TOP:
                total += tl.sum(weighed, 1)
        # Sixteen times as large, few violations are too small for half precision; pressed pairs and
        # edges may be too large for it.
        weighed = tl.minimum(tl.maximum(16 * weighed, -60000.0), 60000.0)
        slope = tl.dot(weighed.to(tl.float16), other, slope)
    at = (head * items + row)[:, None] * DK + tl.arange(0, DK)[None, :]
    tl.store(slopes + at, slope / 16, mask=(row < items)[:, None])
    if BY_QUERY:
        tl.store(losses + head * items + row, loss, mask=row < items)
        tl.store(peaks + head * items + row, peak, mask=row < items)
        if TOP:
            tl.store(sums + head * items + row, total, mask=row < items)
