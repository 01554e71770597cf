"""Steps of stacked runs in torch: few operations, each over all runs and heads, in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headcount.attention.key_query import per_head
from headcount.shapes import Bool, Float, Int
from headcount.training.adamw import BETAS, EPSILON
from headcount.training.engines.base import State
from headcount.training.objective import pair_weights, score_gradient
from headcount.training.spec import RunSpec

_LINE = 16  # floats of a cache line
Products = list[tuple[Tensor, Tensor, Tensor]]  # left and right sides, and where the product goes


class StackedRuns:
    """The weights of runs that differ only in the seed, and all that a step of theirs needs.

    All W_Q and W_K are one matrix [d_model, (heads + key heads)·key_dim] per run, so a projection
    and its gradient are one product each. Queries of heads that share a key are stacked on its
    side of a product, which sums what they add to the key's gradient. Weights and thresholds share
    one block of memory, and AdamW is one operation on it. Products are of `at_once` runs.
    """

    def __init__(
        self,
        spec: RunSpec,
        states: Sequence[State],
        rows: Float[Tensor, "runs items d_model"],
        messages: Float[Tensor, "runs items d_model"],
        at_once: int,
    ) -> None:
        self._spec, self._rows, self.messages = spec, rows, messages
        self._all_rows = rows.flatten(0, 1)
        runs, device = len(states), rows.device
        self._width = spec.budget + spec.key_budget
        self._size = runs * spec.d_model * self._width
        # Whole cache lines: AdamW rounds what is left over differently, and whose numbers those are
        # would depend on how many runs there are.
        whole = self._size + runs + -(self._size + runs) % _LINE
        block = torch.zeros(4, whole, device=device)
        self._value, self._first, self._second, self._gradient = block
        self._taken = torch.tensor(float(states[0].taken), device=device)
        for part, name in enumerate(("weights", "first", "second")):
            each = torch.stack([_joined(getattr(state, name)) for state in states])
            block[part, : self._size] = each.flatten().to(device)
            thresholds = torch.stack([state.threshold[part] for state in states])
            block[part, self._size : self._size + runs] = thresholds.to(device)
        self._tau, self._tau_gradient = (
            part[self._size : self._size + runs] for part in (self._value, self._gradient)
        )
        self._allocate(runs, at_once)

    @property
    def threshold(self) -> Float[Tensor, " runs"]:
        """τ of every run."""
        return self._tau

    def state(self, run: int, taken: int) -> State:
        """A copy of a run's state on the CPU."""
        parts = (self._value, self._first, self._second)
        weights, first, second = (
            _by_head(self._spec, self._matrices(part)[run]).cpu() for part in parts
        )
        threshold = torch.stack([part[self._size + run] for part in parts]).cpu()
        return State(weights, first, second, threshold, taken)

    def projected_items(
        self, run: int
    ) -> tuple[Float[Tensor, "heads items key_dim"], Float[Tensor, "heads items key_dim"]]:
        """Queries and keys of every item, from one product: a head's columns alone are too few."""
        spec = self._spec
        both = _by_head(spec, self._rows[run] @ self._matrices(self._value)[run])
        return both[: spec.heads], per_head(both[spec.heads :], spec.heads)

    def take_steps(
        self,
        contexts: Int[Tensor, "runs steps length"],
        positive: Bool[Tensor, "runs steps length length"],
    ) -> Bool[Tensor, "runs steps"]:
        """Forward, backward and AdamW on one context per run and step; which slopes were finite."""
        runs, steps, _ = contexts.shape
        first = torch.arange(runs, device=contexts.device)[:, None, None] * self._rows.shape[1]
        index = (contexts + first).transpose(0, 1).reshape(steps, -1)
        positive = positive.transpose(0, 1).contiguous()
        labels, weights = positive.float(), pair_weights(self._spec, positive)
        # One number per run and step that is not finite as soon as any slope is not.
        totals = torch.empty(steps, runs, device=self._rows.device)
        parts = (part.unbind() for part in (index, labels, weights, totals))
        for step in zip(*parts, strict=True):
            self._find_gradient(*step)
            self._adam()
        return totals.isfinite().T.cpu()

    def _find_gradient(
        self,
        items: Int[Tensor, " slots"],
        labels: Float[Tensor, "runs length length"],
        weights: Float[Tensor, "runs length length"],
        total: Float[Tensor, " runs"],
    ) -> None:
        """The gradient of one context per run; `items` counts through the items of all runs."""
        spec = self._spec
        torch.index_select(self._all_rows, 0, items, out=self._x)
        _multiply(self._projections)
        for by_head, by_slot in self._by_head:
            by_head.copy_(by_slot)
        _multiply(self._score_products)
        messages = self._x_by_run  # which only the variant `value` looks at
        if spec.variant == "value":
            messages = self.messages.flatten(0, 1)[items].view_as(messages)
        slope, down = score_gradient(spec, self._scores, labels, weights, self._tau, messages)
        torch.sum(slope, (1, 2, 3), out=total)
        slopes = slope.reshape(-1, self._stacked, spec.length).split(self._batch)
        for part, (queries, keys, to_queries, to_keys) in zip(slopes, self._moved, strict=True):
            torch.bmm(part, keys, out=to_queries)
            torch.bmm(part.mT, queries, out=to_keys)
        for by_slot, by_head in self._by_slot:
            by_slot.copy_(by_head)
        _multiply(self._gradients)
        self._tau_gradient.copy_(down)

    def _adam(self) -> None:
        """AdamW in one pass, as `torch.optim.AdamW(fused=True)` calls it.

        That class imports torch's compiler, which takes seconds.
        """
        self._taken += 1
        torch.ops.aten._fused_adamw_(
            [self._value],
            [self._gradient],
            [self._first],
            [self._second],
            [],
            [self._taken],
            lr=self._spec.learning_rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def _matrices(self, part: Tensor) -> Float[Tensor, "runs d_model width"]:
        return part[: self._size].view(-1, self._spec.d_model, self._width)

    def _allocate(self, runs: int, at_once: int) -> None:
        """Buffers of a step, and the views of them that its products work on."""
        spec, device = self._spec, self._rows.device
        length, heads, key_heads, key_dim = spec.length, spec.heads, spec.key_heads, spec.key_dim
        self._batch, self._stacked = at_once * key_heads, heads // key_heads * length

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, device=device)

        self._x = empty(runs * length, spec.d_model)
        self._x_by_run = x = self._x.view(runs, length, spec.d_model)
        by_slot = empty(runs, length, self._width)
        slots = by_slot.view(runs, length, -1, key_dim).split([heads, key_heads], 2)
        by_head, moved = (
            [empty(runs, count, length, key_dim) for count in (heads, key_heads)] for _ in range(2)
        )
        scores = empty(runs * key_heads, self._stacked, length)
        # Both ways between columns of slots and matrices of heads, as (to, from).
        self._by_head = list(zip([part.transpose(1, 2) for part in by_head], slots, strict=True))
        self._by_slot = list(zip(slots, [part.transpose(1, 2) for part in moved], strict=True))
        self._scores = scores.view(runs, heads, length, length)

        def products(*parts: Tensor, size: int = at_once) -> list[Any]:
            return list(zip(*(part.split(size) for part in parts), strict=True))

        self._projections: Products = products(x, self._matrices(self._value), by_slot)
        queries, keys, *moved = (
            part.view(runs * key_heads, -1, key_dim) for part in (*by_head, *moved)
        )
        self._score_products: Products = products(queries, keys.mT, scores, size=self._batch)
        self._moved = products(queries, keys, *moved, size=self._batch)
        self._gradients: Products = products(x.mT, by_slot, self._matrices(self._gradient))


def _multiply(products: Products) -> None:
    for left, right, out in products:
        torch.bmm(left, right, out=out)


def _joined(weights: Float[Tensor, "matrices d_model key_dim"]) -> Float[Tensor, "d_model width"]:
    return weights.transpose(0, 1).flatten(1)


def _by_head(
    spec: RunSpec, matrix: Float[Tensor, "rows width"]
) -> Float[Tensor, "matrices rows key_dim"]:
    return matrix.view(len(matrix), -1, spec.key_dim).transpose(0, 1).contiguous()
