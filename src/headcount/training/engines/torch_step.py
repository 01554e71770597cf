"""Steps of stacked runs in torch: few operations, each over all runs and heads, in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headcount.shapes import Bool, Float, Int
from headcount.training.adamw import BETAS, EPSILON
from headcount.training.engines.base import State
from headcount.training.objective import LINE, pair_weights, score_gradient
from headcount.training.spec import RunSpec

_ALIGNED = 4  # floats that products want aligned
Products = list[tuple[Tensor, Tensor, Tensor]]  # left and right sides, and where the product goes
Copies = list[tuple[Tensor, Tensor]]  # to, from


class StackedRuns:
    """The weights of runs that differ only in the seed, and all that a step of theirs needs.

    All W_Q and W_K are one matrix [(heads + key heads)·key_dim, d_model] per run, so a projection
    and its gradient are one product each. Projections are transposed too: the columns of a head are
    few, and a product whose result is that narrow takes three times as long as one as wide as a
    context. Queries of heads that share a key are side by side in a product, which sums what they
    add to the key's gradient. Weights and thresholds share one block of memory, and AdamW is one
    operation on it. Products are of `at_once` runs. Contexts are filled up to whole cache lines by
    their last item, whose copies have no slope, and d_model by zeros, which stay zero: a product
    may round differently where a matrix is aligned differently.
    """

    def __init__(
        self,
        spec: RunSpec,
        states: Sequence[State],
        rows: Float[Tensor, "runs items d_model"],
        messages: Float[Tensor, "runs items d_model"],
        at_once: int,
    ) -> None:
        if fill := -spec.d_model % _ALIGNED:
            rows = torch.nn.functional.pad(rows, (0, fill))
        self._spec, self._rows, self.messages = spec, rows, messages
        self._all_rows, self._depth = rows.flatten(0, 1), rows.shape[-1]
        runs, device = len(states), rows.device
        self._width = spec.budget + spec.key_budget
        self._length = spec.length + -spec.length % LINE
        self._size = runs * self._depth * self._width
        # Whole cache lines: AdamW rounds what is left over differently, and whose numbers those are
        # would depend on how many runs there are.
        whole = self._size + runs + -(self._size + runs) % LINE
        block = torch.zeros(4, whole, device=device)
        self._value, self._first, self._second, self._gradient = block
        self._taken = torch.tensor(float(states[0].taken), device=device)
        for part, name in enumerate(("weights", "first", "second")):
            each = torch.stack([_joined(getattr(state, name), self._depth) for state in states])
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

    def projected_items(self, run: int) -> Float[Tensor, "items width"]:
        """Queries and keys of every item, from one product: a head's columns alone are too few."""
        return self._rows[run] @ self._matrices(self._value)[run].mT

    def take_steps(
        self,
        contexts: Int[Tensor, "runs steps length"],
        positive: Bool[Tensor, "runs steps length length"],
    ) -> Bool[Tensor, "runs steps"]:
        """Forward, backward and AdamW on one context per run and step; which slopes were finite."""
        runs, steps, _ = contexts.shape
        first = torch.arange(runs, device=contexts.device)[:, None, None] * self._rows.shape[1]
        index = (contexts + first).transpose(0, 1)
        filled = index[..., -1:].expand(-1, -1, self._length - index.shape[-1])
        index = torch.cat([index, filled], -1).flatten(1)
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
        _copy(self._by_head)
        _multiply(self._score_products)
        messages = self._x_by_run  # which only the variant `value` looks at
        if spec.variant == "value":
            drawn = self.messages.flatten(0, 1).index_select(0, items)
            messages = drawn.unflatten(0, messages.shape[:2])
        messages = messages[:, : spec.length]
        slope, down = score_gradient(spec, self._scores, labels, weights, self._tau, messages)
        torch.sum(slope, (1, 2, 3), out=total)
        self._slopes.copy_(slope)
        _multiply(self._moves)
        _copy(self._by_slot)
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

    def _matrices(self, part: Tensor) -> Float[Tensor, "runs width depth"]:
        return part[: self._size].view(-1, self._width, self._depth)

    def _allocate(self, runs: int, at_once: int) -> None:
        """Buffers of a step, and the views of them that its products work on."""
        spec, device = self._spec, self._rows.device
        heads, key_heads, length = spec.heads, spec.key_heads, self._length

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, device=device)

        self._x = empty(runs * length, self._depth)
        self._x_by_run = x = self._x.view(runs, length, -1)
        by_slot = empty(runs, self._width, length)
        # Keys, heads of a key, columns and positions; heads beside positions in products.
        slots = [
            part.view(runs, key_heads, -1, spec.key_dim, length).transpose(2, 3)
            for part in by_slot.split([spec.budget, spec.key_budget], 1)
        ]
        by_head, moved = ([empty(*part.shape) for part in slots] for _ in range(2))
        self._by_head = list(zip(by_head, slots, strict=True))
        self._by_slot = list(zip(slots, moved, strict=True))
        # The slopes of what fills a context up stay zero.
        scores, slopes = (empty(runs, heads, length, length).zero_() for _ in range(2))
        self._scores, self._slopes = (
            part[..., : spec.length, : spec.length] for part in (scores, slopes)
        )

        def products(*parts: Tensor, size: int = at_once) -> Products:
            return list(zip(*(part.split(size) for part in parts), strict=True))

        self._projections = products(self._matrices(self._value), x.mT, by_slot)
        queries, keys, to_queries, to_keys = (
            part.view(runs * key_heads, spec.key_dim, -1) for part in (*by_head, *moved)
        )
        scores, slopes = (part.view(runs * key_heads, -1, length) for part in (scores, slopes))
        batch = at_once * key_heads
        self._score_products = products(queries.mT, keys, scores, size=batch)
        self._moves = products(keys, slopes.mT, to_queries, size=batch)
        self._moves += products(queries, slopes, to_keys, size=batch)
        self._gradients = products(by_slot, x, self._matrices(self._gradient))


def _multiply(products: Products) -> None:
    for left, right, out in products:
        torch.bmm(left, right, out=out)


def _copy(parts: Copies) -> None:
    for to, part in parts:
        to.copy_(part)


def _joined(
    weights: Float[Tensor, "matrices d_model key_dim"], depth: int
) -> Float[Tensor, "width {depth}"]:
    flat = weights.mT.flatten(0, 1)
    return torch.nn.functional.pad(flat, (0, depth - flat.shape[1]))


def _by_head(
    spec: RunSpec, matrix: Float[Tensor, "width depth"]
) -> Float[Tensor, "matrices d_model key_dim"]:
    # A copy in any case: with one column per head, `contiguous` would return a view.
    each = matrix[:, : spec.d_model].unflatten(0, (-1, spec.key_dim)).mT
    return each.clone(memory_format=torch.contiguous_format)
