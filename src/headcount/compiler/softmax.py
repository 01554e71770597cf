"""Softmax weights that decide every context of ℓ items rightly, certified over all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.softmax_certificate import SoftmaxCertificate, softmax_certificate
from headcount.compiler.attempts import Attempt
from headcount.compiler.certificate import Certificate
from headcount.compiler.prepared import Prepared
from headcount.compiler.softmax_descent import Both, ordered, spread
from headcount.errors import InputError, NoSolution
from headcount.problem.graph import Graph
from headcount.shapes import Float

_SHARP = (
    0.0,
    1.0,
    2.0,
    4.0,
    8.0,
)  # how far ln ℓ + x the least difference of ordered logits is stretched to
_GROWTH = 1.25


@dataclass
class SoftmaxSearch:
    """What every attempt shares, the log of attempts, the best weights and the nearest miss."""

    graph: Graph
    table: Float[Tensor, "items d_model"]
    length: int
    heads: int | None
    margin: float
    deadline: float
    seed: int
    report: Callable[[str], None]
    frontier: list[Attempt] = field(default_factory=list)
    best: tuple[KeyQuery, Certificate] | None = None
    miss: SoftmaxCertificate | None = None

    def __post_init__(self) -> None:
        self.problem = Prepared.of(self.graph, self.table, 1.0, torch.device("cpu"))
        own = self.graph.has_edges(*(torch.arange(self.graph.items).numpy(),) * 2)
        # In an ordered head the edges of a source would have to share its mass, so it has one target at most.
        self.orderable = self.length > 1 and int(self.graph.out_degrees.max(initial=0)) <= 1
        all_edges = own & (self.graph.out_degrees >= self.length)
        no_edges = ~own & (self.graph.items - self.graph.out_degrees >= self.length)
        if all_edges.any() and no_edges.any():
            raise NoSolution(
                f"item {int(all_edges.argmax())} has contexts of {self.length} items with edges alone, item "
                f"{int(no_edges.argmax())} such with none; masses sum to h in both, so no τ parts them; "
                "change --context-length"
            )

    def in_time(self) -> bool:
        return time.monotonic() < self.deadline

    def reach(self, budget: int) -> bool:
        """Whether certified weights of at most this budget are found."""
        for kind, widths in self._plans(budget):
            if not self.in_time():
                return False
            begun = time.monotonic()
            if kind == "ordered":
                both, least = ordered(self.problem, widths, self.seed, self.in_time)
                factors = (
                    [(math.log(self.length) + x) / least for x in _SHARP] if least > 0 else [4.0]
                )
            else:
                both, least = spread(self.problem, widths, self.length, self.seed, self.in_time)
                factors = [1.0]
            exact = any(
                self._certify(both, widths, kind == "ordered", factor) for factor in factors
            )
            margin = self.best[1].relative_margin if exact and self.best else None
            seconds = time.monotonic() - begun
            self.frontier.append(Attempt(budget, widths, exact, int(not exact), margin, 0, seconds))
            said = "certified" if exact else f"not certified, least difference {least:.3g}"
            self.report(f"D_K = {sum(widths)}, heads {widths}, {kind}: {said}")
            if exact:
                return True
        return False

    def _plans(self, budget: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        rank = self.problem.rank
        if self.orderable and self.heads in (None, 2) and budget >= 2:
            yield "ordered", (min(rank, -(-budget // 2)), min(rank, budget // 2))
        for heads in [self.heads] if self.heads else [1, 2]:
            if heads <= budget:
                yield "spread", (min(rank, budget // heads),) * heads

    def _certify(self, both: Both, widths: tuple[int, ...], ordering: bool, factor: float) -> bool:
        """Put τ between the bounds and ask for the certificate."""
        pairs = []
        for head, width in enumerate(widths):
            stretch = math.sqrt(factor * (math.sqrt(width) if ordering else 1.0))
            query, key = (
                self.problem.fold @ part[0, head, :, :width].double() * stretch for part in both
            )
            pairs.append((query.float(), key.float()))
        weights = KeyQuery.from_heads(pairs, 0.0, "softmax", {"context_length": str(self.length)})
        bounds = softmax_certificate(weights, self.graph, self.table, self.length, search=0)
        scores = [
            extreme.score for extreme in (bounds.lowest_edge, bounds.highest_non_edge) if extreme
        ]
        weights = replace(weights, threshold=sum(scores) / len(scores))
        found = softmax_certificate(weights, self.graph, self.table, self.length)
        if found.verdict == "certified":
            certificate = Certificate.of_softmax(found, weights, self.graph, self.table)
            if certificate.relative_margin >= self.margin:
                self.best = weights, certificate
                return True
        if self.miss is None or found.margin > self.miss.margin:
            self.miss = found
        return False


def compile_softmax(search: SoftmaxSearch, budget: int | None) -> tuple[KeyQuery, Certificate]:
    """Certified weights of at most this D_K; without a budget, the smallest D_K that is reached."""
    graph = search.graph
    if search.length == 1 or graph.edges in (0, graph.items**2):
        return _constant(search)
    try:
        if budget is not None:
            search.reach(budget)
        else:
            _search(search)
    except KeyboardInterrupt:
        search.report("interrupted")
    if search.best is None:
        raise NoSolution(_how_far(search))
    return search.best


def _search(search: SoftmaxSearch) -> None:
    """Grow until certified or until the heads are as wide as the table's rank, then halve the distance."""
    failed = (search.heads or 1) - 1
    most = search.problem.rank * (search.heads or 2)
    budget = min(
        most, max(search.heads or 2, search.problem.edges)
    )  # success is quick, failure is not
    while search.in_time() and not search.reach(budget):
        failed = budget
        if budget == most:
            return
        budget = min(most, math.ceil(_GROWTH * budget))
    while search.best is not None and search.best[0].budget - failed > 1 and search.in_time():
        middle = (search.best[0].budget + failed) // 2
        if not search.reach(middle):
            failed = middle


def _constant(search: SoftmaxSearch) -> tuple[KeyQuery, Certificate]:
    """Zero weights spread 1/ℓ everywhere; τ alone says that all pairs are edges, or none. ℓ = 1: the pairs (i, i)."""
    zero = torch.zeros(1, search.table.shape[1], 1)
    graph = search.graph
    edges = bool(graph.has_edges([0], [0])[0]) if search.length == 1 else bool(graph.edges)
    threshold = (0.5 if edges else 2.0) / search.length
    weights = KeyQuery(
        zero, zero, threshold, "softmax", notes={"context_length": str(search.length)}
    )
    found = softmax_certificate(weights, search.graph, search.table, search.length)
    return weights, Certificate.of_softmax(found, weights, search.graph, search.table)


def _how_far(search: SoftmaxSearch) -> str:
    if search.miss is None:
        return (
            f"no softmax weights were found for contexts of {search.length} items; "
            "raise the budget, the time limit or the context length"
        )
    near = search.miss
    said = f"the closest weights are {near.verdict}, with a margin of {near.margin:.3g}"
    if near.counterexample is not None and near.broken is not None:
        pair = f"({near.broken.source}, {near.broken.target})"
        said += f"; the context {' '.join(map(str, near.counterexample))} breaks the pair {pair}"
    return (
        f"no softmax weights were certified for every context of {search.length} items; {said}; "
        "raise the budget or the context length"
    )


def check_length(length: int | None, items: int) -> int:
    """A context length that fits."""
    if length is None:
        raise InputError("the softmax variant needs a context length; give --context-length")
    if not 1 <= length <= items:
        raise InputError(f"context length {length} does not fit {items} items; choose 1…{items}")
    return length
