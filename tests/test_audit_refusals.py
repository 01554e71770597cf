"""Models and options that an audit cannot read are refused in a sentence, before much is held."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import headcount as hc
from headcount.auditing import opening
from headcount.auditing.opening import open_model
from headcount.auditing.tensors import GGUFFile

from .made_models import D_MODEL, HEADS, LAYERS, WORDS, drawn, write_model

DEEP = "[" * 100_000
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("tokenizer.json", DEEP, r"tokenizer.json: not a vocabulary .*nested too deep"),
        ("model.safetensors.index.json", DEEP, "index.json: not an index of weights"),
        ("tokenizer.json", {"model": {"vocab": {"a": 10**9}}}, "token 'a' has id 1000000000"),
        ("tokenizer.json", {"model": {"vocab": {"a": -1}}}, "token 'a' has id -1"),
        ("tokenizer.json", {"model": {"vocab": {"a": "0"}}}, "token 'a' has id '0'"),
    ],
)
def test_files_beside_the_weights_are_bounded(tmp_path, name, text, message):
    folder = write_model(tmp_path, "llama", drawn("llama"))
    (folder / name).write_text(text if isinstance(text, str) else json.dumps(text))
    with pytest.raises(hc.InputError, match=message) as refused:
        open_model(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rms_norm_eps", None),
        ("rms_norm_eps", "1e-6"),
        ("rms_norm_eps", -1e-6),
        ("rope_theta", "10000"),
        ("rope_theta", -1),
        ("rope_theta", [1]),
        ("rope_theta", True),
        ("rope_parameters", {"rope_theta": 0}),
        ("partial_rotary_factor", 1.5),
        ("partial_rotary_factor", "half"),
        ("query_pre_attn_scalar", -4),
        ("query_pre_attn_scalar", 10**400),
    ],
)
def test_numbers_of_a_configuration_must_be_positive(tmp_path, field, value):
    folder = write_model(tmp_path, "llama", drawn("llama"), **{field: value})
    named, shown = ("rope_theta", 0) if isinstance(value, dict) else (field, value)
    with pytest.raises(hc.InputError) as refused:
        open_model(folder)
    assert f"config.json: {named} = {shown!r:.60}: not a positive number" in str(refused.value)


def test_a_null_stands_for_an_absent_number_and_odd_columns_do_not_turn(tmp_path):
    absent = dict.fromkeys(("rope_theta", "partial_rotary_factor", "query_pre_attn_scalar"))
    model = open_model(write_model(tmp_path / "a", "llama", drawn("llama"), **absent))
    assert model.rotary is not None
    assert (model.rotary.base, model.rotary.width) == (10_000.0, D_MODEL // HEADS)
    odd = open_model(
        write_model(tmp_path / "b", "llama", drawn("llama"), partial_rotary_factor=0.5)
    )
    assert odd.rotary is None
    assert odd.rotary_note == "the rotary embedding turns 3 of 6 columns, which are not pairs"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("llama.attention.layer_norm_rms_epsilon", -1.0, "epsilon = -1.0: not a positive number"),
        ("llama.rope.freq_base", "x", "llama.rope.freq_base = 'x': not a positive number"),
        ("tokenizer.ggml.tokens", "text", "tokenizer.ggml.tokens is not a list of texts"),
        ("tokenizer.ggml.tokens", [1, 2], "tokenizer.ggml.tokens is not a list of texts"),
    ],
)
def test_fields_of_a_gguf_must_make_sense(field, value, message):
    class Made(GGUFFile):
        """A file's fields without a file, since the package gguf may be absent."""

        def __init__(self):
            self.path, self.shapes = Path("m.gguf"), {"token_embd.weight": (len(WORDS), D_MODEL)}

        def field(self, name):
            sizes = {"embedding_length": D_MODEL, "attention.head_count": HEADS, "block_count": 1}
            fields = {f"llama.{key}": size for key, size in sizes.items()}
            return ({"general.architecture": "llama"} | fields | {field: value}).get(name)

        def _read(self, name, rows):
            raise AssertionError(name, rows)

    with pytest.raises(hc.InputError, match=message):
        opening._from_gguf(Made(), "m")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.float8_e4m3fn, "F8_E4M3"), (torch.int8, "I8"), (torch.bool, "BOOL")],
)
def test_quantized_weights_are_refused(tmp_path, dtype, name):
    tensors = drawn("llama")
    tensors[Q_PROJ] = tensors[Q_PROJ].to(dtype)
    model = open_model(write_model(tmp_path, "llama", tensors))
    sentence = f"{Q_PROJ} is of type {name}; quantized weights are not read, only F16.*unquantized"
    with pytest.raises(hc.InputError, match=sentence):
        model.require(range(LAYERS))
    with pytest.raises(hc.InputError, match=sentence):
        model.channel(1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--layers", "0-99999999999"), "--layers 99999999999: no model has that layer"),
        (("--layers", "0-9999"), "layer 3 is not in the model, which has 3"),
        (("--edges", "0"), "at most 0 edges of a relation are too few; choose at least 8"),
        (("--edges", "-3"), "at most -3 edges of a relation are too few"),
        (("--permutations", "9" * 30), "permutations are too many; choose at most 1,000,000"),
        (("--random-heads", "1000001"), "1000001 random heads are too many; choose at most"),
    ],
)
def test_options_that_would_fill_the_memory_are_refused(tmp_path, command, words, message):
    folder = write_model(tmp_path, "llama", drawn("llama"))
    code, _, err = command("audit", folder, "--relations", "none", *words)
    assert code == 2
    assert message in err


def test_permutations_that_do_not_fit_are_refused_before_any_work(tmp_path, monkeypatch):
    folder = write_model(tmp_path, "llama", drawn("llama"))
    monkeypatch.setattr("headcount.memory.free_memory", lambda: 2.0**28)
    with pytest.raises(hc.InputError, match="500,000 permutations and 5 random heads takes about"):
        hc.audit(folder, relations=[hc.permutation_graph(50)], permutations=500_000, random_heads=5)


def test_a_configuration_with_very_many_layers_is_refused(tmp_path):
    folder = write_model(tmp_path, "llama", drawn("llama"), num_hidden_layers=10**12)
    with pytest.raises(hc.InputError, match=r"no tensor 'model.layers.3.self_attn.q_proj.weight'"):
        hc.audit(folder, relations=[])
