"""The front door: the smallest weights that a descent finds and verification certifies."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

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
    variant: str = "max",
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
    chosen = _device(device, variant)
    if table.dtype in (torch.float16, torch.bfloat16):
        table = table.float()  # exact
    require_possible(graph, table)
    if variant == "softmax" or context_length is not None:
        return _softmax(
            graph,
            table,
            budget,
            heads,
            margin,
            time_limit,
            seed,
            progress,
            bits,
            variant,
            context_length,
        )
    if bits is not None:
        return _rounded(
            graph, table, budget, heads, margin, time_limit, seed, chosen, progress, bits
        )
    if graph.edges in (0, graph.items**2):
        return _constant(graph, table)
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    report = progress or (lambda line: None)
    workshop = Workshop(graph, table, chosen, heads, margin or 0.0, deadline, seed, report)
    _work(workshop, budget)
    return _best_of(workshop)


def _work(workshop: Workshop, budget: int | None) -> None:
    """Fill the workshop; Ctrl-C ends it with what it has."""
    try:
        if budget is not None:
            rounds = iter(range(_ROUNDS)) if math.isinf(workshop.deadline) else itertools.count()
            workshop.reach(budget, rounds)
        else:
            _search(workshop)
    except KeyboardInterrupt:
        workshop.stopped = True


def _best_of(workshop: Workshop) -> Compiled:
    if workshop.best is not None:
        return Compiled(*workshop.best, workshop.frontier)
    when = (
        " before the interruption" if workshop.stopped else "" if workshop.in_time() else " in time"
    )
    raise NoSolution(_how_far(workshop, when))


def _rounded(
    graph: Graph,
    table: Tensor,
    budget: int | None,
    heads: int | None,
    margin: float | None,
    time_limit: float | None,
    seed: int,
    device: torch.device,
    progress: Callable[[str], None] | None,
    bits: int,
) -> Compiled:
    def compile_at(budget: int | None, seconds: float) -> Compiled:
        workshop = Workshop(
            graph, table, device, heads, 0.0, time.monotonic() + seconds, seed, report
        )
        _work(workshop, budget)
        search.stopped = workshop.stopped
        return _best_of(workshop)

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
        raise InputError(
            "a context length belongs to the softmax variant; max weights serve every length"
        )
    if bits is not None:
        raise InputError("softmax weights are not rounded; leave out --bits or --variant softmax")
    length = check_length(context_length, graph.items)
    deadline = math.inf if time_limit is None else time.monotonic() + time_limit
    report = progress or (lambda line: None)
    search = SoftmaxSearch(graph, table, length, heads, margin or 0.0, deadline, seed, report)
    return Compiled(*compile_softmax(search, budget), search.frontier)


def _check(
    budget: int | None, heads: int | None, margin: float | None, time_limit: float | None
) -> None:
    if heads is not None and heads < 1:
        raise InputError(f"{heads} heads hold nothing; choose at least 1")
    if budget is not None and budget < (heads or 1):
        raise InputError(
            f"a budget of {budget} leaves some of {heads or 1} heads without width; raise it"
        )
    if margin is not None and not 0 <= margin < 1:
        raise InputError(f"margin {margin} is no share of the threshold; choose 0 or more, below 1")
    if time_limit is not None and not time_limit > 0:
        raise InputError(f"a time limit of {time_limit} s leaves no time; choose more than 0")


def _device(device: str, variant: str) -> torch.device:
    """`auto` is CUDA where torch sees it."""
    if variant not in ("max", "softmax"):
        raise InputError(f"variant {variant!r} is unknown; use max or softmax")
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"device {device!r} is unknown; use auto, cpu or cuda")
    if variant == "softmax" and device == "cuda":
        raise InputError("softmax weights are compiled on the CPU; use --device cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("torch sees no CUDA device; use --device cpu")
    return torch.device("cuda" if device != "cpu" and torch.cuda.is_available() else "cpu")


def _constant(graph: Graph, table: Tensor) -> Compiled:
    weights = constant(graph, table)
    certificate = certify(weights, graph, table)
    assert certificate is not None
    return Compiled(weights, certificate, [Attempt(1, (1,), True, 0, 1.0, 0, 0.0)])


def _search(workshop: Workshop) -> None:
    """Grow from a first budget until one is reached, then shrink, hastily at first and with patience at the end."""
    floor = workshop.heads or 1
    budget = first = max(
        floor, first_budget(workshop.graph.items, workshop.graph.edges, workshop.rank)
    )
    while workshop.in_time() and not workshop.reach(
        budget, iter([0]), both=budget > first and not workshop.sparse
    ):
        if budget >= _BEYOND * first:
            workshop.reach(budget, iter([1]))
            break
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
    reached = {
        attempt.relative_margin: attempt
        for attempt in workshop.frontier
        if attempt.relative_margin is not None
    }
    if reached:
        widest = max(reached)
        return (
            f"no weights with the margin asked for were found{when}; {in_words(reached[widest].widths)} reached a "
            f"relative margin of {widest:.3g}; ask for less, or raise the budget"
        )
    near = min(workshop.frontier, key=lambda attempt: (attempt.wrong, attempt.budget))
    plural, many = "s" if len(workshop.frontier) > 1 else "", "s" if near.wrong > 1 else ""
    return (
        f"no exact weights were found{when} in {len(workshop.frontier)} attempt{plural}; the closest, "
        f"{in_words(near.widths)}, had {near.wrong} violation{many} in {workshop.graph.items**2} pairs and a gap of "
        f"{near.gap:.3g}; raise the budget or the time limit"
    )
