"""Weights as a stock `torch.nn.MultiheadAttention`, which attends where the channel says "edge".

Under max a softmax over the context alone must put its mass somewhere, edge or not. So the exported
attention has a resting place: every head gets one more dimension, in which a query is 1
(`in_proj_bias`), an item's key 0 and the appended key (`bias_k`) τ, and 0 elsewhere. Its score is
τ. At inverse temperature β head k of source i gives item j

    p_k(j) = exp(β·S⁽ᵏ⁾[i, j]) / (exp(β·τ) + Σ_c exp(β·S⁽ᵏ⁾[i, c]))

(c: the items of the context) and the rest to the resting place, the last column of the attention
weights. With the margin γ of Definition 9.1, at most L items in the context and q = exp(−β·γ):

- a non-target has S ≤ τ − γ in every head: p_k(j) < q, and all of them together hold less than L·q
  of a head;
- a target has S ≥ τ + γ in some head, its owner. There one target or several together hold at
  least 1/(1 + q + (L − 1)·q²): the resting place holds at most q times, each non-target at most q²
  times what that target holds.

β = ln(8hL)/γ makes q = 1/(8hL). Hence non-targets hold less than 1/(8h) of each head, and 1/8 over
all heads; when a target is present, targets hold more than 7/8 of its owner, and the best of them
more than 7/(8L) > q: it is the argmax. How several targets of one head share it is not fixed: the
one with the highest score takes nearly all.

What float32 (not TF32) rounds away is subtracted from γ first, and what is promised is 1/(4h) and
1/2: room for the softmax's own rounding. exp cannot overflow, since softmax subtracts the largest
score; scores that float32 cannot hold are refused. Sum is one head of width D_K. Softmax weights
need no resting place: Σ_k softmax(S⁽ᵏ⁾/√d_k) (Eqs. 5–6) is exported as it is, and τ is only written
beside it. The channel says nothing about values: V is zero and the output projection the identity,
so that the state dict is complete. β·√head_dim is folded into W_Q and the resting place.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import MultiheadAttention
from torch.nn.functional import pad

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.errors import InputError
from headcount.files import existing_file, save_tensors
from headcount.problem.graph import Graph
from headcount.problem.tables import TableLike, table_for
from headcount.shapes import Float

Heads = list[tuple[Tensor, Tensor]]  # (W_Q, W_K), d_model × d_k each
_FORMAT = "headcount-torch-attention"
_UNIT = 2.0**-24
# Another machine adds in another order: its drift may be larger than the one measured here.
_OTHER_ORDER = 4
_LARGEST = 1e30  # of a score: float32 holds it times √head_dim, and far more


@dataclass(frozen=True, eq=False)
class TorchAttention:
    """The state dict of a `torch.nn.MultiheadAttention` and what a file says about it.

    `facts`: embed_dim, num_heads, add_bias_kv (is there a resting place?), d_model, aggregation,
    threshold (τ), temperature (1/β; scores are divided by it), and what β depends on: margin and
    context_length, unless softmax.
    """

    tensors: dict[str, Tensor]
    facts: dict[str, int | float | bool | str]

    def module(self) -> MultiheadAttention:
        """The attention itself, batch first; `padded` fits rows to it."""
        return _module(self.tensors, int(self.facts["num_heads"]))

    def save(self, path: str | os.PathLike[str], source: str = "") -> None:
        """Write a `.safetensors` file that `load_attention` reads.

        `source` is the hash of the weights it was made from.
        """
        write_attention(path, self.tensors, _FORMAT, self.facts, source)


def to_torch(
    weights: KeyQuery,
    graph: Graph | None = None,
    table: TableLike | None = None,
    *,
    context_length: int = 64,
) -> TorchAttention:
    """An attention whose heads rest unless a target is in the context.

    The context has at most `context_length` items.
    Max and sum need the graph and the table: β follows from their margin, and the weights must be
    exact. Softmax weights need only themselves, and contexts may be of any length.

    >>> from headcount.problem.makers import permutation_graph
    >>> graph, table = permutation_graph(8), torch.eye(8)
    >>> target_of = table[torch.from_numpy(graph.targets.copy())]
    >>> weights = KeyQuery(target_of[None], table[None], threshold=0.5)
    >>> attention = to_torch(weights, graph, table).module()
    >>> rows = padded(table, attention)[None]
    >>> _, share = attention(rows, rows, rows)
    >>> bool((share[0].argmax(1) == torch.from_numpy(graph.targets.copy())).all())
    True
    """
    weights = weights.detached()
    heads = heads_in_use(weights)
    if weights.aggregation == "softmax":
        return _assembled(weights, scaled_for_softmax(heads), {"temperature": 1.0})
    return _assembled(weights, *sharpened(weights, heads, graph, table, context_length))


def scaled_for_softmax(heads: Heads) -> Heads:
    """Heads whose scores are S⁽ᵏ⁾/√d_k, whatever an attention divides by."""
    return [(query / math.sqrt(query.shape[1]), key) for query, key in heads]


def sharpened(
    weights: KeyQuery,
    heads: Heads,
    graph: Graph | None,
    table: TableLike | None,
    context_length: int,
) -> tuple[Heads, dict[str, float], float, float]:
    """Max and sum: β from the margin that is left when float32 has taken its part.

    Returns the heads at β, what a file says about it, the factor that makes up for float32, and the
    score of the resting place before that factor.
    """
    if context_length < 1:
        raise InputError(f"a context of {context_length} items is empty; choose at least 1")
    if graph is None or table is None:
        raise InputError(
            f"{weights.aggregation} weights need their graph and table: "
            "the temperature follows from them"
        )
    table = table_for(graph, table)
    found = verify(weights, graph, table)
    if not found.exact:
        raise InputError(
            "the weights decide a pair of this graph wrongly; "
            "export weights that verify finds exact"
        )
    margin = found.margin - found.score_error
    if margin <= 0:
        raise InputError(
            "a score equals the threshold, which leaves no margin; "
            "move the threshold to the midpoint"
        )
    needed = math.log(8 * len(heads) * context_length)  # β·γ
    heads = [(query * (needed / margin), key) for query, key in heads]
    rest = weights.threshold * (needed / margin)
    lost = _lost_in_float32(heads, rest, table.to(heads[0][0]))
    if not lost < needed / 2:
        raise InputError(
            f"float32 is too coarse for a margin of {found.margin:.3g}; "
            "widen it, or bring all entries to a similar size"
        )
    sharper = needed / (needed - lost)  # then β·γ less what is lost is still `needed`
    facts = {
        "temperature": margin / needed / sharper,
        "margin": found.margin,
        "context_length": context_length,
    }
    return heads, facts, sharper, rest


def load_attention(path: str | os.PathLike[str]) -> MultiheadAttention:
    """Read an attention that `TorchAttention.save` wrote, batch first; `padded` fits rows to it."""
    path = existing_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") == _FORMAT:
                names = file.keys()  # a safetensors file cannot be iterated itself
                tensors = {name: file.get_tensor(name) for name in names}
                return _module(tensors, int(metadata["num_heads"]))
    except (SafetensorError, LookupError, AssertionError, RuntimeError, ValueError):
        raise InputError(f"{path}: not a whole attention file; export the weights again") from None
    raise InputError(
        f"{path}: does not hold an exported attention; give a file that headcount export wrote"
    )


def write_attention(
    path: str | os.PathLike[str],
    tensors: dict[str, Tensor],
    form: str,
    facts: Mapping[str, object],
    source: str,
) -> None:
    """Write an exported attention with its facts and the hash of the weights it came from."""
    if Path(path).suffix.lower() != ".safetensors":
        raise InputError(
            f"{path}: the attention is written as .safetensors; give the file that suffix"
        )
    texts = {name: str(value) for name, value in facts.items()}
    save_tensors(path, tensors, {"format": form, **texts, "source_sha256": source})


def padded(
    rows: Float[Tensor, "*batch d_model"], attention: MultiheadAttention
) -> Float[Tensor, "*batch embed_dim"]:
    """Rows as the attention takes them: in its dtype, with zeros up to its `embed_dim`."""
    missing = attention.embed_dim - rows.shape[-1]
    if missing < 0:
        raise InputError(
            f"rows of {rows.shape[-1]} do not fit an embed_dim of {attention.embed_dim}; "
            "use the table that it was made for"
        )
    return pad(rows.to(attention.in_proj_weight), (0, missing))


def heads_in_use(weights: KeyQuery) -> Heads:
    """(W_Q, W_K) of every head in float64, the columns in use; sum is one head of width D_K."""
    if weights.aggregation == "logsumexp":
        raise InputError(
            "attention modules do not join heads by logsumexp; give weights of max, sum or softmax"
        )
    both = torch.stack([weights.queries, weights.keys_per_head]).double()
    heads = [both[:, k, :, :width] for k, width in enumerate(weights.widths)]
    joined = [torch.cat(heads, 2)] if weights.aggregation == "sum" else heads
    return [(query, key) for query, key in joined]


def _lost_in_float32(heads: Heads, rest: float, rows: Float[Tensor, "items d_model"]) -> float:
    """How far float32 moves a score against that of the resting place.

    Measured on the projections of all items, in float32 against float64.

    A product of n terms adds at most n·u·‖q‖‖k‖; eight more for the scale, which torch applies in
    one of several ways.
    """
    lost = []
    for head in heads:
        exact = [rows @ part for part in head]
        moved = [
            (rows.float() @ part.float()).double() - right
            for part, right in zip(head, exact, strict=True)
        ]
        query, key = (float(part.norm(dim=1).max()) for part in exact)
        query_drift, key_drift = (_OTHER_ORDER * float(part.norm(dim=1).max()) for part in moved)
        largest = (query + query_drift) * (key + key_drift)
        if not largest < _LARGEST:
            return math.inf
        lost.append(largest - query * key + (head[0].shape[1] + 8) * _UNIT * largest)
    return max(lost) + 8 * _UNIT * abs(rest)


def _assembled(
    weights: KeyQuery,
    heads: Heads,
    facts: dict[str, float],
    sharper: float = 1.0,
    rest: float | None = None,
) -> TorchAttention:
    """The state dict: scores times `sharper`, and a resting place with score `rest` if given."""
    d_model, widest = weights.d_model, max(query.shape[1] for query, _ in heads)
    # One more dimension for the resting place; all heads together must reach d_model.
    head_dim = max(widest + (rest is not None), -(-d_model // len(heads)))
    embed_dim = len(heads) * head_dim
    scale = sharper * math.sqrt(head_dim)  # torch divides scores by √head_dim
    weight, bias, bias_key = (
        torch.zeros(3, embed_dim, embed_dim),
        torch.zeros(3, embed_dim),
        torch.zeros(embed_dim),
    )
    for k, (query, key) in enumerate(heads):
        used = slice(k * head_dim, k * head_dim + query.shape[1])
        weight[0, used, :d_model], weight[1, used, :d_model] = scale * query.T, key.T
    tensors = {"in_proj_weight": weight.flatten(0, 1), "in_proj_bias": bias.flatten()}
    tensors |= {"out_proj.weight": torch.eye(embed_dim), "out_proj.bias": torch.zeros(embed_dim)}
    if rest is not None:
        bias[0, head_dim - 1 :: head_dim], bias_key[head_dim - 1 :: head_dim] = scale, rest
        tensors |= {"bias_k": bias_key[None, None], "bias_v": torch.zeros(1, 1, embed_dim)}
    if not all(part.isfinite().all() for part in tensors.values()):
        raise InputError("the weights overflow float32; scale them down")
    shape = {
        "embed_dim": embed_dim,
        "num_heads": len(heads),
        "add_bias_kv": rest is not None,
        "d_model": d_model,
    }
    channel = {"aggregation": weights.aggregation, "threshold": weights.threshold}
    return TorchAttention(tensors, {**shape, **channel, **facts})


def _module(tensors: dict[str, Tensor], heads: int) -> MultiheadAttention:
    width = tensors["in_proj_weight"].shape[1]
    # What it draws to begin with is not kept, and later draws are as they would have been. (On the
    # device "meta" nothing would be drawn, but its first use imports torch's compiler: 1.4 s.)
    with torch.random.fork_rng(devices=[]):
        attention = MultiheadAttention(
            width, heads, add_bias_kv="bias_k" in tensors, batch_first=True, device="cpu"
        )
    attention.load_state_dict(tensors, strict=True, assign=True)
    return attention
