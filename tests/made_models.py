"""Small models in the formats of real ones, with every number drawn or given by the test."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

WORDS = tuple(f"word{letter}{other}" for letter in "abcdefgh" for other in "abcdefghijklmnop")
D_MODEL, HEADS, LAYERS = 24, 4, 3
_PLAIN = {"hidden_size": D_MODEL, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS}
_GROUPED = _PLAIN | {"num_key_value_heads": 2}
_NORMED = _PLAIN | {"num_key_value_heads": 1, "head_dim": 8}
CONFIGS = {
    "bert": _PLAIN,
    "mpnet": _PLAIN,
    "gpt2": {"n_embd": D_MODEL, "n_head": HEADS, "n_layer": LAYERS},
    "llama": _GROUPED,
    "qwen2": _GROUPED,
    "qwen3": _NORMED,
    "gemma": _GROUPED,
    "gemma3_text": _NORMED,
}
FAMILIES = tuple(CONFIGS)
BIASED = ("bert", "mpnet", "gpt2", "qwen2")
POST_NORM = {  # where these families keep queries, keys and norms of a layer
    "bert": ("attention.self.query", "attention.self.key", "attention.output.LayerNorm"),
    "mpnet": ("attention.attn.q", "attention.attn.k", "attention.LayerNorm"),
}
HEAD_NORMED = ("qwen3", "gemma3_text")


def drawn(family: str, seed: int = 0) -> dict[str, Tensor]:
    """The tensors of a family that the key–query channel reads, all of them random."""
    stream = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=stream)

    d, out = D_MODEL, dict[str, Tensor]()
    if family in POST_NORM:
        out["embeddings.word_embeddings.weight"] = normal(len(WORDS), d)
        if family == "bert":
            out["embeddings.token_type_embeddings.weight"] = normal(2, d)
        norms = ["embeddings.LayerNorm"]
        query, key, norm = POST_NORM[family]
        for layer in range(LAYERS):
            base = f"encoder.layer.{layer}"
            norms += [f"{base}.{norm}", f"{base}.output.LayerNorm"]
            for kind in (query, key):
                out[f"{base}.{kind}.weight"], out[f"{base}.{kind}.bias"] = normal(d, d), normal(d)
        for name in norms:
            out[f"{name}.weight"], out[f"{name}.bias"] = normal(d), normal(d)
    elif family == "gpt2":
        out["transformer.wte.weight"] = normal(len(WORDS), d)
        for layer in range(LAYERS):
            base = f"transformer.h.{layer}"
            out[f"{base}.ln_1.weight"], out[f"{base}.ln_1.bias"] = normal(d), normal(d)
            out[f"{base}.attn.c_attn.weight"] = normal(d, 3 * d)
            out[f"{base}.attn.c_attn.bias"] = normal(3 * d)
    else:
        config = CONFIGS[family]
        width = config.get("head_dim", d // HEADS)
        heads = {"q": HEADS, "k": config["num_key_value_heads"]}
        out["model.embed_tokens.weight"] = normal(len(WORDS), d)
        for layer in range(LAYERS):
            base = f"model.layers.{layer}"
            out[f"{base}.input_layernorm.weight"] = normal(d)
            for kind in "qk":
                out[f"{base}.self_attn.{kind}_proj.weight"] = normal(heads[kind] * width, d)
                if family in BIASED:
                    out[f"{base}.self_attn.{kind}_proj.bias"] = normal(heads[kind] * width)
                if family in HEAD_NORMED:
                    out[f"{base}.self_attn.{kind}_norm.weight"] = normal(width)
    return out


def write_model(
    folder: Path, family: str, tensors: dict[str, Tensor], shards: int = 1, **changes: object
) -> Path:
    """Write tensors, configuration and vocabulary as Hugging Face does; gives the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": family, "vocab_size": len(WORDS), **CONFIGS[family], **changes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    parts = {name: part.contiguous() for name, part in tensors.items()}
    if shards == 1:
        save_file(parts, folder / "model.safetensors")
        return folder
    homes = {name: f"model-{place % shards}.safetensors" for place, name in enumerate(parts)}
    for file in set(homes.values()):
        save_file({name: parts[name] for name in parts if homes[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    return folder


def plain_scores(family: str, tensors: dict[str, Tensor], layer: int = 0) -> Tensor:
    """Content scores of every head at layer 0 or, in a pre-norm family, on the direct path.

    Written as the model computes them, with nothing folded: [heads, words, words].
    """
    d = D_MODEL
    if family in POST_NORM:
        rows = tensors["embeddings.word_embeddings.weight"]
        if family == "bert":
            rows = rows + tensors["embeddings.token_type_embeddings.weight"][0]
        rows = _layer_norm(rows, tensors, "embeddings.LayerNorm")
        query, key = (
            rows @ tensors[f"encoder.layer.{layer}.{kind}.weight"].T
            + tensors[f"encoder.layer.{layer}.{kind}.bias"]
            for kind in POST_NORM[family][:2]
        )
        return _products(query, key, d // HEADS)
    if family == "gpt2":
        base = f"transformer.h.{layer}"
        rows = _layer_norm(tensors["transformer.wte.weight"], tensors, f"{base}.ln_1")
        both = rows @ tensors[f"{base}.attn.c_attn.weight"] + tensors[f"{base}.attn.c_attn.bias"]
        return _products(both[:, :d], both[:, d : 2 * d], d // HEADS)
    base, gemma = f"model.layers.{layer}", family.startswith("gemma")
    rows = tensors["model.embed_tokens.weight"] * (d**0.5 if gemma else 1)
    rows = _rms_norm(rows, tensors[f"{base}.input_layernorm.weight"] + gemma)
    base = f"{base}.self_attn"
    query, key = (rows @ tensors[f"{base}.{kind}_proj.weight"].T for kind in "qk")
    if family in BIASED:
        query = query + tensors[f"{base}.q_proj.bias"]
        key = key + tensors[f"{base}.k_proj.bias"]
    width = len(query[0]) // HEADS
    if family in HEAD_NORMED:
        query, key = (
            _rms_norm(
                part.unflatten(1, (-1, width)), tensors[f"{base}.{kind}_norm.weight"] + gemma
            ).flatten(1)
            for part, kind in ((query, "q"), (key, "k"))
        )
    return _products(query, key, width)


def _products(query: Tensor, key: Tensor, width: int) -> Tensor:
    heads, groups = query.shape[1] // width, key.shape[1] // width
    keys = key.unflatten(1, (groups, width)).repeat_interleave(heads // groups, dim=1)
    queries = query.unflatten(1, (heads, width))
    return torch.einsum("ihk,jhk->hij", queries, keys) / width**0.5


def _layer_norm(rows: Tensor, tensors: dict[str, Tensor], name: str) -> Tensor:
    weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    return torch.nn.functional.layer_norm(rows, (D_MODEL,), weight, bias, eps=1e-6)


def _rms_norm(rows: Tensor, gain: Tensor) -> Tensor:
    return rows / (rows.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain
