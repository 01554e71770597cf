"""What the heads of Algorithm 2 spread where they own nothing: Eqs. (7)–(18), measured.

Head k* owns source i if i ∈ V_k*. The aggregated weight splits into A_ij = p_ij of the owner plus
the background B_ij, the sum over the other h − 1 heads (Eq. (12)). The proof of Theorem 8.1 puts
B_ij within Δ̃ = C₂/ℓ·(√(h ln m) + ln m) of (h − 1)/ℓ (Eqs. (13)–(16)).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, nan, sqrt

import numpy as np
import torch
from torch import Tensor

from headcount.attention.softmax_certificate import calibration
from headcount.constructions.compressive_noise import usual_heads
from headcount.constructions.methods import softmax
from headcount.constructions.template import Signatures, split_sources
from headcount.errors import InputError
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph
from headcount.problem.streams import generator
from headcount.shapes import Bool, Float, Int

_CONTEXTS = 0xB1C  # salt of the contexts


@dataclass(frozen=True)
class SoftmaxBackground:
    """Each quantity of Eqs. (7)–(18), over all pairs of random contexts, beside what is predicted.

    A quantity over no pair, such as no present target or a single head, is not a number.
    """

    items: int
    d_model: int
    heads: int
    key_dim: int
    budget: int
    context_length: int
    contexts: int
    lowest_owner_score: float  # S_iπ(i)/d_k in the owner head; Eq. (7) has 3/4 or more
    highest_owner_score: float  # S_ij/d_k of another j there; Eq. (7) has 1/4 or less
    lowest_owner_mass: float  # p_iπ(i) of the owner head
    predicted_owner_mass: float  # Eq. (9), at the logit gap √d_k/2 of Eq. (8)
    highest_other_mass: float  # p_ij of the owner head for another j, with π(i) present
    predicted_other_mass: float  # Eq. (11)
    background_mean: float  # of B_ij; (h − 1)/ℓ always, since every softmax sums to 1
    background_mean_of_edges: float  # of B_iπ(i)
    background_spread: float  # standard deviation
    background_deviation: float  # the largest |B_ij − (h − 1)/ℓ|
    predicted_deviation: float  # Eq. (13) with C₂ = 1
    least_c2: float  # the C₂ with which Eq. (16) holds here
    share_on_own: float  # ℓ times the mean p_ij of a head other than the owner, for j ∈ T_k
    share_on_others: float  # the same for j ∉ T_k; Eq. (14) has 1 for both
    lowest_edge: float  # A_iπ(i), Eq. (17)
    highest_non_edge: float  # A_ij of another j with π(i) present, Eq. (18)
    highest_without_target: float  # A_ij where π(i) is absent


def predicted_deviation(items: int, heads: int, length: int) -> float:
    """Eq. (13) with C₂ = 1: Δ̃ = (√(h ln m) + ln m)/ℓ.

    >>> round(predicted_deviation(1024, 8, 64), 3)  # (√55.45 + 6.931)/64
    0.225
    """
    return (sqrt(heads * log(items)) + log(items)) / length


def measure_background(
    items: int,
    d_model: int,
    key_dim: int,
    context_length: int,
    *,
    heads: int | None = None,
    contexts: int = 8,
    seed: int = 0,
) -> SoftmaxBackground:
    """Build Algorithm 2 for a random permutation on a Gaussian table, and read random contexts.

    A context holds `context_length` distinct items, each a source and a target. `heads` is
    ⌈m/d_model⌉ unless given.

    >>> found = measure_background(64, 32, 16, context_length=16)
    >>> found.heads, round(found.background_mean, 6)  # (2 − 1)/16
    (2, 0.0625)
    """
    if not 2 <= context_length <= items:
        raise InputError(
            f"context_length = {context_length}: a context holds 2 items or more, and here at most "
            f"{items}; choose another length"
        )
    if contexts < 1:
        raise InputError(f"contexts = {contexts}: nothing is read; choose at least 1")
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, d_model, seed)
    heads = usual_heads(items, d_model) if heads is None else heads
    weights = softmax(graph, table, key_dim, heads, Signatures(seed=seed))
    members = _drawn_contexts(items, context_length, contexts, seed)
    owner, ends = (part[:, members].transpose(0, 1) for part in _ownership(graph, heads))
    owner, ends = owner[..., None], ends[:, :, None, :]  # i ∈ V_k in the rows, j ∈ T_k in columns
    rows = table[members].double()
    scores = weights.scores(rows, rows)  # [contexts, heads, ℓ, ℓ]
    mass = (scores / sqrt(key_dim)).softmax(-1)
    edge = torch.tensor(graph.targets)[members][:, :, None] == members[:, None, :]
    present = edge.any(-1, keepdim=True).expand_as(edge)  # whether π(i) is in the context
    owned, background = (mass * owner).sum(1), (mass * ~owner).sum(1)
    foreign = mass * context_length * ~owner  # 1 in the mean over a context
    mean, unit = (heads - 1) / context_length, predicted_deviation(items, heads, context_length)
    deviation = float((background - mean).abs().max())
    owner_scores, total = (scores * owner).sum(1) / key_dim, owned + background
    return SoftmaxBackground(
        items=items,
        d_model=d_model,
        heads=heads,
        key_dim=key_dim,
        budget=weights.budget,
        context_length=context_length,
        contexts=contexts,
        lowest_owner_score=_least(owner_scores[edge]),
        highest_owner_score=_most(owner_scores[~edge]),
        lowest_owner_mass=_least(owned[edge]),
        predicted_owner_mass=calibration(sqrt(key_dim) / 2, context_length),
        highest_other_mass=_most(owned[present & ~edge]),
        predicted_other_mass=exp(-sqrt(key_dim) / 2),
        background_mean=float(background.mean()),
        background_mean_of_edges=_mean(background, edge),
        background_spread=float(background.std(correction=0)),
        background_deviation=deviation,
        predicted_deviation=unit,
        least_c2=deviation / unit,
        share_on_own=_mean(foreign, ~owner & ends),
        share_on_others=_mean(foreign, ~owner & ~ends),
        lowest_edge=_least(total[edge]),
        highest_non_edge=_most(total[present & ~edge]),
        highest_without_target=_most(total[~present]),
    )


def _drawn_contexts(
    items: int, length: int, contexts: int, seed: int
) -> Int[Tensor, "contexts length"]:
    rng = generator(seed, _CONTEXTS)
    return torch.from_numpy(np.stack([rng.permutation(items)[:length] for _ in range(contexts)]))


def _ownership(
    graph: Graph, heads: int
) -> tuple[Bool[Tensor, "heads items"], Bool[Tensor, "heads items"]]:
    """Whether an item is a source of a head, i ∈ V_k, and whether it is a target, j ∈ T_k."""
    sources, targets = (torch.zeros(heads, graph.items, dtype=torch.bool) for _ in range(2))
    for k, part in enumerate(split_sources(graph, heads)):
        sources[k, part.sources] = targets[k, part.targets] = True
    return sources, targets


def _least(values: Float[Tensor, " n"]) -> float:
    return float(values.min()) if len(values) else nan


def _most(values: Float[Tensor, " n"]) -> float:
    return float(values.max()) if len(values) else nan


def _mean(values: Tensor, chosen: Tensor) -> float:
    return float(values[chosen].mean()) if chosen.any() else nan
