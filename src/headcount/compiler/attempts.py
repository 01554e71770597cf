"""One attempt at one budget: descents over the splits that come into question, until one is certified."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.compiler.certificate import Certificate
from headcount.compiler.descent import Descended, Schedule, descend
from headcount.compiler.finish import polish, settle
from headcount.compiler.objective import Weights
from headcount.compiler.prepared import Prepared
from headcount.compiler.splits import head_counts, widths_of
from headcount.problem.graph import Graph
from headcount.shapes import Float
from headcount.threads import torch_threads

_TOGETHER = {
    "cpu": 2**18,
    "cuda": 2**25,
}  # scores of all trials and heads in a descent; twice that every round
_TRIALS = 8
_HASTY = 160  # steps of the first round, enough where the budget is ample
_STEPS = 400  # of the next; 1.5 times as many every round
_SMALL = 2**18  # scores of all trials and heads up to which one thread is used
_LINE = 20  # steps between two lines of progress
_ENOUGH = 0.5  # relative margin beyond which nothing is polished
_POLISH = 60  # steps
_LARGE = 1024  # items from which a step takes seconds
_SPARSE = 0.25  # share of the pairs below which edges hardly ever need a negative τ


@dataclass(frozen=True)
class Attempt:
    """One descent: its widths, whether its weights were certified, and how close it came.

    `wrong`: violations; a non-edge counts once for each head that exceeds τ. `gap`: lowest edge − highest non-edge.
    """

    budget: int
    widths: tuple[int, ...]
    exact: bool
    wrong: int
    relative_margin: float | None
    steps: int
    seconds: float
    gap: float | None = None


@dataclass
class Workshop:
    """What every attempt shares: the problem, the clock, the log of attempts and the best weights so far."""

    graph: Graph
    table: Float[Tensor, "items d_model"]
    device: torch.device
    heads: int | None
    margin: float
    deadline: float
    seed: int
    report: Callable[[str], None]
    frontier: list[Attempt] = field(default_factory=list)
    best: tuple[KeyQuery, Certificate] | None = None
    stopped: bool = False  # by Ctrl-C

    def __post_init__(self) -> None:
        self.levels = levels_of(
            self.graph, self.table
        )  # the one that succeeds becomes the only one
        whitened = Prepared.of(self.graph, self.table, 1.0, self.device)
        self.problems = {level: whitened.at(level) for level in self.levels}
        self._tried: set[tuple[float, tuple[int, ...], int]] = set()

    @property
    def rank(self) -> int:
        return self.problems[self.levels[0]].rank

    @property
    def sparse(self) -> bool:
        return self.graph.edges < _SPARSE * self.graph.items**2

    def in_time(self) -> bool:
        return not self.stopped and time.monotonic() < self.deadline

    def reach(self, budget: int, rounds: Iterator[int], both: bool = False) -> bool:
        """Whether weights of at most this budget are found in the given rounds; each is slower than the last.

        Round 0 is hasty: one short trial with the likeliest number of heads. Round 1 tries both signs of τ, the
        others the likelier one, unless `both`.
        """
        for number in rounds:
            for level in self.levels if both or number == 1 else self.levels[:1]:
                counts = head_counts(self.problems[level], budget, self.heads)
                for heads in counts if number else counts[:1]:
                    if not self.in_time():
                        return False
                    if self._succeeds(level, widths_of(budget, heads, self.rank), number):
                        self.levels = (level,)
                        return True
        return False

    def _succeeds(self, level: float, widths: tuple[int, ...], number: int) -> bool:
        """A descent, unless it was made before (once heads are as wide as the table's rank), where it failed."""
        if (level, widths, number) in self._tried:
            return False
        self._tried.add((level, widths, number))
        return self._descend(level, widths, number)

    def _descend(self, level: float, widths: tuple[int, ...], number: int) -> bool:
        problem, begun, found = self.problems[level], time.monotonic(), None

        def keep_on(step: int, best: Descended) -> bool:
            nonlocal found
            found = best
            if step % _LINE == 0:
                self.report(
                    f"{in_words(widths)}: step {step}, {best.wrong} violations, gap {best.gap:.3g}"
                )
            return self.in_time()

        trials = (_TOGETHER[self.device.type] << min(number, 3)) // (len(widths) * problem.items**2)
        trials = max(1, min(_TRIALS, trials)) if number else 1
        schedule = Schedule(steps=int(_STEPS * 1.5 ** (number - 1)) if number else _HASTY)
        scores = trials * len(widths) * problem.items**2
        with torch_threads(1 if scores <= _SMALL else None):
            try:
                with _denormals_flushed():
                    found = descend(
                        problem, widths, trials, self.seed + 1000 * number, schedule, keep_on
                    )
            except KeyboardInterrupt:
                self.stopped = True
                if found is None:
                    raise
            settled = self._settled(problem, widths, found.weights) if found.gap > 0 else None
        wide_enough = settled is not None and settled[1].relative_margin >= self.margin
        if (
            settled
            and wide_enough
            and (self.best is None or settled[0].budget < self.best[0].budget)
        ):
            self.best = settled
        self._record(widths, found, settled, time.monotonic() - begun)
        return wide_enough

    def _settled(
        self, problem: Prepared, widths: tuple[int, ...], weights: Weights
    ) -> tuple[KeyQuery, Certificate] | None:
        """Polished and certified; after Ctrl-C certified as they are."""
        steps = _POLISH if problem.items <= _LARGE else _POLISH // 6
        try:
            with _denormals_flushed():
                wide = polish(problem, weights, self.in_time, max(_ENOUGH, self.margin), steps)
            return settle(problem, wide, widths, self.graph, self.table)
        except KeyboardInterrupt:
            self.stopped = True
            return settle(problem, weights, widths, self.graph, self.table)

    def _record(
        self,
        widths: tuple[int, ...],
        found: Descended,
        settled: tuple[KeyQuery, Certificate] | None,
        seconds: float,
    ) -> None:
        margin = settled[1].relative_margin if settled else None
        exact = margin is not None and margin >= self.margin
        wrong = 0 if settled else max(found.wrong, 1)
        self.frontier.append(
            Attempt(sum(widths), widths, exact, wrong, margin, found.steps, seconds, found.gap)
        )
        said = f"exact, relative margin {margin:.3g}" if settled else f"{found.wrong} violations"
        self.report(f"{in_words(widths)}: {said}, {seconds:.1f} s")


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
    """Vanishing violations must not slow the CPU down; afterwards the setting is as before."""
    before = bool((torch.tensor([2.0**-126]) * 0.5 == 0).all())
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
