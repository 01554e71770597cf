"""The weights of stacked blocks: shapes, first values, and one run's as a plain `Block`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from headcount.block.model import Block
from headcount.block.spec import FF, BlockSpec
from headcount.problem.streams import generator

Weights = dict[str, Tensor]  # by name, the run first: see `first_weights`
_WEIGHTS = 0xB10C  # salt: one seed, separate draws


def first_weights(spec: BlockSpec) -> Weights:
    """One run's weights before the first step: as nn.Linear's, uniform in ±1/√fan_in, biases too.

    queries [d_model, heads, key_dim], keys [key_heads, key_dim, d_model], values [heads, d_model,
    d_v], outputs [heads·d_v, d_model], up [d_model, ff], down [ff, d_model], their biases, and
    own_values [d_model, d_model] for two values. A row vector is multiplied from the left.
    """
    random = generator(spec.seed, _WEIGHTS)
    d, heads, key_dim = spec.d_model, spec.heads, spec.key_dim

    def uniform(fan_in: int, *shape: int) -> Tensor:
        return torch.from_numpy(
            ((random.random(shape) * 2 - 1) / np.sqrt(fan_in)).astype(np.float32)
        )

    weights = {
        "queries": uniform(d, d, heads, key_dim),
        "keys": uniform(d, spec.key_heads, key_dim, d),
        "values": uniform(d, heads, d, d // heads),
        "outputs": uniform(d, d, d),
        "up": uniform(d, d, FF),
        "up_bias": uniform(d, 1, FF),
        "down": uniform(FF, FF, d),
        "down_bias": uniform(FF, 1, d),
    }
    return weights | ({"own_values": uniform(d, d, d)} if spec.two_values else {})


def stacked(specs: Sequence[BlockSpec]) -> Weights:
    """The first weights of all runs.

    A narrower d_k is padded with zero columns: W_Q and W_K, both zero there, have zero gradient and
    no decay, so they stay zero, and the padding is exact.
    """
    widest = max(spec.key_dim for spec in specs)
    runs = []
    for spec in specs:
        weights, missing = first_weights(spec), widest - spec.key_dim
        weights["queries"] = torch.nn.functional.pad(weights["queries"], (0, missing))
        weights["keys"] = torch.nn.functional.pad(weights["keys"], (0, 0, 0, missing))
        runs.append(weights)
    return {name: torch.stack([weights[name] for weights in runs]) for name in runs[0]}


def plain_block(spec: BlockSpec, weights: Mapping[str, Tensor], run: int) -> Block:
    """One run of a stack as the plain module, its padding cut off."""
    block = Block(spec.d_model, spec.heads, spec.key_dim, FF, spec.two_values, spec.kv_heads)
    w = {name: part[run].detach().float().cpu() for name, part in weights.items()}
    matrices = {
        "queries.weight": w["queries"][:, :, : spec.key_dim].flatten(1).T,
        "keys.weight": w["keys"][:, : spec.key_dim].flatten(0, 1),
        "values.weight": w["values"].transpose(0, 1).flatten(1).T,
        "outputs.weight": w["outputs"].T,
        "up.weight": w["up"].T,
        "up.bias": w["up_bias"][0],
        "down.weight": w["down"].T,
        "down.bias": w["down_bias"][0],
    }
    if spec.two_values:
        matrices["own_values.weight"] = w["own_values"].T
    block.load_state_dict(matrices)
    return block
