"""Small blocks to train in tests."""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.block.ops import BlockOps
from headcount.block.spec import BlockSpec
from headcount.block.stack import BlockStack
from headcount.block.state import StackState
from headcount.problem.embeddings import gaussian_embeddings

# --- specs and results ----------------------------------------------------------------------------


def small(**changes) -> BlockSpec:
    sizes = {"items": 24, "d_model": 12, "heads": 2, "key_dim": 3, "length": 3, "batch": 16}
    pace = {"steps": 6, "check_every": 2, "validation": 40, "test": 40, "learning_rate": 3e-3}
    return BlockSpec(**(sizes | pace | changes))


def table_of(spec: BlockSpec) -> tuple[Tensor, Tensor]:
    rows = gaussian_embeddings(spec.items + 1, spec.d_model, seed=5) * 3
    return rows[:-1], rows[-1]


def made(specs: list[BlockSpec], ops: BlockOps | None = None) -> BlockStack:
    table, null = table_of(specs[0])
    return BlockStack(StackState.initial(specs), torch.cat([table, null[None]]), "cpu", ops)
