"""`audit`: look into the key–query channels of a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
import pandas as pd
import torch

from headcount.auditing.channel import Channel
from headcount.auditing.compressibility import compiled_columns, kept_choices, kept_rank
from headcount.auditing.model import Model
from headcount.auditing.opening import open_model
from headcount.auditing.redundancy import choices, removal_of_choices
from headcount.auditing.relation_data import MOST_EDGES, relation_on
from headcount.auditing.relation_readings import RelationReadings
from headcount.auditing.result import ModelAudit
from headcount.auditing.spectra import (
    energy_rank,
    entropy_rank,
    overlap,
    random_values,
    singular_values,
)
from headcount.auditing.token_rows import compared_rows, sampled_ids
from headcount.errors import InputError
from headcount.problem.graph import Graph
from headcount.provenance import commit, machine, versions
from headcount.theory.architectures import audit_architecture

RELATIONS = ("antonyms", "hypernyms")  # that are looked for unless others are named


def audit(
    model: str | os.PathLike[str],
    *,
    layers: Sequence[int] | None = None,
    relations: Iterable[str | os.PathLike[str] | Graph] | None = None,
    offsets: Sequence[float] = (0,),
    most_edges: int | None = MOST_EDGES,
    permutations: int = 999,
    random_heads: int = 200,
    compile_seconds: float = 30.0,
    compress_seconds: float = 0.0,
    level: float = 0.05,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> ModelAudit:
    """Measure the key–query channels of a model: spectra, overlap, relations, redundancy.

    `model` is a folder or file of safetensors with its config.json, a GGUF file, `minilm`,
    `smollm2` or a hub name. `layers` are all unless given. `relations` are names of shipped ones,
    paths of CSV files of words, or graphs; antonyms and hypernyms unless given. Of a relation with
    more than `most_edges` edges a random part is used. `offsets` are distances between query and
    key at which rotary models are scored. Each relation is compiled for `compile_seconds`, and the
    choices of each head for `compress_seconds`; 0 leaves that out. A head knows a relation where
    its corrected p-value is at most `level` and its AUC is above what so many random heads would
    reach.

    The numbers are of content alone, without positions. Layers after the first are on the direct
    path: they read the token embeddings as if no layer before had added anything.
    """
    tell = progress or (lambda line: None)
    opened = open_model(model)
    chosen = _layers(opened, layers)
    _check(opened, offsets, permutations, random_heads, level)
    opened.require(chosen)
    wanted = list(RELATIONS if relations is None else relations)
    if relations is None and not opened.words:
        wanted = []
    readings = [
        RelationReadings(
            relation=relation_on(opened, source, most_edges, seed),
            model=opened,
            offsets=tuple(offsets),
            permutations=permutations,
            random_heads=random_heads,
            level=level,
            seed=seed,
        )
        for source in wanted
    ]
    ids = sampled_ids(opened, seed)
    tell("the token table")
    table = compared_rows(opened.inputs(ids), seed)
    findings = _Layers(opened, ids, compress_seconds, seed)
    for place, layer in enumerate(chosen, 1):
        tell(f"layer {layer} ({place} of {len(chosen)})")
        channel = opened.channel(layer)
        findings.add(layer, channel)
        for reading in readings:
            reading.add(layer, channel)
    for reading in readings:
        tell(f"random heads and compiled weights for the {reading.relation.name}")
        reading.finish(compile_seconds)
    empty = pd.DataFrame()
    return ModelAudit(
        model=opened.name,
        sizes=opened.sizes,
        layers=tuple(chosen),
        capacity=audit_architecture(opened.sizes, opened.vocabulary_size),
        random=findings.random(),
        heads=pd.DataFrame(findings.heads),
        spectra=pd.concat(findings.spectra, ignore_index=True),
        table=table,
        relations=pd.DataFrame([reading.summary() for reading in readings]),
        scores=pd.concat([reading.scores() for reading in readings] or [empty], ignore_index=True),
        removal=pd.concat(findings.removal, ignore_index=True),
        notes=tuple(_notes(opened, chosen, relations, wanted)),
        provenance=_provenance(),
    )


@dataclass
class _Layers:
    """What is measured of each layer by itself."""

    model: Model
    words: np.ndarray  # ids that heads choose among
    compress_seconds: float
    seed: int
    heads: list[dict[str, Any]] = field(default_factory=list)
    spectra: list[pd.DataFrame] = field(default_factory=list)
    removal: list[pd.DataFrame] = field(default_factory=list)
    rows: int = 0  # of the forms

    def add(self, layer: int, channel: Channel) -> None:
        forms = [channel.form(head) for head in range(channel.heads)]
        self.rows = len(forms[0][0])
        values = torch.stack([singular_values(*form) for form in forms])
        shared = overlap(channel)
        inputs = self.model.inputs(self.words, layer)
        sides = list(channel.sides(inputs))
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
                    **self._compressed(*sides[head], inputs),
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
        self, query: torch.Tensor, key: torch.Tensor, inputs: torch.Tensor
    ) -> dict[str, Any]:
        """What the head's choices among the words need."""
        kept, found = kept_choices(query, key), None
        if self.compress_seconds:
            table = torch.cat([inputs, torch.ones(len(inputs), 1)], dim=1)  # for the biases
            found = compiled_columns(query, key, table, self.compress_seconds, self.seed)
        return {
            "chosen_words": len((query @ key.T).argmax(1).unique()),
            "kept_rank": kept_rank(kept),
            "kept_rank_90": kept_rank(kept, 0.9),
            "compiled_columns": found,
        }

    def random(self) -> dict[str, float]:
        """The same numbers for random weights of the same shape; the overlap is a closed form."""
        values = random_values(self.rows, self.model.sizes.key_dim, seed=self.seed)
        ranks, energies = entropy_rank(values), energy_rank(values).double()
        return {
            "entropy_rank": float(ranks.mean()),
            "entropy_rank_sd": float(ranks.std()),
            "energy_rank": float(energies.mean()),
            "overlap": self.model.sizes.key_dim / self.rows,
        }


def _mean(values: torch.Tensor, where: torch.Tensor) -> float:
    return float(values[where].mean()) if where.any() else float("nan")


def _layers(model: Model, layers: Sequence[int] | None) -> list[int]:
    count = model.sizes.layers
    if layers is None:
        return list(range(count))
    for layer in layers:
        if not 0 <= layer < count:
            raise InputError(
                f"layer {layer} is not in the model, which has {count}; choose from 0…{count - 1}"
            )
    if not layers:
        raise InputError("no layer is named; choose at least one, or leave the layers out")
    return sorted(set(layers))


def _check(
    model: Model, offsets: Sequence[float], permutations: int, random_heads: int, level: float
) -> None:
    if any(offsets) and model.rotary is None:
        why = model.rotary_note or f"model {model.name} has no rotary embedding"
        raise InputError(f"{why}; leave the offsets out, for content scores")
    if not offsets or not all(isfinite(offset) for offset in offsets):
        raise InputError("offsets must be finite numbers; 0 gives content scores")
    if not 0 < level < 1:
        raise InputError(f"level {level} is not between 0 and 1; the usual one is 0.05")
    if permutations + 1 < 1 / level:
        raise InputError(
            f"{permutations} permutations cannot give a p-value of {level}; "
            f"choose at least {round(1 / level) - 1}"
        )
    if random_heads < 2:
        raise InputError(f"{random_heads} random heads have no spread; choose at least 2")


def _notes(
    model: Model, layers: Sequence[int], given: object, relations: Sequence[object]
) -> Iterable[str]:
    yield (
        "Scores are of content alone: what a token's embedding says, without its position"
        + (" (a rotary embedding changes nothing at offset 0)." if model.layout.rotary else ".")
    )
    if any(layers):
        yield (
            "Layers after the first are on the direct path: they read the token embeddings as if "
            "no layer before had added anything. What they do on real text may be different."
        )
    if model.layout.query_norm:
        yield (
            "This family normalises each head's queries and keys. Spectra are of the form before "
            "that; scores and relations have it."
        )
    if model.sizes.kv_heads < model.sizes.heads:
        yield (
            f"{model.sizes.heads // model.sizes.kv_heads} query heads share each key head; the "
            "overlap of keys is between heads with different keys."
        )
    if given is None and not relations:
        yield "The model has no vocabulary beside its weights, so no relation was looked for."


def _provenance() -> dict[str, Any]:
    return {
        "machine": machine(),
        "date": pd.Timestamp.now("UTC").date().isoformat(),
        "commit": commit(),
        "versions": versions(),
    }
