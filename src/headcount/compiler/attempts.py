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
from headcount.compiler.prepared import Prepared
from headcount.compiler.splits import head_counts, widths_of
from headcount.problem.graph import Graph
from headcount.shapes import Float

_TOGETHER = {"cpu": 2**18, "cuda": 2**25}  # scores of all trials and heads in a descent; twice that every round
_TRIALS = 8
_HASTY = 160  # steps of the first round, enough where the budget is ample
_STEPS = 400  # of the next; 1.5 times as many every round
_SMALL = 2**18  # scores of all trials and heads up to which one thread is used
_LINE = 20  # steps between two lines of progress
_ENOUGH = 0.5  # relative margin beyond which nothing is polished
_POLISH = 60  # steps
_LARGE = 1024  # items from which a step takes seconds


@dataclass(frozen=True)
class Attempt:
    """One descent: its widths, whether its weights were certified, and how close it came."""

    budget: int
    widths: tuple[int, ...]
    exact: bool
    wrong: int
    relative_margin: float | None
    steps: int
    seconds: float


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

    def __post_init__(self) -> None:
        dense = 2 * self.graph.edges > self.graph.items**2
        self.levels = (-1.0, 1.0) if dense else (1.0, -1.0)
        whitened = Prepared.of(self.graph, self.table, 1.0, self.device)
        self.problems = {level: whitened.at(level) for level in self.levels}

    @property
    def rank(self) -> int:
        return self.problems[1.0].rank

    def in_time(self) -> bool:
        return time.monotonic() < self.deadline

    def reach(self, budget: int, rounds: Iterator[int]) -> bool:
        """Whether weights of at most this budget are found in the given rounds; each is slower than the last.

        Round 0 is hasty: one short trial with the likeliest number of heads.
        """
        for number in rounds:
            levels = self.levels if number == 1 and self.best is None else self.levels[:1]
            for level in levels:
                counts = head_counts(self.problems[level], budget, self.heads)
                for heads in counts if number else counts[:1]:
                    if not self.in_time():
                        return False
                    if self._descend(level, widths_of(budget, heads, self.rank), number):
                        return True
        return False

    def _descend(self, level: float, widths: tuple[int, ...], number: int) -> bool:
        problem, begun = self.problems[level], time.monotonic()

        def keep_on(step: int, best: Descended) -> bool:
            if step % _LINE == 0:
                self.report(f"{in_words(widths)}: step {step}, {best.wrong} pairs wrong, gap {best.gap:.3g}")
            return self.in_time()

        trials = (_TOGETHER[self.device.type] << min(number, 3)) // (len(widths) * problem.items**2)
        trials = max(1, min(_TRIALS, trials)) if number else 1
        schedule = Schedule(steps=int(_STEPS * 1.5 ** (number - 1)) if number else _HASTY)
        with _threads_for(trials * len(widths) * problem.items**2):
            found = descend(problem, widths, trials, self.seed + 1000 * number, schedule, keep_on)
            settled = None
            if found.gap > 0:
                steps = _POLISH if problem.items <= _LARGE else _POLISH // 6
                wide = polish(problem, found.weights, self.in_time, max(_ENOUGH, self.margin), steps)
                settled = settle(problem, wide, widths, self.graph, self.table)
        self._record(widths, found, settled, time.monotonic() - begun)
        if settled is None or settled[1].relative_margin < self.margin:
            return False
        if self.best is None or settled[0].budget < self.best[0].budget:
            self.best = settled
        return True

    def _record(
        self, widths: tuple[int, ...], found: Descended, settled: tuple[KeyQuery, Certificate] | None, seconds: float
    ) -> None:
        margin = settled[1].relative_margin if settled else None
        exact = margin is not None and margin >= self.margin
        self.frontier.append(
            Attempt(sum(widths), widths, exact, 0 if settled else max(found.wrong, 1), margin, found.steps, seconds)
        )
        said = f"exact, relative margin {margin:.3g}" if settled else f"{found.wrong} pairs wrong"
        self.report(f"{in_words(widths)}: {said}, {seconds:.1f} s")


def in_words(widths: tuple[int, ...]) -> str:
    """D_K and the number of heads, for a line of progress.

    >>> in_words((4, 3))
    'D_K = 7 in 2 heads'
    """
    return f"D_K = {sum(widths)} in {len(widths)} head{'s' if len(widths) > 1 else ''}"


@contextmanager
def _threads_for(scores: int) -> Iterator[None]:
    """One thread where tensors are so small that a second one would mostly wait for the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if scores > _SMALL else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
