"""One trial of the compiler: its weights in whitened coordinates, their start and their end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.compiler.whitened import WhitenedProblem
from headcount.problem.streams import generator
from headcount.shapes import Float


@dataclass(frozen=True)
class Weights:
    """W_Q and W_K in whitened coordinates, a key for each head."""

    queries: Float[Tensor, "heads rank key_dim"]
    keys: Float[Tensor, "heads rank key_dim"]


@dataclass(frozen=True)
class Descended:
    """The best point of a descent: exact if `gap` > 0, as far as float32 can tell."""

    weights: Weights
    gap: float
    wrong: int
    steps: int


def start(problem: WhitenedProblem, widths: tuple[int, ...], seed: int) -> Weights:
    """Normal weights under which scores are about standard normal.

    Columns beyond a head's width are zero and stay so, since both factors of their slope vanish.
    """
    shape = (2, len(widths), problem.rank, max(widths))
    draws = torch.from_numpy(generator(seed, 0xC0DE).standard_normal(shape)).float()
    for head, width in enumerate(widths):
        draws[:, head, :, width:] = 0.0
        draws[:, head] /= width**0.25
    return Weights(*draws.to(problem.points.device))
