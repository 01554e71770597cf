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
from headcount.theory.capacity_law import degrees_of_freedom
from headcount.theory.footprint import footprint
from headcount.theory.laws import TrainedLaw
from headcount.theory.measured_range import BEST_WIDTHS, RANGES

_CONFIGS = Path(__file__).with_name("configs")
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
    with keys of their own; the bounds count the parameters of both, and the capacity law the
    degrees of freedom.
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

    @property
    def freedom(self) -> int:
        """The degrees of freedom of its heads' forms."""
        return degrees_of_freedom(self.d_model, self.heads, self.key_dim, self.kv_heads)


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
    in_range: bool
    holdings: tuple[Holding, ...]
    measured_widths: tuple[int, int]
    published_ablation: tuple[tuple[int, int, float], ...]
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


def by_hand(
    d_model: int | None, heads: int | None, key_dim: int | None, kv_heads: int | None = None
) -> Architecture:
    """A channel from its sizes alone; one that is missing is asked for.

    >>> by_hand(768, 12, 64).freedom == example("gpt2").freedom
    True
    """
    if d_model is None or heads is None or key_dim is None:
        raise InputError("a channel needs --d-model, --heads and --key-dim; give all three")
    degrees_of_freedom(d_model, heads, key_dim, kv_heads)  # checks the sizes
    return Architecture("channel", d_model, heads, kv_heads or heads, key_dim, 1, None)


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
    """Say how many relations one layer holds by each law.

    `items` is the vocabulary unless given.

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
    cost = footprint(
        architecture.d_model, architecture.query_budget, key_budget=architecture.key_budget
    )
    measured = RANGES["softmax"]
    in_range = (
        measured.items[0] <= items <= measured.items[1]
        and measured.d_model[0] <= architecture.d_model <= measured.d_model[1]
        and 0.5 <= trained.edges / items <= 1.5  # softmax was measured on permutations
    )
    return Audit(
        architecture,
        items,
        cost.parameters,
        architecture.freedom,
        in_range,
        tuple(holdings),
        BEST_WIDTHS,
        ABLATION,
        _advice(architecture, trained, in_range),
    )


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
