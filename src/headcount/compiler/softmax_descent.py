"""Descents for softmax weights: towards an order of logits, and on the certificate's own bounds.

Under softmax a row's masses sum to h in every context, with or without a target in it. With two
heads there is a way out that serves every context length, since the source itself is always in its
context:

    head 1:  edge > the source itself > everything else
    head 2:  edge > everything else > the source itself

In sharp heads an edge then collects 2, and nothing else more than 1. This needs at most one target
per source. In long contexts the masses of non-edges may also just be spread evenly; there the
descent is on the bounds of the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from headcount.attention.softmax_bounds import extreme_masses
from headcount.compiler.ordered_descent import Order, descend_in_order
from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.streams import generator
from headcount.shapes import Bool, Float

_STEPS = 1000
_RATE = 0.05  # of Adam at first; it falls like a cosine
_TRIALS = 4
# Temperatures at which the lowest and highest bounds are softened, from first to last: warm ones
# let many pairs shape the weights, cold ones only the binding pair.
_WARMEST, _COLDEST = 0.1, 0.003
_APART = 0.01  # a descent ends at this gap between bounds

Both = Float[Tensor, "two trials heads rank width"]  # W_Q and W_K of every trial


def edge_mask(problem: WhitenedProblem) -> Bool[Tensor, "items items"]:
    mask = torch.zeros(problem.items, problem.items, dtype=torch.bool)
    mask[problem.sources, problem.targets] = True
    return mask


def ordered(
    problem: WhitenedProblem, widths: tuple[int, ...], seed: int, keep_on: Callable[[], bool]
) -> tuple[Both, float]:
    """Two heads in the order above, and the least difference in it: correct if positive."""
    both = torch.zeros(2, 1, 2, problem.rank, max(widths))
    reached = math.inf
    for head, width in enumerate(widths):
        order, widest = Order(problem, source_is_above=head == 0), -math.inf
        for trial in range(_TRIALS):
            weights, least = descend_in_order(order, width, seed + 1000 * trial, keep_on)
            if least > widest:
                both[:, 0, head, :, :width], widest = weights, least
            if widest > 0 or not keep_on():
                break
        reached = min(reached, widest)
    return both, reached


def spread(
    problem: WhitenedProblem,
    widths: tuple[int, ...],
    length: int,
    seed: int,
    keep_on: Callable[[], bool],
) -> tuple[Both, float]:
    """Widen the gap between the bounds over every context of ℓ items: lowest edge − highest other.

    Returns the best weights and their gap.
    """
    edges = edge_mask(problem)
    start = _start(problem, widths, seed)
    best, widest = start[:, :1], -math.inf
    items = torch.arange(problem.items)
    scales = torch.tensor(widths).rsqrt()[:, None, None]

    def loss_of(weights: Tensor, share: float) -> Tensor:
        nonlocal best, widest
        logits = _logits(problem, weights) * scales
        low, high = (
            extreme_masses(logits, items, length, largest).sum(1) for largest in (True, False)
        )
        low = low.masked_fill(~edges, torch.inf).flatten(1)
        high = high.masked_fill(edges, -torch.inf).flatten(1)
        gap = (low.amin(1) - high.amax(1)).detach()
        reached, top = float(gap.max()), int(gap.argmax())
        if reached > widest:
            best, widest = weights.detach()[:, top : top + 1].clone(), reached
        warmth = _WARMEST * (_COLDEST / _WARMEST) ** share
        return warmth * ((-low / warmth).logsumexp(1) + (high / warmth).logsumexp(1)).sum()

    _adam(start, loss_of, lambda: widest < _APART and keep_on())
    return best, widest


def _logits(problem: WhitenedProblem, weights: Both) -> Float[Tensor, "trials heads m m"]:
    queries, keys = problem.points @ weights
    return queries @ keys.mT


def _start(problem: WhitenedProblem, widths: tuple[int, ...], seed: int) -> Both:
    """Scores of about unit size; columns beyond a head's width are zero.

    They stay zero, since both factors of their slope vanish.
    """
    shape = (2, _TRIALS, len(widths), problem.rank, max(widths))
    draws = torch.from_numpy(generator(seed, 0x50F7).standard_normal(shape)).float()
    for head, width in enumerate(widths):
        draws[:, :, head, :, width:] = 0.0
        draws[:, :, head] *= 0.8 / width**0.25
    return draws


def _adam(
    start: Tensor, loss_of: Callable[[Tensor, float], Tensor], keep_on: Callable[[], bool]
) -> None:
    weights = start.clone().requires_grad_()
    adam = torch.optim.Adam([weights], lr=_RATE, betas=(0.9, 0.99))
    for step in range(_STEPS):
        share = step / _STEPS
        adam.param_groups[0]["lr"] = _RATE * (0.5 + 0.5 * math.cos(math.pi * share)) + 1e-4
        loss = loss_of(weights, share)
        if not keep_on():
            break
        adam.zero_grad()
        loss.backward()
        adam.step()
