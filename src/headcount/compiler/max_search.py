"""The search for max weights: descents over candidate splits, budget by budget, until certified."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.compiler.certificate import Certificate, certify
from headcount.compiler.descent import Descended, Schedule, descend
from headcount.compiler.head_counts import first_budget, head_counts, widths_of
from headcount.compiler.objective import Weights
from headcount.compiler.polish import certified_weights, widen_margin
from headcount.compiler.request import CompileRequest
from headcount.compiler.search import Attempt, WeightSearch
from headcount.compiler.staged_descent import Stages, descend_in_stages, widen_in_stages
from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.graph import Graph
from headcount.shapes import Float
from headcount.threads import torch_threads

_ROUNDS = 4  # at a given budget, without a time limit
_GROWTH = 1.25  # of the budgets tried, until one is reached
_GIVE_UP = 16  # the search ends at this many times its first budget
# Scores of all trials and heads in one descent; twice as many in every round.
_TOGETHER = {"cpu": 2**18, "cuda": 2**25}
_TRIALS = 8
_HASTY = 160  # steps of round 0, enough where the budget is ample
_STEPS = 400  # of round 1; 1.5 times as many in every later round
_SMALL = 2**18  # scores of all trials and heads up to which one thread is used
_STAGES = 16  # of round 0; 1.5 times as many in every later round
_WIDENINGS = 6  # rounds in which a margin is widened
_LINE = 20  # steps between two lines of progress
_ENOUGH = 0.5  # relative margin beyond which weights are not polished
_POLISH = 60  # steps
_LARGE = 1024  # items from which a step takes seconds
_SPARSE = 0.25  # share of the pairs below which edges hardly ever need a negative τ


class MaxSearch(WeightSearch):
    """Weights whose largest score over heads exceeds τ on edges alone."""

    def __init__(self, request: CompileRequest) -> None:
        super().__init__(request)
        # Signs of τ to try; the first one that succeeds becomes the only one.
        self.levels = levels_of(request.graph, request.table)
        self._tried: set[tuple[float, tuple[int, ...], int]] = set()

    @cached_property
    def problem(self) -> WhitenedProblem:
        request = self.request
        return WhitenedProblem.of(request.graph, request.table, 1.0, request.torch_device)

    @property
    def _staged(self) -> bool:
        """Whether L-BFGS descends, which is quicker than Levenberg–Marquardt on small tables."""
        return self.request.top

    def certify(self, weights: KeyQuery) -> Certificate | None:
        return certify(weights, self.request.graph, self.request.table)

    def reach(self, budget: int, rounds: Iterable[int] | None = None, both: bool = False) -> bool:
        """Whether weights of at most this budget are found in the given rounds, each slower.

        Round 0 is quick: one short trial with the likeliest number of heads. Round 1 tries both
        signs of τ, the others the likelier one, unless `both`.
        """
        if rounds is None:  # with a time limit, as many as it allows
            rounds = range(_ROUNDS) if math.isinf(self.deadline) else itertools.count()
        for number in rounds:
            for level in self.levels if both or number == 1 else self.levels[:1]:
                counts = head_counts(self.problem.at(level), budget, self.request.heads)
                for heads in counts if number else counts[:1]:
                    if not self.in_time():
                        return False
                    if self._succeeds(level, widths_of(budget, heads, self.problem.rank), number):
                        self.levels = (level,)
                        return True
        return False

    def minimise(self) -> None:
        """Grow until a budget is reached, then shrink, hastily at first and patiently at last."""
        graph, floor = self.request.graph, self.request.heads or 1
        first = max(floor, first_budget(graph.items, graph.edges, self.problem.rank))
        sparse = graph.edges < _SPARSE * graph.items**2
        budget = first
        while self.in_time() and not self.reach(budget, [0], both=budget > first and not sparse):
            if budget >= _GIVE_UP * first:
                self.reach(budget, [1])
                break
            budget = math.ceil(_GROWTH * budget)
        for number in range(_ROUNDS - 1):
            self._shrink(floor, number)

    def _shrink(self, floor: int, number: int) -> None:
        """Go down by an eighth (less in later rounds), and by half as much after every failure."""
        if self.best is None:
            return
        stride = max(1, self.best[0].budget >> (3 + number))
        while stride and self.in_time():
            budget = self.best[0].budget - stride
            if budget < floor or not self.reach(budget, [number]):
                stride //= 2

    def _succeeds(self, level: float, widths: tuple[int, ...], number: int) -> bool:
        """A descent, unless the same one has failed before.

        Budgets give the same widths once heads are as wide as the table's rank.
        """
        if (level, widths, number) in self._tried:
            return False
        self._tried.add((level, widths, number))
        return self._descend(level, widths, number)

    def _descend(self, level: float, widths: tuple[int, ...], number: int) -> bool:
        problem, begun = self.problem.at(level), time.monotonic()
        scores = len(widths) * problem.items**2  # of one trial
        fitting = (_TOGETHER[problem.points.device.type] << min(number, 3)) // scores
        trials = max(1, min(_TRIALS, fitting)) if number else 1
        with torch_threads(1 if trials * scores <= _SMALL else None):
            found = self._best_trial(problem, widths, trials, number)
            certified = self._polished(problem, widths, found.weights) if found.gap > 0 else None
        margin = certified[1].relative_margin if certified else None
        wide_enough = margin is not None and margin >= self.request.margin
        if certified and wide_enough:
            self.accept(*certified)
        wrong, seconds = 0 if certified else max(found.wrong, 1), time.monotonic() - begun
        said = f"{found.wrong} violations"
        if margin is not None:
            said = f"exact, relative margin {margin:.3g}"
        self.record(
            Attempt(
                sum(widths), widths, wide_enough, wrong, margin, found.steps, seconds, found.gap
            ),
            f"{in_words(widths)}: {said}, {seconds:.1f} s",
        )
        return wide_enough

    def _best_trial(
        self, problem: WhitenedProblem, widths: tuple[int, ...], trials: int, number: int
    ) -> Descended:
        """The outcome of a descent; after Ctrl-C the best trial that it had."""
        latest = None

        def keep_on(step: int, best: Descended | None) -> bool:
            nonlocal latest
            latest = best
            if best is not None and step % _LINE == 0:
                self.request.progress(
                    f"{in_words(widths)}: step {step}, {best.wrong} violations, gap {best.gap:.3g}"
                )
            return self.in_time()

        schedule = Schedule(steps=int(_STEPS * 1.5 ** (number - 1)) if number else _HASTY)
        seed = self.request.seed + 1000 * number
        try:
            with _denormals_flushed():
                if self._staged:
                    stages = Stages(int(_STAGES * 1.5**number))
                    return descend_in_stages(
                        problem, widths, self.request.top, seed, stages, keep_on
                    )
                return descend(problem, widths, trials, seed, schedule, keep_on)
        except KeyboardInterrupt:
            self.stopped = True
            if latest is None:
                raise
            return latest

    def _polished(
        self, problem: WhitenedProblem, widths: tuple[int, ...], weights: Weights
    ) -> tuple[KeyQuery, Certificate] | None:
        """Certified with a wider margin; after Ctrl-C certified as they are."""
        given = self.request.graph, self.request.table
        steps = _POLISH if problem.items <= _LARGE else _POLISH // 6
        enough = max(_ENOUGH, self.request.margin)
        try:
            with _denormals_flushed():
                if self._staged:
                    rounds = _WIDENINGS if problem.items <= _LARGE else _WIDENINGS // 3
                    wide = widen_in_stages(
                        problem, weights, widths, self.request.top, self.in_time, enough, rounds
                    )
                else:
                    wide = widen_margin(problem, weights, self.in_time, enough, steps)
            return certified_weights(problem, wide, widths, *given, self.request.top)
        except KeyboardInterrupt:
            self.stopped = True
            return certified_weights(problem, weights, widths, *given, self.request.top)

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
        # A non-edge above τ counts once per head, so the whole is the scores of all heads.
        scores = len(near.widths) * self.request.graph.items**2
        return (
            f"no exact weights were found{when} in {attempts}; the closest, "
            f"{in_words(near.widths)}, had {violations} among the {scores:,} scores of its heads "
            f"and a gap of {near.gap:.3g}; raise the budget or the time limit"
        )

    def _when(self) -> str:
        if self.stopped:
            return " before the interruption"
        return "" if self.in_time() else " in time"


def in_words(widths: tuple[int, ...]) -> str:
    """D_K and the number of heads, for a line of progress.

    >>> in_words((4, 3))
    'D_K = 7 in 2 heads'
    """
    return f"D_K = {sum(widths)} in {len(widths)} head{'s' if len(widths) > 1 else ''}"


def levels_of(graph: Graph, table: Float[Tensor, "items d_model"]) -> tuple[float, ...]:
    """Signs of τ, the likelier first; the scores of a zero row are 0, so its pairs fix the sign."""
    zero = (~table.any(1)).nonzero().flatten().tolist()
    if zero:
        return (-1.0,) if graph.has_edges(zero[:1], zero[:1])[0] else (1.0,)
    return (-1.0, 1.0) if 2 * graph.edges > graph.items**2 else (1.0, -1.0)


@contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Keep vanishing violations from slowing the CPU down; the setting is restored afterwards."""
    before = bool((torch.tensor([2.0**-126]) * 0.5 == 0).all())
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
