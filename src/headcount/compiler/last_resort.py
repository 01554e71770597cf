"""One head of one column for each edge: many columns, and found without a search.

Head (i, j) scores a pair (a, b) with (x_a·u)(x_b·v), where u singles out row i: x_i·u = 1, and
|x_a·u| < 1 for every other row. So only (i, j) reaches 1. In whitened coordinates u = x_i/‖x_i‖²
nearly always does; where it does not, the u is taken that keeps all other rows lowest.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.compiler.trial import Weights
from headcount.compiler.whitened import WhitenedProblem
from headcount.shapes import Float, Int

_ROUNDS = 200  # of least squares for one row
_REACHED = 0.99  # of a pointer's own score, which is 1
_SAME = 1e-6  # squared distance below which rows are equal, up to rounding


def one_head_per_edge(problem: WhitenedProblem) -> Weights:
    """Weights of width 1; they are exact where every row can be singled out."""
    ends, places = torch.cat([problem.sources, problem.targets]).unique(return_inverse=True)
    pointers = _pointers(problem.points, ends)
    queries, keys = pointers[places].split(problem.edges)
    parts = (part.view(problem.edges, problem.rank, 1) for part in (queries, keys))
    # The highest other score may be just below 1, so τ = 1 goes into the middle of the gap later.
    return Weights(*parts)


def _pointers(
    points: Float[Tensor, "items rank"], ends: Int[Tensor, " ends"]
) -> Float[Tensor, "ends rank"]:
    """A vector u for each of these rows: 1 on the row itself, less on all others."""
    rows = points[ends]
    found = rows / rows.square().sum(1, keepdim=True).clamp_min(1e-30)
    reach = (found @ points.T).abs() > _REACHED
    for place in (reach.sum(1) > 1).nonzero().flatten().tolist():
        found[place] = _singled_out(points, rows[place])
    return found


def _singled_out(
    points: Float[Tensor, "items rank"], row: Float[Tensor, " rank"]
) -> Float[Tensor, " rank"]:
    """The u with x·u = 1 whose largest |x_a·u| is least, by Lawson's reweighted least squares."""
    others = points[(points - row).square().sum(1) > _SAME * row.square().sum()].double()
    own, weight = row.double(), others.new_ones(len(others))
    floor = 1e-9 * len(others) * torch.eye(len(row), dtype=torch.float64, device=row.device)
    pointer = own
    for _ in range(_ROUNDS):
        pointer = torch.linalg.solve((others * weight[:, None]).T @ others + floor, own)
        pointer = pointer / (own @ pointer)
        reach = (others @ pointer).abs()
        if bool((reach < _REACHED).all()):
            break
        weight = weight * reach
        weight = weight * (len(others) / weight.sum())
    return pointer.to(row)
