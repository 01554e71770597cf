"""Shared keys exported to PyTorch's grouped-query attention, and run there."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from headcount import (
    Graph,
    InputError,
    KeyQuery,
    load_attention,
    load_grouped,
    save_embeddings,
    to_grouped,
    to_torch,
    verify,
    write_graph,
)

LENGTH = 6


def drawn(heads: int, kv_heads: int, aggregation: str, d_model: int = 8, key_dim: int = 5):
    draw = torch.Generator().manual_seed(heads + kv_heads)
    queries = torch.randn(heads, d_model, key_dim, generator=draw)
    keys = torch.randn(kv_heads, d_model, key_dim, generator=draw)
    return KeyQuery(queries, keys, 6.0, aggregation), torch.randn(20, d_model, generator=draw)


def decided(heads: int, kv_heads: int) -> tuple[KeyQuery, Graph, torch.Tensor]:
    """Max weights, the graph that they decide, and τ in the middle of the gap around it."""
    weights, table = drawn(heads, kv_heads, "max")
    scores = weights.aggregate(weights.scores(table.double(), table.double()))
    ordered = scores.flatten().sort().values
    places = slice(len(ordered) * 8 // 10, -1)
    widest = (ordered[1:] - ordered[:-1])[places].argmax() + places.start
    middle = float(ordered[widest] + ordered[widest + 1]) / 2
    weights = KeyQuery(weights.queries, weights.keys, middle)
    graph = Graph.from_edges(len(table), (scores > middle).nonzero().numpy())
    assert verify(weights, graph, table).exact
    return weights, graph, table


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (4, 2), (6, 3), (4, 4)])
def test_softmax_weights_give_the_same_attention(heads, kv_heads):
    weights, table = drawn(heads, kv_heads, "softmax")
    attention = to_grouped(weights)
    assert attention.keys.weight.shape == (kv_heads * 5, 8)
    contexts = table[torch.randint(20, (7, LENGTH), generator=torch.Generator().manual_seed(0))]
    found = attention.shares(contexts).detach()
    wanted = (weights.scores(contexts, contexts) / 5**0.5).softmax(-1)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    decisions = found.sum(1) > 0.7
    assert torch.equal(decisions, weights.aggregate(weights.scores(contexts, contexts)) > 0.7)


def test_it_is_what_stock_pytorch_computes():
    weights, table = drawn(4, 2, "softmax")
    attention, rows = to_grouped(weights), table[None, :LENGTH]
    values = torch.randn(1, LENGTH, 3, generator=torch.Generator().manual_seed(1))
    queries = (rows[:, None] @ weights.queries) * 5**-0.5
    keys = rows[:, None] @ weights.keys
    both = values[:, None].expand(-1, 2, -1, -1)
    wanted = scaled_dot_product_attention(queries, keys, both, scale=1.0, enable_gqa=True)
    torch.testing.assert_close(attention(rows, values).detach(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (4, 2), (6, 2), (4, 4)])
def test_max_weights_attend_to_targets_and_rest_elsewhere(heads, kv_heads):
    weights, graph, table = decided(heads, kv_heads)
    attention = to_grouped(weights, graph, table, context_length=LENGTH)
    draw = torch.Generator().manual_seed(2)
    contexts = torch.stack([torch.randperm(20, generator=draw)[:LENGTH] for _ in range(40)])
    shares = attention.shares(table[contexts]).detach()
    truth = weights.decide(table)[contexts[:, :, None], contexts[:, None, :]]
    held = shares.masked_fill(~truth[:, None], 0).sum(-1).amax(1)  # by targets, in the best head
    others = shares.masked_fill(truth[:, None], 0).sum(-1)
    assert bool((held[truth.any(-1)] > 0.5).all())
    assert bool((others < 1 / (4 * heads)).all())
    module = to_torch(weights, graph, table, context_length=LENGTH)  # repeats the keys
    assert attention.facts["temperature"] == module.facts["temperature"]
    assert module.facts["num_heads"] == heads


def test_files_and_the_command(tmp_path, command):
    weights, graph, table = decided(4, 2)
    weights.save(tmp_path / "w.safetensors")
    write_graph(graph, tmp_path / "g.csv")
    save_embeddings(table, tmp_path / "t.npy")
    run = ["export", "w.safetensors", "g.csv", "t.npy", "--context-length", str(LENGTH)]
    code, text, _ = command(*run, "--grouped", "--out", "gqa.safetensors", "--json")
    said = json.loads(text)
    assert (code, said["heads"], said["kv_heads"], said["head_dim"]) == (0, 4, 2, 6)
    again = load_grouped(tmp_path / "gqa.safetensors")
    made = to_grouped(weights, graph, table, context_length=LENGTH)
    assert again.facts == made.facts
    assert torch.equal(again.shares(table[None, :LENGTH]), made.shares(table[None, :LENGTH]))
    assert command(*run, "--out", "mha.safetensors")[0] == 0  # the keys repeated
    assert load_attention(tmp_path / "mha.safetensors").num_heads == 4
    for wrong in ("w.safetensors", "mha.safetensors"):
        with pytest.raises(InputError, match="does not hold a grouped attention"):
            load_grouped(tmp_path / wrong)
    with pytest.raises(InputError, match="does not hold an exported attention"):
        load_attention(tmp_path / "gqa.safetensors")


@pytest.mark.parametrize("aggregation", ["sum", "logsumexp"])
def test_other_aggregations_are_refused(aggregation):
    with pytest.raises(InputError, match=f"{aggregation} weights are not a grouped attention"):
        to_grouped(drawn(4, 2, aggregation)[0])


def test_max_needs_its_problem():
    with pytest.raises(InputError, match="max weights need their graph and table"):
        to_grouped(drawn(4, 2, "max")[0])
