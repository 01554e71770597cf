"""The certificate: what `verify` found, for exactly this graph and this table."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.recovery import Extreme, Recovery
from headcount.attention.softmax_certificate import SoftmaxCertificate
from headcount.attention.verification import tile_count, verify
from headcount.problem.graph import Graph
from headcount.shapes import Float


@dataclass(frozen=True)
class Certificate:
    """Every one of the m² ordered pairs is decided rightly, hence every pair in every context of every length.

    `margin` is Definition 9.1's γ, `relative_margin` is γ/|τ|; the two binding pairs attain the lowest edge score
    and the highest other score. No computed score is further than `score_error` from its true value; pairs closer
    to τ than that were decided in exact arithmetic. `bits`: the weights lie on a grid of that many bits.
    `context_length` ℓ: softmax weights, right in every context of ℓ items; their scores are bounds over all of these.
    """

    margin: float
    relative_margin: float
    threshold: float
    lowest_edge: Extreme | None
    highest_non_edge: Extreme | None
    pairs: int
    tiles: int | None  # in which the pairs were visited; None for softmax
    dtype: str
    checked_in: str
    score_error: float
    graph_hash: str
    table_hash: str
    bits: int | None = None
    context_length: int | None = None

    @classmethod
    def of(
        cls, found: Recovery, weights: KeyQuery, graph: Graph, table: Float[Tensor, "items d_model"]
    ) -> Certificate:
        """From a verification of all pairs that found no error."""
        if not found.exact or found.scope != "all pairs":
            raise ValueError(
                "only weights that verification found exact over all pairs can be certified"
            )
        return cls(
            margin=found.margin,
            relative_margin=found.margin / abs(weights.threshold),
            threshold=weights.threshold,
            lowest_edge=found.lowest_edge,
            highest_non_edge=found.highest_non_edge,
            pairs=found.pairs,
            tiles=tile_count(graph.items, table.device),
            dtype=str(weights.queries.dtype).removeprefix("torch."),
            checked_in=found.checked_in,
            score_error=found.score_error,
            graph_hash=graph_hash(graph),
            table_hash=table_hash(table),
        )

    @classmethod
    def of_softmax(
        cls,
        found: SoftmaxCertificate,
        weights: KeyQuery,
        graph: Graph,
        table: Float[Tensor, "items d_model"],
    ) -> Certificate:
        """From a softmax certificate; its bounds hold with rounding included."""
        if found.verdict != "certified":
            raise ValueError("only weights that the softmax certificate covers can be certified")
        return cls(
            margin=found.margin,
            relative_margin=found.margin / abs(weights.threshold),
            threshold=weights.threshold,
            lowest_edge=found.lowest_edge,
            highest_non_edge=found.highest_non_edge,
            pairs=graph.items**2,
            tiles=None,
            dtype=str(weights.queries.dtype).removeprefix("torch."),
            checked_in="float64",
            score_error=0.0,
            graph_hash=graph_hash(graph),
            table_hash=table_hash(table),
            context_length=found.context_length,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def certify(
    weights: KeyQuery, graph: Graph, table: Float[Tensor, "items d_model"]
) -> Certificate | None:
    """The certificate, or None if `verify` finds a wrong pair."""
    found = verify(weights, graph, table)
    return Certificate.of(found, weights, graph, table) if found.exact else None


def graph_hash(graph: Graph) -> str:
    """SHA-256 of the number of items and the sorted edge list, as little-endian 64-bit integers."""
    digest = hashlib.sha256(np.int64(graph.items).astype("<i8").tobytes())
    digest.update(graph.pairs.astype("<i8").tobytes())
    return digest.hexdigest()


def table_hash(table: Float[Tensor, "items d_model"]) -> str:
    """SHA-256 of the shape and the entries as little-endian float64, which holds every smaller dtype exactly."""
    rows = table.detach().to("cpu", torch.float64).contiguous().numpy()
    digest = hashlib.sha256(np.array(rows.shape, dtype="<i8").tobytes())
    digest.update(rows.astype("<f8").tobytes())
    return digest.hexdigest()
