"""The reference engine: stacked tensors, gradients by hand, any torch device."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headcount.problem.contexts import ContextSampler
from headcount.shapes import Float, Int
from headcount.training.engines.base import BETAS, EPSILON, Check, State, adam_scales, lockstep
from headcount.training.engines.edges import StackedEdges
from headcount.training.objective import metrics, score_gradient, tally
from headcount.training.spec import RunSpec
from headcount.training.task import task_of

_STEPS_AT_ONCE = 1000  # steps whose contexts are drawn together
_SCORES_AT_ONCE = 2**24  # floats of per-head scores held during a check


class TorchEngine:
    """Plain torch: slower than the others, and what they are tested against."""

    name = "torch"
    concurrency = 1

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def group(self, spec: RunSpec) -> Hashable:
        return replace(spec, seed=0)

    def capacity(self, spec: RunSpec) -> int:
        """The width of every fleet of such runs.

        Batched products round differently for other batch sizes, so a fleet is filled up with
        copies of its last run: then no result depends on how many runs there are.
        """
        most = 16 if self.device == "cpu" else 512
        return max(
            1, min(most, 2**27 // (6 * spec.d_model * spec.budget + 3 * spec.items * spec.d_model))
        )

    def fleet(self, specs: Sequence[RunSpec], states: Sequence[State] | None = None) -> TorchFleet:
        width = max(self.capacity(specs[0]), len(specs))
        return TorchFleet(
            specs, states or [State.initial(spec) for spec in specs], self.device, width
        )

    def prepare(self, specs: Sequence[RunSpec]) -> None:
        pass


class TorchFleet:
    """Runs that differ in nothing but the seed, stacked."""

    def __init__(
        self, specs: Sequence[RunSpec], states: Sequence[State], device: str, width: int
    ) -> None:
        self.specs, self.device, self._width = list(specs), device, width
        self.taken = lockstep(states)
        self._tasks = [task_of(spec) for spec in specs]

        def stacked(parts: list[Tensor]) -> Tensor:
            return torch.stack(parts + parts[-1:] * (width - len(parts))).to(device)

        self._rows = stacked([task.rows for task in self._tasks])
        self._edges = self._stacked_edges()
        self._messages = stacked([task.messages for task in self._tasks])
        self.weights = stacked([state.weights for state in states])
        self.first = stacked([state.first for state in states])
        self.second = stacked([state.second for state in states])
        self.threshold = stacked([state.threshold for state in states])
        self._diverged = torch.zeros(width, dtype=torch.int64, device=device)

    def launch(self, steps: int) -> None:
        for first in range(0, steps, _STEPS_AT_ONCE):
            some = min(_STEPS_AT_ONCE, steps - first)
            contexts = self.contexts(some)
            scales = adam_scales(self.specs[0].learning_rate, self.taken, some).tolist()
            for context, (rate, scale) in zip(contexts.unbind(1), scales, strict=True):
                self._step(context, rate, scale)
                self.taken += 1
        self._values = self._evaluate(
            range(len(self.specs)), [task.validation for task in self._tasks]
        )

    def check(self) -> Check:
        return Check(
            self._values, [step or None for step in self._diverged[: len(self.specs)].tolist()]
        )

    def test(self, rows: Sequence[int]) -> list[float]:
        return self._evaluate(rows, [self._tasks[row].test for row in rows])

    def states(self, rows: Sequence[int]) -> list[State]:
        parts = (self.weights, self.first, self.second, self.threshold)
        return [
            State(*(part[row].cpu().clone() for part in parts), taken=self.taken) for row in rows
        ]

    def keep(self, rows: Sequence[int]) -> None:
        self.specs = [self.specs[row] for row in rows]
        self._tasks = [self._tasks[row] for row in rows]
        filled = list(rows) + list(rows)[-1:] * (self._width - len(rows))
        which = torch.tensor(filled, dtype=torch.int64, device=self.device)
        state = ("weights", "first", "second", "threshold", "_diverged")
        for name in ("_rows", "_messages", *state):
            setattr(self, name, getattr(self, name)[which])
        self._edges = self._stacked_edges()

    def _stacked_edges(self) -> StackedEdges:
        graphs = [task.graph for task in self._tasks]
        return StackedEdges(graphs + graphs[-1:] * (self._width - len(graphs)), self.device)

    def contexts(self, steps: int) -> Int[Tensor, "width steps length"]:
        """The training contexts of the next steps, from every run's own stream."""
        drawn = [
            ContextSampler(task.graph, spec.length, spec.rate).draw(
                steps, seed=spec.seed, stream=spec.stream, start=self.taken
            )
            for spec, task in zip(self.specs, self._tasks, strict=True)
        ]
        return torch.stack(drawn + drawn[-1:] * (self._width - len(drawn))).to(self.device)

    def _step(self, context: Int[Tensor, "runs length"], rate: float, scale: float) -> None:
        """One step of every run: forward, backward, AdamW."""
        run = torch.arange(len(context), device=self.device)[:, None]
        x = self._rows[run, context]
        projected = x[:, None, None] @ self.weights  # Q and K: [runs, 2, heads, length, key_dim]
        queries, keys = projected[:, 0], projected[:, 1]
        slope, down = score_gradient(
            self.specs[0],
            queries @ keys.mT,
            self._edges.labels(context),
            self.threshold[:, 0],
            self._messages[run, context],
        )
        moved = torch.stack([slope @ keys, slope.mT @ queries], 1)
        total = slope.sum((1, 2, 3))  # one number that is not finite as soon as any slope is not
        self._diverged = torch.where(
            (self._diverged == 0) & ~total.isfinite(), self.taken + 1, self._diverged
        )
        _adam(self.weights, x.mT[:, None, None] @ moved, self.first, self.second, rate, scale)
        tau, first, second = self.threshold.unbind(1)
        _adam(tau, down, first, second, rate, scale)

    def _evaluate(
        self, rows: Sequence[int], contexts: list[Int[Tensor, "count length"]]
    ) -> list[float]:
        """The metric of runs on contexts of their own."""
        totals = []
        for row, own in zip(rows, contexts, strict=True):
            total = torch.zeros(2, dtype=torch.float64, device=self.device)
            for scores, positive, messages in self._scored(row, own.to(self.device)):
                threshold = self.threshold[row, 0].expand(len(scores))
                total += (
                    tally(self.specs[row], scores, positive, threshold, messages).double().sum(0)
                )
            totals.append(total)
        return metrics(self.specs[0].metric, torch.stack(totals))

    def _scored(
        self, row: int, contexts: Int[Tensor, "count length"]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Scores, labels and messages of a run's contexts, some at a time."""
        queries, keys = self._rows[row] @ self.weights[row]  # [heads, items, key_dim] each
        spec = self.specs[row]
        for some in contexts.split(max(1, _SCORES_AT_ONCE // (spec.heads * spec.length**2))):
            scores = queries[:, some].transpose(0, 1) @ keys[:, some].transpose(0, 1).mT
            positive = self._edges.labels(some[None], row)[0]
            yield scores, positive, self._messages[row][some]


def _adam(
    value: Float[Tensor, "*any"],
    gradient: Float[Tensor, "*any"],
    first: Float[Tensor, "*any"],
    second: Float[Tensor, "*any"],
    rate: float,
    scale: float,
) -> None:
    """AdamW in place."""
    first.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
    second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    value.sub_(rate * first / (second.sqrt() * scale + EPSILON))
