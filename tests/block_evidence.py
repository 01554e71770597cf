"""Made-up runs of the block as evidence, and the functions that judge them."""

from __future__ import annotations

from dataclasses import replace

from headcount.report.figures.fig7_claims import (
    block_advantage,
    block_collapse,
    block_partial,
    block_saturation,
    block_stability,
)
from headcount.reproduction.evidence import Evidence
from tests.made_block import BLOCK, Block, block_runs
from tests.made_evidence import NOTHING


def evidence(*parts: Block) -> Evidence:
    return replace(NOTHING, block=block_runs(parts))


def with_cells(block: Block, changed: dict[tuple[int, int], tuple[float, ...]]) -> Block:
    return replace(block, accuracies=block.accuracies | changed)


WHOLE = evidence(*BLOCK)


JUDGES = (block_advantage, block_saturation, block_partial, block_collapse, block_stability)
