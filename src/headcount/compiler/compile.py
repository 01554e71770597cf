"""The front door: the smallest weights that a descent finds and verification certifies."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.compiler.attempts import Attempt, Workshop, in_words
from headcount.compiler.certificate import Certificate, certify
from headcount.compiler.compile_rounded import RoundedSearch, compile_rounded
from headcount.compiler.finish import constant
from headcount.compiler.prepared import require_possible
from headcount.compiler.rounding import check_bits
from headcount.compiler.softmax import SoftmaxSearch, check_length, compile_softmax
from headcount.compiler.splits import first_budget
from headcount.errors import InputError, NoSolution
from headcount.problem.graph import Graph
from headcount.shapes import Float

_ROUNDS = 4  # at a given budget, without a time limit
_GROWTH = 1.25  # of a search's budgets, while none is reached
_BEYOND = 16  # a search gives up at this many times its first budget


@dataclass(frozen=True)
class Compiled:
    """Certified weights, and every attempt on the way to them."""

    weights: KeyQuery
    certificate: Certificate
    frontier: list[Attempt]


def compile(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    budget: int | None = None,
    heads: int | None = None,
    margin: float | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[str], None] | None = None,
    bits: int | None = None,
    variant: Literal["max", "softmax"] = "max",
    context_length: int | None = None,
) -> Compiled:
    """Weights that decide every ordered pair of `graph` on `table` rightly, with a certificate.

    With `budget`: weights of at most that D_K. Without: the smallest D_K that the search reaches. `margin` is the
    least γ/|τ| to accept, `time_limit` is in seconds. Ctrl-C ends a search with the best weights so far. Raises
    `NoSolution`, which says how far it got, when nothing was certified.

    With `bits` the weights lie on a grid of that many bits, and are certified after rounding. With `variant="softmax"`
    they are read by softmax over contexts of `context_length` items, and certified for all of these.

    >>> from headcount.problem.makers import permutation_graph
    >>> from headcount.problem.embeddings import gaussian_embeddings
    >>> found = compile(permutation_graph(16), gaussian_embeddings(16, 8), budget=6)
    >>> found.weights.budget, found.certificate.margin > 0
    (6, True)
    """
    _check(budget, heads, margin, time_limit)
    require_possible(graph, table)
    if variant == "softmax" or context_length is not None:
        return _softmax(graph, table, budget, heads, margin, time_limit, seed, progress, bits, variant, context_length)
    if bits is not None:
        return _rounded(graph, table, budget, heads, margin, time_limit, seed, device, progress, bits)
    if graph.edges in (0, graph.items**2):
        return _constant(graph, table)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    report = progress or (lambda line: None)
    workshop = Workshop(graph, table, torch.device(device), heads, margin or 0.0, deadline, seed, report)
    stopped = ""
    with _denormals_flushed():
        try:
            if budget is not None:
                workshop.reach(budget, _rounds(time_limit))
            else:
                _search(workshop)
        except KeyboardInterrupt:
            stopped = " before the interruption"
    if workshop.best is None:
        raise NoSolution(_how_far(workshop, stopped or (" in time" if not workshop.in_time() else "")))
    return Compiled(*workshop.best, workshop.frontier)


def _rounded(
    graph: Graph,
    table: Tensor,
    budget: int | None,
    heads: int | None,
    margin: float | None,
    time_limit: float | None,
    seed: int,
    device: str,
    progress: Callable[[str], None] | None,
    bits: int,
) -> Compiled:
    def compile_at(budget: int | None, seconds: float | None) -> Compiled:
        return compile(graph, table, budget, heads, None, seconds, seed, device, progress)

    check_bits(bits)
    if graph.edges in (0, graph.items**2):
        found = _constant(graph, table)  # all entries are 0, which every grid holds
        return replace(found, certificate=replace(found.certificate, bits=bits))
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    report = progress or (lambda line: None)
    search = RoundedSearch(graph, table, bits, margin or 0.0, deadline, seed, compile_at, report)
    return Compiled(*compile_rounded(search, budget), search.frontier)


def _softmax(
    graph: Graph,
    table: Tensor,
    budget: int | None,
    heads: int | None,
    margin: float | None,
    time_limit: float | None,
    seed: int,
    progress: Callable[[str], None] | None,
    bits: int | None,
    variant: str,
    context_length: int | None,
) -> Compiled:
    if variant != "softmax":
        raise InputError("a context length belongs to the softmax variant; max weights serve every length")
    if bits is not None:
        raise InputError("softmax weights are not rounded; leave out --bits or --variant softmax")
    length = check_length(context_length, graph.items)
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    report = progress or (lambda line: None)
    search = SoftmaxSearch(graph, table, length, heads, margin or 0.0, deadline, seed, report)
    return Compiled(*compile_softmax(search, budget), search.frontier)


def _check(budget: int | None, heads: int | None, margin: float | None, time_limit: float | None) -> None:
    if heads is not None and heads < 1:
        raise InputError(f"{heads} heads hold nothing; choose at least 1")
    if budget is not None and budget < (heads or 1):
        raise InputError(f"a budget of {budget} leaves some of {heads or 1} heads without width; raise it")
    if margin is not None and not 0 <= margin < 1:
        raise InputError(f"margin {margin} is no share of the threshold; choose 0 or more, below 1")
    if time_limit is not None and not time_limit > 0:
        raise InputError(f"a time limit of {time_limit} s leaves no time; choose more than 0")


def _constant(graph: Graph, table: Tensor) -> Compiled:
    weights = constant(graph, table)
    certificate = certify(weights, graph, table)
    assert certificate is not None
    return Compiled(weights, certificate, [Attempt(1, (1,), True, 0, 1.0, 0, 0.0)])


def _rounds(time_limit: float | None) -> Iterator[int]:
    return iter(range(_ROUNDS)) if time_limit is None else itertools.count()


def _search(workshop: Workshop) -> None:
    """Grow from a first budget until one is reached, then shrink, hastily at first and with patience at the end."""
    floor = workshop.heads or 1
    budget = first = max(floor, first_budget(workshop.graph.items, workshop.graph.edges, workshop.rank))
    while workshop.in_time() and not workshop.reach(budget, iter([0])):
        if budget >= _BEYOND * first and not workshop.reach(budget, iter([1])):
            return
        budget = math.ceil(_GROWTH * budget)
    for number in range(_ROUNDS - 1):
        _shrink(workshop, floor, number)


def _shrink(workshop: Workshop, floor: int, number: int) -> None:
    """Go down by an eighth (less in later rounds) while that succeeds, and by half as much after every failure."""
    if workshop.best is None:
        return
    stride = max(1, workshop.best[0].budget >> (3 + number))
    while stride and workshop.in_time():
        budget = workshop.best[0].budget - stride
        if budget < floor or not workshop.reach(budget, iter([number])):
            stride //= 2


def _how_far(workshop: Workshop, when: str) -> str:
    """One sentence about the closest attempt."""
    if not workshop.frontier:
        return f"no attempt was finished{when}; allow more time"
    near = min(workshop.frontier, key=lambda attempt: (attempt.wrong, attempt.budget))
    shape, plural = in_words(near.widths), "s" if len(workshop.frontier) > 1 else ""
    if near.relative_margin is not None:
        return (
            f"no weights with the margin asked for were found{when}; {shape} reached a relative margin of "
            f"{near.relative_margin:.3g}; ask for less, or raise the budget"
        )
    return (
        f"no exact weights were found{when} in {len(workshop.frontier)} attempt{plural}; the closest, {shape}, had "
        f"{near.wrong} of {workshop.graph.items**2} pairs wrong; raise the budget or the time limit"
    )


@contextmanager
def _denormals_flushed() -> Iterator[None]:
    """Vanishing violations must not slow the CPU down; afterwards the setting is as before."""
    before = bool((torch.tensor([2.0**-126]) * 0.5 == 0).all())
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
