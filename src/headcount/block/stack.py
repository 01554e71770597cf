"""BlockStack: runs of one shape trained together; on CUDA a step is one graph."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from headcount.block.ops import BlockOps
from headcount.block.passes import FrozenTable, backward, forward, loss_gradient
from headcount.block.spec import BlockSpec
from headcount.block.state import StackState
from headcount.errors import InputError
from headcount.problem.makers import permutation_graph
from headcount.problem.retrieval import RetrievalSampler, queries
from headcount.shapes import Float, Int
from headcount.training.adamw import BETAS
from headcount.training.engines.selection import warn_slower
from headcount.triton_device import triton_device

_AHEAD = 64  # steps whose contexts are drawn together
_STATE_SHARE = 0.5  # of the free memory that a stack may take


def group(spec: BlockSpec) -> Hashable:
    """Specs with equal groups can share a stack; d_k, seed, rates and a bar on s may differ."""
    shape = (spec.items, spec.d_model, spec.heads, spec.kv_heads, spec.length, spec.two_values)
    return spec.table, spec.table_hash, spec.scale, shape, spec.batch, *_pace(spec)


def _pace(spec: BlockSpec) -> tuple[int, ...]:
    """What runs in lockstep have in common."""
    return spec.steps, spec.check_every, spec.validation, spec.test


def capacity(spec: BlockSpec, device: str) -> int:
    """How many runs like this one a stack can hold.

    On the CPU one: stacks gain nothing there, and a run alone ends with the same bits whatever
    other runs are asked for.
    """
    if device == "cpu":
        return 1
    columns = spec.budget + spec.key_budget + (4 if spec.two_values else 2) * spec.d_model
    weights = spec.d_model * columns
    activations = spec.batch * (spec.heads + 2) * spec.d_model
    memory = torch.cuda.mem_get_info()[0] * _STATE_SHARE
    # Bytes: weights in six float32 copies (with moments, best, gradients), activations in three.
    return max(1, int(memory // (24 * weights + 12 * activations)))


def choose_ops(device: str) -> BlockOps:
    """Kernels on CUDA where Triton can run, otherwise plain torch."""
    if device != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return BlockOps()
    try:
        triton_device()
    except InputError as missing:
        warn_slower(missing)
        return BlockOps()
    from headcount.block.triton_ops import TritonOps

    return TritonOps()


class BlockStack:
    """Runs in lockstep on shared contexts.

    Weights are float32; on CUDA products use bfloat16 copies, while AdamW updates the float32 ones:
    a step of 3e-4 would be lost in bfloat16's 8 bits.
    """

    def __init__(
        self,
        state: StackState,
        table: Float[Tensor, "rows d_model"],
        device: str = "cpu",
        ops: BlockOps | None = None,
    ) -> None:
        self.device, self.ops = device, ops or choose_ops(device)
        self.state = state.copied(device)
        specs = state.specs
        self.spec, self.heads = specs[0], specs[0].heads
        kind = torch.bfloat16 if device == "cuda" else torch.float32
        exact = (table.float() * self.spec.scale).to(device)
        self.table = FrozenTable.of(exact, kind)
        self.exact_table = FrozenTable.of(exact, torch.float32)
        self._low = self.state.weights
        if kind is not torch.float32:
            self._low = {name: part.to(kind) for name, part in self._low.items()}
        self.sampler = RetrievalSampler(self.spec.items, self.spec.length, device)

        def each(values: Sequence[float], kind: torch.dtype = torch.float32) -> Tensor:
            return torch.tensor(values, dtype=kind, device=device)

        self.inverses = torch.stack([_inverse(spec) for spec in specs]).to(device)
        self.scales = each(
            [1 / math.sqrt(spec.key_dim) for spec in specs for _ in range(spec.heads)]
        )
        self.barring = each([spec.control == "barred" for spec in specs], torch.bool)
        self._rates = each([spec.learning_rate for spec in specs])
        self._decays = each([spec.weight_decay for spec in specs])
        self._log_betas = each([math.log(beta) for beta in BETAS], torch.float64)
        # A graph replays fixed kernels on fixed memory, so what changes from step to step is a
        # tensor on the device: the steps taken, and which of the drawn contexts comes next.
        self._count = each([state.taken], torch.float64)
        self._next = each([0], torch.int64)
        self._contexts = torch.zeros(
            _AHEAD, self.spec.batch, 2 * self.spec.length, dtype=torch.int64, device=device
        )
        self.loss = torch.zeros(len(specs), device=device)  # of the last step
        self._graph: torch.cuda.CUDAGraph | None = None

    def advance(self, steps: int, stop: Callable[[], bool] = lambda: False) -> int:
        """Take up to `steps` steps; `stop` is asked before each. Returns how many were taken."""
        if self.device == "cuda" and self._graph is None:
            self._capture()
        for done in range(steps):
            if done % _AHEAD == 0:
                self._draw(min(_AHEAD, steps - done))
                self.wait()  # launches run far ahead of the device; `stop` must not
            if stop():
                return done
            if self._graph:
                self._graph.replay()
            else:
                self.step()
            self.state.taken += 1
        self.wait()
        return steps

    def wait(self) -> None:
        """Until the device has done all that it was asked."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    @torch.no_grad()
    def step(self) -> None:
        """One step of every run on the next drawn contexts: forward, loss, backward, AdamW.

        It never waits for the device, as a graph requires.
        """
        contexts = self._contexts.index_select(0, self._next)[0]
        gradients = self.gradients(contexts)
        self._next += 1
        self._count += 1
        corrections = -torch.expm1(self._count * self._log_betas).float()  # 1 − βⁿ, no cancellation
        state = self.state
        for name, weight in state.weights.items():
            self.ops.adamw_(
                weight, gradients[name], state.first[name], state.second[name], self._low[name],
                self._rates, self._decays, corrections,
            )  # fmt: skip

    def gradients(self, contexts: Int[Tensor, "batch width"]) -> dict[str, Tensor]:
        """Those of every run's mean loss over the examples that are valid for it."""
        q, valid = queries(self.inverses, contexts)
        weights = valid.float()
        weights = weights / weights.sum(1, keepdim=True).clamp(min=1)
        slots = self.ops.normed_slots(self.table.exact, contexts, self.table.normed.dtype)
        made = forward(self.ops, self._low, self.table, self.scales, q, slots)
        barred, labels = self.barred(contexts), contexts[:, 1].contiguous()
        gradient, losses = loss_gradient(self.ops, self.table, made.output, labels, barred, weights)
        self.loss.copy_((losses * weights).sum(1))
        return backward(self.ops, self._low, self.table, self.scales, slots, made, gradient)

    def barred(self, contexts: Int[Tensor, "batch width"]) -> Int[Tensor, "runs batch"]:
        """The answer that a run may not give to an example; −1: none."""
        return torch.where(self.barring[:, None], contexts[:, 0], -1)

    def _draw(self, steps: int) -> None:
        batch = self.spec.batch
        drawn = self.sampler.draw(steps * batch, stream="train", start=self.state.taken * batch)
        self._contexts[:steps] = drawn.unflatten(0, (steps, batch))
        self._next.zero_()

    def _capture(self) -> None:
        """Record a step as a graph: hundreds of launches per step become one.

        Before the recording, some real steps compile kernels and fill caches, on a side stream as
        torch asks; their effect on the state is undone.
        """
        state = self.state
        changed = [self._count, self._next]
        for weights in (state.weights, state.first, state.second, self._low):
            changed += weights.values()
        kept = [part.clone() for part in changed]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._draw(1)
            for _ in range(3):
                self._next.zero_()
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        for part, before in zip(changed, kept, strict=True):
            part.copy_(before)
        del kept
        torch.cuda.empty_cache()  # what the warm-up took
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.step()


def _inverse(spec: BlockSpec) -> Int[Tensor, " items"]:
    """π⁻¹ of the seed."""
    return torch.from_numpy(permutation_graph(spec.items, spec.seed).targets.argsort())
