"""Signal and noise of Construction II, measured on one random problem (Section 5, Lemma B.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from headcount.attention.verification import verify
from headcount.constructions.template import Signatures, fill, inverter, split_sources
from headcount.errors import InputError
from headcount.memory import require_memory
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import permutation_graph
from headcount.shapes import Float
from headcount.theory.margins import measured_margin
from headcount.theory.noise import Head, concentration, decompose, noise_summary
from headcount.theory.noise_law import predicted_n3


@dataclass(frozen=True)
class CompressiveNoise:
    """What the scores of Construction II consist of, and whether they recognise the graph."""

    items: int
    d_model: int
    heads: int
    key_dim: int
    budget: int
    block: int  # B, the edges of the largest head
    exact: bool
    lowest_edge: float | None  # score after the maximum over heads
    highest_non_edge: float | None
    threshold: float
    margin: float  # γ of Theorem 9.2: half the gap between the two scores, over N(U)·N(V)
    least_c2: float  # the least C₂ and C₃ with which Lemma B.3 holds here
    least_c3: float
    n3_by_equation_1: float  # Eq. (1) with constant 1
    parts: dict[str, dict[str, float]]  # signal, n1, n2, n3: rms, max and max_mean of each
    pair: dict[str, float] | None = None  # the parts of one score, where a pair was chosen


def measure_noise(
    items: int,
    d_model: int,
    key_dim: int,
    *,
    heads: int | None = None,
    seed: int = 0,
    pair: tuple[int, int] | None = None,
) -> CompressiveNoise:
    """Build Construction II for a random permutation on a Gaussian table, and split its scores.

    `heads` is ⌈m/d_model⌉ unless given. See `noise_summary` for the pairs that each part covers.
    With a `pair`, source and target, the answer also has the parts of its score in the head that
    owns the source.

    >>> found = measure_noise(32, 8, key_dim=4, pair=(0, 1))
    >>> found.heads, found.block, sorted(found.parts)
    (4, 8, ['n1', 'n2', 'n3', 'signal'])
    >>> list(found.pair)
    ['signal', 'n1', 'n2', 'n3', 'score']
    """
    if pair is not None and not all(0 <= item < items for item in pair):
        raise InputError(f"the pair {pair} has an item outside 0…{items - 1}; choose two items")
    heads = usual_heads(items, d_model) if heads is None else heads
    numbers = max(heads, 1) * max(d_model, 1) * key_dim + items * key_dim
    require_memory(32 * numbers, f"{heads:,} heads of {d_model:,} × {key_dim:,} on {items:,} items")
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, d_model, seed)
    matchings, signatures = split_sources(graph, heads), Signatures(seed=seed)
    weights = fill(table, matchings, signatures, key_dim, inverter("transpose"))
    found = verify(weights, graph, table)
    blocks = [(part.sources, part.targets) for part in matchings]
    block = max(len(part.sources) for part in matchings)
    signed = signatures.draw(items, key_dim)
    summary = noise_summary(table, blocks, signed)
    lemma = concentration(table, blocks)
    return CompressiveNoise(
        items=items,
        d_model=d_model,
        heads=heads,
        key_dim=key_dim,
        budget=found.budget,
        block=block,
        exact=found.correct,  # of all pairs
        lowest_edge=found.lowest_edge and found.lowest_edge.score,
        highest_non_edge=found.highest_non_edge and found.highest_non_edge.score,
        threshold=found.threshold,
        margin=measured_margin(weights, table, found),
        least_c2=lemma.leakage_mass,
        least_c3=lemma.c3,
        n3_by_equation_1=predicted_n3(items, d_model, block, key_dim),
        parts={
            str(line.pop("part")): {str(name): float(value) for name, value in line.items()}
            for line in summary.to_dict("records")
        },
        pair=None if pair is None else _pair_parts(table, blocks, signed, *pair),
    )


def _pair_parts(
    table: Float[Tensor, "items d_model"],
    blocks: list[Head],
    signatures: Float[Tensor, "items key_dim"],
    source: int,
    target: int,
) -> dict[str, float]:
    """Signal, N₁, N₂ and N₃ of one score in the head that owns the source, and their sum."""
    owner = next(block for block in blocks if source in block[0])
    rows, columns = np.array([source]), np.array([target])
    found = decompose(table, *owner, signatures, rows=rows, columns=columns)
    return {name: float(getattr(found, name)) for name in ("signal", "n1", "n2", "n3", "score")}


def usual_heads(items: int, d_model: int) -> int:
    """⌈m/d_model⌉, as in Algorithm 1, also where d_model does not divide m.

    >>> usual_heads(33, 8)
    5
    """
    return max(-(-items // max(d_model, 1)), 1)
