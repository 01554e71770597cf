"""Sets of contexts and the linear cuts that narrow them: what `context_search` branches on.

For a pair (i, j) let a_t = e^(L_it − L_ij) and s_k(C) = Σ_{t∈C} a_t⁽ᵏ⁾ ≥ 1, so that
A_ij = Σ_k 1/s_k (Eqs. 5–6). A case is a set of contexts: items that are inside, items that are
outside, and low ≤ s ≤ high. Every context of a case that breaks the pair obeys a linear cut
Σ_{t∈C} w_t ≤ budget, since 1/s is convex:

- an edge breaks when A_ij ≤ level; 1/s_k ≥ 2/p_k − s_k/p_k² for any point p (tangent);
- a non-edge breaks when A_ij > level; 1/s_k ≤ 1/low_k + 1/high_k − s_k/(low_k·high_k) (chord).

The least Σ w_t of a case is that of its ℓ smallest w_t, exactly. When it exceeds the budget the
case is closed; otherwise it tells which items must be inside or outside.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from headcount.shapes import Bool, Float, Int


@dataclass
class Cases:
    """Sets of contexts, one per row, with the last context chosen from each.

    For edges `high` is the tangent's point.
    """

    pair: Int[Tensor, " cases"]
    inside: Bool[Tensor, "cases items"]
    outside: Bool[Tensor, "cases items"]
    low: Float[Tensor, "cases heads"]
    high: Float[Tensor, "cases heads"]
    context: Int[Tensor, "cases length"]

    def __len__(self) -> int:
        return len(self.pair)

    def __getitem__(self, rows: slice | Tensor) -> Cases:
        return Cases(*(getattr(self, part.name)[rows] for part in fields(self)))

    def joined(self, *others: Cases) -> Cases:
        parts = [[getattr(some, part.name) for some in (self, *others)] for part in fields(self)]
        return Cases(*(torch.cat(part) for part in parts))


@dataclass
class Cut:
    """What a linear cut says about each case: whether it is closed, which items are in or out."""

    chosen: Int[Tensor, "*cases length"]  # the context with the least Σ w_t
    least: Float[Tensor, "*cases"]
    closed: Bool[Tensor, "*cases"]
    inside: Bool[Tensor, "*cases items"]
    outside: Bool[Tensor, "*cases items"]

    @classmethod
    def of(
        cls,
        weights: Float[Tensor, "*cases items"],
        budget: Float[Tensor, "*cases"],
        inside: Bool[Tensor, "*cases items"],
        outside: Bool[Tensor, "*cases items"],
        length: int,
    ) -> Cut:
        """Minimise Σ w_t over each case; fix items whose other choice would exceed the budget."""
        # Items that are inside come first, items that are outside last; one more than ℓ is taken,
        # the item that would follow if one of the ℓ were left out.
        order = weights.masked_fill(outside, torch.inf).masked_fill_(inside, -torch.inf)
        order = order.topk(min(length + 1, weights.shape[-1]), largest=False).indices
        chosen, following = order[..., :length], order[..., length:]
        values = weights.gather(-1, chosen)
        least = values.sum(-1)
        # A sum of ℓ terms is off by less than ℓ·2⁻⁵³ times their absolute sum: eight times that.
        rounding = (length + 64) * 2.0**-50 * (budget.abs() + values.abs().sum(-1))
        room = (budget - least + rounding)[..., None]
        # Without a picked item the `spare` one comes in; with another one the heaviest free item
        # that was picked, `replaced`, goes out.
        picked = torch.zeros_like(weights, dtype=torch.bool).scatter_(-1, chosen, True)
        replaced = values.masked_fill(inside.gather(-1, chosen), -torch.inf).amax(-1, keepdim=True)
        spare = weights.gather(-1, following).masked_fill_(outside.gather(-1, following), torch.inf)
        spare = spare if following.shape[-1] else torch.full_like(room, torch.inf)
        impossible = (picked & outside).any(-1) | (inside & ~picked).any(-1)
        return cls(
            chosen,
            least,
            closed=impossible | (room[..., 0] < 0),
            inside=picked & (spare - weights > room),
            outside=~picked & (weights - replaced > room),
        )

    def by_case(self) -> tuple[Tensor, Tensor, Tensor]:
        """(closed, inside, outside); where there is one cut per head, what any head says."""
        if self.closed.ndim == 1:
            return self.closed, self.inside, self.outside
        return self.closed.any(1), self.inside.any(1), self.outside.any(1)


def rival_sums(
    rivals: Float[Tensor, "some heads items"], contexts: Int[Tensor, "some chosen"]
) -> Float[Tensor, "some heads"]:
    """s_k(C) = Σ_{t∈C} a_t⁽ᵏ⁾."""
    return rivals.gather(2, contexts[:, None].expand(-1, rivals.shape[1], -1)).sum(2)


def weigh(
    weights: Float[Tensor, "some heads"], rivals: Float[Tensor, "some heads items"]
) -> Float[Tensor, "some items"]:
    """w_t = Σ_k w_k·a_t⁽ᵏ⁾."""
    return (weights[:, None] @ rivals)[:, 0]
