"""What the theorems ask for before they promise anything, checked by name."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from headcount.errors import PreconditionWarning
from headcount.problem.graph import Graph
from headcount.shapes import Float
from headcount.theory.constants import constants

_THEOREMS = {
    "compressive": "Theorem 4.1",
    "general-embedding": "Theorem B.5",
    "general-graph": "Theorem B.9",
    "softmax": "Theorem 8.1",
}


def warn_unmet(
    method: str,
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int,
    context_length: int | None = None,
) -> None:
    """Warn of every precondition of the theorem that fails: its guarantee is then void."""
    for condition in _unmet(method, graph, table, key_dim, heads, context_length):
        warnings.warn(
            f"{_THEOREMS[method]} asks for {condition}", PreconditionWarning, stacklevel=3
        )


def _unmet(
    method: str, graph: Graph, table: Tensor, key_dim: int, heads: int, context_length: int | None
) -> Iterator[str]:
    if method not in _THEOREMS:
        return
    items, d_model = table.shape
    logarithm, constant = math.log(max(items, 2)), constants()[method]
    least = constant.c0 * logarithm
    if d_model < least:
        yield (
            f"d_model ≥ c₀ ln m, measured c₀ = {constant.c0:.3g}: {d_model} < {least:.3g}, "
            "so no width may be enough"
        )
    power = 2 if method == "softmax" else 1  # Theorem 8.1 asks for (ln m)²
    width = constant.C * logarithm**power
    if key_dim < width:
        yield f"d_k ≥ C (ln m)^{power}, C = {constant.C:.3g}: {key_dim} < {width:.3g}"
    if method == "general-embedding":
        norms = table.double().square().sum(1)
        spread = float((norms.max() - norms.min()) / (norms.max() + norms.min()))
        if spread > 0.1:
            yield f"diagonal stability, a small ε_d: the row norms give {spread:.2g}"
    # Where π(a) = a the leakages δ_i(π⁻¹(a)) and δ_i(a) in N₃ of (i, i) are equal, not independent:
    # their products add up to about (fixed points in the block)/d_model of the signal.
    fixed = np.bincount(np.arange(items) * heads // items, weights=_fixed(graph))
    if method != "general-graph" and fixed.max() > d_model / 4:
        yield (
            f"independent leakage (Lemma B.3): a block with {int(fixed.max())} fixed points scores "
            "(i, i) too high; use more heads"
        )
    if context_length is not None and context_length < 4 * max(heads, logarithm):
        yield f"ℓ ≥ C_ℓ max(h, ln m), C_ℓ = 4: {context_length} < {4 * max(heads, logarithm):.3g}"


def _fixed(graph: Graph) -> np.ndarray:
    """1 for each item with an edge to itself, 0 for the others."""
    loops = np.zeros(graph.items)
    loops[graph.sources[graph.sources == graph.targets]] = 1
    return loops
