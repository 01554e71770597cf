"""What the three searches share: the clock, the log of attempts, the best weights, how they end."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch

from headcount.attention.key_query import KeyQuery
from headcount.compiler.certificate import Certificate
from headcount.compiler.request import CompileRequest
from headcount.errors import NoSolution
from headcount.notebook import html_table


@dataclass(frozen=True)
class Attempt:
    """One attempt: its widths, whether its weights were certified, and how close it came.

    `wrong` counts violations; a non-edge counts once for each head that exceeds τ. `gap` is the
    lowest edge score minus the highest non-edge score.
    """

    budget: int
    widths: tuple[int, ...]
    exact: bool
    wrong: int
    relative_margin: float | None
    steps: int
    seconds: float
    gap: float | None = None


@dataclass(frozen=True)
class Compiled:
    """Certified weights, and every attempt on the way to them."""

    weights: KeyQuery
    certificate: Certificate
    frontier: list[Attempt]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights as `.safetensors`, with their certificate in the notes of the file.

        `load_weights` reads them, and `Certificate.from_notes` the certificate.
        """
        notes = {**self.weights.notes, **self.certificate.to_notes()}
        replace(self.weights, notes=notes).save(path)

    def _repr_html_(self) -> str:
        rows = [
            ("D_K", self.weights.budget),
            ("heads", self.weights.heads),
            ("relative margin", self.certificate.relative_margin),
            ("pairs", self.certificate.pairs),
            ("attempts", len(self.frontier)),
        ]
        return html_table(("", "certified"), rows)


class WeightSearch(ABC):
    """A search for certified weights: at one budget, or for the smallest budget that it reaches."""

    def __init__(self, request: CompileRequest) -> None:
        self.request = request
        self.deadline = time.monotonic() + request.time_limit
        self.frontier: list[Attempt] = []
        self.best: tuple[KeyQuery, Certificate] | None = None
        self.stopped = False  # by Ctrl-C
        self.reserved = 0.0  # seconds before the deadline that a certificate needs

    def run(self) -> Compiled:
        """The best weights found; Ctrl-C ends the search with those found so far."""
        constant = self.constant_weights()
        if constant is not None:
            return self._certified_constant(constant)
        try:
            if self.request.budget is not None:
                self.reach_within(self.request.budget)
            else:
                self.minimise()
        except KeyboardInterrupt:
            self.stopped = True
        if self.best is None:
            raise NoSolution(self.how_far())
        return Compiled(*self.best, self.frontier)

    def constant_weights(self) -> KeyQuery | None:
        """Zero weights, where a threshold alone decides every pair: all scores are 0."""
        if not self.request.is_constant:
            return None
        zero = torch.zeros(1, self.request.table.shape[1], 1)
        notes = {"decide": "top"} if self.request.top else {}
        threshold = -1.0 if self.request.graph.edges else 1.0
        return KeyQuery(zero, zero, threshold, notes=notes)

    @abstractmethod
    def certify(self, weights: KeyQuery) -> Certificate | None:
        """The certificate of these weights, if every pair is decided correctly."""

    @abstractmethod
    def reach(self, budget: int) -> bool:
        """Whether certified weights of at most this budget are found."""

    def reach_within(self, budget: int) -> None:
        """Look for weights of at most the budget that was asked for."""
        self.reach(budget)

    @abstractmethod
    def minimise(self) -> None:
        """Look for the smallest budget that can be reached."""

    @abstractmethod
    def how_far(self) -> str:
        """One sentence about the closest attempt, for a search that certified nothing."""

    def in_time(self) -> bool:
        return not self.stopped and time.monotonic() + self.reserved < self.deadline

    def reached(self, budget: int) -> bool:
        return self.best is not None and self.best[0].budget <= budget

    def accept(self, weights: KeyQuery, certificate: Certificate) -> None:
        """Keep certified weights if they are smaller than the best so far, and hand them on."""
        if not self.reached(weights.budget):
            self.best = weights, certificate
            self.request.improved(Compiled(weights, certificate, list(self.frontier)))

    def record(self, attempt: Attempt, line: str) -> None:
        """Add an attempt to the log and report it."""
        self.frontier.append(attempt)
        self.report(line)

    def report(self, line: str) -> None:
        """One line of progress, with the best budget so far."""
        best = "" if self.best is None else f"best D_K = {self.best[0].budget}; "
        self.request.progress(best + line)

    def _certified_constant(self, weights: KeyQuery) -> Compiled:
        certificate = self.certify(weights)
        assert certificate is not None
        self.frontier = [Attempt(1, (1,), True, 0, certificate.relative_margin, 0, 0.0)]
        self.accept(weights, certificate)
        return Compiled(weights, certificate, self.frontier)


def in_words(widths: tuple[int, ...]) -> str:
    """D_K and the number of heads, for a line of progress.

    >>> in_words((4, 3))
    'D_K = 7 in 2 heads'
    """
    return f"D_K = {sum(widths)} in {len(widths)} head{'s' if len(widths) > 1 else ''}"
