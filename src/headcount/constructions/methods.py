"""The paper's five constructions, one function each over the template of `fill`.

| method | paper | graphs | tables |
|---|---|---|---|
| `one-hot` | Construction I: Section 4, Algorithm 3, Theorem B.1 | permutations | the identity |
| `compressive` | Construction II: Algorithm 1, Theorem 4.1 | permutations | unit-norm rows |
| `general-embedding` | Construction III: Algorithm 4, Theorem B.5 | permutations | any |
| `general-graph` | Construction IV: Algorithm 5, Theorem B.9 | any | unit-norm rows |
| `softmax` | Algorithm 2, Theorem 8.1 | permutations | unit-norm rows |

All take the same arguments. `heads` is the paper's number unless given. `inverse="pinv"` replaces
the paper's Xᵀ by each block's pseudo-inverse, which lifts the condition on the rows' norms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from headcount.attention.key_query import KeyQuery
from headcount.constructions.packing import pack, pack_evenly
from headcount.constructions.template import Inverse, Signatures, fill, inverter, split_sources
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.shapes import Float
from headcount.theory.incoherence import balanced_scale

_NORM_TOLERANCE = 1e-3  # how far from 1 the norm of a unit-norm row may be


def one_hot(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """Construction I: k_j = w_j and q_i = w_{π(i)} in one head (Section 4; Alg. 3, lines 3–6).

    An edge scores ‖w‖², a non-edge a random inner product. Rademacher signatures have τ = d_k/2
    (Section 4), Bernoulli(p) ones τ = (p + p²)d_k/2 (Alg. 3, line 7). The identity is its own
    inverse, so `inverse` makes no difference.

    >>> from headcount.problem.makers import permutation_graph
    >>> one_hot(permutation_graph(16), torch.eye(16), key_dim=24).budget
    24
    """
    _require_permutation(graph, "one-hot")
    if not _is_identity(table):
        raise InputError(
            "the one-hot construction needs the identity as its table; use method compressive"
        )
    if heads not in (None, 1):
        raise InputError(
            f"the one-hot construction has one head, not {heads}; leave the number out"
        )
    signatures = signatures or Signatures()
    if signatures.kind == "bernoulli" and not signatures.sparsity < 0.5:  # Alg. 3, line 2
        raise InputError(
            f"sparsity {signatures.sparsity} is outside (0, 1/2), which Algorithm 3 needs; "
            "choose a smaller one"
        )
    matchings = split_sources(graph, heads=1)
    return fill(table, matchings, signatures, key_dim, inverter("transpose"), {"method": "one-hot"})


def compressive(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """Construction II: one head per block of d_model sources, h = ⌈m/d_model⌉ (Alg. 1).

    More heads make smaller blocks and less leakage noise. d_model need not divide m.
    """
    _require_permutation(graph, "compressive")
    if inverse == "transpose":
        _require_unit_norm(graph, table, "compressive")
    matchings = split_sources(graph, _blocks(graph, table) if heads is None else heads)  # line 4
    notes = {"method": "compressive", "inverse": inverse}
    return fill(table, matchings, signatures or Signatures(), key_dim, inverter(inverse), notes)


def general_embedding(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """Construction III: h = ⌈m/B⌉ heads over X_inv = Xᵀ/μ (Alg. 4; Theorem B.5, Cors B.6–B.7).

    `heads` chooses the block size B = ⌈m/heads⌉, by default B = d_model. Signatures are Rademacher
    by default ("Signature family", B.3), which need less width than Algorithm 4's Bernoulli(p).
    """
    _require_permutation(graph, "general-embedding")
    signatures = signatures or Signatures()
    if signatures.kind == "bernoulli" and not signatures.sparsity <= 1 / 20:  # Alg. 4, line 2
        raise InputError(
            f"sparsity {signatures.sparsity} is outside (0, 1/20], which Algorithm 4 needs; "
            "choose a smaller one"
        )
    norms = table.double().norm(dim=1)
    if norms.min() == 0:
        raise InputError(
            f"row {_row(graph, int(norms.argmin()))} of the table is zero, so its item cannot be "
            "told apart; replace the row"
        )
    matchings = split_sources(graph, _blocks(graph, table) if heads is None else heads)  # line 5
    # μ is the middle of the squared row norms, where ε_d of Definition B.4 is smallest.
    invert = inverter(inverse, balanced_scale(table))
    notes = {"method": "general-embedding", "inverse": inverse}
    return fill(table, matchings, signatures, key_dim, invert, notes)


def general_graph(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """Construction IV: one head per matching of at most d_model edges (Alg. 5; Cor. B.10).

    By default Lemma B.8 packs the edges into at most ⌈m'/d_model⌉ + Δ matchings. With `heads` ≥ Δ
    they are spread evenly over exactly that many.
    """
    if inverse == "transpose":
        _require_unit_norm(graph, table, "general-graph")
    block = table.shape[1]
    matchings = pack(graph, block) if heads is None else pack_evenly(graph, heads)  # line 3
    notes = {"method": "general-graph", "inverse": inverse}
    return fill(table, matchings, signatures or Signatures(), key_dim, inverter(inverse), notes)


def softmax(
    graph: Graph,
    table: Float[Tensor, "items d_model"],
    key_dim: int,
    heads: int | None = None,
    signatures: Signatures | None = None,
    inverse: Inverse = "transpose",
) -> KeyQuery:
    """Construction II's weights, read by softmax over the context with τ = 1/2 (Alg. 2, lines 4–6).

    Contexts must be long, ℓ ≥ C_ℓ·max(h, ln m): a head that owns neither source nor target spreads
    about 1/ℓ on every pair, and h − 1 such shares must stay below 1/2.
    """
    weights = compressive(graph, table, key_dim, heads, signatures, inverse)
    notes = {**weights.notes, "method": "softmax"}
    return replace(weights, aggregation="softmax", threshold=0.5, notes=notes)


METHODS: dict[str, Callable[..., KeyQuery]] = {
    "one-hot": one_hot,
    "compressive": compressive,
    "general-embedding": general_embedding,
    "general-graph": general_graph,
    "softmax": softmax,
}


def applicable_method(graph: Graph, table: Float[Tensor, "items d_model"]) -> str:
    """The first construction whose assumptions hold: I, II or III for permutations, else IV."""
    if not graph.is_permutation:
        return "general-graph"
    if _is_identity(table):
        return "one-hot"
    return "compressive" if _norm_errors(table).max() < _NORM_TOLERANCE else "general-embedding"


def _blocks(graph: Graph, table: Tensor) -> int:
    """⌈m/d_model⌉: a table of d_model columns has no more than that many independent rows."""
    return -(-graph.items // table.shape[1])


def _is_identity(table: Tensor) -> bool:
    items, d_model = table.shape
    return items == d_model and torch.equal(table, torch.eye(items).to(table))


def _norm_errors(table: Tensor) -> Tensor:
    return (table.double().norm(dim=1) - 1).abs()


def _require_permutation(graph: Graph, method: str) -> None:
    if not graph.is_permutation:
        raise InputError(
            f"the {method} construction needs a permutation graph (one edge out of and into each "
            "item); use method general-graph"
        )


def _require_unit_norm(graph: Graph, table: Tensor, method: str) -> None:
    """Refuse rows of another norm: Xᵀ inverts X only where δ_i(i) = ‖x_i‖² − 1 is zero."""
    errors = _norm_errors(table)
    worst = int(errors.argmax())
    if errors[worst] > _NORM_TOLERANCE:
        raise InputError(
            f"the {method} construction with Xᵀ as inverse needs rows of norm 1, row "
            f"{_row(graph, worst)} has {float(table[worst].double().norm()):.4g}; "
            "use inverse pinv, or normalise the table"
        )


def _row(graph: Graph, row: int) -> str:
    """A row of the table, with the name of its item."""
    return f"{row}" if graph.names is None else f"{row} ({graph.name(row)})"
