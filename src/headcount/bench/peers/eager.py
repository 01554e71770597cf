"""The eager peer: one run as Appendix A.1 reads, with `nn.Module`, autograd and AdamW."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from headcount.shapes import Bool, Float, Int
from headcount.training.adamw import BETAS, EPSILON
from headcount.training.engines.base import State
from headcount.training.spec import RunSpec
from headcount.training.task import Task


class Channel(nn.Module):
    """W_Q, W_K and τ, with heads joined as the variant says."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.spec = spec
        self.queries = nn.Linear(spec.d_model, spec.budget, bias=False)
        self.keys = nn.Linear(spec.d_model, spec.key_budget, bias=False)
        self.threshold = nn.Parameter(torch.zeros(()))

    def forward(self, x: Float[Tensor, "length d_model"]) -> Float[Tensor, "length length"]:
        """The joined scores of the embedding rows of a context."""
        spec = self.spec
        queries = self.queries(x).view(len(x), spec.heads, -1).transpose(0, 1)
        keys = self.keys(x).view(len(x), spec.key_heads, -1).transpose(0, 1)
        if spec.key_heads < spec.heads:
            keys = keys.repeat_interleave(spec.heads // spec.key_heads, dim=0)
        scores = queries @ keys.transpose(1, 2)
        match spec.variant:
            case "max" | "value":
                return scores.max(dim=0).values
            case "sum":
                return scores.sum(dim=0)
            case "logsumexp":
                return spec.temperature * (scores / spec.temperature).logsumexp(dim=0)
            case "softmax":
                return (scores / math.sqrt(spec.key_dim)).softmax(dim=-1).sum(dim=0)


class EagerRun:
    """One run under way, from a given state at step 0, on a permutation."""

    def __init__(self, spec: RunSpec, state: State, task: Task, device: str = "cpu") -> None:
        self.spec = spec
        self.rows, self.targets = task.rows.to(device), task.targets.to(device)
        self.messages = task.messages.to(device)
        self.positive_weight = torch.tensor(spec.length - 1.0, device=device)
        self.channel = Channel(spec).to(device)
        with torch.no_grad():  # a Linear holds its matrix transposed: [heads·key_dim, d_model]
            sides = state.weights.split([spec.heads, spec.key_heads])
            for part, weights in zip((self.channel.queries, self.channel.keys), sides, strict=True):
                part.weight.copy_(weights.transpose(1, 2).flatten(0, 1))
            self.channel.threshold.copy_(state.threshold[0])
        self.optimizer = torch.optim.AdamW(
            self.channel.parameters(),
            lr=spec.learning_rate,
            betas=BETAS,
            eps=EPSILON,
            weight_decay=0.0,
        )

    def step(self, context: Int[Tensor, " length"]) -> None:
        """One step on one context."""
        loss = self.loss(context)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def loss(self, context: Int[Tensor, " length"]) -> Float[Tensor, ""]:
        """The logistic loss of Section 6, or the squared error of Eq. (4)."""
        scores, positive = self.channel(self.rows[context]), self.labels(context)
        if self.spec.variant == "value":
            valid = positive.any(dim=1)
            wanted = positive.float() @ self.messages[context]
            error = (scores @ self.messages[context] - wanted)[valid]
            return error.square().sum() / valid.sum().clamp(min=1)
        logits = self.spec.sharpness * (scores - self.channel.threshold)
        return binary_cross_entropy_with_logits(
            logits, positive.float(), pos_weight=self.positive_weight
        )

    def labels(self, context: Int[Tensor, " length"]) -> Bool[Tensor, "length length"]:
        """y_pq: is item q the target of item p?"""
        return self.targets[context][:, None] == context[None, :]

    def weights(self) -> Float[Tensor, "matrices d_model key_dim"]:
        """W_Q and W_K as a `State` holds them."""
        parts = (self.channel.queries.weight, self.channel.keys.weight)
        width = self.spec.key_dim
        return torch.cat(
            [part.detach().unflatten(0, (-1, width)).transpose(1, 2) for part in parts]
        )
