"""Distinct items from uniform integers: a shuffle that stores no array."""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.problem.streams import below
from headcount.shapes import Int


def distinct_items(pick: Int[Tensor, "length count"], items: int) -> Int[Tensor, "length count"]:
    """The first ℓ steps of a Fisher–Yates shuffle of 0 … m−1, one shuffle per column.

    `pick` holds uniform 32-bit integers. Step j swaps entries j and x_j ≥ j. Entry p then holds
    what the last swap with x_i = p put there.
    """
    slot = torch.arange(len(pick), device=pick.device)[:, None]
    swapped = slot + below(pick, items - slot)  # x_j
    taken = swapped.clone()  # entry x_j before swap j: the item drawn
    moved = slot.expand_as(swapped).clone()  # entry j before swap j: what lands in place x_j
    for i in range(len(pick) - 1):  # moved[i] is final here: all earlier swaps have been applied
        later = slice(i + 1, None)
        taken[later] = torch.where(swapped[later] == swapped[i], moved[i], taken[later])
        moved[later] = torch.where(slot[later] == swapped[i], moved[i], moved[later])
    return taken
