"""Where each family of models keeps its key–query channel: names of tensors, as data.

A layout is all that the audit knows about a family. `{}` in a name is the number of the layer; a
projection or norm is named without its `.weight` and `.bias`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Layout:
    """Names of one family. `query` and `key` are equal where one tensor holds both, queries first.

    In a pre-norm family, `norm` comes before the attention of each layer. In a post-norm family it
    is empty: `first_norm` follows the embeddings, and `later_norms` each layer's sublayers.
    """

    embedding: str
    query: str
    key: str
    norm: str = ""
    first_norm: str = ""
    later_norms: tuple[str, ...] = ()
    centred: bool = False  # LayerNorm subtracts the mean, RMSNorm does not
    unit_gain: bool = False  # the norms multiply by 1 + weight
    biases: bool | None = None  # of queries and keys; None: where the file has them
    query_norm: str = ""  # norms of each head's queries and keys
    key_norm: str = ""
    segment: str = ""  # a table whose first row is added to every token's
    scaled: bool = False  # embeddings are multiplied by √d_model
    inputs_first: bool = False  # projections are stored as inputs × outputs (GPT-2's Conv1D)
    rotary: Literal["", "halves", "neighbours"] = ""  # which columns turn together
    prefixes: tuple[str, ...] = ("",)

    @property
    def fused(self) -> bool:
        """Whether one tensor holds queries, keys and values."""
        return self.query == self.key

    def norm_before(self, layer: int) -> str:
        """The norm whose output the attention of a layer reads."""
        if self.norm:
            return self.norm.format(layer)
        return self.later_norms[-1].format(layer - 1) if layer else self.first_norm

    def prefixed(self, prefix: str) -> Layout:
        """The layout with a prefix before every name."""
        names = ("embedding", "query", "key", "norm", "first_norm", "query_norm", "key_norm")
        given = {name: getattr(self, name) for name in (*names, "segment")}
        changed = {name: prefix + value for name, value in given.items() if value}
        later = tuple(prefix + name for name in self.later_norms)
        return replace(self, later_norms=later, **changed)


_BERT = Layout(
    embedding="embeddings.word_embeddings.weight",
    query="encoder.layer.{}.attention.self.query",
    key="encoder.layer.{}.attention.self.key",
    first_norm="embeddings.LayerNorm",
    later_norms=(
        "encoder.layer.{}.attention.output.LayerNorm",
        "encoder.layer.{}.output.LayerNorm",
    ),
    centred=True,
    biases=True,
    segment="embeddings.token_type_embeddings.weight",
    prefixes=("", "bert.", "roberta."),
)
_MPNET = replace(
    _BERT,
    query="encoder.layer.{}.attention.attn.q",
    key="encoder.layer.{}.attention.attn.k",
    later_norms=("encoder.layer.{}.attention.LayerNorm", "encoder.layer.{}.output.LayerNorm"),
    segment="",
    prefixes=("", "mpnet."),
)
_GPT2 = Layout(
    embedding="wte.weight",
    query="h.{}.attn.c_attn",
    key="h.{}.attn.c_attn",
    norm="h.{}.ln_1",
    centred=True,
    biases=True,
    inputs_first=True,
    prefixes=("", "transformer."),
)
_LLAMA = Layout(
    embedding="embed_tokens.weight",
    query="layers.{}.self_attn.q_proj",
    key="layers.{}.self_attn.k_proj",
    norm="layers.{}.input_layernorm",
    rotary="halves",
    prefixes=("model.", "", "language_model.model.", "model.language_model."),
)
_NORMED = {
    "query_norm": "layers.{}.self_attn.q_norm",
    "key_norm": "layers.{}.self_attn.k_norm",
}
_QWEN2 = replace(_LLAMA, biases=True)
_QWEN3 = replace(_LLAMA, **_NORMED)
_GEMMA = replace(_LLAMA, unit_gain=True, scaled=True)
_GEMMA3 = replace(_GEMMA, **_NORMED)

# By `model_type` of config.json.
HUGGING_FACE: Mapping[str, Layout] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), _BERT),
    "mpnet": _MPNET,
    "gpt2": _GPT2,
    **dict.fromkeys(("llama", "mistral", "mixtral"), _LLAMA),
    **dict.fromkeys(("qwen2", "qwen2_moe"), _QWEN2),
    **dict.fromkeys(("qwen3", "qwen3_moe"), _QWEN3),
    **dict.fromkeys(("gemma", "gemma2"), _GEMMA),
    **dict.fromkeys(("gemma3", "gemma3_text"), _GEMMA3),
}

_GGUF = Layout(
    embedding="token_embd.weight",
    query="blk.{}.attn_q",
    key="blk.{}.attn_k",
    norm="blk.{}.attn_norm",
    rotary="halves",
)
_GGUF_NORMED = {"query_norm": "blk.{}.attn_q_norm", "key_norm": "blk.{}.attn_k_norm"}
_GGUF_GEMMA = replace(_GGUF, scaled=True)  # the converter has added 1 to the gains

# By `general.architecture` of a GGUF file. Its converter permutes the rows of Llama's rotary heads.
GGUF: Mapping[str, Layout] = {
    "llama": replace(_GGUF, rotary="neighbours"),
    "qwen2": replace(_GGUF, biases=True),
    "qwen3": replace(_GGUF, **_GGUF_NORMED),
    "gemma": _GGUF_GEMMA,
    "gemma2": _GGUF_GEMMA,
    "gemma3": replace(_GGUF_GEMMA, **_GGUF_NORMED),
    "gpt2": replace(
        _GGUF,
        query="blk.{}.attn_qkv",
        key="blk.{}.attn_qkv",
        centred=True,
        biases=True,
        rotary="",
    ),
    "bert": replace(
        _GGUF,
        norm="",
        first_norm="token_embd_norm",
        later_norms=("blk.{}.attn_output_norm", "blk.{}.layer_output_norm"),
        centred=True,
        biases=True,
        segment="token_types.weight",
        rotary="",
    ),
}
