"""The search for max weights: descents over candidate splits, budget by budget, until certified."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from headcount.attention.key_query import KeyQuery
from headcount.compiler.certificate import Certificate, certify
from headcount.compiler.head_counts import (
    ample_budget,
    first_budget,
    head_counts,
    levels_of,
    widths_of,
)
from headcount.compiler.last_resort import one_head_per_edge
from headcount.compiler.layout import Layout
from headcount.compiler.polish import certified_weights
from headcount.compiler.request import CompileRequest
from headcount.compiler.search import Attempt, WeightSearch, in_words
from headcount.compiler.staged_descent import Stages, descend_in_stages, widen_in_stages
from headcount.compiler.trial import Descended, Weights
from headcount.compiler.whitened import WhitenedProblem
from headcount.threads import denormals_flushed, torch_threads

_ROUNDS = 4  # at a given budget, without a time limit
_GIVE_UP = 32  # budgets of this many times the estimate are not tried
_MOST_HEADS = 2**14  # beyond so many edges one head for each takes too long to verify
_SMALL = 2**22  # scores of all heads up to which one thread is used
_STAGES = 16  # of round 0; twice as many in every later round
_SEVERAL = 4  # heads
_FEW = 16  # edges per dimension of the table up to which few heads are needed
_WIDENINGS = 6  # rounds in which a margin is widened
_LINE = 20  # steps between two lines of progress
_ENOUGH = 0.5  # relative margin beyond which weights are not polished
_LARGE = 1024  # items from which a step takes seconds
_SPARSE = 0.25  # share of the pairs below which edges hardly ever need a negative τ


class Outcome(NamedTuple):
    """How close a descent came."""

    wrong: int
    steps: int
    gap: float | None


class MaxSearch(WeightSearch):
    """Weights whose largest score over heads exceeds τ on edges alone."""

    def __init__(self, request: CompileRequest, use_all: bool = False) -> None:
        """`use_all` takes every column of a given budget, for who has a use for a wide margin."""
        super().__init__(request)
        self._use_all = use_all or request.margin > 0 or request.heads is not None
        # Signs of τ to try; the first one that succeeds becomes the only one.
        self.levels = levels_of(request.graph, request.table)
        self._tried: set[tuple[float, tuple[int, ...], int]] = set()

    @cached_property
    def problem(self) -> WhitenedProblem:
        request = self.request
        return WhitenedProblem.of(request.graph, request.table, 1.0, request.torch_device)

    def certify(self, weights: KeyQuery) -> Certificate | None:
        return certify(weights, self.request.graph, self.request.table)

    def reach(self, budget: int, rounds: Iterable[int] | None = None, both: bool = False) -> bool:
        """Whether weights of at most this budget are found in the given rounds, each slower.

        Round 0 is quick: one short trial with the likeliest number of heads. One of the others
        tries both signs of τ, the rest the likelier one, unless `both`: the last one where edges
        are few, else the first.
        """
        if rounds is None:  # with a time limit, as many as it allows
            rounds = range(_ROUNDS) if math.isinf(self.deadline) else itertools.count()
        for number in rounds:
            turn = number == (_ROUNDS - 1 if self._sparse else 1)
            for level in self.levels if both or turn else self.levels[:1]:
                given = self.request.heads, self.request.kv_heads
                counts = head_counts(self.problem.at(level), budget, *given)
                # Near the smallest budget more heads than usual do better, if there are some at all
                # and not many.
                if number and self._few_heads and counts[0] >= _SEVERAL:
                    counts = sorted(counts, reverse=True)
                for heads in counts if number else counts[:1]:
                    if not self.in_time():
                        return False
                    widths = widths_of(budget, heads, self.problem.rank, given[1])
                    if self._succeeds(level, self._layout(widths), number):
                        self.levels = (level,)
                        return True
        return False

    @property
    def _sparse(self) -> bool:
        return self.request.graph.edges < _SPARSE * self.request.graph.items**2

    @property
    def _few_heads(self) -> bool:
        return self.problem.edges <= _FEW * self.problem.rank

    @property
    def _floor(self) -> int:
        """The least budget that the heads asked for can have."""
        return self.request.heads or self.request.kv_heads or 1

    @cached_property
    def _guess(self) -> int:
        graph = self.request.graph
        return max(self._floor, first_budget(graph.items, graph.edges, self.problem.rank))

    @cached_property
    def _ample(self) -> int:
        return max(self._floor, ample_budget(self.problem.at(self.levels[0]), self._guess))

    def reach_within(self, budget: int) -> None:
        """Of a budget that is more than ample, as much as is ample first: the rest costs time."""
        if self._use_all or budget <= self._ample or not self.reach(self._ample, [0]):
            self.reach(budget)

    def minimise(self) -> None:
        """An ample budget first, then smaller ones: hastily at first and patiently at last."""
        self._find_any(self._guess)
        self._halve_the_distance(self._guess)
        for number in range(_ROUNDS - 1):
            self._shrink(self._floor, number)

    def _find_any(self, guess: int) -> None:
        """Double an ample budget until one is reached; in half the time, else a head per edge."""
        end = self.deadline
        if self.request.last_resort:
            self.deadline = min(end, time.monotonic() + (end - time.monotonic()) / 2)
        budget = first = self._ample
        while self.in_time():
            if self.reach(budget, [0], both=budget > first and not self._sparse):
                break
            if budget >= _GIVE_UP * guess:
                self.reach(budget, [1], both=True)
                break
            budget *= 2
        self.deadline = end
        if self.best is None and not self.stopped and self.request.last_resort:
            self._one_head_per_edge()

    def _one_head_per_edge(self) -> None:
        edges = self.request.graph.edges
        asked = {self.request.heads, self.request.kv_heads}
        if not asked <= {None, edges} or edges > _MOST_HEADS:
            return
        begun, layout = time.monotonic(), self._layout((1,) * edges)
        certified = self._certified(self.problem, one_head_per_edge(self.problem), layout)
        self._settle(layout.widths, certified, Outcome(1, 0, None), begun)

    def _halve_the_distance(self, guess: int) -> None:
        """Between the best budget and one that is out of reach, or seems to be."""
        low = guess - 1
        while self.best is not None and self.in_time():
            middle = (self.best[0].budget + low) // 2
            if self.best[0].budget - low <= max(1, low // 8):
                return
            if not self.reach(middle, [0]):
                low = middle

    def _shrink(self, floor: int, number: int) -> None:
        """Go down by an eighth (less in later rounds), and by half as much after every failure."""
        if self.best is None:
            return
        stride = max(1, self.best[0].budget >> (3 + number))
        while stride and self.in_time():
            budget = self.best[0].budget - stride
            if budget < floor or not self.reach(budget, [number]):
                stride //= 2

    def _layout(self, widths: tuple[int, ...]) -> Layout:
        return Layout(widths, self.request.top, self.request.kv_heads)

    def _succeeds(self, level: float, layout: Layout, number: int) -> bool:
        """A descent, unless the same one has failed before.

        Budgets give the same widths once heads are as wide as the table's rank.
        """
        if (level, layout.widths, number) in self._tried:
            return False
        self._tried.add((level, layout.widths, number))
        return self._descend(level, layout, number)

    def _descend(self, level: float, layout: Layout, number: int) -> bool:
        problem, begun = self.problem.at(level), time.monotonic()
        scores = layout.heads * problem.items**2
        with torch_threads(1 if scores <= _SMALL else None):
            found = self._descended(problem, layout, number)
            certified = self._polished(problem, layout, found.weights) if found.gap > 0 else None
        return self._settle(
            layout.widths, certified, Outcome(found.wrong, found.steps, found.gap), begun
        )

    def _settle(
        self,
        widths: tuple[int, ...],
        certified: tuple[KeyQuery, Certificate] | None,
        outcome: Outcome,
        begun: float,
    ) -> bool:
        """Log an attempt, and keep its weights if their margin is wide enough."""
        margin = certified[1].relative_margin if certified else None
        wide_enough = margin is not None and margin >= self.request.margin
        wrong, seconds = 0 if certified else max(outcome.wrong, 1), time.monotonic() - begun
        said = f"{outcome.wrong} violations"
        if margin is not None:
            said = f"exact, relative margin {margin:.3g}"
        self.record(
            Attempt(
                sum(widths),
                widths,
                wide_enough,
                wrong,
                margin,
                outcome.steps,
                seconds,
                outcome.gap,
            ),
            f"{in_words(widths)}: {said}, {seconds:.1f} s",
        )
        if certified and wide_enough:
            self.accept(*certified)
        return wide_enough

    def _descended(self, problem: WhitenedProblem, layout: Layout, number: int) -> Descended:
        """The outcome of a descent; after Ctrl-C the best point that it had."""
        latest = None

        def keep_on(step: int, best: Descended | None) -> bool:
            nonlocal latest
            latest = best
            if best is not None and step % _LINE == 0:
                closest = f"{best.wrong} violations, gap {best.gap:.3g}"
                self.report(f"{in_words(layout.widths)}: step {step}, {closest}")
            return self.in_time()

        seed = self.request.seed + 1000 * number
        try:
            with denormals_flushed():
                # A quick round takes the way that is short where there are columns to spare, unless
                # it needs many heads: these part better with a wide margin.
                short = number == 0 and self._few_heads
                spare = sum(layout.widths) / self._guess if short else 1.0
                stages = Stages.of(layout, _STAGES * 2**number, spare)
                return descend_in_stages(problem, layout, seed, stages, keep_on)
        except KeyboardInterrupt:
            self.stopped = True
            if latest is None:
                raise
            return latest

    def _polished(
        self, problem: WhitenedProblem, layout: Layout, weights: Weights
    ) -> tuple[KeyQuery, Certificate] | None:
        """Certified with a wider margin; after Ctrl-C certified as they are."""
        try:
            with denormals_flushed():
                wide = self._widened(problem, layout, weights)
            return self._certified(problem, wide, layout)
        except KeyboardInterrupt:
            self.stopped = True
            return self._certified(problem, weights, layout)

    def _widened(self, problem: WhitenedProblem, layout: Layout, weights: Weights) -> Weights:
        large, enough = problem.items > _LARGE, max(_ENOUGH, self.request.margin)
        rounds = _WIDENINGS // 3 if large else _WIDENINGS
        return widen_in_stages(problem, weights, layout, self.in_time, enough, rounds)

    def _certified(
        self, problem: WhitenedProblem, weights: Weights, layout: Layout
    ) -> tuple[KeyQuery, Certificate] | None:
        """Certified if exact; the time that takes is kept free before the deadline from now on."""
        begun = time.monotonic()
        given = self.request.graph, self.request.table
        certified = certified_weights(problem, weights, layout, *given)
        self.reserved = time.monotonic() - begun
        return certified

    def how_far(self) -> str:
        tried, when = self.frontier, self._when()
        if not tried:
            return f"no attempt was finished{when}; allow more time"
        reached = {
            attempt.relative_margin: attempt
            for attempt in tried
            if attempt.relative_margin is not None
        }
        if reached:
            widest = max(reached)
            return (
                f"no weights with the margin asked for were found{when}; "
                f"{in_words(reached[widest].widths)} reached a relative margin of {widest:.3g}; "
                "ask for less, or raise the budget"
            )
        near = min(tried, key=lambda attempt: (attempt.wrong, attempt.budget))
        attempts = f"{len(tried)} attempt{'s' if len(tried) > 1 else ''}"
        violations = f"{near.wrong:,} violation{'s' if near.wrong > 1 else ''}"
        pairs = self.request.graph.items**2
        return (
            f"no exact weights were found{when} in {attempts}; the closest, "
            f"{in_words(near.widths)}, had {violations} among {pairs:,} pairs "
            f"and a gap of {near.gap:.3g}; raise the budget or the time limit"
        )

    def _when(self) -> str:
        if self.stopped:
            return " before the interruption"
        return "" if self.in_time() else " in time"
