"""From whitened weights that separate to certified weights for the table as given."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.compiler.certificate import Certificate
from headcount.compiler.layout import Layout
from headcount.compiler.trial import Weights
from headcount.compiler.whitened import WhitenedProblem
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Float


def unwhitened(
    problem: WhitenedProblem, weights: Weights, layout: Layout, dtype: torch.dtype
) -> KeyQuery:
    """The weights for the table as given, scaled so that a key and its queries have one norm."""
    queries, keys = (problem.fold @ part.cpu().double() for part in (weights.queries, weights.keys))
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
