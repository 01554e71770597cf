"""Whether one head can label a graph's pairs at all, whatever training would find.

A head of full width is linear in W = W_Q W_Kᵀ, so that weights are found, or shown not to exist, by
minimising a convex loss. For narrower heads a descent from random starts finds weights or gives up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Bool, Float

_CHUNK = 8192  # patterns whose products are in memory at a time
_NEWTON_STEPS = 300
_DESCENT_STEPS = 4000
_NEWTON_WIDTH = 40  # d_model above which Newton's (d² + 1)² matrix takes too long


def separable(
    graph: Graph,
    rows: Float[np.ndarray, "items d_model"],
    key_dim: int | None = None,
    starts: int = 1,
    seed: int = 0,
) -> bool:
    """Whether some x_i W x_jᵀ of rank `key_dim` exceeds a threshold exactly at the edges.

    At full width (`key_dim` None or at least d_model) the answer is exact up to rounding for
    d_model up to 40. Otherwise True is certain; False means that a descent (for narrower heads,
    descents from `starts` points) found nothing in 4,000 steps.

    >>> from headcount import gaussian_embeddings, permutation_graph
    >>> table = gaussian_embeddings(16, 8, seed=0).double().numpy()
    >>> separable(permutation_graph(16), table), separable(permutation_graph(16), table, key_dim=1)
    (True, False)
    """
    items, d_model = rows.shape
    if graph.items != items:
        raise InputError(f"the graph has {graph.items} items, the table {items} rows")
    if not 0 < graph.edges < items**2:
        raise InputError("the graph needs at least one edge and one non-edge")
    edge = np.zeros((items, items), dtype=bool)
    edge[graph.sources, graph.targets] = True
    # An invertible change of the rows changes nothing; orthonormal ones are best conditioned.
    if items > d_model and np.linalg.matrix_rank(rows) == d_model:
        rows = np.linalg.qr(rows)[0] * np.sqrt(items)
    if key_dim is None or key_dim >= d_model:
        return _newton(edge, rows) if d_model <= _NEWTON_WIDTH else _descend(edge, rows, None, seed)
    return any(_descend(edge, rows, key_dim, seed + start) for start in range(starts))


def _weights(edge: Bool[np.ndarray, "items items"]) -> Float[np.ndarray, "items items"]:
    """Edges weigh more than non-edges: the answer does not depend on it, the speed does."""
    weights = np.where(edge, np.sqrt((~edge).sum() / edge.sum()), 1.0)
    return weights / weights.sum()


def _newton(edge: Bool[np.ndarray, "items items"], rows: Float[np.ndarray, "items d"]) -> bool:
    """Newton's method on the squared hinge loss, whose minimum is 0 if and only if W exists."""
    d_model = rows.shape[1]
    sign, weights = np.where(edge, 1.0, -1.0), _weights(edge)
    scores = np.zeros(edge.shape)

    def loss(scores: np.ndarray) -> float:
        return float((weights * np.maximum(1 - sign * scores, 0) ** 2).sum())

    current = loss(scores)
    for _ in range(_NEWTON_STEPS):
        short = 1 - sign * scores
        if short.max() < 1:
            return True
        slope = np.where(short > 0, weights * sign * short, 0.0)
        gradient = np.append((rows.T @ slope @ rows).ravel(), -slope.sum())
        step = np.linalg.solve(_curvature(short > 0, weights, rows), gradient)
        change = rows @ step[:-1].reshape(d_model, d_model) @ rows.T - step[-1]
        gain = float(gradient @ step)
        if gain < 1e-9 * current:
            return False
        length, best = 1.0, loss(scores + change)
        while best > current - 1e-4 * length * gain and length > 1e-8:
            length /= 2
            best = loss(scores + length * change)
        if current - best < 1e-10 * current:
            return False
        scores, current = scores + length * change, best
    return False


def _curvature(
    active: Bool[np.ndarray, "items items"], weights: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """The weighted second moments of the active patterns (x_i ⊗ x_j, −1)."""
    d_model = rows.shape[1]
    total = np.zeros((d_model**2 + 1,) * 2)
    sources, targets = np.nonzero(active)
    for start in range(0, len(sources), _CHUNK):
        i, j = sources[start : start + _CHUNK], targets[start : start + _CHUNK]
        patterns = np.empty((len(i), d_model**2 + 1))
        patterns[:, :-1] = (rows[i][:, :, None] * rows[j][:, None, :]).reshape(len(i), -1)
        patterns[:, -1] = -1
        patterns *= np.sqrt(weights[i, j])[:, None]
        total += patterns.T @ patterns
    total[np.diag_indices(len(total))] += 1e-9 * np.trace(total) / len(total)
    return total


class _Found(Exception):
    """Ends a descent that has separated all pairs."""


def _descend(edge: np.ndarray, rows: np.ndarray, key_dim: int | None, seed: int) -> bool:
    """L-BFGS on the same loss in W_Q, W_K and the threshold; without a width, in W itself."""
    d_model = rows.shape[1]
    width = d_model if key_dim is None else key_dim
    size = d_model * width
    sign, weights = np.where(edge, 1.0, -1.0), _weights(edge)
    rng = np.random.default_rng(seed)
    count = size if key_dim is None else 2 * size
    first = rng.normal(size=count + 1) / np.sqrt(d_model * np.sqrt(width))
    first[-1] = 2.0

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        query = rows @ values[:size].reshape(d_model, width)
        key = rows if key_dim is None else rows @ values[size:-1].reshape(d_model, width)
        short = 1 - sign * (query @ key.T - values[-1])
        if short.max() < 1:
            raise _Found
        short = np.maximum(short, 0)
        slope = -2 * weights * short * sign
        parts = [(rows.T @ (slope @ key)).ravel(), np.array([-slope.sum()])]
        if key_dim is not None:
            parts.insert(1, (rows.T @ (slope.T @ query)).ravel())
        return float((weights * short**2).sum()), np.concatenate(parts)

    options: Any = {
        "maxiter": _DESCENT_STEPS,
        "maxfun": 2 * _DESCENT_STEPS,
        "maxcor": 30,
        "ftol": 1e-14,
        "gtol": 1e-12,
    }
    try:
        minimize(loss, first, jac=True, method="L-BFGS-B", options=options)
    except _Found:
        return True
    return False
