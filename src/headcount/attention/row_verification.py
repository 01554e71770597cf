"""Verification row by row: every target scores above every other item, no threshold involved.

This is what attention uses: in a context that holds a target of i and any other items, the target
is the top of row i. A pair's score is the same in every context, so the m rows over all m items
decide every context. Rows whose order rounding leaves open are settled in exact arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headcount.attention.exact import ErrorBound, exact_scores
from headcount.attention.key_query import KeyQuery
from headcount.attention.pair_verification import EdgesByTile, choose_dtype, tile_size
from headcount.attention.recovery import Extreme, Recovery, summarise
from headcount.attention.rescaling import rescaled, scaled_back, scaled_back_bound
from headcount.attention.tiles import Projections
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Bool, Float, Int

_NEAR = 64  # rows with nearly the least difference that are scored again in float64


def verify_rows(weights: KeyQuery, graph: Graph, table: Tensor, precision: str) -> Recovery:
    """Decide for every row whether each target beats every other item; a tie is a failure.

    A missed target (`false_negatives`) is one that some other item reaches; an item that reaches a
    target of its row is a `false_positive`. Rows without targets, or with targets alone, hold.
    """
    original = weights
    weights, table, exponent = rescaled(_plain(weights), table)
    rows = _Rows.of(weights, graph, table)
    dtype = choose_dtype(precision, graph.items**2 * weights.budget, rows.bound)
    high, reaching, open_rows = rows.swept(dtype, graph)
    missed, unclear = rows.missed(high, dtype)
    missed_in = _counted(rows.edges.sources[missed], graph.items)
    open_rows |= _counted(rows.edges.sources[unclear], graph.items) > 0
    for row in open_rows.nonzero().flatten().tolist():
        missed_in[row], reaching[row] = rows.settled(row)
    false_negatives = int(missed_in.sum())
    lowest, highest = rows.closest(high, dtype, exponent)
    error = 2 * (rows.bound.float64 + (rows.bound.float32 if dtype == torch.float32 else 0.0))
    return summarise(
        original,
        decide="top",
        scope="all pairs",
        pairs=graph.items**2,
        hits=graph.edges - false_negatives,
        false_positives=int(reaching.sum()),
        false_negatives=false_negatives,
        lowest_edge=lowest,
        highest_non_edge=highest,
        score_error=scaled_back_bound(error, exponent),
        checked_in="float64" if dtype == torch.float64 else "float32, open rows in float64",
    )


def _plain(weights: KeyQuery) -> KeyQuery:
    """Weights joined by max or sum; a single head orders rows the same under every aggregation."""
    if weights.heads == 1:
        return replace(weights, aggregation="max", temperature=1.0)
    if weights.aggregation not in ("max", "sum"):
        raise InputError(
            f"rows of several heads under {weights.aggregation} cannot be ordered for every "
            "context; use decide='threshold' (--decide threshold), or weights with max or sum"
        )
    return weights


@dataclass(frozen=True)
class _Rows:
    """The scores of one problem, and the lowest target of each row in float64."""

    weights: KeyQuery
    table: Float[Tensor, "items d_model"]
    parts: Projections
    bound: ErrorBound
    edges: EdgesByTile
    size: int
    edge_scores: Float[Tensor, " edges"]
    low: Float[Tensor, " items"]  # +∞ in a row without targets

    @classmethod
    def of(cls, weights: KeyQuery, graph: Graph, table: Tensor) -> _Rows:
        parts, size = Projections.of(weights, table), tile_size(table.device)
        bound = ErrorBound.of_scores(weights, table, parts)
        edges = EdgesByTile.of(graph, size, table.device)
        scores = parts.at(edges.sources, edges.targets)
        low = torch.full((graph.items,), torch.inf, dtype=torch.float64, device=table.device)
        low.scatter_reduce_(0, edges.sources, scores, "amin")
        return cls(weights, table, parts, bound, edges, size, scores, low)

    def slack(self, dtype: torch.dtype) -> float:
        """How far the difference of a pass's score and a float64 one can be off."""
        error = self.bound.of(dtype) + self.bound.float64
        # Sums and differences near the cut are rounded themselves.
        finite = torch.where(self.low.isfinite(), self.low.abs(), 0.0)
        return error + 2.0**-50 * float(finite.max()) if error else 0.0

    def swept(
        self, dtype: torch.dtype, graph: Graph
    ) -> tuple[Float[Tensor, " items"], Int[Tensor, " items"], Bool[Tensor, " items"]]:
        """Per row: its highest non-target, how many surely reach a target, whether some may."""
        items, device = graph.items, self.table.device
        high = torch.full((items,), -torch.inf, dtype=dtype, device=device)
        reaching = torch.zeros(items, dtype=torch.long, device=device)
        unclear = torch.zeros(items, dtype=torch.bool, device=device)
        slack = self.slack(dtype)
        maybe, surely = _below(self.low - slack, dtype), _below(self.low + slack, dtype)
        if not slack:  # no rounding at all, so that a tie shows as one, and fails
            maybe = surely = torch.nextafter(maybe, torch.full_like(maybe, -torch.inf))
        for number, (rows, columns, tile) in enumerate(self.parts.tiles(dtype, self.size)):
            _, places = self.edges.of_tile(number, rows, columns)
            tile.view(-1)[places] = -torch.inf
            peaks = tile.amax(1)
            high[rows] = torch.maximum(high[rows], peaks)
            if bool((peaks > maybe[rows]).any()):
                certain = (tile > surely[rows, None]).sum(1)
                reaching[rows] += certain
                unclear[rows] |= (tile > maybe[rows, None]).sum(1) > certain
        return high, reaching, unclear

    def missed(
        self, high: Float[Tensor, " items"], dtype: torch.dtype
    ) -> tuple[Bool[Tensor, " edges"], Bool[Tensor, " edges"]]:
        """Which targets surely lie below the highest non-target of their row, and which may."""
        lead = self.edge_scores - high[self.edges.sources].double()
        slack = self.slack(dtype)
        return (lead < -slack, lead.abs() <= slack) if slack else (lead <= 0, lead.isnan())

    def settled(self, row: int) -> tuple[int, int]:
        """(missed targets, non-targets that reach one) of a row, in exact arithmetic."""
        scores, target = self._row(row)
        error = 2 * self.bound.float64 + 2.0**-50 * float(scores.abs().max())
        low, high = float(scores[target].min()), float(scores[~target].max())
        # Scores far from both the lowest target and the highest other are decided as they are.
        near = (scores - low).abs().minimum((scores - high).abs()) <= error
        exact = dict(zip(near.nonzero().flatten().tolist(), self._exact(row, near), strict=True))
        wanted = target.tolist()
        low_exact = min(exact[item] for item in exact if wanted[item])
        high_exact = max(exact[item] for item in exact if not wanted[item])
        missed = int((target & ~near & (scores < high)).sum())
        missed += sum(exact[item] <= high_exact for item in exact if wanted[item])
        reaching = int((~target & ~near & (scores > low)).sum())
        reaching += sum(exact[item] >= low_exact for item in exact if not wanted[item])
        return missed, reaching

    def closest(
        self, high: Float[Tensor, " items"], dtype: torch.dtype, exponent: int
    ) -> tuple[Extreme | None, Extreme | None]:
        """The lowest target and the highest other item of the row where they are closest."""
        lead = self.low - high.double()
        if not lead.isfinite().any():  # no row has both
            return None, None
        near = lead.argsort()[:_NEAR]
        near = near[lead[near] <= lead.min() + 2 * self.slack(dtype)]
        found: tuple[float, Extreme, Extreme] | None = None
        for row in near.tolist():
            scores, target = self._row(row)
            low = int(scores.masked_fill(~target, torch.inf).argmin())
            top = int(scores.masked_fill(target, -torch.inf).argmax())
            pair = tuple(
                Extreme(scaled_back(float(scores[item]), exponent), row, item)
                for item in (low, top)
            )
            lead_here = float(scores[low] - scores[top])
            if found is None or lead_here < found[0]:
                found = lead_here, pair[0], pair[1]
        assert found is not None
        return found[1], found[2]

    def _row(self, row: int) -> tuple[Float[Tensor, " items"], Bool[Tensor, " items"]]:
        """A row's scores in float64, and which of its items are targets."""
        items = torch.arange(len(self.table), device=self.table.device)
        target = torch.zeros_like(items, dtype=torch.bool)
        target[self.edges.targets[self.edges.sources == row]] = True
        return self.parts.at(torch.full_like(items, row), items), target

    def _exact(self, row: int, chosen: Bool[Tensor, " items"]) -> list:
        items = chosen.nonzero().flatten()
        return exact_scores(self.weights, self.table, torch.full_like(items, row), items)


def _below(values: Float[Tensor, " items"], dtype: torch.dtype) -> Float[Tensor, " items"]:
    """Rounded down to `dtype`, which leaves comparisons with numbers of that dtype unchanged."""
    rounded = values.to(dtype)
    down = torch.nextafter(rounded, torch.full_like(rounded, -torch.inf))
    return torch.where(rounded.double() > values, down, rounded)


def _counted(rows: Int[Tensor, " some"], items: int) -> Int[Tensor, " items"]:
    return torch.bincount(rows, minlength=items)
