"""Weights with shared keys as an attention of `scaled_dot_product_attention(enable_gqa=True)`.

`nn.MultiheadAttention` has a key for each head, so it needs a copy of a shared key for every head
that uses it. Grouped-query attention needs none: h query heads, g key heads, and a key cache of
g·head_dim numbers per item. What the exported attention promises, and how its resting place works,
is that of `export`.
"""

from __future__ import annotations

import os

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from headcount.attention.export import (
    Heads,
    heads_in_use,
    scaled_for_softmax,
    sharpened,
    write_attention,
)
from headcount.attention.key_query import KeyQuery
from headcount.errors import InputError
from headcount.files import existing_file
from headcount.problem.graph import Graph
from headcount.problem.tables import TableLike
from headcount.shapes import Float

_FORMAT = "headcount-grouped-attention"


class GroupedAttention(nn.Module):
    """h query heads over g shared keys: two linear maps and PyTorch's own attention.

    `facts`: heads, kv_heads, head_dim, d_model, aggregation, threshold (τ), temperature (1/β), and
    for max what β depends on: margin and context_length.
    """

    def __init__(self, tensors: dict[str, Tensor], facts: dict[str, int | float | str]) -> None:
        super().__init__()
        self.facts = facts
        self.heads, self.kv_heads = int(facts["heads"]), int(facts["kv_heads"])
        (columns, d_model), resting = tensors["queries.weight"].shape, "rest" in tensors
        key_columns = columns // self.heads * self.kv_heads
        with torch.random.fork_rng(devices=[]):  # what is drawn here is not kept
            self.queries = nn.Linear(d_model, columns, bias=resting, device="cpu")
            self.keys = nn.Linear(d_model, key_columns, bias=False, device="cpu")
        # The key of the resting place, whose score is τ.
        self.rest = nn.Parameter(torch.empty(key_columns)) if resting else None
        self.load_state_dict(tensors, strict=True, assign=True)

    def forward(
        self,
        rows: Float[Tensor, "batch length d_model"],
        values: Float[Tensor, "batch length value_dim"],
    ) -> Float[Tensor, "batch heads length value_dim"]:
        """What every head reads from the values; its resting place holds zeros."""
        queries = self.queries(rows).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        keys = self.keys(rows)
        if self.rest is not None:
            keys = torch.cat([keys, self.rest.expand(len(keys), 1, -1)], 1)
            values = pad(values, (0, 0, 0, 1))
        keys = keys.unflatten(-1, (self.kv_heads, -1)).transpose(1, 2)
        shared = values[:, None].expand(-1, self.kv_heads, -1, -1)
        return scaled_dot_product_attention(queries, keys, shared, scale=1.0, enable_gqa=True)

    def shares(
        self, rows: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch heads length length"]:
        """The attention of every head to every row; what is left of 1 is the resting place's."""
        length = rows.shape[1]
        return self(rows, torch.eye(length).to(rows).expand(len(rows), -1, -1))

    def save(self, path: str | os.PathLike[str], source: str = "") -> None:
        """Write a `.safetensors` file that `load_grouped` reads; `source` hashes the weights."""
        tensors = {name: part.detach() for name, part in self.state_dict().items()}
        write_attention(path, tensors, _FORMAT, self.facts, source)


def to_grouped(
    weights: KeyQuery,
    graph: Graph | None = None,
    table: TableLike | None = None,
    *,
    context_length: int = 64,
) -> GroupedAttention:
    """A grouped-query attention whose heads rest unless a target is in the context.

    Max needs the graph and the table, as `to_torch` does; softmax weights need only themselves.

    >>> from headcount.problem.makers import permutation_graph
    >>> graph, table = permutation_graph(8), torch.eye(8)
    >>> target_of = table[torch.from_numpy(graph.targets.copy())]
    >>> halves = torch.stack([target_of * (torch.arange(8) < 4)[:, None], target_of])
    >>> weights = KeyQuery(halves, table[None], threshold=0.5)
    >>> attention = to_grouped(weights, graph, table)
    >>> attention.heads, attention.kv_heads, tuple(attention.shares(table[None]).shape)
    (2, 1, (1, 2, 8, 8))
    """
    if weights.aggregation not in ("max", "softmax"):
        raise InputError(
            f"{weights.aggregation} weights are not a grouped attention, which joins heads by max "
            "or softmax; give weights of one of them"
        )
    weights = weights.detached()
    heads = heads_in_use(weights)
    if weights.aggregation == "softmax":
        return _assembled(weights, scaled_for_softmax(heads), {"temperature": 1.0})
    return _assembled(weights, *sharpened(weights, heads, graph, table, context_length))


def _assembled(
    weights: KeyQuery,
    heads: Heads,
    facts: dict[str, float],
    sharper: float = 1.0,
    rest: float | None = None,
) -> GroupedAttention:
    """The attention: scores times `sharper`, and a resting place with score `rest` if given."""
    head_dim = max(query.shape[1] for query, _ in heads) + (rest is not None)

    def stacked(parts: list[Tensor]) -> Tensor:
        wide = [pad(part, (0, head_dim - part.shape[1])) for part in parts]
        return torch.cat(wide, 1).T.float().contiguous()

    share = weights.heads // weights.kv_heads
    tensors = {
        "queries.weight": stacked([sharper * query for query, _ in heads]),
        "keys.weight": stacked([key for _, key in heads[::share]]),
    }
    if rest is not None:  # one more dimension: 1 in a query, 0 in an item's key
        last = torch.zeros(head_dim)
        last[-1] = 1
        tensors["queries.bias"] = (sharper * last).repeat(weights.heads)
        tensors["rest"] = (rest * last).repeat(weights.kv_heads)
    if not all(part.isfinite().all() for part in tensors.values()):
        raise InputError("the weights overflow float32; scale them down")
    shape = {"heads": weights.heads, "kv_heads": weights.kv_heads, "head_dim": head_dim}
    channel = {"d_model": weights.d_model, "aggregation": weights.aggregation}
    return GroupedAttention(tensors, {**shape, **channel, "threshold": weights.threshold, **facts})


def load_grouped(path: str | os.PathLike[str]) -> GroupedAttention:
    """Read an attention that `GroupedAttention.save` wrote."""
    path = existing_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            facts = dict(file.metadata() or {})
            if facts.pop("format", None) == _FORMAT:
                facts.pop("source_sha256", None)
                names = file.keys()  # a safetensors file cannot be iterated itself
                return GroupedAttention(
                    {name: file.get_tensor(name) for name in names},
                    {name: _read(text) for name, text in facts.items()},
                )
    except (SafetensorError, LookupError, RuntimeError, ValueError, ZeroDivisionError):
        raise InputError(f"{path}: not a whole attention file; export the weights again") from None
    raise InputError(
        f"{path}: does not hold a grouped attention; write one with headcount export --grouped"
    )


def _read(text: str) -> int | float | str:
    """A fact as it was before it was written."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
