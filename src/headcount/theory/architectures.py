"""What a published model's key–query channel can hold (Section 2.1: head counts, GQA and MQA).

Sizes come from a Hugging Face `config.json`. One layer is judged, by the content of its tokens
alone: positions are not modelled (Section 3), so a rotary embedding changes nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from headcount.errors import InputError
from headcount.theory.capacity import Counted, Holding, holdings
from headcount.theory.footprint import CACHE_BYTES, check_cache_bytes
from headcount.theory.laws import TrainedLaw
from headcount.theory.measured_range import BEST_WIDTHS, RANGES
from headcount.theory.model_config import Architecture
from headcount.theory.shared_keys import width_with_freedom

# Vaswani et al. 2017, Table 3, rows (A) and (B): heads, d_k and BLEU of a translation model with
# d_model 512. Whole models on another task: shown beside our laws, not predicted by them.
ABLATION = (
    (1, 512, 24.9),
    (4, 128, 25.5),
    (8, 64, 25.8),
    (16, 32, 25.8),
    (32, 16, 25.4),
    (8, 32, 25.4),
    (8, 16, 25.1),
)


@dataclass(frozen=True)
class SharedKeys:
    """Keys of another number and width under which a layer keeps its degrees of freedom."""

    kv_heads: int
    key_dim: int
    cache_bytes: float  # per token and layer


@dataclass(frozen=True)
class Audit:
    """What one layer holds by each law.

    `in_range` says whether its sizes are within those at which training was measured; the laws are
    extrapolated where they are not. No other split is advised: our runs have no language model
    among them.
    """

    architecture: Architecture
    items: int
    parameters: int
    degrees_of_freedom: int
    key_cache_bytes: float  # per token and layer
    in_range: bool
    holdings: tuple[Holding, ...]
    shared_keys: tuple[SharedKeys, ...]  # with the same degrees of freedom
    measured_widths: tuple[int, int]
    published_ablation: tuple[tuple[int, int, float], ...]
    advice: str


def audit_architecture(
    architecture: Architecture,
    items: int | None = None,
    *,
    bits_per_parameter: float = 8,
    bytes_per_number: float = CACHE_BYTES,
    law: TrainedLaw | None = None,
) -> Audit:
    """Say how many relations one layer holds by each law, and what its key cache takes.

    `items` is the vocabulary unless given. `bytes_per_number` is the size of a cached number.

    >>> from headcount.theory.model_config import example
    >>> audit = audit_architecture(example("gpt2"))
    >>> audit.degrees_of_freedom, audit.in_range
    (1130496, False)
    """
    items = architecture.vocabulary if items is None else items
    if items is None:
        raise InputError(
            "the model's vocab_size is not known; say among how many items relations are to be "
            "counted (--items)"
        )
    check_cache_bytes(bytes_per_number)
    counted = Counted(
        architecture.d_model,
        architecture.heads,
        architecture.parameters,
        architecture.freedom,
        architecture.key_budget,
    )
    held = holdings(
        counted, items=items, variant="softmax", bits_per_parameter=bits_per_parameter, law=law
    )
    trained = next(holding for holding in held if holding.sense == "about")
    measured = RANGES["softmax"]
    in_range = (
        measured.items[0] <= items <= measured.items[1]
        and measured.d_model[0] <= architecture.d_model <= measured.d_model[1]
        and 0.5 <= trained.edges / items <= 1.5  # softmax was measured on permutations
    )
    return Audit(
        architecture,
        items,
        architecture.parameters,
        architecture.freedom,
        architecture.cached_numbers * bytes_per_number,
        in_range,
        tuple(held),
        same_freedom(architecture, bytes_per_number),
        BEST_WIDTHS,
        ABLATION,
        _advice(architecture, trained, in_range),
    )


def same_freedom(
    architecture: Architecture, bytes_per_number: float = CACHE_BYTES
) -> tuple[SharedKeys, ...]:
    """Narrowest keys for each number of keys that leave the degrees of freedom what they are.

    By the capacity law alone, which counts D_Q + D_KV: fewer and wider keys, queries as wide.

    >>> from headcount.theory.model_config import example
    >>> same_freedom(example("llama-3-8b"))[0]
    SharedKeys(kv_heads=1, key_dim=155, cache_bytes=310.0)
    """
    heads, d_model = architecture.heads, architecture.d_model
    found = []
    for count in (count for count in range(1, heads + 1) if heads % count == 0):
        width = width_with_freedom(architecture.freedom, d_model, heads, count)
        if width is not None:
            least = ceil(width - 1e-9)
            found.append(SharedKeys(count, least, count * least * bytes_per_number))
    return tuple(found)


def _advice(architecture: Architecture, trained: Holding, in_range: bool) -> str:
    start = "" if in_range else "Outside the measured range, by extrapolation: "
    text = (
        f"{start}{'a' if start else 'A'} layer holds about {trained.edges:,} relations among "
        f"{trained.items:,} items"
    )
    if trained.interval is not None:
        low, high = trained.interval
        half = " (half of all pairs, where the law ends)" if high == trained.items**2 // 2 else ""
        text += f" ({low:,} to {high:,}{half})"
    low, high = BEST_WIDTHS
    widest = RANGES["max"].d_model[1]
    text += f". The best splits of our runs have heads {low} to {high} wide, at d_model to {widest}"
    if architecture.d_model > widest:
        text += (
            f"; they say nothing for or against width {architecture.key_dim} at d_model "
            f"{architecture.d_model:,}"
        )
    text += "."
    return text
