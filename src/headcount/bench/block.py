"""How fast stacked blocks train, against the plain module and bare matrix products."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch.nn import functional

from headcount.block.model import Block
from headcount.block.spec import FF, BlockSpec
from headcount.block.stack import BlockStack
from headcount.block.state import StackState
from headcount.block.train import choose_device
from headcount.block.weights import plain_block
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.retrieval import encode, queries

_SIDE = {"cpu": 1024, "cuda": 8192}  # of the bare square products


@dataclass(frozen=True)
class BlockSpeed:
    """Medians over rounds in which all took their turn."""

    device: str
    engine: str
    runs: int
    stack_us: float  # per run-step
    eager_us: float  # per step of the plain module
    stack_flops: float  # per second
    matmul_flops: float  # per second: bfloat16 on CUDA, float32 on the CPU

    @property
    def speedup(self) -> float:
        """How many times faster than the plain module."""
        return self.eager_us / self.stack_us

    @property
    def share(self) -> float:
        """Of the device's own rate of matrix products."""
        return self.stack_flops / self.matmul_flops


def block_speed(
    device: str = "auto",
    *,
    items: int = 6144,
    d_model: int = 768,
    heads: int = 8,
    key_dim: int = 64,
    length: int = 16,
    batch: int = 1024,
    runs: int = 28,
    steps: int = 64,
    repeats: int = 5,
) -> BlockSpeed:
    """Time training steps at the paper's shape (Figure 7) or another; the first round is untimed.

    The stack draws its contexts as it trains, those of 64 steps together. The plain module, one
    run, has its batch ready: eager mode, fused AdamW, bfloat16 autocast on CUDA.
    """
    chosen = choose_device(device)
    specs = [
        BlockSpec(items, d_model, heads, key_dim, seed, length, batch=batch) for seed in range(runs)
    ]
    stack = BlockStack(StackState.initial(specs), gaussian_embeddings(items + 1, d_model), chosen)
    eager, bare = _eager_step(stack), _bare_product(chosen)
    subjects = (
        lambda: _seconds(lambda: stack.advance(steps), chosen),
        _timed(eager, steps, chosen),
    )
    rounds = [
        [read() for read in (*subjects, _timed(bare, steps, chosen))] for _ in range(repeats + 1)
    ][1:]
    ours, plain, product = (median(readings) / steps for readings in zip(*rounds, strict=True))
    return BlockSpeed(
        device=chosen,
        engine=stack.ops.name,
        runs=runs,
        stack_us=ours / runs * 1e6,
        eager_us=plain * 1e6,
        stack_flops=step_flops(specs[0]) * runs / ours,
        matmul_flops=2 * _SIDE[chosen] ** 3 / product,
    )


def step_flops(spec: BlockSpec) -> int:
    """Floating-point operations of the matrix products in one run's step, forward and backward.

    Products with a trained matrix come three times (forward, both gradients), W_Q's and the logits'
    twice: their inputs or rows are frozen. AdamW, norms and softmax are not counted.
    """
    d = spec.d_model
    keys = (2 + 3) * d * spec.budget  # queries, and their way through W_K
    mixing = 2 * 2 * spec.heads * (spec.length + 2) * d
    values = 3 * (3 if spec.two_values else 2) * d * d
    mlp, logits = 3 * 2 * d * FF, 2 * d * (spec.items + 1)
    return 2 * spec.batch * (keys + mixing + values + mlp + logits)


def _eager_step(stack: BlockStack) -> Callable[[], None]:
    """A step of the plain module on one batch, as a researcher would write it."""
    spec, device, rows = stack.spec, stack.device, stack.exact_table.exact
    block: Block = plain_block(spec, stack.state.weights, 0).to(device)
    optimizer = torch.optim.AdamW(
        block.parameters(), spec.learning_rate, weight_decay=spec.weight_decay, fused=True
    )
    contexts = stack.sampler.draw(spec.batch, stream="train")
    q, _ = queries(stack.inverses[:1], contexts)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = functional.cross_entropy(
                block(encode(rows, contexts, q[0]), rows), contexts[:, 1]
            )
        loss.backward()
        optimizer.step()

    return step


def _bare_product(device: str) -> Callable[[], None]:
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = (torch.randn(_SIDE[device], _SIDE[device], dtype=kind, device=device) for _ in range(2))
    out = torch.empty_like(a)

    def product() -> None:
        torch.mm(a, b, out=out)

    return product


def _timed(step: Callable[[], None], steps: int, device: str) -> Callable[[], float]:
    def read() -> float:
        def several() -> None:
            for _ in range(steps):
                step()

        return _seconds(several, device)

    return read


def _seconds(act: Callable[[], object], device: str) -> float:
    began = time.perf_counter()
    act()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began
