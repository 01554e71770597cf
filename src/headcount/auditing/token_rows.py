"""The token table as the first layer's attention reads it, beside a Gaussian table of its size."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from headcount.auditing.model import Model
from headcount.problem.embeddings import gaussian_embeddings
from headcount.shapes import Float, Int
from headcount.theory.incoherence import incoherence, largest_block

SAMPLE = 1_024  # rows that are measured


@dataclass(frozen=True)
class RowsReading:
    """Incoherence (Definition B.4) and anisotropy of a table.

    `margin_block` is the largest block at which `Incoherence.margin` is positive, so that a wide
    head is proved to separate it; `theorem_block` the largest that Theorem B.5 allows with the
    constants of `largest_block`. `participation` is (Σ s²)²/Σ s⁴ of the table's singular values.
    """

    table: str
    items: int
    d_model: int
    block: int
    leakage: float
    cross_leakage: float
    theorem_block: int
    margin_block: int
    mean_cosine: float
    participation: float


def sampled_ids(model: Model, seed: int = 0, most: int = SAMPLE) -> Int[np.ndarray, " items"]:
    """Ids of words of two letters or more, drawn at random; of any tokens without a vocabulary."""
    words = [place for word, place in model.words.items() if len(word) > 1 and word.isalpha()]
    known = np.array(sorted(words) or range(model.vocabulary_size))
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(known, size=min(most, len(known)), replace=False))


def rows_reading(rows: Float[Tensor, "items d_model"], name: str) -> RowsReading:
    """Measure a table, each row scaled to the same length, as a norm gives them."""
    rows = torch.nn.functional.normalize(rows.double())
    items, d_model = rows.shape
    found = incoherence(rows, scale=1.0, work=0)
    values = torch.linalg.svdvals(rows).square()
    pairs = max(items * (items - 1), 1)
    return RowsReading(
        table=name,
        items=items,
        d_model=d_model,
        block=found.block,
        leakage=found.leakage,
        cross_leakage=found.cross_leakage,
        theorem_block=largest_block(rows, scale=1.0),
        margin_block=_margin_block(rows),
        mean_cosine=float(rows.sum(0).square().sum() - items) / pairs,
        participation=float(values.sum() ** 2 / values.square().sum()),
    )


def compared_rows(rows: Float[Tensor, "items d_model"], seed: int = 0) -> pd.DataFrame:
    """The model's rows, the same without their mean, and a Gaussian table of their size."""
    items, d_model = rows.shape
    gaussian = gaussian_embeddings(items, d_model, seed)
    kinds = {"model": rows, "model, mean removed": rows - rows.mean(0), "Gaussian": gaussian}
    return pd.DataFrame([asdict(rows_reading(part, name)) for name, part in kinds.items()])


def _margin_block(rows: Tensor) -> int:
    """The largest B with a positive margin. All rows have length 1, so it is that with ρ < 1/16."""
    products = (rows @ rows.T).square().fill_diagonal_(0)
    largest = products.topk(min(len(rows), 64), dim=1).values.cumsum(1).amax(0)
    return int((largest < 1 / 16).sum())
