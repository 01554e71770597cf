"""The transformer block of Section 7.3 as a plain module: the stacked trainer's reference."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from headcount.attention.shared_keys import require_kv_heads
from headcount.block.spec import FF, require_divisor
from headcount.shapes import Float


class Block(nn.Module):
    """One pre-LN block: attention and a GELU MLP, each with its residual.

    The paper trains {W_Q, W_K, W_V, W_O} without biases and the MLP, and nothing else. So the layer
    norms have no weights of their own, unlike GPT-2's, and none follows the block. d_v = d_model/h
    and scores are scaled by 1/√d_k.

    `two_values` is a control for one head: a second value path W_V2 that always reads its own
    position, so that the block can subtract s = π(q) from what it retrieved without a second
    key–query head.

    `kv_heads` g below h shares keys: head k attends with key head ⌊k·g/h⌋, and has its own values.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        key_dim: int,
        ff: int = FF,
        two_values: bool = False,
        kv_heads: int = 0,
    ) -> None:
        super().__init__()
        require_divisor(d_model, heads)
        self.d_model, self.heads, self.key_heads = d_model, heads, kv_heads or heads
        require_kv_heads(heads, self.key_heads)
        self.queries = nn.Linear(d_model, heads * key_dim, bias=False)
        self.keys = nn.Linear(d_model, self.key_heads * key_dim, bias=False)
        self.values = nn.Linear(d_model, d_model, bias=False)
        self.own_values = nn.Linear(d_model, d_model, bias=False) if two_values else None
        self.outputs = nn.Linear(d_model, d_model, bias=False)
        self.up = nn.Linear(d_model, ff)
        self.down = nn.Linear(ff, d_model)

    def forward(
        self, x: Float[Tensor, "batch positions d_model"], table: Float[Tensor, "rows d_model"]
    ) -> Float[Tensor, "batch rows"]:
        """Logits at the last position, tied to the table: h_last Eᵀ."""
        x = x + self.attention(self._norm(x))
        x = x + self.down(functional.gelu(self.up(self._norm(x))))
        return x[:, -1] @ table.T

    def attention(
        self, z: Float[Tensor, "batch positions d_model"]
    ) -> Float[Tensor, "batch positions d_model"]:
        """Causal multi-head attention; the last position sees all."""
        q, v = self._by_head(self.queries(z)), self._by_head(self.values(z))
        k = self._keys_by_head(z)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).flatten(2)
        if self.own_values is not None:
            mixed = mixed + self.own_values(z)
        return self.outputs(mixed)

    def pattern(
        self, x: Float[Tensor, "batch positions d_model"]
    ) -> Float[Tensor, "batch heads positions"]:
        """The attention of the last position."""
        z = self._norm(x)
        q, k = self._by_head(self.queries(z[:, -1:])), self._keys_by_head(z)
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).squeeze(2)

    def _norm(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, (self.d_model,))

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def _keys_by_head(self, z: Tensor) -> Tensor:
        """Each head's keys; the heads of a group have the same ones."""
        keys = self.keys(z).unflatten(2, (self.key_heads, -1)).transpose(1, 2)
        return keys.repeat_interleave(self.heads // self.key_heads, dim=1)
