"""Real models, and GGUF files, whose reader comes with a package: `make test-models`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.auditing.opening import open_model
from headcount.auditing.spectra import entropy_rank, random_values, singular_values

from .made_models import D_MODEL, HEADS, LAYERS, WORDS, drawn, write_model

pytestmark = pytest.mark.models
FAST = {"permutations": 99, "random_heads": 20, "compile_seconds": 0, "compress_seconds": 0}
IDS = np.arange(len(WORDS))


def permuted(weight, heads):
    """As llama.cpp's converter stores rotary heads: halves become neighbours."""
    parts = weight.view(heads, 2, len(weight) // heads // 2, *weight.shape[1:])
    return parts.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(path, tensors, quantized=False, kind="llama"):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, kind)
    writer.add_embedding_length(D_MODEL)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_token_list([f"Ġ{word}" for word in WORDS])
    named = {"token_embd.weight": tensors["model.embed_tokens.weight"]}
    for layer in range(LAYERS):
        base, other = f"model.layers.{layer}", f"blk.{layer}"
        named[f"{other}.attn_norm.weight"] = tensors[f"{base}.input_layernorm.weight"]
        for letter, heads in (("q", HEADS), ("k", 2)):
            weight = tensors[f"{base}.self_attn.{letter}_proj.weight"]
            named[f"{other}.attn_{letter}.weight"] = permuted(weight, heads)
    for name, part in named.items():
        numbers = part.numpy()
        if quantized and part.ndim == 2:
            numbers = numbers.astype(np.float16)
        writer.add_tensor(name, np.ascontiguousarray(numbers))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def scores_of(model, layer, offset=0.0):
    sides = model.channel(layer).sides(model.inputs(IDS, layer), offset)
    return torch.stack([query @ key.T for query, key in sides])


@pytest.mark.parametrize("offset", [0, 1, 9])
@pytest.mark.parametrize("quantized", [False, True])
def test_a_gguf_scores_as_the_same_model_in_safetensors(tmp_path, offset, quantized):
    """Its permuted rotary rows change nothing, at offset 0 and at others."""
    tensors = drawn("llama")
    plain = open_model(write_model(tmp_path / "plain", "llama", tensors))
    packed = open_model(write_gguf(tmp_path / "m.gguf", tensors, quantized))
    assert packed.words == plain.words
    assert packed.sizes.kv_heads == 2
    near = {"atol": 0.1, "rtol": 0.05} if quantized else {"atol": 1e-3, "rtol": 1e-4}
    for layer in range(LAYERS):
        expected = scores_of(plain, layer, offset)
        torch.testing.assert_close(scores_of(packed, layer, offset), expected, **near)


def test_a_damaged_gguf_is_refused_in_a_sentence(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", drawn("llama"))
    whole = path.read_bytes()
    for size in (10, 500, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(hc.InputError, match="not a whole GGUF file"):
            open_model(path)
    with pytest.raises(hc.InputError, match="architecture 'mamba' is not known to the audit"):
        open_model(write_gguf(tmp_path / "other.gguf", drawn("llama"), kind="mamba"))


@pytest.mark.parametrize(
    ("name", "heads", "lowest", "highest", "mean", "random"),
    [("minilm", 72, 20.8, 31.5, 29.9, 31.3), ("smollm2", 270, 8.2, 61.2, 51.1, 62.2)],
)
def test_spectra_of_real_models(name, heads, lowest, highest, mean, random):
    model = open_model(name)
    ranks = [
        float(entropy_rank(singular_values(*channel.form(head))))
        for layer in range(model.sizes.layers)
        for channel in [model.channel(layer)]
        for head in range(channel.heads)
    ]
    assert len(ranks) == heads
    found = (min(ranks), max(ranks), float(np.mean(ranks)))
    assert found == pytest.approx((lowest, highest, mean), abs=0.06)
    drawn_values = random_values(model.sizes.d_model, model.sizes.key_dim, draws=5)
    assert float(entropy_rank(drawn_values).mean()) == pytest.approx(random, abs=0.1)


def test_minilm_is_audited(tmp_path):
    found = hc.audit("minilm", layers=[0, 1], relations=["antonyms"], **FAST)
    row = found.relations.iloc[0]
    assert (row["words"], row["edges"]) == (1148, 1330)
    assert (row["best_layer"], row["best_head"]) == (1, 1)
    assert row["best_auc"] == pytest.approx(0.901, abs=0.002)
    assert row["cosine_auc"] == pytest.approx(0.957, abs=0.002)
    assert row["heads_that_know"] >= 5
    assert found.save(tmp_path).exists()


def test_smollm2_is_audited_at_offsets():
    found = hc.audit("smollm2", layers=[0], relations=["antonyms"], offsets=[0, 1], **FAST)
    assert len(found.scores) == 18
    assert found.heads["key_head"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert found.random["entropy_rank"] == pytest.approx(62.2, abs=0.1)
