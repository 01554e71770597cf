"""How many directions a head uses, and how far heads of a layer use the same ones.

The form of a head is M = Q Kᵀ, of rank at most d_k. Its singular values come from the QR factors of
Q and K, so that no d_model × d_model matrix is made. Numbers alone say little: a random form of the
same shape is measured beside every head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.auditing.channel import Channel
from headcount.problem.streams import generator
from headcount.shapes import Float

ENERGY = 0.9  # the share of Σ s² that the energy rank keeps


def singular_values(
    query: Float[Tensor, "rows key_dim"], key: Float[Tensor, "rows key_dim"]
) -> Float[Tensor, " key_dim"]:
    """The singular values of Q Kᵀ that may not be zero, largest first, in float64.

    >>> singular_values(torch.diag(torch.tensor([3.0, 1.0])), torch.eye(2)).tolist()
    [3.0, 1.0]
    """
    left, right = (torch.linalg.qr(side.double(), mode="r")[1] for side in (query, key))
    return torch.linalg.svdvals(left @ right.T)


def entropy_rank(values: Float[Tensor, "*heads key_dim"]) -> Float[Tensor, "*heads"]:
    """exp of the entropy of s/Σs (Roy and Vetterli 2007): k for k equal values, 1 for one alone.

    >>> entropy_rank(torch.tensor([1.0, 1.0, 0.0])).item()
    2.0
    """
    shares = values / values.sum(-1, keepdim=True).clamp(min=1e-300)
    return torch.exp(-torch.special.xlogy(shares, shares).sum(-1))


def energy_rank(values: Float[Tensor, "*heads key_dim"], share: float = ENERGY) -> Tensor:
    """How many of the largest singular values hold this share of Σ s².

    >>> energy_rank(torch.tensor([2.0, 1.0, 1.0]), 0.8).item()
    2
    """
    squares = values.square()
    below = squares.cumsum(-1) < share * squares.sum(-1, keepdim=True) * (1 - 1e-12)
    return (below.sum(-1) + 1).clamp(max=values.shape[-1])


def random_values(
    rows: int, key_dim: int, draws: int = 50, seed: int = 0
) -> Float[Tensor, "draws key_dim"]:
    """Singular values of forms whose Q and K are Gaussian, scaled as Q and K of variance 1/rows."""
    stream = generator(seed)
    sides = (stream.standard_normal((2, rows, key_dim)) / rows**0.5 for _ in range(draws))
    return torch.stack([singular_values(*torch.from_numpy(both)) for both in sides])


@dataclass(frozen=True)
class Overlap:
    """How far the heads of a layer use the same directions; entry (a, b) is about a in b.

    `queries` is the share of head a's energy ‖M_a‖² that lies in the query space of head b,
    `keys` the same for keys. For random heads both are d_k/rows on average, exactly. `forms` is the
    cosine of M_a and M_b: 1 where the scores are proportional, about 0 for random heads.
    """

    queries: Float[Tensor, "heads heads"]
    keys: Float[Tensor, "heads heads"]
    forms: Float[Tensor, "heads heads"]


def overlap(channel: Channel) -> Overlap:
    """The overlap of every two heads of a layer."""
    heads = channel.heads
    found = torch.zeros(3, heads, heads)
    parts = [_directions(*channel.form(head)) for head in range(heads)]
    for a, (left, values, right) in enumerate(parts):
        energy = values.square()
        for b, (other_left, other_values, other_right) in enumerate(parts):
            across = other_left.T @ left, other_right.T @ right  # [b's directions, a's directions]
            shares = [(part.square().sum(0) * energy).sum() / energy.sum() for part in across]
            inner = (other_values[:, None] * values * across[0] * across[1]).sum()
            norms = (energy.sum() * other_values.square().sum()).sqrt()
            found[:, a, b] = torch.stack([*shares, inner / norms])
    return Overlap(found[0], found[1], found[2])


def _directions(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U, s and V of Q Kᵀ = U diag(s) Vᵀ, as rows × d_k."""
    left, left_factor = torch.linalg.qr(query)
    right, right_factor = torch.linalg.qr(key)
    inner_left, values, inner_right = torch.linalg.svd(left_factor @ right_factor.T)
    return left @ inner_left, values, right @ inner_right.T
