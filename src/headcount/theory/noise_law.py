"""The largest noise term N₃: the law of Section 5, Eq. (1), and measurements beside it."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.problem.embeddings import gaussian_embeddings
from headcount.theory.noise import leakage


def predicted_n3(items: int, d_model: int, block: int, key_dim: int) -> float:
    """Eq. (1) with constant 1: N₃(B) = B/d_model·√(d_k ln m).

    >>> round(predicted_n3(1024, 64, 64, 16), 2)  # √(16·6.931)
    10.53
    """
    return block / d_model * sqrt(key_dim * log(items))


def predicted_n3_mean(items: int, d_model: int, block: int, key_dim: int) -> float:
    """Lemma B.3(3) at any block size, times d_k, with constant 1: d_k/d_model·√(B ln m).

    Eq. (1) leaves out this mean E[N₃ | X]; it is the larger part where d_k > B.
    """
    return key_dim / d_model * sqrt(block * log(items))


def measure_n3(
    items: int,
    d_model: int,
    blocks: Sequence[int],
    key_dims: Sequence[int],
    seed: int = 0,
    sample: int = 512,
) -> pd.DataFrame:
    """|N₃| of one head over `sample`² pairs, for every block size B and width d_k, against Eq. (1).

    The table is Gaussian unit-norm, the permutation uniform, and the head has B random sources.
    There is one row each for N₃ (`total`), its mean given X (`mean`: d_k⟨δ, δ⟩) and the rest
    (`centred`). `law` is Eq. (1); `mean` has a law of its own.
    """
    if not all(1 <= block <= items for block in blocks) or min(key_dims, default=0) < 1:
        raise InputError(
            f"blocks must be between 1 and {items} and key_dims at least 1; choose such sizes"
        )
    rng = np.random.default_rng([seed, 0x3])
    table = gaussian_embeddings(items, d_model, seed)
    order, targets = rng.permutation(items), rng.permutation(items)
    rows, columns = (rng.permutation(items)[:sample] for _ in range(2))
    lines = []
    for block in blocks:
        out = leakage(table, rows, order[:block])
        into = leakage(table, columns, targets[:block])
        products = out @ into.T
        for key_dim in key_dims:
            signed = torch.from_numpy(rng.integers(0, 2, (block, key_dim)) * 2.0 - 1.0)
            total = (out @ signed) @ (into @ signed).T
            sizes = {"items": items, "d_model": d_model, "block": block, "key_dim": key_dim}
            law = predicted_n3(items, d_model, block, key_dim)
            mean_law = predicted_n3_mean(items, d_model, block, key_dim)
            mean = key_dim * products  # E[w_s·w_t] = d_k·[s = t]
            lines += [
                sizes | {"part": "total", **_spread(total), "law": law},
                sizes | {"part": "centred", **_spread(total - mean), "law": law},
                sizes | {"part": "mean", **_spread(mean), "law": mean_law},
            ]
    return pd.DataFrame(lines)


def _spread(values: Tensor) -> dict[str, float]:
    sizes = values.abs().numpy().ravel()
    median, high = np.quantile(sizes, [0.5, 0.99])
    return {
        "rms": float(np.sqrt(np.square(sizes).mean())),
        "median": float(median),
        "q99": float(high),
        "max": float(sizes.max()),
    }
