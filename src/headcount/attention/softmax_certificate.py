"""The softmax certificate: is every pair decided correctly in every context of ℓ items? (Section 8)

Under softmax a score depends on the context, so all pairs do not decide every context as they do
under max. Bounds head by head (`softmax_bounds`) decide most pairs; the rest is searched
(`context_search`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.attention.context_search import EdgeSearch, NonEdgeSearch
from headcount.attention.context_verification import verify_contexts
from headcount.attention.key_query import KeyQuery
from headcount.attention.recovery import Extreme, SoftmaxCertificate
from headcount.attention.softmax_bounds import Logits, bound_scores
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.tables import TableLike, table_for
from headcount.shapes import Bool, Float, Int

_TILE = 2**20  # numbers (sources × items) bounded at once
_BATCH = 2**21  # numbers (pairs × heads × items) searched at once


def calibration(gap: float, length: int) -> float:
    """The least probability of a logit that is `gap` above the other ℓ − 1 (Lemma 8.2).

    It is 1/(1 + (ℓ − 1)·e^−gap).

    >>> calibration(gap=0.0, length=4), calibration(gap=math.log(3), length=2)
    (0.25, 0.75)
    """
    if length < 1:
        raise InputError(f"length = {length}: a context has at least 1 item; pass a larger number")
    return 1 / (1 + (length - 1) * math.exp(min(-gap, 700.0)))


def softmax_certificate(
    weights: KeyQuery,
    graph: Graph,
    table: TableLike,
    context_length: int,
    *,
    search: int = 20_000,
) -> SoftmaxCertificate:
    """Decide whether softmax weights recognise the graph in every context of ℓ distinct items.

    Each pair (i, j) is bounded over all contexts with i and j. Pairs that these bounds leave open
    are searched, worst first: a context that breaks one refutes the weights. `search` is how many
    cases (a pair, or a part of its contexts) may be looked into before the answer is `open`. No
    verdict depends on rounding.

    >>> from headcount.problem.makers import permutation_graph
    >>> graph, table = permutation_graph(8), torch.eye(8)
    >>> target_of = torch.eye(8)[torch.from_numpy(graph.targets.copy())]
    >>> weights = KeyQuery(target_of[None] * 10, torch.eye(8)[None], 0.4, aggregation="softmax")
    >>> [softmax_certificate(weights, graph, table, length).verdict for length in (4, 2)]
    ['certified', 'refuted']
    """
    rows, weights = table_for(graph, table), weights.detached()
    _check(weights, graph, context_length, search)
    logits = Logits.of(weights, rows, context_length)
    sides = _bound_all(logits, graph, weights.threshold, context_length, search + 1)
    counterexample, broken = None, None
    for context in _search_all(logits, sides, weights.threshold, context_length, search):
        broken = _confirm(weights, graph, rows, context)
        if broken:
            counterexample = tuple(context.tolist())
            break
    lowest, highest = (side.extreme(graph.items) for side in sides)
    margins = [lowest.score - weights.threshold] if lowest else []
    margins += [weights.threshold - highest.score] if highest else []
    undecided = sum(side.open for side in sides)
    return SoftmaxCertificate(
        verdict="refuted" if broken else "open" if undecided else "certified",
        context_length=context_length,
        threshold=weights.threshold,
        margin=min(margins, default=math.inf),
        lowest_edge=lowest,
        highest_non_edge=highest,
        open_pairs=undecided,
        counterexample=counterexample,
        broken=broken,
    )


def _check(weights: KeyQuery, graph: Graph, length: int, search: int) -> None:
    if weights.aggregation != "softmax":
        raise InputError(
            f"the weights aggregate by {weights.aggregation}: "
            "all pairs decide every context; use verify"
        )
    if not 1 <= length <= graph.items:
        raise InputError(
            f"context length {length} does not fit {graph.items} items; choose 1…{graph.items}"
        )
    if search < 0:
        raise InputError(f"search = {search}: it counts cases; pass 0 or more")


@dataclass
class _Side:
    """All edges, or all non-edges: how many are open, and those with the worst bounds, in order."""

    edges: bool
    threshold: float
    bounds: Float[Tensor, " kept"]
    codes: Int[Tensor, " kept"]  # source·m + target
    open: int = 0

    def see(self, bounds: Float[Tensor, " pairs"], codes: Int[Tensor, " pairs"], keep: int) -> None:
        wrong = bounds <= self.threshold if self.edges else bounds > self.threshold
        self.open += int(wrong.sum())
        bounds, codes = torch.cat([self.bounds, bounds]), torch.cat([self.codes, codes])
        self.bounds, order = bounds.topk(min(keep, len(bounds)), largest=not self.edges)
        self.codes = codes[order]

    def settle(
        self, rows: slice, still_open: Bool[Tensor, " rows"], bounds: Float[Tensor, " rows"]
    ) -> None:
        """Write down what a search has decided."""
        bounds = (
            bounds.clamp(min=self.threshold) if self.edges else bounds.clamp(max=self.threshold)
        )
        self.bounds[rows] = torch.where(still_open, self.bounds[rows], bounds)
        self.open -= int((~still_open).sum())

    def shortfall(self, place: int) -> float:
        """How far a bound lies on the wrong side of τ."""
        return float(self.bounds[place] - self.threshold) * (-1 if self.edges else 1)

    def extreme(self, items: int) -> Extreme | None:
        if not len(self.bounds):
            return None
        place = self.bounds.argmin() if self.edges else self.bounds.argmax()
        return Extreme(float(self.bounds[place]), *divmod(int(self.codes[place]), items))


def _bound_all(
    logits: Logits, graph: Graph, threshold: float, length: int, keep: int
) -> tuple[_Side, _Side]:
    """Bound every pair, a tile of sources at a time."""
    device = logits.queries[0].device
    none = (
        torch.empty(0, dtype=torch.float64, device=device),
        torch.empty(0, dtype=torch.int64, device=device),
    )
    edges, others = _Side(True, threshold, *none), _Side(False, threshold, *none)
    tile = max(1, _TILE // graph.items)
    for first in range(0, graph.items, tile):
        sources = torch.arange(first, min(first + tile, graph.items), device=device)
        low, high = bound_scores(logits, sources, length)
        here = slice(graph.starts[first], graph.starts[first + len(sources)])
        truth = torch.zeros_like(low, dtype=torch.bool)
        truth[torch.tensor(graph.sources[here] - first), torch.tensor(graph.targets[here])] = True
        codes = sources[:, None] * graph.items + torch.arange(graph.items, device=device)
        # A context of one item holds only a pair (i, i), with code i·m + i.
        exists = codes % (graph.items + 1) == 0 if length == 1 else torch.ones_like(truth)
        edges.see(low[exists & truth], codes[exists & truth], keep)
        others.see(high[exists & ~truth], codes[exists & ~truth], keep)
    return edges, others


def _search_all(
    logits: Logits, sides: tuple[_Side, _Side], threshold: float, length: int, search: int
) -> Iterator[Int[Tensor, " length"]]:
    """Search the open pairs in batches, worst first, and yield contexts that break one.

    What is decided is written into `sides`.
    """
    size = max(1, _BATCH // (logits.heads * logits.items))
    batches = [
        (side, slice(first, min(first + size, side.open, search)))
        for side in sides
        for first in range(0, min(side.open, search), size)
    ]
    batches.sort(key=lambda batch: -batch[0].shortfall(batch[1].start))
    waiting = sum(side.open for side in sides)
    # Once a pair is sure to stay open nothing can be certified: from then on only a few contexts of
    # each pair are looked at, since one of them may still refute.
    lost = waiting > search
    for side, rows in batches:
        waiting -= rows.stop - rows.start
        allowance = 0 if lost else search - waiting
        sources, targets = side.codes[rows] // logits.items, side.codes[rows] % logits.items
        kind = EdgeSearch if side.edges else NonEdgeSearch
        finder = kind.of(logits, sources, targets, threshold, length)
        still_open = finder.run(allowance)
        search -= finder.cases
        side.settle(rows, still_open, logits.bound(finder.levels(), lower=side.edges))
        lost |= bool(still_open.any())
        if finder.broken is not None:
            yield finder.broken


def _confirm(
    weights: KeyQuery, graph: Graph, table: Tensor, context: Int[Tensor, " length"]
) -> Extreme | None:
    """The pair that a context breaks by more than rounding, if it does."""
    found = verify_contexts(weights, graph, table, context[None], sampled=False)
    lowest, highest = found.lowest_edge, found.highest_non_edge
    if lowest and lowest.score + found.score_error <= weights.threshold:
        return lowest
    if highest and highest.score - found.score_error > weights.threshold:
        return highest
    return None
