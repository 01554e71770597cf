"""A model to audit: its sizes, its layers' channels, and the inputs that its tokens give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from headcount.auditing.channel import Channel, HeadNorm, Rotary
from headcount.auditing.layouts import Layout
from headcount.auditing.tensors import ModelTensors
from headcount.auditing.vocabulary import words_of
from headcount.shapes import Float
from headcount.theory.model_config import Architecture


@dataclass(frozen=True, eq=False)
class Model:
    """What the audit reads of a model; every call reads its tensors anew and keeps none."""

    name: str
    sizes: Architecture
    layout: Layout
    tensors: ModelTensors
    epsilon: float
    tokens: list[str] | None
    rotary: Rotary | None = None
    rotary_note: str = ""  # why offsets are not offered, where they are not
    scale: float = 1.0

    @cached_property
    def words(self) -> dict[str, int]:
        """Ids of the tokens that are whole words; empty without a vocabulary."""
        items = self.tensors.shapes[self.layout.embedding][0]
        found = words_of(self.tokens) if self.tokens else {}
        return {word: place for word, place in found.items() if place < items}

    @property
    def vocabulary_size(self) -> int:
        return self.tensors.shapes[self.layout.embedding][0]

    def require(self, layers: Sequence[int]) -> None:
        """Refuse a model that lacks a projection or a norm of these layers, before any work."""
        for layer in layers:
            for query in (True, False):
                name, shape = self._projection_shape(layer, query)
                self.tensors.require(f"{name}.weight", shape)
            self._norm(self.layout.norm_before(layer))

    def channel(self, layer: int) -> Channel:
        """The key–query channel of a layer, in float32."""
        sizes, layout = self.sizes, self.layout
        gain, shift = self._norm(layout.norm_before(layer))
        parts = []
        for query, heads in ((True, sizes.heads), (False, sizes.kv_heads)):
            weight, bias = self._projection(layer, query)
            folded = weight * gain  # outputs × d_model
            if layout.centred:
                folded = folded - folded.mean(dim=1, keepdim=True)
            offset = weight @ shift + bias
            shape = (heads, sizes.key_dim)
            parts.append((folded.view(*shape, -1).transpose(1, 2), offset.view(shape)))
        (queries, query_bias), (keys, key_bias) = parts
        norm = self._head_norm(layer)
        return Channel(queries, keys, query_bias, key_bias, norm, self.rotary, self.scale)

    def inputs(
        self, ids: np.ndarray, layer: int = 0, added: Float[Tensor, "#items d_model"] | None = None
    ) -> Float[Tensor, "items d_model"]:
        """x̂ of tokens at a layer, on the direct path: no layer before has added anything.

        `added` is added to the embeddings, as a model's own position embeddings would be.
        """
        layout = self.layout
        rows = self.tensors.rows(layout.embedding, ids)
        if layout.scaled:
            rows = rows * self.sizes.d_model**0.5
        if layout.segment and layout.segment in self.tensors:
            rows = rows + self.tensors.rows(layout.segment, np.array([0]))
        if added is not None:
            rows = rows + added
        rows = self._normalised(rows)
        if layout.norm:
            return rows
        for before in range(layer):  # the norms on the way, without the sublayers between them
            for name in (layout.norm_before(before), layout.later_norms[0].format(before)):
                gain, shift = self._norm(name)
                rows = self._normalised(rows * gain + shift)
        return rows

    def _normalised(self, rows: Tensor) -> Tensor:
        if self.layout.centred:
            rows = rows - rows.mean(dim=1, keepdim=True)
        return rows * torch.rsqrt(rows.square().mean(dim=1, keepdim=True) + self.epsilon)

    def _norm(self, name: str) -> tuple[Tensor, Tensor]:
        """Gain and offset of a norm; early files of BERT call them gamma and beta."""
        width = (self.sizes.d_model,)
        old = f"{name}.gamma" in self.tensors
        gain = self.tensors.read(f"{name}.{'gamma' if old else 'weight'}", width)
        if self.layout.unit_gain:
            gain = gain + 1
        bias = f"{name}.{'beta' if old else 'bias'}"
        if not self.layout.centred:
            return gain, torch.zeros(width)
        return gain, self.tensors.read(bias, width)

    def _projection(self, layer: int, query: bool) -> tuple[Tensor, Tensor]:
        """Weight, as outputs × inputs, and bias of the queries or of the keys."""
        sizes, layout = self.sizes, self.layout
        name, shape = self._projection_shape(layer, query)
        outputs = sizes.query_budget if query else sizes.key_budget
        weight = self.tensors.read(f"{name}.weight", shape)
        stored = shape[1] if layout.inputs_first else shape[0]
        weight = weight.T if layout.inputs_first else weight
        has_bias = layout.biases or (layout.biases is None and f"{name}.bias" in self.tensors)
        bias = self.tensors.read(f"{name}.bias", (stored,)) if has_bias else torch.zeros(stored)
        first = sizes.query_budget if layout.fused and not query else 0
        return weight[first : first + outputs], bias[first : first + outputs]

    def _projection_shape(self, layer: int, query: bool) -> tuple[str, tuple[int, int]]:
        sizes, layout = self.sizes, self.layout
        stored = sizes.query_budget if query else sizes.key_budget
        if layout.fused:
            stored = sizes.query_budget + 2 * sizes.key_budget
        shape = (sizes.d_model, stored) if layout.inputs_first else (stored, sizes.d_model)
        return (layout.query if query else layout.key).format(layer), shape

    def _head_norm(self, layer: int) -> HeadNorm | None:
        if not self.layout.query_norm:
            return None
        gains = [
            self.tensors.read(f"{name.format(layer)}.weight", (self.sizes.key_dim,))
            + float(self.layout.unit_gain)
            for name in (self.layout.query_norm, self.layout.key_norm)
        ]
        return HeadNorm(gains[0], gains[1], self.epsilon)
