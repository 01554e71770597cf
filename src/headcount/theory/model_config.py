"""The key–query sizes of published models, read from a Hugging Face `config.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.errors import InputError
from headcount.files import existing_file
from headcount.theory.capacity_law import degrees_of_freedom, latent_freedom
from headcount.theory.footprint import parameters

_CONFIGS = Path(__file__).with_name("configs")
EXAMPLES = (
    *("gpt2", "gpt3-175b", "llama-3-8b", "qwen2.5-7b", "gemma-2b", "gemma-2-9b"),
    *("deepseek-v2", "deepseek-v2-lite"),
)
_KEYS = {
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads"),
    "key_dim": ("head_dim", "d_kv", "kv_channels"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "groups": ("multi_query_group_num",),
    "key_rank": ("kv_lora_rank",),
    "query_rank": ("q_lora_rank",),
    "content_dim": ("qk_nope_head_dim",),
    "position_dim": ("qk_rope_head_dim",),
}


@dataclass(frozen=True)
class LatentKeys:
    """The latents of multi-head latent attention (MLA, DeepSeek-V2).

    A token's keys and values are made from one latent of `rank` columns, its queries from one of
    `query_rank` columns, or from the token itself (None). `position_dim` columns beside the latent
    carry a rotary key, which all heads share.
    """

    rank: int
    query_rank: int | None
    position_dim: int


@dataclass(frozen=True)
class Architecture:
    """The sizes of one layer's key–query channel.

    Queries have heads·key_dim columns, keys kv_heads·key_dim: the heads of a group share one key
    projection. With `latent` keys all heads share one key, the latent: a head's up-projection of
    it, of `key_dim` columns, can be absorbed into its query and limits the rank of its form.

    The paper's laws are judged at `key_budget`, since they were proved and fitted for heads with
    keys of their own; the bounds count the parameters of both, and the capacity law the degrees of
    freedom. Positions are not modelled, so that rotary columns beside a latent are not counted.
    """

    name: str
    d_model: int
    heads: int
    kv_heads: int
    key_dim: int
    layers: int
    vocabulary: int | None
    latent: LatentKeys | None = None

    @property
    def query_budget(self) -> int:
        """Columns of W_Q: h·d_k."""
        return self.heads * self.key_dim

    @property
    def key_budget(self) -> int:
        """Columns of W_K: h_kv·d_k, or those of the latent; the D_K of the laws."""
        if self.latent is not None:
            return min(self.latent.rank, self.query_budget)
        return self.kv_heads * self.key_dim

    @property
    def freedom(self) -> int:
        """The degrees of freedom of its heads' forms."""
        if self.latent is None:
            return degrees_of_freedom(self.d_model, self.heads, self.key_dim, self.kv_heads)
        ranks = self.latent.rank, self.latent.query_rank
        return latent_freedom(self.d_model, self.heads, self.key_dim, *ranks)

    @property
    def parameters(self) -> int:
        """The reals of its projections, and a threshold."""
        if self.latent is None:
            return parameters(self.d_model, self.query_budget, self.key_budget)
        queries = self.d_model * self.query_budget
        if self.latent.query_rank is not None:
            queries = self.latent.query_rank * (self.d_model + self.query_budget)
        return queries + self.latent.rank * (self.d_model + self.query_budget) + 1

    @property
    def cached_numbers(self) -> int:
        """The numbers that a layer caches for the keys of one token; MLA's serve values too."""
        if self.latent is None:
            return self.kv_heads * self.key_dim
        return self.latent.rank + self.latent.position_dim


def example(name: str) -> Architecture:
    """Read a shipped example.

    >>> example("llama-3-8b").key_budget, example("deepseek-v2").cached_numbers
    (1024, 576)
    """
    if name not in EXAMPLES:
        raise InputError(f"example = {name!r}: not known; choose one of {', '.join(EXAMPLES)}")
    return read_config(_CONFIGS / f"{name}.json")


def read_config(path: str | os.PathLike[str]) -> Architecture:
    """Read the key–query sizes of a model from its Hugging Face `config.json`.

    The names that GPT-2, Llama, Falcon, MPT, DBRX, ChatGLM, T5, DeepSeek-V2 and their relatives use
    are known; of a multi-modal model the `text_config` is read. Raises `InputError` where a size is
    missing or makes no sense. `audit_architecture` says what the model can hold.

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
    except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
        raise InputError(
            f"{path}: holds a number too long or lists nested too deep; pass a model's config.json"
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
    d_model = _size(config, "d_model", path)
    heads = _size(config, "heads", path)
    latent = _latent(config, path)
    if latent is None:
        kv_heads, key_dim = _kv_heads(config, heads, path), _key_dim(config, d_model, heads, path)
        if heads % kv_heads:
            raise InputError(
                f"{path}: {kv_heads} key-value heads do not divide {heads} heads; correct the file"
            )
    else:  # num_key_value_heads is then that of the keys that are made from the latent
        kv_heads, key_dim = 1, _size(config, "content_dim", path)
    vocabulary = _size(config, "vocabulary", path, default=0) or None
    layers = _size(config, "layers", path, default=1)
    shipped = path.parent == _CONFIGS  # named by file: GPT-3's config has the type of GPT-2's
    name = path.stem if shipped else str(config.get("model_type") or path.stem)
    return Architecture(name, d_model, heads, kv_heads, key_dim, layers, vocabulary, latent)


def _latent(config: Mapping[str, Any], path: Path) -> LatentKeys | None:
    """DeepSeek's latents, where the file has any."""
    rank = _size(config, "key_rank", path, default=0)
    if not rank:
        return None
    query_rank = _size(config, "query_rank", path, default=0) or None
    return LatentKeys(rank, query_rank, _size(config, "position_dim", path, default=0))


def _key_dim(config: Mapping[str, Any], d_model: int, heads: int, path: Path) -> int:
    key_dim = _size(config, "key_dim", path, default=0)
    if key_dim == 0 and d_model % heads:
        raise InputError(
            f"{path}: {heads} heads do not divide width {d_model}; add head_dim to the file"
        )
    return key_dim or d_model // heads


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
