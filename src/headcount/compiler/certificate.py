"""The certificate: what `verify` found, for exactly this graph and this table."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.attention.pair_verification import tile_count
from headcount.attention.recovery import Extreme, Recovery
from headcount.attention.softmax_certificate import SoftmaxCertificate
from headcount.attention.verification import verify
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Float

_NOTE = "certificate"  # the note of a weights file that holds it


@dataclass(frozen=True)
class Certificate:
    """All m² ordered pairs are decided correctly, hence every context of every length is.

    `margin` is Definition 9.1's γ, `relative_margin` is γ/|τ|; the two binding pairs attain the
    lowest edge score and the highest other score. No computed score is further than `score_error`
    from its true value; pairs closer to τ than that were decided in exact arithmetic. `bits`: the
    weights are on a grid of that many bits. `context_length` ℓ: softmax weights, correct in every
    context of ℓ items; their scores are bounds over all of these.

    `decide` "top": every target scores above every other item of its row. The binding pairs are of
    the row where that is closest, `margin` is their difference, and `relative_margin` the
    difference over the sum of their absolute scores.
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
    decide: str = "threshold"

    @classmethod
    def of(
        cls,
        found: Recovery,
        weights: KeyQuery,
        graph: Graph,
        table: Float[Tensor, "items d_model"],
        bits: int | None = None,
    ) -> Certificate:
        """From a verification of all pairs that found no error."""
        if not found.exact or found.scope != "all pairs":
            raise ValueError(
                "only weights that verification found exact over all pairs can be certified"
            )
        return cls(
            pairs=found.pairs,
            tiles=tile_count(graph.items, table.device),
            checked_in=found.checked_in,
            score_error=found.score_error,
            bits=bits,
            decide=found.decide,
            **_common(found, weights, graph, table),
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
            pairs=graph.items**2,
            tiles=None,
            checked_in="float64",
            score_error=0.0,
            context_length=found.context_length,
            **_common(found, weights, graph, table),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, nested pairs as dictionaries."""
        return asdict(self)

    def to_json(self) -> str:
        """One line of JSON that `from_json` reads; numbers keep all their digits."""
        return json.dumps(self.as_dict())

    def to_notes(self) -> dict[str, str]:
        """The certificate as notes of the weights that it certifies."""
        return {"method": "compiled", _NOTE: self.to_json()}

    @classmethod
    def from_notes(cls, notes: Mapping[str, str]) -> Certificate:
        """Read the certificate of saved weights: `Certificate.from_notes(weights.notes)`.

        It says what held when the weights were compiled; `verify` checks them again.

        >>> Certificate.from_notes({"method": "by hand"})
        Traceback (most recent call last):
        headcount.errors.InputError: the notes hold no certificate; compile the weights and save ...
        """
        if _NOTE not in notes and f"{_NOTE}_margin" in notes:
            return cls.from_json(json.dumps(_released_notes(notes)))
        if _NOTE not in notes:
            raise InputError(
                "the notes hold no certificate; compile the weights and save what compile returns"
            )
        return cls.from_json(notes[_NOTE])

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read what `to_json` wrote.

        >>> Certificate.from_json("{}")
        Traceback (most recent call last):
        headcount.errors.InputError: not a certificate: margin is missing; compile the weights again
        """
        remedy = "compile the weights again"
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a certificate: {error}; {remedy}") from None
        if not isinstance(values, dict):
            raise InputError(f"not a certificate: no JSON object; {remedy}")
        names = [field.name for field in fields(cls)]
        for name in names[:-3]:  # `bits`, `context_length` and `decide` may be missing
            if name not in values:
                raise InputError(f"not a certificate: {name} is missing; {remedy}")
        if unknown := sorted(set(values) - set(names)):
            raise InputError(f"not a certificate: {unknown[0]} is unknown; {remedy}")
        for name in ("lowest_edge", "highest_non_edge"):
            values[name] = values[name] and Extreme(**values[name])
        return cls(**values)


def _released_notes(notes: Mapping[str, str]) -> dict[str, Any]:
    """The values in the notes of release 0.1.0: one note for each, as Python prints it."""
    found: dict[str, Any] = {}
    for name, text in notes.items():
        if name.startswith(f"{_NOTE}_"):
            try:
                value = ast.literal_eval(text)
            except (ValueError, SyntaxError):  # text without quotes, as a hash is
                value = text
            found[name.removeprefix(f"{_NOTE}_")] = text if name.endswith("_hash") else value
    return found


def _common(
    found: Recovery | SoftmaxCertificate, weights: KeyQuery, graph: Graph, table: Tensor
) -> dict[str, Any]:
    """What both kinds of certificate take over from the answer, and the names of the problem."""
    return {
        "margin": found.margin,
        "relative_margin": _relative_margin(found, weights),
        "threshold": weights.threshold,
        "lowest_edge": found.lowest_edge,
        "highest_non_edge": found.highest_non_edge,
        "dtype": str(weights.queries.dtype).removeprefix("torch."),
        "graph_hash": graph_hash(graph),
        "table_hash": table_hash(table),
    }


def _relative_margin(found: Recovery | SoftmaxCertificate, weights: KeyQuery) -> float:
    if isinstance(found, SoftmaxCertificate) or found.decide == "threshold":
        return found.margin / abs(weights.threshold)
    if found.lowest_edge is None or found.highest_non_edge is None:  # no row has both
        return 1.0
    return found.margin / (abs(found.lowest_edge.score) + abs(found.highest_non_edge.score))


def certify(
    weights: KeyQuery,
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    bits: int | None = None,
) -> Certificate | None:
    """The certificate, or None if `verify` finds a wrong pair."""
    found = verify(weights, graph, table)
    return Certificate.of(found, weights, graph, table, bits) if found.exact else None


def graph_hash(graph: Graph) -> str:
    """SHA-256 of the number of items and the sorted edges, as little-endian 64-bit integers."""
    digest = hashlib.sha256(np.int64(graph.items).astype("<i8").tobytes())
    digest.update(graph.pairs.astype("<i8").tobytes())
    return digest.hexdigest()


def table_hash(table: Float[Tensor, "items d_model"]) -> str:
    """SHA-256 of the shape and the entries as little-endian float64.

    float64 holds every smaller dtype exactly, so a table has one hash in all of them.
    """
    rows = table.detach().to("cpu", torch.float64).contiguous().numpy()
    digest = hashlib.sha256(np.array(rows.shape, dtype="<i8").tobytes())
    digest.update(rows.astype("<f8").tobytes())
    return digest.hexdigest()
