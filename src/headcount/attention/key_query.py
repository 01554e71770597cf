"""KeyQuery: the weights of a key–query channel and what they decide (Sections 3, 8, Eqs. 5–6)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from headcount.attention.aggregation import AnyAggregation
from headcount.attention.shared_keys import require_kv_heads
from headcount.errors import InputError
from headcount.notebook import chart
from headcount.problem.graph import Graph
from headcount.problem.real_numbers import real_number, weights_tensor
from headcount.problem.tables import TableLike
from headcount.shapes import Bool, Float

Decide = Literal["threshold", "top"]  # edges exceed τ, or targets are the top of their row


@dataclass(frozen=True, eq=False)
class KeyQuery:
    """h heads of W_Q, W_K [d_model, d_k], a threshold τ, and how heads are aggregated.

    Heads may share keys: with g rows of `keys`, where g divides h, head k uses row ⌊k·g/h⌋. Heads
    may differ in width, but not those that share a key: `widths[k]` columns of head k are in use,
    the rest must be zero and count nowhere. `notes` is free text that travels with the weights
    (method, seed, …).

    >>> heads = [(torch.ones(3, 2), torch.ones(3, 2)), (torch.ones(3, 1), -torch.ones(3, 1))]
    >>> weights = KeyQuery.from_heads(heads, threshold=0.5)
    >>> weights.heads, weights.key_dim, weights.budget
    (2, 2, 3)
    >>> shared = KeyQuery(torch.ones(4, 3, 2), torch.ones(1, 3, 2), threshold=0.5)
    >>> shared.heads, shared.kv_heads, shared.budget, shared.key_budget
    (4, 1, 8, 2)
    """

    queries: Float[Tensor, "heads d_model key_dim"]
    keys: Float[Tensor, "kv_heads d_model key_dim"]
    threshold: float
    aggregation: AnyAggregation = "max"
    widths: tuple[int, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    temperature: float = 1.0  # of logsumexp

    def __post_init__(self) -> None:
        for name in ("queries", "keys"):
            object.__setattr__(self, name, weights_tensor(getattr(self, name), name))
        shape, other = tuple(self.queries.shape), tuple(self.keys.shape)
        if len(shape) != 3 or shape[1:] != other[1:] or 0 in (*shape, *other):
            raise InputError(
                f"queries {shape} and keys {other} must have one shape, "
                "heads × d_model × key_dim, with no zero in it; shared keys have fewer heads"
            )
        require_kv_heads(shape[0], other[0])
        if self.aggregation not in get_args(AnyAggregation):
            known = ", ".join(get_args(AnyAggregation))
            raise InputError(f"aggregation {self.aggregation!r} is unknown; use {known}")
        if not (self.queries.isfinite().all() and self.keys.isfinite().all()):
            raise InputError("the weights hold a NaN or infinite entry; they cannot be used")
        object.__setattr__(self, "threshold", real_number(self.threshold, "threshold"))
        if not math.isfinite(self.threshold):
            raise InputError(f"the threshold is {self.threshold}; give a finite number")
        object.__setattr__(self, "temperature", real_number(self.temperature, "temperature"))
        if not 0 < self.temperature < math.inf:
            raise InputError(f"temperature {self.temperature} is not a positive number; choose one")
        if self.temperature != 1 and self.aggregation != "logsumexp":
            raise InputError(
                f"temperature {self.temperature:g} belongs to logsumexp; leave it out under "
                f"{self.aggregation}"
            )
        widths = tuple(int(width) for width in self.widths) or shape[2:] * self.heads
        object.__setattr__(self, "widths", widths)
        self._check_widths(widths)

    def _check_widths(self, widths: tuple[int, ...]) -> None:
        widest = self.queries.shape[2]
        if len(widths) != self.heads or not all(1 <= width <= widest for width in widths):
            raise InputError(f"widths {widths} must be {self.heads} numbers in 1…{widest}")
        sharing = self.heads // self.kv_heads
        for first in range(0, self.heads, sharing):
            group = widths[first : first + sharing]
            if len(set(group)) > 1:
                raise InputError(
                    f"heads {first}…{first + sharing - 1} share a key and have widths {group}; "
                    "heads that share a key must have one width"
                )
        for k, width in enumerate(widths):
            key = self.keys[self.key_head(k)]
            if self.queries[k, :, width:].any() or key[:, width:].any():
                raise InputError(
                    f"head {k} is {width} wide but has non-zero columns beyond; correct its width"
                )

    @classmethod
    def from_heads(
        cls,
        heads: Sequence[tuple[Float[Tensor, "d_model _"], Float[Tensor, "d_model _"]]],
        threshold: float,
        aggregation: AnyAggregation = "max",
        notes: Mapping[str, str] | None = None,
        temperature: float = 1.0,
    ) -> KeyQuery:
        """Weights from (W_Q, W_K) pairs whose widths may differ."""
        if not heads:
            raise InputError("weights need at least one head")
        for k, (query, key) in enumerate(heads):
            if query.ndim != 2 or query.shape != key.shape or len(query) != len(heads[0][0]):
                raise InputError(
                    f"head {k} has W_Q {tuple(query.shape)} and W_K {tuple(key.shape)}; "
                    "both must be d_model × d_k, with one d_model for all heads"
                )
        widths = tuple(query.shape[1] for query, _ in heads)

        def stack(parts: list[Tensor]) -> Tensor:
            widest = max(widths)
            return torch.stack(
                [torch.nn.functional.pad(part, (0, widest - part.shape[1])) for part in parts]
            )

        queries, keys = stack([query for query, _ in heads]), stack([key for _, key in heads])
        return cls(queries, keys, threshold, aggregation, widths, notes or {}, temperature)

    @property
    def heads(self) -> int:
        """h."""
        return self.queries.shape[0]

    @property
    def d_model(self) -> int:
        return self.queries.shape[1]

    @property
    def key_dim(self) -> int:
        """d_k, the width of the widest head."""
        return max(self.widths)

    @property
    def budget(self) -> int:
        """D_K = Σ_k d_k, padding not counted."""
        return sum(self.widths)

    @property
    def kv_heads(self) -> int:
        """g, the number of different keys; h where every head has its own."""
        return self.keys.shape[0]

    @property
    def key_budget(self) -> int:
        """D_KV, the columns of all keys, padding not counted: what a key cache holds per item."""
        return sum(self.widths[:: self.heads // self.kv_heads])

    def key_head(self, head: int) -> int:
        """⌊k·g/h⌋, the row of `keys` that head k uses."""
        return head * self.kv_heads // self.heads

    @property
    def keys_per_head(self) -> Float[Tensor, "heads d_model key_dim"]:
        """W_K of every head: `keys`, with shared ones repeated."""
        return per_head(self.keys, self.heads)

    @property
    def context_length(self) -> int | None:
        """The context length that softmax weights were made for, where their notes say it."""
        noted = self.notes.get("context_length")
        if noted is None:
            return None
        if not re.fullmatch("[1-9][0-9]{0,8}", noted):
            raise InputError(
                f"the weights' note context_length is {noted[:40]!r}, not a number of items; "
                "correct it, or give the context length yourself"
            )
        return int(noted)

    @property
    def decided_by(self) -> Decide:
        """`top` where the notes say that rows are read by their highest score, else `threshold`."""
        noted = self.notes.get("decide", "threshold")
        if noted not in ("threshold", "top"):
            raise InputError(
                f"the weights' note decide is {noted[:40]!r}, not threshold or top; correct it, "
                "or say yourself which of them decides"
            )
        return noted

    def scores(
        self, sources: Float[Tensor, "*batch a d_model"], targets: Float[Tensor, "*batch b d_model"]
    ) -> Float[Tensor, "*batch heads a b"]:
        """S⁽ᵏ⁾ = (x W_Q⁽ᵏ⁾)(y W_K⁽ᵏ⁾)ᵀ of every head, for rows x (sources) and y (targets).

        A shared W_K is that of several heads.
        """
        self.require_width(sources.shape[-1])
        dtype = torch.promote_types(sources.dtype, torch.float32)
        queries = sources.to(dtype).unsqueeze(-3) @ self.queries.to(dtype)
        keys = targets.to(dtype).unsqueeze(-3) @ self.keys.to(dtype)
        return queries @ per_head(keys, self.heads).mT

    def aggregate(self, scores: Float[Tensor, "*batch heads a b"]) -> Float[Tensor, "*batch a b"]:
        """Join scores by their max or sum over heads, or by Σ_k softmax_b(S⁽ᵏ⁾/√d_k) (Eqs. 5–6).

        `logsumexp` joins them by t·log Σ_k exp(S⁽ᵏ⁾/t) at the temperature t.
        For softmax the last dimension must be the whole context.
        """
        match self.aggregation:
            case "max":
                return scores.amax(-3)
            case "sum":
                return scores.sum(-3)
            case "logsumexp":
                return self.temperature * (scores / self.temperature).logsumexp(-3)
            case "softmax":
                scale = torch.tensor(self.widths, dtype=scores.dtype, device=scores.device).rsqrt()
                return (scores * scale[:, None, None]).softmax(-1).sum(-3)

    def decide(
        self, context: Float[Tensor, "*batch length d_model"]
    ) -> Bool[Tensor, "*batch length length"]:
        """Which ordered pairs of the context's rows are declared edges: aggregated score > τ.

        Weights decided by the top of a row have no τ; take the argmax of `aggregate` for them.
        """
        if self.decided_by == "top":
            raise InputError(
                "these weights are decided by the top of a row and have no threshold; "
                "take the argmax of aggregate(scores(context, context))"
            )
        return self.aggregate(self.scores(context, context)) > self.threshold

    def all_pairs(
        self, table: Float[Tensor, "items d_model"], tile: int = 1024
    ) -> Iterator[tuple[slice, slice, Float[Tensor, "a b"]]]:
        """Aggregated scores of all m² ordered pairs, as (source rows, target rows, scores) tiles.

        Under softmax a score depends on the context, so the others alone have such a table.
        """
        from headcount.attention.tiles import Projections

        for rows, columns, scores in Projections.of(self, table).tiles(table.dtype, tile):
            yield rows, columns, scores.clone()  # the pass reuses its buffer

    def require_width(self, d_model: int) -> None:
        """Refuse embeddings of another width."""
        if d_model != self.d_model:
            raise InputError(
                f"the weights take d_model {self.d_model}, the embeddings have {d_model}; "
                "use a pair that fits"
            )

    def to(
        self, device: str | torch.device | None = None, dtype: torch.dtype | None = None
    ) -> KeyQuery:
        """The same weights on another device or in another dtype."""
        return replace(
            self,
            queries=self.queries.to(device=device, dtype=dtype),
            keys=self.keys.to(device=device, dtype=dtype),
        )

    def detached(self) -> KeyQuery:
        """The same weights apart from any gradient, as those of an `nn.Parameter` must be."""
        if not (self.queries.requires_grad or self.keys.requires_grad):
            return self
        return replace(self, queries=self.queries.detach(), keys=self.keys.detach())

    def plot(self, graph: Graph, table: TableLike) -> Any:
        """Draw the scores with the true edges marked, as an Altair chart."""
        return chart("score_matrix", "plot_scores", self, graph, table)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a `.safetensors` file that `headcount.load_weights` reads."""
        from headcount.attention.storage import save

        save(self, path)

    def __repr__(self) -> str:
        width = f"key_dim={self.key_dim}" if len(set(self.widths)) == 1 else f"widths={self.widths}"
        shared = self.kv_heads < self.heads
        kv_heads = f"kv_heads={self.kv_heads}, " if shared else ""
        key_budget = f"key_budget={self.key_budget}, " if shared else ""
        return (
            f"KeyQuery(d_model={self.d_model}, heads={self.heads}, {kv_heads}{width}, "
            f"budget={self.budget}, {key_budget}"
            f"threshold={self.threshold:.6g}, aggregation={self.aggregation!r}"
            + (f", temperature={self.temperature:g})" if self.aggregation == "logsumexp" else ")")
        )


def per_head(
    keys: Float[Tensor, "*batch kv_heads a b"], heads: int
) -> Float[Tensor, "*batch heads a b"]:
    """What belongs to each key, for each head: repeated where heads share keys."""
    sharing = heads // keys.shape[-3]
    return keys if sharing == 1 else keys.repeat_interleave(sharing, -3)
