"""The audit's scores are those of `transformers`, for every family; skipped without it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount.auditing.opening import open_model

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]
SIZES = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 16,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 16}
FAMILIES = {
    "Bert": SIZES,
    "MPNet": SIZES,
    "GPT2": {"n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 50, "n_positions": 64},
    "Llama": GROUPED,
    "Qwen2": SIZES | {"num_key_value_heads": 2},
    "Qwen3": GROUPED,
    "Gemma": GROUPED,
    "Gemma2": GROUPED | {"query_pre_attn_scalar": 24, "attn_logit_softcapping": None},
    "Gemma3": GROUPED | {"query_pre_attn_scalar": 24},
}
TOKENS = 9


def made(family: str, folder, positions: bool):
    """A random model, all of its numbers drawn, saved to a folder."""
    transformers = pytest.importorskip("transformers")
    kind = "Gemma3Text" if family == "Gemma3" else family
    config = getattr(transformers, f"{kind}Config")(**FAMILIES[family])
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        for name, part in model.named_parameters():
            part.normal_(std=0.3)
            if "relative_attention_bias" in name or ("position" in name and not positions):
                part.zero_()
            if name == "wpe.weight" and not positions:
                part.zero_()
    model.save_pretrained(folder)
    return model


def attention_of(model, ids, **options):
    with torch.no_grad():
        out = model(ids[None], output_attentions=True, **options)
    return [part[0] for part in out.attentions]


def masked(scores, causal: bool):
    if causal:
        later = torch.ones(TOKENS, TOKENS).triu(1).bool()
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1)


@pytest.mark.parametrize("family", FAMILIES)
def test_content_scores_are_those_of_the_model(family, tmp_path):
    model = made(family, tmp_path, positions=False)
    ids = torch.randint(3, 50, (TOKENS,), generator=torch.Generator().manual_seed(1))
    rotary = family not in ("Bert", "MPNet", "GPT2")
    still = {"position_ids": torch.zeros(1, TOKENS, dtype=torch.long)} if rotary else {}
    expected = attention_of(model, ids, **still)[0]
    opened = open_model(tmp_path)
    sides = opened.channel(0).sides(opened.inputs(ids.numpy()))
    found = torch.stack([query @ key.T for query, key in sides])
    causal = family not in ("Bert", "MPNet")
    torch.testing.assert_close(masked(found, causal), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["Bert", "GPT2"])
def test_positions_may_be_added(family, tmp_path):
    model = made(family, tmp_path, positions=True)
    ids = torch.randint(3, 50, (TOKENS,), generator=torch.Generator().manual_seed(1))
    table = model.wpe if family == "GPT2" else model.embeddings.position_embeddings
    opened = open_model(tmp_path)
    inputs = opened.inputs(ids.numpy(), added=table.weight[:TOKENS].detach())
    found = torch.stack([query @ key.T for query, key in opened.channel(0).sides(inputs)])
    expected = attention_of(model, ids)[0]
    torch.testing.assert_close(masked(found, family == "GPT2"), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_scores_at_an_offset_turn_as_the_model_turns(family, tmp_path):
    model = made(family, tmp_path, positions=False)
    ids = torch.randint(3, 50, (TOKENS,), generator=torch.Generator().manual_seed(1))
    opened = open_model(tmp_path)
    inputs = opened.inputs(ids.numpy())
    scores = torch.full((4, TOKENS, TOKENS), -torch.inf)
    for offset in range(TOKENS):
        for head, (query, key) in enumerate(opened.channel(0).sides(inputs, offset)):
            for place in range(offset, TOKENS):
                scores[head, place, place - offset] = query[place] @ key[place - offset]
    torch.testing.assert_close(
        scores.softmax(-1), attention_of(model, ids)[0], atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("family", ["Bert", "Llama"])
def test_later_layers_are_on_the_direct_path(family, tmp_path):
    """With sublayers that add nothing, the direct path is the model."""
    model = made(family, tmp_path / "a", positions=False)
    silent = ("attention.output.dense", ".output.dense", "o_proj", "down_proj")
    with torch.no_grad():
        for name, part in model.named_parameters():
            if any(word in name for word in silent):
                part.zero_()
    model.save_pretrained(tmp_path / "b")
    ids = torch.randint(3, 50, (TOKENS,), generator=torch.Generator().manual_seed(1))
    still = {"position_ids": torch.zeros(1, TOKENS, dtype=torch.long)} if family == "Llama" else {}
    opened = open_model(tmp_path / "b")
    sides = opened.channel(1).sides(opened.inputs(ids.numpy(), layer=1))
    found = torch.stack([query @ key.T for query, key in sides])
    expected = attention_of(model, ids, **still)[1]
    torch.testing.assert_close(masked(found, family == "Llama"), expected, atol=1e-5, rtol=1e-4)


def test_minilm_attends_as_transformers_says():
    transformers = pytest.importorskip("transformers")
    opened = open_model("minilm")
    model = transformers.BertModel.from_pretrained(
        opened.tensors.path, attn_implementation="eager"
    ).eval()
    sentence = ("the", "hot", "sun", "burns", "cold", "ice")
    ids = torch.tensor([opened.words[word] for word in sentence])
    added = model.embeddings.position_embeddings.weight[: len(ids)].detach()
    inputs = opened.inputs(np.asarray(ids), added=added)
    found = torch.stack(
        [(query @ key.T).softmax(-1) for query, key in opened.channel(0).sides(inputs)]
    )
    torch.testing.assert_close(found, attention_of(model, ids)[0], atol=1e-5, rtol=1e-4)
