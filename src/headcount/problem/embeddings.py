"""Embedding tables: [items, d_model] tensors, one row per item (Sections 3–4, Cors B.6–B.7)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.memory import require_memory
from headcount.problem.streams import generator
from headcount.shapes import Float

_TABLE = 0x7AB  # salt: a graph and a table of one seed are independent


def one_hot_embeddings(items: int) -> Float[Tensor, "items items"]:
    """x_i = e_i, no compression: d_model = m (Construction I)."""
    _require_size(items, items)
    return torch.eye(items)


def gaussian_embeddings(items: int, d_model: int, seed: int = 0) -> Float[Tensor, "items d_model"]:
    """Gaussian unit-norm rows: x̃_i ~ N(0, I/d_model), x_i = x̃_i/‖x̃_i‖ (Section 4, Cor. B.6).

    >>> table = gaussian_embeddings(5, 3, seed=0)
    >>> table.shape, bool(torch.allclose(table.norm(dim=1), torch.ones(5)))
    (torch.Size([5, 3]), True)
    """
    _require_size(items, d_model)
    return gaussian_rows(items, d_model, generator(seed, _TABLE))


def gaussian_rows(
    items: int, d_model: int, rng: np.random.Generator
) -> Float[Tensor, "items d_model"]:
    """The next Gaussian table of a random generator."""
    rows = rng.standard_normal((items, d_model))
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True)).float()


def binary_embeddings(
    items: int, d_model: int, seed: int = 0, density: float | None = None
) -> Float[Tensor, "items d_model"]:
    """Random binary compressive rows: i.i.d. Bernoulli(p_B) entries (Corollary B.7).

    The corollary asks for p_B = Θ(ln m/d_model); the default is p_B = 2 ln m/d_model (at most 1/2),
    which leaves an all-zero row with probability about 1/m over the whole table.
    """
    _require_size(items, d_model)
    if density is None:
        density = min(0.5, 2 * math.log(max(items, 2)) / d_model)
    if not 0 < density < 1:
        raise InputError(f"density {density} must be between 0 and 1; change it or leave it out")
    draws = generator(seed, _TABLE).random((items, d_model))
    return torch.from_numpy(draws < density).float()


def _require_size(items: int, d_model: int) -> None:
    if items < 1 or d_model < 1:
        raise InputError(
            f"a table of {items} × {d_model} has no entries; choose items and d_model of at least 1"
        )
    require_memory(24 * items * d_model, f"a table of {items:,} × {d_model:,}")
