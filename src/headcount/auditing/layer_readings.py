"""What an audit measures of each layer by itself: spectra, overlap, choices, redundancy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch

from headcount.auditing.channel import Channel
from headcount.auditing.compressibility import (
    RANDOM_HEADS,
    TimeShare,
    compiled_columns,
    kept_choices,
    kept_rank,
)
from headcount.auditing.model import Model
from headcount.auditing.redundancy import choices, removal_of_choices
from headcount.auditing.relation_scores import random_sides
from headcount.auditing.spectra import (
    energy_rank,
    entropy_rank,
    overlap,
    random_values,
    singular_values,
)


@dataclass
class LayerReadings:
    """What is measured of each layer by itself, and of random heads on the same words."""

    model: Model
    words: np.ndarray  # ids that heads choose among
    compiled: TimeShare
    seed: int
    heads: list[dict[str, Any]] = field(default_factory=list)
    spectra: list[pd.DataFrame] = field(default_factory=list)
    removal: list[pd.DataFrame] = field(default_factory=list)
    _rows: int = 0  # of the forms
    _table: torch.Tensor | None = None  # what the first layer's heads read

    def add(self, layer: int, channel: Channel) -> None:
        forms = [channel.form(head) for head in range(channel.heads)]
        self._rows = len(forms[0][0])
        values = torch.stack([singular_values(*form) for form in forms])
        shared = overlap(channel)
        inputs = self.model.inputs(self.words, layer)
        sides = list(channel.sides(inputs))
        table = torch.cat([inputs, torch.ones(len(inputs), 1)], 1) if channel.biased else inputs
        self._table = table if self._table is None else self._table
        ranks, energies = entropy_rank(values), energy_rank(values)
        others = ~torch.eye(channel.heads, dtype=torch.bool)
        apart = torch.tensor([channel.key_head(head) for head in range(channel.heads)])
        apart = apart[:, None] != apart  # heads with keys of their own
        for head in range(channel.heads):
            close = shared.forms[head].masked_fill(~others[head], -torch.inf)
            self.heads.append(
                {
                    "layer": layer,
                    "head": head,
                    "key_head": channel.key_head(head),
                    "entropy_rank": float(ranks[head]),
                    "energy_rank": int(energies[head]),
                    "norm": float(values[head].square().sum().sqrt()) * channel.scale,
                    "query_overlap": _mean(shared.queries[head], others[head]),
                    "key_overlap": _mean(shared.keys[head], apart[head]),
                    "nearest_head": int(close.argmax()) if channel.heads > 1 else head,
                    "nearest_cosine": float(close.max()) if channel.heads > 1 else 1.0,
                    **self._compressed(*sides[head], table, (layer, head) in self.compiled.heads),
                }
            )
            shares = values[head].square() / values[head].square().sum()
            self.spectra.append(
                pd.DataFrame(
                    {
                        "layer": layer,
                        "head": head,
                        "index": np.arange(1, len(shares) + 1),
                        "singular_value": values[head].numpy() * channel.scale,
                        "energy": shares.numpy(),
                    }
                )
            )
        left = removal_of_choices(choices(sides))
        self.removal.append(
            pd.DataFrame({"layer": layer, "kept": np.arange(1, len(left) + 1), "left": left})
        )

    def _compressed(
        self, query: torch.Tensor, key: torch.Tensor, table: torch.Tensor, compiled: bool
    ) -> dict[str, Any]:
        """What the head's choices among the words need."""
        kept, found = kept_choices(query, key), None
        if compiled:
            found = compiled_columns(query, key, table, self.compiled.seconds, self.seed)
        return {
            "chosen_words": len((query @ key.T).argmax(1).unique()),
            "kept_rank": kept_rank(kept),
            "kept_rank_90": kept_rank(kept, 0.9),
            "compiled_columns": found,
        }

    def random(self) -> dict[str, float]:
        """The same numbers for random weights of the same shape; the overlap is a closed form."""
        assert self._table is not None
        width, table = self.model.sizes.key_dim, self._table
        values = random_values(self._rows, width, seed=self.seed)
        ranks, energies = entropy_rank(values), energy_rank(values).double()
        sides = random_sides(table, width, RANDOM_HEADS, self.seed)
        heads = [self._compressed(*both, table, bool(self.compiled.heads)) for both in sides]
        return {
            "entropy_rank": float(ranks.mean()),
            "entropy_rank_sd": float(ranks.std()),
            "energy_rank": float(energies.mean()),
            "overlap": width / self._rows,
            **pd.DataFrame(heads).astype(float).mean().to_dict(),
        }


def _mean(values: torch.Tensor, where: torch.Tensor) -> float:
    return float(values[where].mean()) if where.any() else float("nan")
