"""The smallest certified weights on a grid of b bits: compile, move onto the grid, certify what came out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.compiler.attempts import Attempt
from headcount.compiler.certificate import Certificate
from headcount.compiler.on_grid import Pairs, onto_grid, widened
from headcount.compiler.rounding import check_bits, from_parts, heads_of, rounded, turned
from headcount.errors import NoSolution
from headcount.problem.graph import Graph
from headcount.shapes import Float
from headcount.theory.counting import log2_graphs
from headcount.theory.lower_bounds import bit_budget_bound

if TYPE_CHECKING:
    from headcount.compiler.compile import Compiled

_MARGINS = (0.05, 0.1, 0.2)  # μ aimed at while entries are fixed, as a share of τ
_TURNS = 4  # random turns of the weights, each with every margin
_HOPELESS = 0.15  # a turn whose best gap is further below 0 than this share of τ is the last
_BEYOND = 4  # a search gives up at this many times the budget of the weights before rounding


@dataclass
class RoundedSearch:
    """Budgets tried one by one; `compile_at(budget, seconds left)` gives exact weights before rounding."""

    graph: Graph
    table: Float[Tensor, "items d_model"]
    bits: int
    margin: float
    deadline: float
    seed: int
    compile_at: Callable[[int | None, float], Compiled]
    report: Callable[[str], None]
    frontier: list[Attempt] = field(default_factory=list)
    best: tuple[KeyQuery, Certificate] | None = None
    stopped: bool = False  # by Ctrl-C

    def in_time(self) -> bool:
        return not self.stopped and time.monotonic() < self.deadline

    def reach(self, budget: int | None, share: float = 1.0) -> KeyQuery:
        """Compile at a budget (None: the smallest) and round; the weights before rounding."""
        found = self.compile_at(budget, max(0.01, share * (self.deadline - time.monotonic())))
        self.frontier += found.frontier
        self._round(found.weights)
        return found.weights

    def reach_from(self, weights: KeyQuery, budget: int) -> bool:
        """Widen exact weights to a budget and round: much quicker than to compile again."""
        pairs, heads = Pairs.of(self.graph, self.table, weights.threshold), heads_of(weights)
        heads = widened(pairs, heads, budget - weights.budget, self.seed, self.in_time)
        self._round(from_parts(heads, weights, weights.threshold))
        return self.reached(budget)

    def reach_again(self, budget: int) -> bool:
        """Compile at a budget that is known to be enough before rounding; slower, but with wider margins."""
        with suppress(NoSolution):
            self.reach(budget)
        return self.reached(budget)

    def reached(self, budget: int) -> bool:
        return self.best is not None and self.best[0].budget <= budget

    def _round(self, weights: KeyQuery) -> None:
        begun, closest = time.monotonic(), -math.inf
        for turn in range(_TURNS):
            for margin in (None, *_MARGINS):
                closest = max(closest, self._try(weights, turn, margin, begun))
                if self.reached(weights.budget) or not self.in_time():
                    return
            if closest < -_HOPELESS:
                return

    def _try(self, weights: KeyQuery, turn: int, margin: float | None, begun: float) -> float:
        """Keep the weights if they are certified; their gap over |τ|. Without a margin: rounded as they are."""
        pairs = Pairs.of(self.graph, self.table, weights.threshold)
        heads, size = turned(heads_of(weights), self.seed + turn), abs(weights.threshold)
        if margin is None:
            heads = heads_of(rounded(from_parts(heads, weights, weights.threshold), self.bits))
        else:
            heads, _ = onto_grid(pairs, heads, self.bits, margin * size, self.in_time)
        gap, middle = pairs.gap(heads)
        found = from_parts(heads, weights, middle or size)
        checked = verify(found, self.graph, self.table)
        certificate = None
        if checked.exact:
            certificate = replace(
                Certificate.of(checked, found, self.graph, self.table), bits=self.bits
            )
        wrong = checked.false_positives + checked.false_negatives
        relative = certificate.relative_margin if certificate else None
        exact = relative is not None and relative >= self.margin
        seconds = time.monotonic() - begun
        self.frontier.append(
            Attempt(found.budget, found.widths, exact, wrong, relative, 0, seconds)
        )
        said = f"exact, relative margin {relative:.3g}" if certificate else f"{wrong} pairs wrong"
        self.report(f"D_K = {found.budget} in {self.bits} bits: {said}")
        if exact and certificate and not self.reached(found.budget):
            self.best = found, certificate
        return gap / size


def compile_rounded(search: RoundedSearch, budget: int | None) -> tuple[KeyQuery, Certificate]:
    """Certified weights of at most this D_K on the grid; without a budget, the smallest D_K that is reached."""
    check_bits(search.bits)
    try:
        if budget is not None:
            search.reach(budget)
        else:
            _grow(search)
    except KeyboardInterrupt:
        search.report("interrupted")
    if search.best is None:
        raise NoSolution(_how_far(search))
    return search.best


def _grow(search: RoundedSearch) -> None:
    """From the smallest weights before rounding upwards with growing strides, then back by halves.

    On the way up weights are only widened, which is quick; on the way back they are compiled again where that fails.
    """
    exact = search.reach(None, share=0.5)
    failed, stride = exact.budget, 1
    most = min(_BEYOND * exact.budget, exact.heads * exact.d_model)
    while search.best is None and failed < most and search.in_time():
        budget, stride = min(most, failed + stride), 2 * stride
        if not search.reach_from(exact, budget):
            failed = budget
    failed = exact.budget
    while search.best is not None and search.best[0].budget - failed > 1 and search.in_time():
        middle = (search.best[0].budget + failed) // 2
        if not (search.reach_from(exact, middle) or search.reach_again(middle)):
            failed = middle


def _how_far(search: RoundedSearch) -> str:
    tried = [attempt for attempt in search.frontier if not attempt.exact]
    if not tried:
        return f"no weights were found to round to {search.bits} bits; raise the budget or the time limit"
    near = min(tried, key=lambda attempt: (attempt.wrong, attempt.budget))
    return (
        f"no weights of {search.bits} bits were certified; the closest, D_K = {near.budget}, had {near.wrong} of "
        f"{search.graph.items**2} pairs wrong after rounding; raise the budget or the bits"
    )


def bit_account(weights: KeyQuery, graph: Graph, bits: int) -> dict[str, Any]:
    """What b-bit weights cost against what the graph holds: log2 m! bits for a permutation, else log2 C(m², m').

    The scales (two a head) and τ are not counted.
    """
    pairs = graph.items**2
    held = log2_graphs(graph.items) if graph.is_permutation else _log2_choices(pairs, graph.edges)
    spent = bits * 2 * weights.d_model * weights.budget
    bound = bit_budget_bound(held, weights.d_model, bits)
    return {
        "bits": bits,
        "bits_in_all": spent,
        "information_bits": held,
        "information_per_bit": held / spent,
        "bit_budget_bound": bound,
        "budget_over_bound": weights.budget / bound,
    }


def _log2_choices(pairs: int, edges: int) -> float:
    return (
        math.lgamma(pairs + 1) - math.lgamma(edges + 1) - math.lgamma(pairs - edges + 1)
    ) / math.log(2)
