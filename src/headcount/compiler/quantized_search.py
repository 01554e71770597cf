"""The search for weights on a grid of b bits: compile, move onto the grid, certify the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.compiler.certificate import Certificate, certify
from headcount.compiler.grid import from_parts, heads_of, rotated, round_weights
from headcount.compiler.head_counts import first_budget
from headcount.compiler.max_search import MaxSearch
from headcount.compiler.quantize import Pairs, onto_grid
from headcount.compiler.request import CompileRequest
from headcount.compiler.search import Attempt, Compiled, WeightSearch
from headcount.errors import NoSolution

Margins = tuple[float | None, ...]
_PLAIN: Margins = (None,)  # each entry goes to its nearest level
_MARGINS: Margins = (0.05, 0.1, 0.2)  # μ aimed at while entries are fixed, as a share of τ
_ROTATIONS = 4  # random rotations of the weights, each tried with every margin
_HOPELESS = 0.15  # rotations end once the best gap is this share of τ below 0
_GIVE_UP = 4  # the search ends at this many times the budget of the weights before rounding
_FAILURES = 2  # exact weights in a row that do not round, after which smaller ones are pointless
_SHARE = 0.25  # of the time left, for one budget that may be too small even before rounding


class _TooSmall(Exception):
    """Exact weights of this budget are too near to their limit to be rounded plainly."""


class QuantizedSearch(WeightSearch):
    """Max weights of b bits per entry, from exact weights of the same shape or a narrower one."""

    def __init__(self, request: CompileRequest) -> None:
        super().__init__(request)
        assert request.bits is not None
        self.bits = request.bits
        self._exact: dict[int | None, KeyQuery] = {}  # by budget, before rounding

    def certify(self, weights: KeyQuery) -> Certificate | None:
        return certify(weights, self.request.graph, self.request.table, self.bits)

    def reach(self, budget: int) -> bool:
        """Compile at this budget and round; `NoSolution` where nothing is exact before rounding."""
        self._round(self._compiled(budget))
        return self.reached(budget)

    def minimise(self) -> None:
        """Round what a search for exact weights finds on its way down, then budgets in between.

        Its first weights have columns to spare and wide margins, so there is an answer soon. The
        fewer the bits, the sooner plain rounding fails, and with it the search for exact weights
        ends. Entries fixed a few at a time, which takes longer, reach smaller budgets from there.
        """
        failures = 0

        def improved(found: Compiled) -> None:
            nonlocal failures
            self._round_with(found.weights, _PLAIN)
            failures = 0 if self.reached(found.weights.budget) else failures + 1
            if failures == _FAILURES:
                raise _TooSmall

        exact = self._compiled(None, share=0.5, improved=improved)
        graph, rank = self.request.graph, min(self.request.table.shape)
        guess = first_budget(graph.items, graph.edges, rank)
        self._grow(exact)
        self._halve_the_distance(min(guess, exact.budget) if failures else exact.budget)

    def _grow(self, exact: KeyQuery) -> None:
        """Raise the budget with growing strides until weights of some budget are certified."""
        budget, stride = exact.budget, max(1, exact.budget // 8)
        most = min(_GIVE_UP * exact.budget, exact.heads * exact.d_model)
        while self.best is None and budget < most and self.in_time():
            budget, stride = min(most, budget + stride), 2 * stride
            self._reach_anew(budget)

    def _halve_the_distance(self, failed: int) -> None:
        """Between the best budget and one that is out of reach, or seems to be."""
        while self.best is not None and self.best[0].budget - failed > 1 and self.in_time():
            middle = (self.best[0].budget + failed) // 2
            if not self._reach_anew(middle):
                failed = middle

    def how_far(self) -> str:
        tried = [attempt for attempt in self.frontier if not attempt.exact]
        if not tried:
            return (
                f"no weights were found to round to {self.bits} bits; "
                "raise the budget or the time limit"
            )
        near = min(tried, key=lambda attempt: (attempt.wrong, attempt.budget))
        return (
            f"no weights of {self.bits} bits were certified; the closest, D_K = {near.budget}, had "
            f"{near.wrong} of {self.request.graph.items**2} pairs wrong after rounding; "
            "raise the budget or the bits"
        )

    def _compiled(
        self,
        budget: int | None,
        share: float = 1.0,
        improved: Callable[[Compiled], None] = lambda found: None,
    ) -> KeyQuery:
        """Exact weights of any margin (None: the smallest) in this share of the time left."""
        if budget in self._exact:
            return self._exact[budget]
        request = replace(
            self.request,
            budget=budget,
            margin=0.0,
            time_limit=max(0.01, share * (self.deadline - time.monotonic())),
            bits=None,
            improved=improved,  # not the caller's: these weights are not rounded yet
        )
        search = MaxSearch(request, use_all=True)  # a wide margin is room for rounding
        try:
            found = search.run()
        except _TooSmall:
            assert search.best is not None
            found = Compiled(*search.best, search.frontier)
        finally:
            self.stopped = search.stopped
        self.frontier += found.frontier
        self._exact[found.weights.budget] = found.weights
        return found.weights

    def _reach_anew(self, budget: int) -> bool:
        """Compile at a budget that should be more than enough before rounding, and round."""
        with suppress(NoSolution):
            self._round(self._compiled(budget, _SHARE))
        return self.reached(budget)

    def _round(self, weights: KeyQuery) -> None:
        """Plainly first, since fixing entries a few at a time takes much longer."""
        for margins in (_PLAIN, _MARGINS):
            if not self.reached(weights.budget) and self.in_time():
                self._round_with(weights, margins)

    def _round_with(self, weights: KeyQuery, margins: Margins) -> None:
        """Try every margin in several rotations, unless the first ones are far from exact."""
        closest = -math.inf
        for rotation in range(_ROTATIONS):
            for margin in margins:
                closest = max(closest, self._try(weights, rotation, margin))
                if self.reached(weights.budget) or not self.in_time():
                    return
            if closest < -_HOPELESS:
                return

    def _try(self, weights: KeyQuery, rotation: int, margin: float | None) -> float:
        """Round, aiming at a margin (None: each entry to its nearest), and record the outcome.

        Returns the gap as a share of |τ|.
        """
        begun = time.monotonic()
        pairs, size = self._pairs(weights), abs(weights.threshold)
        heads = rotated(heads_of(weights), self.request.seed + rotation)
        if margin is None:
            turned = from_parts(heads, weights, weights.threshold)
            heads = heads_of(round_weights(turned, self.bits))
        else:
            heads, _ = onto_grid(pairs, heads, self.bits, margin * size, self.in_time)
        gap, middle = pairs.gap(heads)
        self._record(from_parts(heads, weights, middle or size), begun)
        return gap / size

    def _record(self, found: KeyQuery, begun: float) -> None:
        """Log rounded weights; keep them if they are certified with the margin asked for."""
        checked = verify(found, self.request.graph, self.request.table)
        wrong = checked.false_positives + checked.false_negatives
        certificate, relative, said = None, None, f"{wrong} pairs wrong"
        if checked.exact:
            given = self.request.graph, self.request.table
            certificate = Certificate.of(checked, found, *given, self.bits)
            relative = certificate.relative_margin
            said = f"exact, relative margin {relative:.3g}"
        exact = relative is not None and relative >= self.request.margin
        seconds = time.monotonic() - begun
        self.record(
            Attempt(found.budget, found.widths, exact, wrong, relative, 0, seconds),
            f"D_K = {found.budget} in {self.bits} bits: {said}",
        )
        if exact and certificate:
            self.accept(found, certificate)

    def _pairs(self, weights: KeyQuery) -> Pairs:
        return Pairs.of(self.request.graph, self.request.table, weights.threshold)
