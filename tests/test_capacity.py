"""The planner backwards: what a channel and the channels of published models hold."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.theory import upper_bounds as upper
from headcount.theory.architectures import audit_architecture, same_freedom
from headcount.theory.capacity import capacity
from headcount.theory.capacity_law import (
    TRAINED_RATIOS,
    capacity_ratio,
    degrees_of_freedom,
    freedom_needed,
    latent_freedom,
)
from headcount.theory.model_config import EXAMPLES, by_hand, example, read_config
from headcount.theory.planner import plan

quick = settings(deadline=None, max_examples=50)


@quick
@given(d_model=st.integers(8, 2000), heads=st.integers(1, 64), key_dim=st.integers(4, 256))
def test_capacity_inverts_the_laws(d_model, heads, key_dim):
    budget = heads * key_dim
    *_, limit, trained, built = capacity(d_model, heads, key_dim)
    held = trained.edges
    low, usual, high = TRAINED_RATIOS["max"]
    assert capacity_ratio(held, held, d_model, heads, key_dim) >= usual
    assert capacity_ratio(held + 2, held + 2, d_model, heads, key_dim) < usual
    fewest, most = trained.interval
    assert fewest <= held <= most <= limit.edges
    assert capacity_ratio(fewest, fewest, d_model, heads, key_dim) >= high
    assert capacity_ratio(most, most, d_model, heads, key_dim) >= low
    if built.edges:
        usual = upper.best_upper_bound(built.items, built.edges, d_model)
        pinv = upper.pseudo_inverse(built.items, built.edges, d_model)
        bound = next(one for one in (usual, pinv) if one and one.name == built.law)
        assert bound.budget <= budget
        assert bound.sure == built.sure == (built.sense == "at least")
    bits = {holding.law: holding.edges for holding in capacity(d_model, heads, key_dim)}
    rows = {row.name: row for row in plan(bits["bit budget"], d_model=d_model).rows}
    assert rows["bit budget"].budget <= budget
    beyond = {row.name: row for row in plan(bits["bit budget"] + 1, d_model=d_model).rows}
    assert beyond["bit budget"].budget > budget


@quick
@given(
    items=st.integers(100, 10**6),
    heads=st.sampled_from([4, 8, 32]),
    variant=st.sampled_from(["max", "softmax"]),
)
def test_shared_keys_hold_no_more_than_own_keys(items, heads, variant):
    own = capacity(512, heads, 64, items=items, variant=variant)
    shared = capacity(512, heads, 64, heads // 4, items=items, variant=variant)
    fewer = capacity(512, heads // 4, 64, items=items, variant=variant)
    for most, middle, least in zip(own, shared, fewer, strict=True):
        assert least.edges <= middle.edges <= most.edges


def test_only_a_met_condition_promises_at_least():
    narrow = capacity(32, 64, 32, items=1024)[-1]  # every c₀ ln m is above 32
    assert (narrow.sense, narrow.sure) == ("about", False)
    assert "fails here" in narrow.reason
    # 10·8.3 < 1024: the pseudo-inverse, the least of the sure ones.
    wide = capacity(1024, 64, 32, items=4096)[-1]
    assert (wide.law, wide.sense, wide.sure) == ("pseudo-inverse", "at least", True)
    softmax = capacity(1024, 64, 32, items=4096, variant="softmax")[-1]
    assert softmax.sense == "about"  # C is provisional


def test_relations_held_leave_the_ratio():
    freedom = degrees_of_freedom(64, 4, 16)
    trained = capacity(64, 4, 16, items=1000)[2]
    usual = TRAINED_RATIOS["max"][1]
    assert freedom >= usual * freedom_needed(1000, trained.edges)
    assert freedom < usual * freedom_needed(1000, trained.edges + 1)


def test_a_small_vocabulary_caps_the_relations():
    found = {holding.law: holding.edges for holding in capacity(4096, 32, 256, items=10)}
    assert found.pop("capacity law") == 50  # it counts up to half of all pairs
    assert set(found.values()) == {90}


@pytest.mark.parametrize("sizes", [(0, 1, 1), (8, 0, 1), (8, 1, 0), (8, 6, 1, 4), (8, 6, 1, 0)])
def test_capacity_refuses(sizes):
    with pytest.raises(InputError):
        capacity(*sizes)


def test_examples_hold_their_facts():
    llama = example("llama-3-8b")
    assert (llama.d_model, llama.heads, llama.kv_heads, llama.key_dim) == (4096, 32, 8, 128)
    assert (llama.query_budget, llama.key_budget, llama.layers, llama.vocabulary) == (
        4096,
        1024,
        32,
        128256,
    )
    assert example("gpt2").key_dim == 64
    assert example("gpt3-175b").key_budget == 12288
    qwen, gemma = example("qwen2.5-7b"), example("gemma-2-9b")
    assert (qwen.d_model, qwen.heads, qwen.kv_heads, qwen.key_dim) == (3584, 28, 4, 128)
    assert (gemma.d_model, gemma.heads, gemma.kv_heads, gemma.key_dim) == (3584, 16, 8, 256)
    assert example("gemma-2b").cached_numbers == 256  # one key head


def test_latent_keys_are_read_as_one_shared_key():
    """DeepSeek-V2: 128 heads of rank 128 on a latent of 512 columns, queries from one of 1,536."""
    model = example("deepseek-v2")
    assert (model.d_model, model.heads, model.kv_heads, model.key_dim) == (5120, 128, 1, 128)
    assert (model.latent.rank, model.latent.query_rank, model.latent.position_dim) == (
        512,
        1536,
        64,
    )
    assert (model.key_budget, model.cached_numbers) == (512, 576)
    assert model.parameters == 1536 * (5120 + 16384) + 512 * (5120 + 16384) + 1
    assert model.freedom == (
        512 * (5120 - 512) + 1536 * (5120 - 1536) + 128 * 128 * (512 + 1536 - 128)
    )
    lite = example("deepseek-v2-lite")
    assert lite.latent.query_rank is None
    assert lite.freedom == 512 * (2048 - 512) + 16 * 128 * (512 + 2048 - 128)
    assert audit_architecture(lite).key_cache_bytes == 2 * 576
    # A latent as wide as all heads' keys is no limit, one as wide as a head is one shared key.
    assert latent_freedom(64, 4, 8, 99) == degrees_of_freedom(64, 4, 8)
    assert latent_freedom(64, 4, 8, 8) == degrees_of_freedom(64, 4, 8, 1)


@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 3), st.integers(1, 7), st.booleans())
@settings(deadline=None, max_examples=25)
def test_degrees_of_freedom_are_those_of_the_forms(d_model, heads, key_dim, rank, latent_queries):
    """The rank of the derivative of h forms x P Q_e U_eᵀ Aᵀ by all of its matrices."""
    query_rank = 4 if latent_queries else None
    inner = query_rank or d_model
    shapes = [(d_model, rank), (heads, rank, key_dim), (heads, inner, key_dim), (d_model, inner)]
    if query_rank is None:
        shapes.pop()
    sizes = [torch.Size(shape).numel() for shape in shapes]

    def forms(values):
        parts = values.split(sizes)
        latent, up, query, *first = (
            part.view(shape) for part, shape in zip(parts, shapes, strict=True)
        )
        start = first[0] if first else torch.eye(d_model, dtype=values.dtype)
        return torch.einsum("dp,hpk,hck,ec->hde", start, query, up, latent).flatten()

    generator = torch.Generator().manual_seed(d_model + 10 * heads)
    at = torch.randn(sum(sizes), dtype=torch.float64, generator=generator)
    slopes = torch.autograd.functional.jacobian(forms, at)
    free = int(torch.linalg.matrix_rank(slopes, rtol=1e-9))
    assert free == latent_freedom(d_model, heads, key_dim, rank, query_rank)


@pytest.mark.parametrize("name", EXAMPLES)
def test_other_numbers_of_keys_keep_the_degrees_of_freedom(name):
    model = example(name)
    for keys in same_freedom(model, bytes_per_number=1):
        sizes = model.d_model, model.heads
        assert degrees_of_freedom(*sizes, keys.key_dim, keys.kv_heads) >= model.freedom
        if keys.key_dim > 1:
            assert degrees_of_freedom(*sizes, keys.key_dim - 1, keys.kv_heads) < model.freedom
        assert keys.cache_bytes == keys.kv_heads * keys.key_dim
    own = {keys.kv_heads: keys.key_dim for keys in same_freedom(model)}
    if model.latent is None:
        assert own[model.kv_heads] == model.key_dim
    assert list(own.values()) == sorted(own.values(), reverse=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_audits_say_that_they_extrapolate(name):
    audit = audit_architecture(example(name))
    assert not audit.in_range
    assert audit.advice.startswith("Outside the measured range, by extrapolation")
    low, high = audit.holdings[1].interval
    assert low < audit.holdings[1].edges < high
    senses = [holding.sense for holding in audit.holdings]
    assert senses == ["at most", "about", "about"]  # Algorithm 2's constant is provisional
    assert [holding.sure for holding in audit.holdings] == [True, True, False]
    edges = [holding.edges for holding in audit.holdings]
    assert edges == sorted(edges, reverse=True)


def test_gpt2_by_hand():
    audit = audit_architecture(example("gpt2"))
    assert audit.parameters == 2 * 768 * 768 + 1
    assert audit.degrees_of_freedom == 12 * 64 * (2 * 768 - 64)
    ratio = audit.degrees_of_freedom / freedom_needed(50257, audit.holdings[1].edges)
    assert ratio == pytest.approx(TRAINED_RATIOS["softmax"][1], rel=1e-3)


def test_a_channel_by_hand_is_judged_like_its_config():
    by_sizes = audit_architecture(by_hand(768, 12, 64), items=50257)
    assert by_sizes.holdings == audit_architecture(example("gpt2")).holdings
    with pytest.raises(InputError, match="--items"):
        audit_architecture(by_hand(768, 12, 64))
    with pytest.raises(InputError, match="give all three"):
        by_hand(768, None, 64)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"hidden_size": 64, "num_attention_heads": 8}, (64, 8, 8, 8)),
        ({"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": None}, (64, 8, 8, 8)),
        ({"n_embd": 64, "n_head": 8, "multi_query": True}, (64, 8, 1, 8)),
        ({"d_model": 64, "num_heads": 8, "d_kv": 16}, (64, 8, 8, 16)),
        (
            {"hidden_size": 64, "n_head": 8, "n_head_kv": 2, "multi_query": True},
            (64, 8, 1, 8),
        ),  # Falcon 7B
        (
            {
                "hidden_size": 64,
                "n_head": 8,
                "n_head_kv": 2,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            (64, 8, 2, 8),  # Falcon 40B
        ),
        ({"hidden_size": 64, "num_attention_heads": 8, "num_kv_heads": 2}, (64, 8, 2, 8)),
        ({"d_model": 64, "n_heads": 8, "attn_config": {"kv_n_heads": 2}}, (64, 8, 2, 8)),  # DBRX
        (
            {"d_model": 64, "n_heads": 8, "attn_config": {"attn_type": "multiquery_attention"}},
            (64, 8, 1, 8),
        ),  # MPT
        (
            {"d_model": 64, "n_heads": 8, "attn_config": {"attn_type": "multihead_attention"}},
            (64, 8, 8, 8),
        ),
        (
            {
                "hidden_size": 64,
                "num_attention_heads": 8,
                "kv_channels": 16,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
            },
            (64, 8, 2, 16),  # ChatGLM 2
        ),
        (
            {
                "hidden_size": 64,
                "num_attention_heads": 8,
                "multi_query_attention": False,
                "multi_query_group_num": 2,
            },
            (64, 8, 8, 8),
        ),
        (
            {"text_config": {"hidden_size": 64, "num_attention_heads": 8, "head_dim": 32}},
            (64, 8, 8, 32),
        ),
    ],
)
def test_configs_are_read(tmp_path, config, expected):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    shape = read_config(path)
    assert (shape.d_model, shape.heads, shape.kv_heads, shape.key_dim) == expected
    assert shape.vocabulary is None
    assert audit_architecture(shape, items=1000).items == 1000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"hidden_size": 64', "line 1"),
        ("[1, 2]", "not a JSON object"),
        ("{}", "none of hidden_size"),
        ('{"hidden_size": 64}', "none of num_attention_heads"),
        ('{"hidden_size": "64", "n_head": 8}', "hidden_size = '64'"),
        ('{"hidden_size": true, "n_head": 8}', "hidden_size = True"),
        ('{"hidden_size": 64, "n_head": 7}', "add head_dim"),
        ('{"hidden_size": 64, "n_head": 8, "num_key_value_heads": 3}', "do not divide"),
        ('{"hidden_size": 64, "n_head": 8, "kv_lora_rank": 512}', "none of qk_nope_head_dim"),
        ('{"hidden_size": 64, "n_head": 8, "kv_lora_rank": -1}', "kv_lora_rank = -1"),
        (
            '{"hidden_size": 64, "n_head": 8, "kv_lora_rank": 8, "qk_nope_head_dim": "x"}',
            "qk_nope_head_dim = 'x'",
        ),
        (
            '{"hidden_size": 64, "n_head": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, '
            '"q_lora_rank": 1.5}',
            "q_lora_rank = 1.5",
        ),
    ],
)
def test_bad_configs_are_refused(tmp_path, text, words):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as refusal:
        read_config(path)
    assert "config.json" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_missing_and_binary_configs_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "absent.json")
    binary = tmp_path / "model.bin"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match="not a text file"):
        read_config(binary)
    with pytest.raises(InputError, match="choose one of gpt2"):
        example("gpt5")
