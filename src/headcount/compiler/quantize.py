"""Moving exact weights onto a grid: entries are fixed a few at a time, the others compensate.

Rounding all entries at once breaks the pairs near τ. Here the entries nearest to their grid are
fixed first, a few Levenberg–Marquardt steps on the free ones restore the margin, then more are
fixed, until all are. What is wrong then is repaired by moving single entries by one level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.compiler.grid import Grid, Head
from headcount.problem.graph import Graph
from headcount.shapes import Bool, Float, Int

# Share of the entries that are fixed after each stage.
_FIXED = (0.25, 0.45, 0.6, 0.72, 0.82, 0.89, 0.94, 0.97, 0.99, 1.0)
_STEPS = 4  # of Levenberg–Marquardt in each stage
_DAMPING = 1e-3  # constant, since a step is halved until it helps
_CHUNK = 2**22  # numbers of a Jacobian held at a time
_HOPELESS = 0.1  # no single moves are made where the gap is further below 0 than this share of τ
_TRIED = 12  # single moves that are tried out for each one that is made


@dataclass(frozen=True)
class Pairs:
    """What is asked of the scores: edges above τ in some head, the rest below it in all."""

    points: Float[Tensor, "items d_model"]
    sources: Int[Tensor, " edges"]
    targets: Int[Tensor, " edges"]
    threshold: float

    @classmethod
    def of(cls, graph: Graph, table: Float[Tensor, "items d_model"], threshold: float) -> Pairs:
        sources, targets = (
            torch.from_numpy(part.copy()) for part in (graph.sources, graph.targets)
        )
        return cls(table.detach().cpu().double(), sources, targets, threshold)

    def scores(self, head: Head) -> Float[Tensor, "items items"]:
        queries, keys = self.points @ head
        return queries @ keys.T

    def owned(self, heads: list[Head]) -> list[Bool[Tensor, " edges"]]:
        """For each head, the edges that score best in it."""
        projected = [self.points @ head for head in heads]
        scores = [(q[self.sources] * k[self.targets]).sum(1) for q, k in projected]
        best = torch.stack(scores).argmax(0)
        return [best == head for head in range(len(heads))]

    def violations(
        self, scores: Float[Tensor, "items items"], owned: Bool[Tensor, " edges"], margin: float
    ) -> Float[Tensor, "items items"]:
        """Of one head: by how much non-edges exceed τ − μ and owned edges fall short of τ + μ.

        The former are positive, the latter negative.
        """
        size = (scores - (self.threshold - margin)).clamp_(min=0)
        size[self.sources, self.targets] = 0
        mine = self.sources[owned], self.targets[owned]
        size[mine] = (scores[mine] - (self.threshold + margin)).clamp_(max=0)
        return size

    def gap(self, heads: list[Head]) -> tuple[float, float]:
        """Lowest edge − highest non-edge, and the middle between them."""
        best = self.scores(heads[0])
        for head in heads[1:]:
            best = torch.maximum(best, self.scores(head))
        low = float(best[self.sources, self.targets].min())
        best[self.sources, self.targets] = -torch.inf
        high = float(best.max())
        return low - high, (low + high) / 2


def onto_grid(
    pairs: Pairs,
    heads: list[Head],
    bits: int,
    margin: float,
    keep_on: Callable[[], bool],
    moves: int = 300,
) -> tuple[list[Head], float]:
    """Weights on grids, and their lowest edge − highest non-edge: exact if positive.

    `margin` is the μ aimed at, or the margin that the weights have already if that is wider.
    """
    grids = [Grid.of(head, bits) for head in heads]
    margin = max(margin, 0.9 * pairs.gap(heads)[0] / 2)
    # What is beyond a grid's end comes first: it moves furthest, and needs the most compensation.
    heads = [
        head.clamp(-grid.scales * grid.top, grid.scales * grid.top)
        for head, grid in zip(heads, grids, strict=True)
    ]
    free = [torch.ones_like(head, dtype=torch.bool) for head in heads]
    for share in _FIXED:
        for n, grid in enumerate(grids):
            heads[n], free[n] = _fix(heads[n], grid, free[n], share)
        for _ in range(_STEPS if share < 1 else 0):
            if keep_on():
                heads = _relax(pairs, heads, grids, free, margin)
    best, widest = heads, pairs.gap(heads)[0]
    for _ in range(moves):
        if widest > 0 or widest < -_HOPELESS * abs(pairs.threshold) or not keep_on():
            break
        moved = _move(pairs, heads, grids, margin)
        if moved is None:
            break
        heads, gap = moved, pairs.gap(moved)[0]
        if gap > widest:
            best, widest = heads, gap
    return best, widest


def _fix(head: Head, grid: Grid, free: Tensor, share: float) -> tuple[Head, Tensor]:
    """Round entries, those nearest to their grid first, until this share of all is fixed."""
    nearest = grid.nearest(head)
    off = ((head - nearest).abs() / grid.scales).masked_fill(~free, -1.0).flatten()
    chosen = off.argsort()[: round(share * off.numel())]
    free = free.clone()
    free.view(-1)[chosen] = False
    return torch.where(free, head, nearest), free


def _relax(
    pairs: Pairs, heads: list[Head], grids: list[Grid], free: list[Tensor], margin: float
) -> list[Head]:
    """One damped step of each head's free entries, within its grid, halved until it helps."""
    found, limits = [], [grid.scales * grid.top for grid in grids]
    for head, limit, loose, owned in zip(heads, limits, free, pairs.owned(heads), strict=True):
        size = pairs.violations(pairs.scores(head), owned, margin)
        loss, step = float(size.square().sum()), _step(pairs, head, loose, size)
        for factor in (1.0, 0.5, 0.25):
            moved = torch.where(loose, (head - factor * step).clamp(-limit, limit), head)
            if float(pairs.violations(pairs.scores(moved), owned, margin).square().sum()) < loss:
                head = moved
                break
        found.append(head)
    return found


def _step(pairs: Pairs, head: Head, free: Tensor, size: Float[Tensor, "items items"]) -> Head:
    """(JᵀJ + λ·mean diagonal)⁻¹ Jᵀr over the free entries.

    s_ij moves by x_i ⊗ k_j with W_Q and by x_j ⊗ q_i with W_K. Only violated pairs have a row in J,
    so J is gathered in chunks and never held whole.
    """
    sources, targets = size.nonzero(as_tuple=True)
    loose = free.flatten()
    count = int(loose.sum())
    matrix, slope = torch.zeros(count, count), torch.zeros(count)
    points, (queries, keys) = pairs.points.float(), (pairs.points @ head).float()
    chunk = max(1, _CHUNK // loose.numel())
    for i, j in zip(sources.split(chunk), targets.split(chunk), strict=True):
        parts = (
            points[i].unsqueeze(2) * keys[j].unsqueeze(1),
            points[j].unsqueeze(2) * queries[i].unsqueeze(1),
        )
        jacobian = torch.stack(parts, 1).flatten(1)[:, loose]
        matrix.addmm_(jacobian.T, jacobian)
        slope.addmv_(jacobian.T, size[i, j].float())
    diagonal = matrix.diagonal()
    diagonal.add_(_DAMPING * diagonal.mean() + 1e-9)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    step = torch.zeros(loose.numel(), dtype=head.dtype)
    if not failed:
        step[loose] = torch.cholesky_solve(slope[:, None], factor).squeeze(1).double()
    return step.view_as(head)


def _move(pairs: Pairs, heads: list[Head], grids: list[Grid], margin: float) -> list[Head] | None:
    """The weights with one entry moved by one level, or None where no such move lowers the loss.

    The moves that a quadratic model of the loss likes best are tried out, the best one is made.
    """
    owners = pairs.owned(heads)
    options = []
    for n, (head, grid) in enumerate(zip(heads, grids, strict=True)):
        size = pairs.violations(pairs.scores(head), owners[n], margin)
        slope, curve = _slopes(pairs, head, size)
        delta = -slope.sign() * grid.scales
        inside = (head + delta).abs() <= grid.scales * (grid.top + 0.5)
        change = slope * delta * 2 + curve * delta.square()  # of the loss, in the model
        gain = change.masked_fill(~inside, torch.inf).flatten()
        before = float(size.square().sum())
        options += [
            (float(gain[p]), n, int(p), float(delta.flatten()[p]), before)
            for p in gain.argsort()[:_TRIED].tolist()
        ]
    best, chosen = -1e-12, None  # a move must gain more than rounding
    for _, n, place, delta, before in sorted(options)[:_TRIED]:
        moved = heads[n].clone()
        moved.view(-1)[place] += delta
        after = pairs.violations(pairs.scores(moved), owners[n], margin).square().sum()
        if float(after) - before < best:
            best, chosen = float(after) - before, (n, grids[n].nearest(moved))
    if chosen is None:
        return None
    return [chosen[1] if n == chosen[0] else head for n, head in enumerate(heads)]


def _slopes(pairs: Pairs, head: Head, size: Float[Tensor, "items items"]) -> tuple[Head, Head]:
    """Σ r_ij ∂s_ij and Σ (∂s_ij)² over violated pairs, for each entry."""
    points, (queries, keys) = pairs.points, pairs.points @ head
    active = (size != 0).to(size.dtype)
    slope = torch.stack([points.T @ (size @ keys), points.T @ (size.T @ queries)])
    squares = points.square().T
    curve = torch.stack(
        [squares @ (active @ keys.square()), squares @ (active.T @ queries.square())]
    )
    return slope, curve
