"""What the compiler is asked for: graph, table and options, checked before any work begins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.attention.shared_keys import require_kv_heads
from headcount.compiler.grid import check_bits
from headcount.errors import InputError, NoSolution
from headcount.problem.graph import Graph
from headcount.shapes import Float


def _silent(news: object) -> None:
    """Report nothing."""


@dataclass(frozen=True, eq=False)
class CompileRequest:
    """One problem for the compiler, as `compile` takes it.

    `budget` None asks for the smallest D_K that can be reached. `margin` is the least γ/|τ| to
    accept. `progress` is called with one line of text at a time, `improved` with every `Compiled`
    that is smaller than the one before.
    """

    graph: Graph
    table: Float[Tensor, "items d_model"]
    budget: int | None = None
    heads: int | None = None
    margin: float = 0.0
    time_limit: float = math.inf  # seconds
    seed: int = 0
    device: str = "auto"
    progress: Callable[[str], None] = _silent
    bits: int | None = None
    variant: str = "max"
    context_length: int | None = None
    decide: str = "threshold"
    improved: Callable[[Any], None] = _silent
    kv_heads: int | None = None  # keys that heads share; None: each head has its own
    last_resort: bool = True  # one head per edge, where the search finds nothing

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_variant()
        self._check_device()

    @property
    def torch_device(self) -> torch.device:
        """`auto` is CUDA where torch sees it."""
        return torch.device("cuda" if self.device != "cpu" and torch.cuda.is_available() else "cpu")

    @property
    def is_constant(self) -> bool:
        """Whether all pairs are edges, or none: then a threshold alone decides them.

        By top no row may have both: then there is nothing to order.
        """
        if self.top:
            return bool(np.isin(self.graph.out_degrees, (0, self.graph.items)).all())
        return self.graph.edges in (0, self.graph.items**2)

    @property
    def top(self) -> bool:
        """Whether rows are decided by their top, without a threshold."""
        return self.decide == "top"

    def _check_numbers(self) -> None:
        if self.heads is not None and self.heads < 1:
            raise InputError(f"{self.heads} heads are too few; choose at least 1")
        if self.kv_heads is not None:
            self._check_kv_heads(self.kv_heads)
        least = self.heads or self.kv_heads or 1
        if self.budget is not None and self.budget < least:
            raise InputError(
                f"a budget of {self.budget} is too small: each head needs at least one column; "
                f"choose a budget of at least {least}"
            )
        if not 0 <= self.margin < 1:
            raise InputError(
                f"margin {self.margin} is not a share of the threshold; "
                "choose at least 0 and less than 1"
            )
        if not self.time_limit > 0:
            raise InputError(
                f"a time limit of {self.time_limit} s leaves no time; choose more than 0"
            )
        if self.bits is not None:
            check_bits(self.bits)

    def _check_kv_heads(self, kv_heads: int) -> None:
        if kv_heads < 1:
            raise InputError(f"kv_heads {kv_heads} is too few; choose at least 1")
        if self.heads is not None:
            require_kv_heads(self.heads, kv_heads)
        if self.variant == "softmax" or self.bits is not None:
            raise InputError(
                "shared keys are compiled for max, without rounding; leave out kv_heads "
                "(--kv-heads), or bits (--bits) and variant (--variant)"
            )

    def _check_variant(self) -> None:
        if self.decide not in ("threshold", "top"):
            raise InputError(f"decide {self.decide!r} is unknown; use threshold or top")
        if self.top and (self.variant == "softmax" or self.bits is not None):
            raise InputError(
                "weights decided by the top of a row are compiled for max, without rounding; leave "
                "out variant (--variant) and bits (--bits); a single head serves softmax as well"
            )
        if self.variant not in ("max", "softmax"):
            raise InputError(f"variant {self.variant!r} is unknown; use max or softmax")
        if self.variant == "max":
            if self.context_length is not None:
                raise InputError(
                    "a context length belongs to the softmax variant; "
                    "max weights serve every length"
                )
            return
        if self.bits is not None:
            raise InputError(
                "softmax weights are not rounded; leave out bits (--bits), "
                "or choose variant='max' (--variant max)"
            )
        items = self.graph.items
        if self.context_length is None:
            raise InputError(
                "the softmax variant needs a context length; give context_length (--context-length)"
            )
        if not 1 <= self.context_length <= items:
            raise InputError(
                f"context length {self.context_length} does not fit {items} items; choose 1…{items}"
            )

    def _check_device(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise InputError(f"device {self.device!r} is unknown; use auto, cpu or cuda")
        if self.device == "cuda" and self.variant == "softmax":
            raise InputError(
                "softmax weights are compiled on the CPU; use device='cpu' (--device cpu)"
            )
        if self.device == "cuda" and not torch.cuda.is_available():
            raise InputError("torch sees no CUDA device; use device='cpu' (--device cpu)")


def require_possible(
    graph: Graph, table: Float[Tensor, "items d_model"], top: bool = False
) -> None:
    """Refuse what no weights can do.

    Equal rows score alike, so their edges must agree; a zero row scores 0 with every item, so
    either all of its pairs are edges or none is. By `top` only the order in a row matters: the
    targets of equal rows may be nested, and a zero row may be a target.
    """
    if not (finite := table.isfinite().all(1)).all():
        raise InputError(
            f"row {graph.name(int((~finite).nonzero()[0]))} of the table holds a NaN or infinite "
            "entry; remove or replace that row"
        )
    rows = table.detach().cpu().numpy() + 0.0  # −0.0 becomes 0.0
    _require_equal_rows_to_agree(graph, rows, top)
    for i in np.flatnonzero(~rows.any(axis=1)):
        touching, most = int(graph.out_degrees[i]), graph.items
        if not top:
            touching = int(((graph.sources == i) | (graph.targets == i)).sum())
            most = 2 * graph.items - 1
        if touching not in (0, most):
            raise NoSolution(
                f"row {graph.name(i)} of the table is zero, so all its scores are equal, "
                "but only some of its pairs are edges; give it a vector"
            )


def _require_equal_rows_to_agree(
    graph: Graph, rows: Float[np.ndarray, "items d_model"], top: bool
) -> None:
    twin = _first_equal_rows(rows)
    directions = (
        ("out of", graph.sources, graph.targets),
        ("into", graph.targets, graph.sources),
    )
    for i in np.flatnonzero(twin != np.arange(graph.items)):
        for name, here, there in directions:
            mine, other = (set(there[here == item].tolist()) for item in (i, twin[i]))
            nested = top and name == "out of" and (mine <= other or other <= mine)
            if mine != other and not nested:
                raise NoSolution(
                    f"rows {graph.name(twin[i])} and {graph.name(i)} of the table are equal but "
                    f"the edges {name} them differ, so no weights can tell them apart; change one "
                    "of the rows"
                )


def _first_equal_rows(rows: Float[np.ndarray, "items d_model"]) -> np.ndarray:
    """For every row the first one that equals it: itself, as a rule.

    Hashes find the candidates, since sorting a table of many long rows takes long.
    """
    hashes = np.fromiter((hash(row.tobytes()) for row in rows), np.int64, len(rows))
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    twin = first[group.ravel()]
    items = np.arange(len(rows))
    for i in np.flatnonzero(twin != items):
        twin[i] = twin[i] if np.array_equal(rows[i], rows[twin[i]]) else i
    return twin
