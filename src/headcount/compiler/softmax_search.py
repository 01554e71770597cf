"""The search for softmax weights, certified over every context of ℓ items."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch

from headcount.attention.key_query import KeyQuery
from headcount.attention.softmax_certificate import SoftmaxCertificate, softmax_certificate
from headcount.compiler.certificate import Certificate
from headcount.compiler.request import CompileRequest
from headcount.compiler.search import Attempt, WeightSearch
from headcount.compiler.softmax_descent import Both, ordered, spread
from headcount.compiler.whitened import WhitenedProblem
from headcount.errors import NoSolution
from headcount.problem.graph import Graph

# An ordered head is stretched until its least difference of logits is ln ℓ + x. At a difference of
# ln ℓ + x the ℓ − 1 rivals together hold about e^−x of what the first holds: larger x are sharper.
_SHARPNESS = (0.0, 1.0, 2.0, 4.0, 8.0)
# Where the order was missed narrowly, the certificate may hold all the same at one of these.
_MISSED = (4.0, 16.0, 64.0)
_GROWTH = 1.25  # of the budgets tried, until one is reached

Kind = Literal["ordered", "spread"]
_KINDS: tuple[Kind, ...] = ("ordered", "spread")  # the quicker first


class SoftmaxSearch(WeightSearch):
    """Softmax weights for contexts of ℓ items, and the nearest miss."""

    def __init__(self, request: CompileRequest) -> None:
        super().__init__(request)
        assert request.context_length is not None
        self.length = request.context_length
        self.miss: SoftmaxCertificate | None = None
        _require_separable(request.graph, self.length)

    @cached_property
    def problem(self) -> WhitenedProblem:
        request = self.request
        return WhitenedProblem.of(request.graph, request.table, 1.0, torch.device("cpu"))

    def constant_weights(self) -> KeyQuery | None:
        """Zero weights give every item 1/ℓ, so τ alone decides; with ℓ = 1 only pairs (i, i) do."""
        graph = self.request.graph
        if self.length > 1 and not self.request.is_constant:
            return None
        zero = torch.zeros(1, self.request.table.shape[1], 1)
        edges = bool(graph.has_edges([0], [0])[0]) if self.length == 1 else bool(graph.edges)
        threshold = (0.5 if edges else 2.0) / self.length
        return KeyQuery(zero, zero, threshold, "softmax", notes=self._notes)

    def certify(self, weights: KeyQuery) -> Certificate | None:
        given = self.request.graph, self.request.table
        found = softmax_certificate(weights, *given, self.length)
        certified = found.verdict == "certified"
        return Certificate.of_softmax(found, weights, *given) if certified else None

    def reach(self, budget: int, kinds: tuple[Kind, ...] = _KINDS) -> bool:
        """Whether one of the kinds of weights that fit this budget is certified."""
        for kind, widths in self._kinds(budget):
            if kind not in kinds:
                continue
            if not self.in_time():
                return False
            begun = time.monotonic()
            descend = self._ordered if kind == "ordered" else self._spread
            candidates, least = descend(widths)
            descended = time.monotonic()
            certificate = next(filter(None, map(self._accepted, candidates)), None)
            self.reserved = time.monotonic() - descended
            margin = certificate and certificate.relative_margin
            seconds, exact = time.monotonic() - begun, certificate is not None
            said = "certified" if exact else f"not certified, least difference {least:.3g}"
            self.record(
                Attempt(budget, widths, exact, int(not exact), margin, 0, seconds),
                f"D_K = {sum(widths)}, heads {widths}, {kind}: {said}",
            )
            if exact:
                return True
        return False

    def minimise(self) -> None:
        """Ordered heads first, whose descents are quick; then budgets that they do not reach."""
        for kind in _KINDS:
            self._minimise(kind)

    def _minimise(self, kind: Kind) -> None:
        """Grow until certified or until heads have the table's rank, then halve the distance."""
        heads, problem = self.request.heads, self.problem
        failed = (heads or 1) - 1
        most = problem.rank * (heads or 2)
        # Begin high: success is quick, failure is not.
        budget = min(most, max(heads or 2, problem.edges))
        while self.best is None and self.in_time() and not self.reach(budget, (kind,)):
            failed = budget
            if budget == most:
                return
            budget = min(most, math.ceil(_GROWTH * budget))
        while self.best is not None and self.best[0].budget - failed > 1 and self.in_time():
            middle = (self.best[0].budget + failed) // 2
            if not self.reach(middle, (kind,)):
                failed = middle

    def how_far(self) -> str:
        near = self.miss
        if near is None:
            return (
                f"no softmax weights were found for contexts of {self.length} items; "
                "raise the budget, the time limit or the context length"
            )
        said = f"the closest weights are {near.verdict}, with a margin of {near.margin:.3g}"
        if near.counterexample is not None and near.broken is not None:
            name = self.request.graph.name
            context = " ".join(str(name(item)) for item in near.counterexample)
            pair = f"({name(near.broken.source)}, {name(near.broken.target)})"
            said += f"; the context {context} breaks the pair {pair}"
        return (
            f"no softmax weights were certified for every context of {self.length} items; {said}; "
            "raise the budget or the context length"
        )

    @property
    def _notes(self) -> dict[str, str]:
        return {"context_length": str(self.length)}

    def _kinds(self, budget: int) -> Iterator[tuple[Kind, tuple[int, ...]]]:
        """Ordered heads where each source has one target at most (they would share its mass)."""
        rank, heads = self.problem.rank, self.request.heads
        one_target = int(self.request.graph.out_degrees.max(initial=0)) <= 1
        if one_target and self.length > 1 and heads in (None, 2) and budget >= 2:
            yield "ordered", (min(rank, -(-budget // 2)), min(rank, budget // 2))
        for count in [heads] if heads else [1, 2]:
            if count <= budget:
                yield "spread", (min(rank, budget // count),) * count

    def _ordered(self, widths: tuple[int, ...]) -> tuple[Iterator[KeyQuery], float]:
        """Weights of growing sharpness, and the least difference in the order asked for."""
        both, least = ordered(self.problem, widths, self.request.seed, self.in_time)
        factors = list(_MISSED)
        if least > 0:
            factors = [(math.log(self.length) + x) / least for x in _SHARPNESS]
        # `ordered` descends on plain scores, which softmax divides by √d_k.
        scales = [math.sqrt(width) for width in widths]
        return (self._weights(both, widths, factor, scales) for factor in factors), least

    def _spread(self, widths: tuple[int, ...]) -> tuple[Iterator[KeyQuery], float]:
        """Weights from a descent on the bounds themselves, and the gap between them."""
        seed, keep_on = self.request.seed, self.in_time
        both, gap = spread(self.problem, widths, self.length, seed, keep_on)
        return iter([self._weights(both, widths, 1.0, [1.0] * len(widths))]), gap

    def _weights(
        self, both: Both, widths: tuple[int, ...], factor: float, scales: list[float]
    ) -> KeyQuery:
        """The weights for the table as given, their scores stretched, with τ between the bounds."""
        heads = []
        for head, width in enumerate(widths):
            stretch = math.sqrt(factor * scales[head])
            query, key = (
                self.problem.fold @ part[0, head, :, :width].double() * stretch for part in both
            )
            heads.append((query.float(), key.float()))
        weights = KeyQuery.from_heads(heads, 0.0, "softmax", self._notes)
        given = self.request.graph, self.request.table
        bounds = softmax_certificate(weights, *given, self.length, search=0)
        extremes = bounds.lowest_edge, bounds.highest_non_edge
        scores = [extreme.score for extreme in extremes if extreme]
        return replace(weights, threshold=sum(scores) / len(scores))

    def _accepted(self, weights: KeyQuery) -> Certificate | None:
        """The certificate of weights with the margin asked for; the nearest miss is remembered."""
        given = self.request.graph, self.request.table
        found = softmax_certificate(weights, *given, self.length)
        if found.verdict == "certified":
            certificate = Certificate.of_softmax(found, weights, *given)
            if certificate.relative_margin >= self.request.margin:
                self.accept(weights, certificate)
                return certificate
        if self.miss is None or found.margin > self.miss.margin:
            self.miss = found
        return None


def _require_separable(graph: Graph, length: int) -> None:
    """Refuse a graph whose contexts of edges alone and of no edges must have equal scores."""
    items = np.arange(graph.items)
    own = graph.has_edges(items, items)
    all_edges = own & (graph.out_degrees >= length)
    no_edges = ~own & (graph.items - graph.out_degrees >= length)
    if all_edges.any() and no_edges.any():
        full, empty = graph.name(all_edges.argmax()), graph.name(no_edges.argmax())
        raise NoSolution(
            f"item {full} has contexts of {length} items with edges alone, item "
            f"{empty} has some with none; masses sum to h in both, so no τ parts "
            "them; choose another context_length (--context-length)"
        )
