"""Weights on a grid of b bits: every entry is a whole number times its matrix's scale.

The grid is symmetric and uniform, with 2ᵇ − 1 levels −(2ᵇ⁻¹ − 1) … 2ᵇ⁻¹ − 1, and one scale for each
W_Q and each W_K of each head. So b·2·d_model·D_K bits hold the levels; the 2h scales and τ are side
information that this count leaves out. A scale has 16 significant bits, hence level × scale is
exact in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.compiler.head_counts import log2_choices
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.problem.streams import generator
from headcount.shapes import Float
from headcount.theory.counting import log2_graphs
from headcount.theory.lower_bounds import bit_budget_bound

_MOST_BITS = 8
_SCALE_BITS = 16
_CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # shares of the largest entry at which a grid may end

Head = Float[Tensor, "two d_model _"]  # W_Q and W_K of one head


@dataclass(frozen=True)
class Grid:
    """The multiples of a scale from −top to top, one scale for each of W_Q and W_K."""

    scales: Float[Tensor, "two 1 1"]
    top: int

    @classmethod
    def of(cls, head: Head, bits: int) -> Grid:
        """For each matrix, of a few places where its grid may end the one that moves it least.

        A grid that ends below the largest entry is finer, which may be worth the clipping.
        """
        check_bits(bits)
        top = 2 ** (bits - 1) - 1
        head = head.double()
        largest = head.abs().amax((1, 2), keepdim=True)
        choices = torch.stack([_short(clip * largest / top) for clip in _CLIPS])
        moved = torch.stack(
            [(cls(scales, top).nearest(head) - head).square().sum((1, 2)) for scales in choices]
        )
        return cls(choices.gather(0, moved.argmin(0)[None, :, None, None]).squeeze(0), top)

    def nearest(self, head: Head) -> Head:
        """The entries rounded to their grid; what lies beyond it moves to its end."""
        return self.levels(head) * self.scales

    def levels(self, head: Head) -> Head:
        """The whole numbers nearest to entries over scale."""
        return (head / self.scales).round().clamp(-self.top, self.top)


def check_bits(bits: int) -> None:
    """Refuse a grid with one level, and one finer than the scales allow."""
    if not 2 <= bits <= _MOST_BITS:
        raise InputError(f"weights are rounded to 2…{_MOST_BITS} bits, not {bits}; choose 8 or 4")


def round_weights(weights: KeyQuery, bits: int) -> KeyQuery:
    """Each W_Q and W_K rounded to its own grid of b bits, in float32; the threshold stays.

    >>> weights = KeyQuery(torch.tensor([[[0.9], [-0.31]]]), torch.ones(1, 2, 1), threshold=0.5)
    >>> before, after = heads_of(weights)[0], heads_of(round_weights(weights, 4))[0]
    >>> Grid.of(before, 4).levels(after)[0].flatten().tolist()
    [7.0, -2.0]
    """
    rounded = from_parts(
        [Grid.of(head, bits).nearest(head) for head in heads_of(weights)],
        weights,
        weights.threshold,
    )
    # A matrix is rounded without a look at others, so heads that share a key still do.
    return replace(rounded, keys=rounded.keys[:: weights.heads // weights.kv_heads])


def heads_of(weights: KeyQuery) -> list[Head]:
    """W_Q and W_K of each head in float64, without padding."""
    both = torch.stack([weights.queries, weights.keys_per_head], 1).double().cpu()
    return [head[:, :, :width] for head, width in zip(both, weights.widths, strict=True)]


def from_parts(heads: list[Head], like: KeyQuery, threshold: float) -> KeyQuery:
    """KeyQuery weights in float32, which holds rounded entries exactly."""
    pairs = [(head[0].float(), head[1].float()) for head in heads]
    return KeyQuery.from_heads(pairs, threshold, like.aggregation, like.notes, like.temperature)


def rotated(heads: list[Head], seed: int) -> list[Head]:
    """The same scores from other weights: W_Q → W_Q A, W_K → W_K A⁻ᵀ.

    With W_Q W_Kᵀ = U S Vᵀ they become U·√S·R and V·√S·R for a random orthogonal R, so that all
    columns, and both matrices, have entries of about one size: what a grid with one scale wants.
    """
    rng = generator(seed, 0xB175)
    found = []
    for query, key in heads:
        left, right = torch.linalg.qr(query), torch.linalg.qr(key)
        inner, values, outer = torch.linalg.svd(left.R @ right.R.T, full_matrices=False)
        normal = torch.from_numpy(rng.standard_normal((query.shape[1],) * 2))
        turn = torch.linalg.qr(normal).Q  # a random rotation
        root = values.sqrt()[:, None] * turn[: len(values)]
        found.append(torch.stack([left.Q @ inner @ root, right.Q @ outer.mT @ root]))
    return found


def _short(scales: Tensor) -> Tensor:
    """Floats of few significant bits, no smaller; 1 where there is nothing to hold."""
    mantissa, exponent = torch.frexp(torch.where(scales > 0, scales, 1.0))
    return torch.ldexp((mantissa * 2**_SCALE_BITS).ceil(), exponent - _SCALE_BITS)


def bit_account(weights: KeyQuery, graph: Graph, bits: int) -> dict[str, Any]:
    """What b-bit weights cost against the information in the graph.

    That is log2 m! bits for a permutation, else log2 C(m², m'). The scales (two per head) and τ are
    not counted.
    """
    held = (
        log2_graphs(graph.items)
        if graph.is_permutation and graph.items > 1
        else log2_choices(graph.items**2, graph.edges)
    )
    spent = bits * weights.d_model * (weights.budget + weights.key_budget)
    bound = bit_budget_bound(held, weights.d_model, bits)
    return {
        "bits": bits,
        "bits_in_all": spent,
        "information_bits": held,
        "information_per_bit": held / spent,
        "bit_budget_bound": bound,
        "budget_over_bound": weights.budget / bound,
    }
