"""`audit`: look into the key–query channels of a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any

import pandas as pd

from headcount.auditing.compressibility import shared_time
from headcount.auditing.layer_readings import LayerReadings
from headcount.auditing.model import Model
from headcount.auditing.opening import open_model
from headcount.auditing.relation_data import FEWEST_EDGES, MOST_EDGES, relation_on
from headcount.auditing.relation_readings import RelationReadings
from headcount.auditing.result import ModelAudit
from headcount.auditing.token_rows import compared_rows, sampled_ids
from headcount.errors import InputError
from headcount.memory import require_memory
from headcount.problem.graph import Graph
from headcount.provenance import commit, machine, versions
from headcount.theory.architectures import audit_architecture

MOST_DRAWS = 1_000_000  # permutations, or random heads
RELATIONS = ("antonyms", "hypernyms")  # that are looked for unless others are named


def audit(
    model: str | os.PathLike[str],
    *,
    layers: Sequence[int] | None = None,
    relations: Iterable[str | os.PathLike[str] | Graph] | None = None,
    offsets: Sequence[float] = (0,),
    most_edges: int | None = MOST_EDGES,
    level: float = 0.05,
    permutations: int = 999,
    random_heads: int = 200,
    compile_seconds: float = 30.0,
    compress_seconds: float = 60.0,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> ModelAudit:
    """Measure the key–query channels of a model: spectra, overlap, relations, redundancy.

    `model` is a folder or file of safetensors with its config.json, a GGUF file, `minilm`,
    `smollm2` or a hub name. `layers` are all unless given. `relations` are names of shipped ones,
    paths of CSV files of words, or graphs; antonyms and hypernyms unless given. Of a relation with
    more than `most_edges` edges a random part is used. `offsets` are distances between query and
    key at which rotary models are scored. A head knows a relation where its corrected p-value is at
    most `level` and its AUC is above what so many random heads would reach.

    The compiler has `compile_seconds` for each relation, and `compress_seconds` in all for heads'
    own choices: for as many heads, evenly spread, as have four seconds each. 0 leaves that out. A
    step that has begun is finished, so large relations may take a little longer.

    The numbers are of content alone, without positions. Layers after the first are on the direct
    path: they read the token embeddings as if no layer before had added anything.
    """
    tell = progress or (lambda line: None)
    opened = open_model(model)
    chosen = _layers(opened, layers)
    _check(opened, offsets, permutations, random_heads, level)
    _check_edges(most_edges)
    _check_times(compile_seconds, compress_seconds)
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
    heads = len(chosen) * opened.sizes.heads
    require_memory(
        sum(reading.memory(heads) for reading in readings),
        f"an audit with {permutations:,} permutations and {random_heads:,} random heads",
    )
    ids = sampled_ids(opened, seed)
    tell("the token table")
    table = compared_rows(opened.inputs(ids), seed)
    places = [(layer, head) for layer in chosen for head in range(opened.sizes.heads)]
    findings = LayerReadings(opened, ids, shared_time(places, compress_seconds), seed)
    for place, layer in enumerate(chosen, 1):
        tell(f"layer {layer} ({place} of {len(chosen)})")
        channel = opened.channel(layer)
        findings.add(layer, channel)
        for reading in readings:
            reading.add(layer, channel)
    for reading in readings:
        tell(f"random heads and compiled weights for the {reading.relation.name}")
        reading.finish(compile_seconds)
    tell("random heads")
    random = findings.random()
    empty = pd.DataFrame()
    return ModelAudit(
        model=opened.name,
        sizes=opened.sizes,
        layers=tuple(chosen),
        capacity=audit_architecture(opened.sizes, opened.vocabulary_size),
        random=random,
        heads=pd.DataFrame(findings.heads),
        spectra=pd.concat(findings.spectra, ignore_index=True),
        table=table,
        relations=pd.DataFrame([reading.summary() for reading in readings]),
        scores=pd.concat([reading.scores() for reading in readings] or [empty], ignore_index=True),
        removal=pd.concat(findings.removal, ignore_index=True),
        notes=tuple(_notes(opened, chosen, relations, wanted)),
        provenance=_provenance(),
    )


def _layers(model: Model, layers: Sequence[int] | None) -> Sequence[int]:
    count = model.sizes.layers
    if layers is None:
        return range(count)  # a configuration may name more layers than fit in memory
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
    for number, what in ((permutations, "permutations"), (random_heads, "random heads")):
        if number > MOST_DRAWS:
            raise InputError(f"{number} {what} are too many; choose at most {MOST_DRAWS:,}")


def _check_edges(most_edges: int | None) -> None:
    if most_edges is not None and most_edges < FEWEST_EDGES:
        raise InputError(
            f"at most {most_edges} edges of a relation are too few; choose at least {FEWEST_EDGES}"
        )


def _check_times(*seconds: float) -> None:
    for time in seconds:
        if not (isfinite(time) and time >= 0):
            raise InputError(f"{time:g} s cannot be kept to; choose 0, for none, or more")


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
    if any(layers) and not model.layout.norm and relations:
        yield (
            "This family normalises after each sublayer, so layers after the first read other rows "
            "than the first. The random heads, the plain cosines and the fit to cosines that the "
            "relations are compared with use the first layer's rows, at every layer."
        )
    if model.layout.query_norm:
        yield (
            "This family normalises each head's queries and keys. Spectra are of the form before "
            "that; scores and relations have it. Random heads do not."
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
