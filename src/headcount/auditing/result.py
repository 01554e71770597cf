"""What an audit finds, as frames, files and a page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.files import made_folder, replacing
from headcount.notebook import chart, html_table
from headcount.theory.architectures import Audit as Capacity
from headcount.theory.model_config import Architecture

_SUMMARY = (
    *("edges", "heads_that_know", "heads_beyond_similarity", "best_layer", "best_head"),
    *("best_auc", "best_auc_low", "best_auc_high", "cosine_auc", "cosine_auc_low"),
    *("cosine_auc_high", "compiled_budget", "compile_seconds"),
)
FRAMES = ("heads", "spectra", "table", "relations", "scores", "removal")


@dataclass(frozen=True, eq=False)
class ModelAudit:
    """The key–query channels of a model, as `audit` measured them.

    - `capacity`: what one layer holds by each law and bound.
    - `heads`: one row per head, with its ranks, overlaps and compressibility (`compiled_columns`
      is missing where the head was not compiled).
    - `random`: the same numbers for random weights of the same shape.
    - `spectra`: the singular values of each head.
    - `table`: incoherence and anisotropy of the token table, beside a Gaussian one.
    - `relations`: one row per relation: its size, what random heads and the plain cosine of the
      embeddings score, and the compiled budget (`compiled` says it in words, with the time).
    - `scores`: one row per relation and head: AUC with its 95 % interval, MRR, best F1, p-values.
    - `removal`: what is left of each layer's choices with 1, 2, … heads kept.
    - `notes`: what the numbers leave out.
    """

    model: str
    sizes: Architecture
    layers: tuple[int, ...]
    capacity: Capacity
    random: Mapping[str, float]
    heads: pd.DataFrame
    spectra: pd.DataFrame
    table: pd.DataFrame
    relations: pd.DataFrame
    scores: pd.DataFrame
    removal: pd.DataFrame
    notes: tuple[str, ...]
    provenance: Mapping[str, Any]

    @property
    def findings(self) -> pd.DataFrame:
        """The rows of `scores` whose head knows the relation, best first."""
        scores: Any = self.scores
        if scores.empty:
            return scores
        found = scores[scores["knows"]]
        return found.sort_values(["relation", "auc"], ascending=[True, False], ignore_index=True)

    def summary(self) -> dict[str, Any]:
        """The main numbers by name, as the command prints them."""
        heads: Any = self.heads
        sizes, rank = self.sizes, heads["entropy_rank"]
        return {
            "model": self.model,
            "layers": len(self.layers),
            "heads": sizes.heads,
            "kv_heads": sizes.kv_heads,
            "key_dim": sizes.key_dim,
            "d_model": sizes.d_model,
            "entropy_rank": [float(rank.min()), float(rank.mean()), float(rank.max())],
            "random_entropy_rank": self.random["entropy_rank"],
            "query_overlap": _plain(float(heads["query_overlap"].mean())),
            "key_overlap": _plain(float(heads["key_overlap"].mean())),
            "random_overlap": self.random["overlap"],
            "relations": {
                row["relation"]: {name: row[name] for name in _SUMMARY}
                for row in _records(self.relations)
            },
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values for JSON."""
        return {
            **self.summary(),
            "sizes": asdict(self.sizes),
            "capacity": {
                "in_range": self.capacity.in_range,
                "advice": self.capacity.advice,
                "holdings": [asdict(holding) for holding in self.capacity.holdings],
            },
            "random": {name: _plain(value) for name, value in self.random.items()},
            "frames": {name: _records(getattr(self, name)) for name in FRAMES},
            "notes": list(self.notes),
            "provenance": dict(self.provenance),
        }

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write `audit.html`, and every frame as CSV and Parquet; gives the path of the page."""
        folder = made_folder(folder)
        for name in FRAMES:
            frame: pd.DataFrame = getattr(self, name)
            with replacing(folder / f"{name}.csv") as temporary:
                frame.to_csv(temporary, index=False)
            with replacing(folder / f"{name}.parquet") as temporary:
                frame.to_parquet(temporary, index=False)
        return chart("audit_page", "write_audit_page", self, folder)

    def _repr_html_(self) -> str:
        frame: Any = self.heads
        heads = frame.groupby("layer")[["entropy_rank", "query_overlap", "key_overlap"]].mean()
        random = self.random["entropy_rank"], self.random["overlap"], self.random["overlap"]
        rows = [(layer, *values) for layer, *values in heads.itertuples()]
        columns = ("layer", "entropy rank", "query overlap", "key overlap")
        caption = f"{self.model}: {len(self.heads):,} heads of width {self.sizes.key_dim}"
        found = html_table(columns, [*rows, ("random", *random)], caption)
        best: Any = self.findings
        if best.empty:
            return found
        shown = ["relation", "layer", "head", "auc", "mrr", "f1", "p_corrected"]
        best = best.groupby("relation").head(3)[shown]
        return found + html_table(shown, best.to_numpy().tolist(), "heads that know a relation")


def _plain(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return None if isnan(value) else value


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries of plain values; a missing number is None."""
    plain: Any = frame.astype(object).where(frame.notna(), None)
    return [
        {name: value.item() if hasattr(value, "item") else value for name, value in row.items()}
        for row in plain.to_dict("records")
    ]
