"""What a published model's key–query channel can hold (Section 2.1: head counts, GQA and MQA).

Sizes come from a Hugging Face `config.json`. One layer is judged, by the content of its tokens
alone: positions are not modelled (Section 3), so a rotary embedding changes nothing here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.errors import InputError
from headcount.files import existing_file
from headcount.theory.capacity import Holding, capacity
from headcount.theory.footprint import footprint
from headcount.theory.laws import HEADS, TrainedLaw

_CONFIGS = Path(__file__).with_name("configs")
EXAMPLES = ("gpt2", "gpt3-175b", "llama-3-8b")
_KEYS = {
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads"),
    "key_dim": ("head_dim", "d_kv", "kv_channels"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "groups": ("multi_query_group_num",),
}


@dataclass(frozen=True)
class Architecture:
    """The sizes of one layer's key–query channel.

    Queries have heads·key_dim columns, keys kv_heads·key_dim: the heads of a group share one key
    projection. The laws are judged at `key_budget`, since they were proved and fitted for heads
    with keys of their own; the bounds count the parameters of both.
    """

    name: str
    d_model: int
    heads: int
    kv_heads: int
    key_dim: int
    layers: int
    vocabulary: int | None

    @property
    def query_budget(self) -> int:
        """Columns of W_Q: h·d_k."""
        return self.heads * self.key_dim

    @property
    def key_budget(self) -> int:
        """Columns of W_K: h_kv·d_k, the D_K of the laws."""
        return self.kv_heads * self.key_dim


@dataclass(frozen=True)
class Audit:
    """What one layer holds by each law, and the split of its key budget that the laws choose."""

    architecture: Architecture
    items: int | None
    parameters: int
    holdings: tuple[Holding, ...]
    split_heads: int
    split_key_dim: int
    advice: str


def example(name: str) -> Architecture:
    """Read a shipped example.

    >>> example("llama-3-8b").key_budget
    1024
    """
    if name not in EXAMPLES:
        raise InputError(f"example = {name!r}: not known; choose one of {', '.join(EXAMPLES)}")
    return read_config(_CONFIGS / f"{name}.json")


def read_config(path: str | os.PathLike[str]) -> Architecture:
    """Read the key–query sizes of a model from its Hugging Face `config.json`.

    The names that GPT-2, Llama, Falcon, MPT, DBRX, ChatGLM, T5 and their relatives use are known;
    of a multi-modal model the `text_config` is read. Raises `InputError` where a size is missing or
    makes no sense. `audit_architecture` says what the model can hold.

    >>> import json, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "config.json"
    >>> sizes = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2}
    >>> _ = path.write_text(json.dumps(sizes))
    >>> model = read_config(path)
    >>> model.key_dim, model.query_budget, model.key_budget
    (8, 64, 16)
    """
    path = existing_file(path)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file; pass the model's config.json") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: line {error.lineno}, column {error.colno}: {error.msg}; "
            "pass a complete config.json"
        ) from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: not a JSON object; pass the model's config.json")
    inner = config.get("text_config")
    return _architecture(inner if isinstance(inner, dict) else config, path)


def _architecture(config: Mapping[str, Any], path: Path) -> Architecture:
    if config.get("kv_lora_rank") is not None:
        raise InputError(f"{path}: kv_lora_rank: latent keys are not modelled; pass sizes by hand")
    d_model = _size(config, "d_model", path)
    heads = _size(config, "heads", path)
    kv_heads = _kv_heads(config, heads, path)
    if heads % kv_heads:
        raise InputError(
            f"{path}: {kv_heads} key-value heads do not divide {heads} heads; correct the file"
        )
    key_dim = _size(config, "key_dim", path, default=0)
    if key_dim == 0:
        if d_model % heads:
            raise InputError(
                f"{path}: {heads} heads do not divide width {d_model}; add head_dim to the file"
            )
        key_dim = d_model // heads
    vocabulary = _size(config, "vocabulary", path, default=0) or None
    layers = _size(config, "layers", path, default=1)
    shipped = path.parent == _CONFIGS  # named by file: GPT-3's config has the type of GPT-2's
    name = path.stem if shipped else str(config.get("model_type") or path.stem)
    return Architecture(name, d_model, heads, kv_heads, key_dim, layers, vocabulary)


def _kv_heads(config: Mapping[str, Any], heads: int, path: Path) -> int:
    """The heads with keys of their own; all of them where the file names no others."""
    new_falcon = config.get("new_decoder_architecture")  # groups in place of one shared key head
    if config.get("multi_query") is True and not new_falcon:  # Falcon 7B, GPT-BigCode
        return 1
    if config.get("multi_query_attention") is True:  # ChatGLM
        return _size(config, "groups", path, default=1)
    inner = config.get("attn_config")  # DBRX, MPT
    if isinstance(inner, dict):
        alone = 1 if inner.get("attn_type") == "multiquery_attention" else heads
        return _size(inner, "kv_heads", path, default=alone)
    return _size(config, "kv_heads", path, default=heads)


def _size(config: Mapping[str, Any], what: str, path: Path, default: int | None = None) -> int:
    """Read one size under any of its names; null and absent mean the default."""
    for key in _KEYS[what]:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                f"{path}: {key} = {value!r}: not a positive whole number; correct the file"
            )
        return value
    if default is None:
        raise InputError(f"{path}: none of {', '.join(_KEYS[what])} is in it; add one to the file")
    return default


def audit_architecture(
    architecture: Architecture,
    items: int | None = None,
    *,
    bits_per_parameter: float = 8,
    law: TrainedLaw | None = None,
) -> Audit:
    """Say how many relations one layer holds by each law, and which split the laws choose.

    `items` is the vocabulary unless given; a model without one is judged on permutations. The split
    takes the heads that the trained laws give for the relations held, h = max(1.65·m'/d_model −
    6.64, m'/d_model).

    >>> audit = audit_architecture(example("gpt2"))
    >>> audit.split_heads, audit.split_key_dim
    (85, 9)
    """
    items = architecture.vocabulary if items is None else items
    holdings = capacity(
        architecture.d_model,
        architecture.heads,
        architecture.key_dim,
        architecture.kv_heads,
        items=items,
        variant="softmax",
        bits_per_parameter=bits_per_parameter,
        law=law,
    )
    trained = next(holding for holding in holdings if holding.sense == "about")
    heads, key_dim = _split(architecture, trained)
    cost = footprint(
        architecture.d_model, architecture.query_budget, key_budget=architecture.key_budget
    )
    advice = (
        f"A layer holds about {trained.edges:,} relations among {trained.items:,} items; "
        f"for so many, the laws split its {architecture.key_budget:,} key columns into {heads:,} "
        f"heads of width {key_dim}, not {architecture.kv_heads:,} of width {architecture.key_dim}."
    )
    return Audit(architecture, items, cost.parameters, tuple(holdings), heads, key_dim, advice)


def _split(architecture: Architecture, trained: Holding) -> tuple[int, int]:
    """Split the key budget by the head law; the width is rounded, and the heads fill the budget."""
    d_model, edges = architecture.d_model, max(trained.edges, 1)
    heads = max(HEADS(trained.items, edges, d_model), edges / d_model, 1.0)
    key_dim = max(1, round(architecture.key_budget / heads))
    return max(1, architecture.key_budget // key_dim), key_dim
