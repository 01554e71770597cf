"""From whitened weights that separate to certified weights with a wider margin."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.compiler.certificate import Certificate
from headcount.compiler.layout import Layout
from headcount.compiler.objective import Objective, Pressure, Weights
from headcount.compiler.whitened import WhitenedProblem
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Float

_GROWTH = 1.3  # how much wider a margin is tried each time
_STUCK = 1e4  # damping beyond which no step helps
_EASIER, _HARDER = 0.5, 4.0  # what a step that helps, or does not, makes of the damping


def widen_margin(
    problem: WhitenedProblem,
    weights: Weights,
    keep_on: Callable[[], bool],
    enough: float = 0.5,
    steps: int = 60,
) -> Weights:
    """Widen the relative margin, (low − high)/(low + high), by a few Levenberg–Marquardt steps.

    Each step aims at a margin a little beyond the one reached, so that only binding pairs violate
    it.
    """
    objective = Objective(problem)
    plain = Pressure(torch.ones(1, problem.edges, device=problem.points.device))
    damping = torch.full((1,), 1e-3, device=problem.points.device)
    best, widest = weights, 0.0
    for _ in range(steps):
        here = objective.read(weights, 0.0, 0.0, plain)
        middle, gap = float(here.low + here.high) / 2, float(here.gap)
        if middle * problem.level > 0 and gap / 2 / abs(middle) > widest:
            best, widest = weights, gap / 2 / abs(middle)
            weights = weights.scaled(problem.level / middle)  # τ back to the middle of the gap
        if widest >= enough or float(damping) > _STUCK or not keep_on():
            break
        setting = max(_GROWTH * widest, 1e-3), 0.0, plain
        here = objective.read(weights, *setting, damping)
        assert here.step is not None
        moved = weights.minus(here.step)
        better = float(objective.read(moved, *setting).loss) < float(here.loss)
        if better:
            weights, damping = moved, damping * _EASIER
        else:
            damping = damping * _HARDER
    return best


def unwhitened(
    problem: WhitenedProblem, weights: Weights, layout: Layout, dtype: torch.dtype
) -> KeyQuery:
    """The weights for the table as given, scaled so that a key and its queries have one norm."""
    queries, keys = (
        problem.fold @ part[0].cpu().double() for part in (weights.queries, weights.keys)
    )
    keys, sharing = keys[:: layout.sharing].clone(), layout.sharing
    for group, key in enumerate(keys):
        asking = slice(group * sharing, (group + 1) * sharing)
        query = queries[asking]
        if query.any() and key.any():
            ratio = (_norm(key) / _norm(query) * math.sqrt(sharing)).sqrt()
            queries[asking], keys[group] = query * ratio, key / ratio
    return KeyQuery(
        queries.to(dtype), keys.to(dtype), threshold=problem.level, widths=layout.widths
    )


def _norm(part: Float[Tensor, "*some d_model key_dim"]) -> Tensor:
    """The norm, without squaring very large or small entries."""
    largest = part.abs().max()
    return largest * (part / largest).norm()


def certified_weights(
    problem: WhitenedProblem,
    weights: Weights,
    layout: Layout,
    graph: Graph,
    table: Float[Tensor, "items d_model"],
) -> tuple[KeyQuery, Certificate] | None:
    """Undo the whitening, put τ in the middle of the gap, certify: in float32, else in float64.

    Decided by the top of a row, weights have a note that says so, and τ is 0 and counts nowhere.
    """
    for dtype in (torch.float32, torch.float64):
        with suppress(InputError):  # entries too large or too small for this dtype
            folded = unwhitened(problem, weights, layout, dtype)
            if layout.top:
                noted = replace(folded, threshold=0.0, notes={"decide": "top"})
                if (found := verify(noted, graph, table)).exact:
                    return noted, Certificate.of(found, noted, graph, table)
                continue
            first = verify(folded, graph, table)
            if first.lowest_edge is None or first.highest_non_edge is None:
                continue
            middle = (first.lowest_edge.score + first.highest_non_edge.score) / 2
            if middle == 0:
                continue
            centred = replace(folded, threshold=middle)
            found = verify(centred, graph, table)
            if found.exact:
                return centred, Certificate.of(found, centred, graph, table)
    return None
