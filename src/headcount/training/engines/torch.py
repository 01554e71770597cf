"""The reference engine: stacked tensors, gradients by hand, any torch device."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headcount.problem.contexts import StackedSampler
from headcount.shapes import Float, Int
from headcount.training.engines.base import Check, State, lockstep
from headcount.training.engines.edges import StackedEdges
from headcount.training.engines.torch_step import StackedRuns
from headcount.training.objective import aggregated, metrics, tally
from headcount.training.spec import RunSpec
from headcount.training.task import task_of, training_key

_LABELS_AT_ONCE = 2**20  # pairs of items whose labels are looked up together
_SCORES_AT_ONCE = 2**24  # floats of per-head scores held during a check
_IN_CACHE = 2**19  # of them on a CPU, and of all pairs of items: what a cache holds
_MANY = 64  # context entries per item², above which each pair is scored once
_PADDED_TO = 4  # runs on the CPU
_STATES = 2**21  # floats of a fleet's states there: what a cache holds


class TorchEngine:
    """Plain torch: slower than the others, and what they are tested against."""

    name = "torch"

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def group(self, spec: RunSpec) -> Hashable:
        return replace(spec, seed=0)

    def capacity(self, spec: RunSpec) -> int:
        state = 4 * spec.d_model * (spec.budget + spec.key_budget)  # with the gradient
        most = 2**27 // (state + 3 * spec.items * spec.d_model)
        if self.device == "cpu":
            return max(1, min(16, most, _STATES // state) // _PADDED_TO) * _PADDED_TO
        return max(1, min(512, most))

    def concurrency(self, specs: Sequence[RunSpec]) -> int:
        return 1

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> TorchFleet:
        """A batched product may round differently for another batch size.

        So the products of a fleet are always of the same number of runs, the last one repeated if
        need be: then no result depends on how many runs there are. On a GPU that number is the
        capacity; on the CPU it is small, as the copies cost time there.
        """
        at_once = _PADDED_TO if self.device == "cpu" else self.capacity(specs[0])
        return TorchFleet(
            specs, states or [State.initial(spec) for spec in specs], self.device, at_once
        )

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        pass


class TorchFleet:
    """Runs that differ in nothing but the seed, stacked."""

    def __init__(
        self, specs: Sequence[RunSpec], states: Sequence[State], device: str, at_once: int
    ) -> None:
        self.device, self._at_once = device, at_once
        self.taken = lockstep(states)
        self._load(specs, states, [None] * len(specs))

    def _load(
        self, specs: Sequence[RunSpec], states: Sequence[State], diverged: Sequence[int | None]
    ) -> None:
        self.specs, self._diverged = list(specs), list(diverged)
        self._tasks = [task_of(spec) for spec in specs]
        graphs = [task.graph for task in self._tasks]
        self._sampler = StackedSampler(graphs, self.specs[0].length, self.specs[0].rate)
        self._width = -(-len(specs) // self._at_once) * self._at_once
        self._edges = StackedEdges(self._padded(graphs), self.device)
        self._runs = StackedRuns(
            self.specs[0],
            self._padded(states),
            self._stacked([task.rows for task in self._tasks]),
            self._stacked([task.messages for task in self._tasks]),
            self._at_once,
        )

    def _padded(self, parts: Sequence[Any]) -> list[Any]:
        """The last one repeated up to the width."""
        return [*parts, *[parts[-1]] * (self._width - len(parts))]

    def _stacked(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.stack(self._padded(parts)).to(self.device)

    def launch(self, steps: int) -> None:
        length = self.specs[0].length
        at_once = max(1, _LABELS_AT_ONCE // (self._width * length**2))
        for first in range(0, steps, at_once):
            some = min(at_once, steps - first)
            contexts = self.contexts(some)
            finite = self._runs.take_steps(contexts, self._edges.labels(contexts))
            for row in range(len(self.specs)):
                if self._diverged[row] is None and not finite[row].all():
                    self._diverged[row] = self.taken + int(finite[row].int().argmin()) + 1
            self.taken += some
        self._values = self._evaluate(
            range(len(self.specs)), [task.validation for task in self._tasks]
        )

    def check(self) -> Check:
        return Check(self._values, list(self._diverged))

    def test(self, rows: Sequence[int]) -> list[float]:
        return self._evaluate(rows, [self._tasks[row].test for row in rows])

    def states(self, rows: Sequence[int]) -> list[State]:
        return [self._runs.state(row, self.taken) for row in rows]

    def keep(self, rows: Sequence[int]) -> None:
        states, diverged = self.states(rows), [self._diverged[row] for row in rows]
        self._load([self.specs[row] for row in rows], states, diverged)

    def contexts(self, steps: int) -> Int[Tensor, "width steps length"]:
        """The training contexts of the next steps, from every run's own stream."""
        keys = [training_key(spec) for spec in self.specs]
        return self._stacked(self._sampler.draw(steps, keys, self.taken).unbind())

    def _evaluate(
        self, rows: Sequence[int], contexts: list[Int[Tensor, "count length"]]
    ) -> list[float]:
        """The metric of runs on contexts of their own."""
        totals = []
        for row, own in zip(rows, contexts, strict=True):
            total = torch.zeros(2, dtype=torch.float64, device=self.device)
            for scores, positive, messages in self._scored(row, own.to(self.device)):
                threshold = self._runs.threshold[row].expand(len(scores))
                total += (
                    tally(self.specs[row], scores, positive, threshold, messages).double().sum(0)
                )
            totals.append(total)
        return metrics(self.specs[0].metric, torch.stack(totals))

    def _scored(
        self, row: int, contexts: Int[Tensor, "count length"]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Scores, labels and messages of a run's contexts, some at a time."""
        spec = self.specs[row]
        projected = self._runs.projected_items(row)
        table = None
        # Under softmax a pair's score depends on its context, and a table of every head's scores
        # costs more to read than the scores to compute.
        if spec.variant != "softmax" and spec.heads * spec.items**2 <= min(
            _SCORES_AT_ONCE, spec.heads * _MANY * contexts.numel()
        ):
            table = _pair_scores(spec, projected)
        most = _IN_CACHE if self.device == "cpu" else _SCORES_AT_ONCE
        for some in contexts.split(max(1, most // (spec.heads * spec.length**2))):
            if table is None:
                own = projected.index_select(0, some.flatten()).view(*some.shape, -1)
                scores = _context_scores(spec, own)
            else:
                pairs = (some * spec.items)[:, :, None] + some[:, None, :]
                scores = table[pairs].unsqueeze(1)
            positive = self._edges.labels(some[None], row)[0]
            messages = scores[:, 0]  # which only the variant `value` looks at
            if spec.variant == "value":
                drawn = self._runs.messages[row].index_select(0, some.flatten())
                messages = drawn.view(*some.shape, -1)
            yield scores, positive, messages


def _heads(
    spec: RunSpec, projected: Float[Tensor, "*rows width"]
) -> list[tuple[Float[Tensor, "*rows key_dim"], Float[Tensor, "*rows key_dim"]]]:
    """The columns of every head's query and key."""
    queries, keys = projected.split([spec.budget, spec.key_budget], -1)
    each = keys.split(spec.key_dim, -1)
    shared = [key for key in each for _ in range(spec.heads // spec.key_heads)]
    return list(zip(queries.split(spec.key_dim, -1), shared, strict=True))


def _context_scores(
    spec: RunSpec, projected: Float[Tensor, "count length width"]
) -> Float[Tensor, "count heads length length"]:
    """S⁽ᵏ⁾ of every context.

    On a CPU, a product per head reads its columns where they are; a GPU takes all heads at once.
    """
    if projected.is_cuda:
        queries, keys = (
            torch.stack(part, 1) for part in zip(*_heads(spec, projected), strict=True)
        )
        return queries @ keys.mT
    count, length, _ = projected.shape
    scores = projected.new_empty(spec.heads, count, length, length)
    for (query, key), out in zip(_heads(spec, projected), scores, strict=True):
        torch.bmm(query, key.mT, out=out)
    return scores.transpose(0, 1)


def _pair_scores(spec: RunSpec, projected: Float[Tensor, "items width"]) -> Float[Tensor, " pairs"]:
    """The joined scores of all pairs of items."""
    queries, keys = (torch.stack(part) for part in zip(*_heads(spec, projected), strict=True))
    rows = max(1, _IN_CACHE // (spec.heads * spec.items))
    parts = [aggregated(spec, part @ keys.mT) for part in queries.split(rows, 1)]
    return torch.cat(parts).flatten()
