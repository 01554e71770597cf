"""The eager peer: one run as Appendix A.1 reads, with `nn.Module`, autograd and AdamW."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from headcount.shapes import Bool, Float, Int
from headcount.training.engines.base import BETAS, EPSILON, State
from headcount.training.spec import RunSpec


class Channel(nn.Module):
    """W_Q, W_K and τ; heads are joined by max."""

    def __init__(self, d_model: int, heads: int, key_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries = nn.Linear(d_model, heads * key_dim, bias=False)
        self.keys = nn.Linear(d_model, heads * key_dim, bias=False)
        self.threshold = nn.Parameter(torch.zeros(()))

    def forward(self, x: Float[Tensor, "length d_model"]) -> Float[Tensor, "length length"]:
        """max_k S⁽ᵏ⁾ − τ of the embedding rows of a context."""
        queries = self.queries(x).view(len(x), self.heads, -1).transpose(0, 1)
        keys = self.keys(x).view(len(x), self.heads, -1).transpose(0, 1)
        scores = queries @ keys.transpose(1, 2)
        return scores.max(dim=0).values - self.threshold


class EagerRun:
    """One run under way, from a given state at step 0."""

    def __init__(
        self,
        spec: RunSpec,
        state: State,
        rows: Float[Tensor, "items d_model"],
        targets: Int[Tensor, " items"],
        device: str = "cpu",
    ) -> None:
        self.sharpness = spec.sharpness
        self.rows, self.targets = rows.to(device), targets.to(device)
        self.positive_weight = torch.tensor(spec.length - 1.0, device=device)
        self.channel = Channel(spec.d_model, spec.heads, spec.key_dim).to(device)
        with torch.no_grad():  # a Linear holds its matrix transposed: [heads·key_dim, d_model]
            sides = state.weights.split(spec.heads)  # every head has its own key here
            for part, weights in zip((self.channel.queries, self.channel.keys), sides, strict=True):
                part.weight.copy_(weights.transpose(1, 2).reshape(spec.budget, spec.d_model))
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
        positive = self.labels(context)
        logits = self.sharpness * self.channel(self.rows[context])
        loss = binary_cross_entropy_with_logits(
            logits, positive.float(), pos_weight=self.positive_weight
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def labels(self, context: Int[Tensor, " length"]) -> Bool[Tensor, "length length"]:
        """y_pq: is item q the target of item p?"""
        return self.targets[context][:, None] == context[None, :]

    def weights(self) -> Float[Tensor, "matrices d_model key_dim"]:
        """W_Q and W_K as a `State` holds them."""
        parts = (self.channel.queries.weight, self.channel.keys.weight)
        heads = self.channel.heads
        return torch.cat(
            [part.detach().unflatten(0, (heads, -1)).transpose(1, 2) for part in parts]
        )
