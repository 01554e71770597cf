"""How stacked blocks answer held-out examples: in float32 and plain torch on every device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.block.ops import BlockOps
from headcount.block.passes import forward
from headcount.block.spec import Attention
from headcount.block.stack import BlockStack
from headcount.problem.retrieval import queries
from headcount.shapes import Float, Int

ANSWERS = ("correct", "s", "q", "context", "null", "other")
_OPS = BlockOps()  # the reference, so that a check does not depend on the kernels
_FLOATS = 2**26  # of absorbed queries held at a time
_LOGIT_ROWS = 4096


@dataclass(frozen=True)
class Tally:
    """Means over the examples that are valid for each run."""

    answers: Float[Tensor, "runs answers"]  # shares, in the order of ANSWERS
    barred: Float[Tensor, " runs"]  # accuracy when neither s nor q may be the answer
    loss: Float[Tensor, " runs"]
    # Attention on the target's slot, NULL and the query itself: of the head that pays it most in
    # each example, and by head.
    best: Float[Tensor, "runs 3"]
    by_head: Float[Tensor, "runs 3 heads"]

    @property
    def accuracy(self) -> Float[Tensor, " runs"]:
        return self.answers[:, 0]

    def attention(self, run: int) -> Attention:
        target, null, own = (tuple(part) for part in self.by_head[run].tolist())
        best_target, best_null, best_own = self.best[run].tolist()
        return Attention(target, own, null, best_target, best_own, best_null)


@torch.no_grad()
def evaluate(stack: BlockStack, weights: Mapping[str, Tensor], stream: str, count: int) -> Tally:
    """Every run on the first `count` contexts of a stream, those that are valid for it."""
    runs, heads, d_model, _ = weights["values"].shape
    total = torch.zeros(runs, 12 + 3 * heads, dtype=torch.float64, device=stack.device)
    piece = max(1, min(count, _FLOATS // (runs * heads * d_model)))
    for start in range(0, count, piece):
        contexts = stack.sampler.draw(min(piece, count - start), stream=stream, start=start)
        total += _tally(stack, weights, contexts)
    means = total[:, 1:] / total[:, :1].clamp(min=1)
    answers, barred, loss, best, by_head = means.split([len(ANSWERS), 1, 1, 3, 3 * heads], 1)
    return Tally(answers, barred[:, 0], loss[:, 0], best, by_head.unflatten(1, (3, heads)))


def _tally(
    stack: BlockStack, weights: Mapping[str, Tensor], contexts: Int[Tensor, "count width"]
) -> Float[Tensor, "runs columns"]:
    """Sums over the valid examples, their number first."""
    q, valid = queries(stack.inverses, contexts)
    table = stack.exact_table
    slots = _OPS.normed_slots(table.exact, contexts, torch.float32)
    made = forward(_OPS, weights, table, stack.scales, q, slots)
    given, allowed, loss = _answers(stack, made.output, contexts, q)
    s, y = contexts[:, 0], contexts[:, 1]
    elsewhere = (given[..., None] == contexts[:, 2:]).any(-1)
    kinds = [given == y, given == s, given == q, elsewhere, given == len(table.exact) - 1]
    kinds.append(~torch.stack(kinds).any(0))
    by_head = made.pattern.unflatten(0, (len(q), -1))
    pattern = by_head[..., (0, -2, -1)].permute(0, 2, 3, 1)  # [runs, count, 3, heads]
    counts = torch.stack([torch.ones_like(valid), *kinds, allowed == y], -1)
    parts = (counts, loss[..., None], pattern.amax(-1), pattern.flatten(2))
    columns = torch.cat([part.double() for part in parts], -1)
    # Masked, not multiplied by 0: an invalid example may have an infinite loss.
    return columns.masked_fill(~valid[..., None], 0).sum(1)


def _answers(
    stack: BlockStack,
    output: Float[Tensor, "runs count d_model"],
    contexts: Int[Tensor, "count width"],
    q: Int[Tensor, "runs count"],
) -> tuple[Int[Tensor, "runs count"], Int[Tensor, "runs count"], Float[Tensor, "runs count"]]:
    """Each run's answers, its answers when s and q are barred, and its losses."""
    rows = stack.exact_table.exact
    lines, barred, asked = output.flatten(0, 1), stack.barred(contexts).flatten(), q.flatten()
    s, y = contexts[:, 0].repeat(len(q)), contexts[:, 1].repeat(len(q))
    parts = []
    for first in range(0, len(lines), _LOGIT_ROWS):
        some = slice(first, first + _LOGIT_ROWS)
        logits = lines[some] @ rows.T
        logits.masked_fill_(
            torch.arange(len(rows), device=rows.device) == barred[some, None], -torch.inf
        )
        loss = logits.logsumexp(1) - logits.gather(1, y[some, None])[:, 0]
        given = logits.argmax(1)
        logits.scatter_(1, torch.stack([s[some], asked[some]], 1), -torch.inf)
        parts.append((given, logits.argmax(1), loss))
    given, allowed, loss = (torch.cat(part).view_as(q) for part in zip(*parts, strict=True))
    return given, allowed, loss
