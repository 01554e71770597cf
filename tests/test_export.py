"""Exported weights in a stock `torch.nn.MultiheadAttention`: they attend to targets, or rest."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    Graph,
    InputError,
    KeyQuery,
    gaussian_embeddings,
    permutation_graph,
    verify,
)
from headcount.attention.export import padded, to_torch
from tests.exported_problems import (
    LENGTH,
    check_promises,
    drawn_contexts,
    embedded,
    one_summed_head,
    permutation,
    regular,
    several_targets_and_loops,
    shares,
    uneven,
)
from tests.strategies import problems

PROBLEMS = [permutation, embedded, regular, several_targets_and_loops, uneven, one_summed_head]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_heads_attend_to_targets_and_rest_without(problem):
    weights, graph, table = problem()
    assert verify(weights, graph, table).exact
    exported = to_torch(weights, graph, table, context_length=LENGTH)
    embed_dim, heads = exported.facts["embed_dim"], exported.facts["num_heads"]
    attention = torch.nn.MultiheadAttention(embed_dim, heads, add_bias_kv=True, batch_first=True)
    attention.load_state_dict(exported.tensors, strict=True)
    for length in (1, 5, LENGTH):
        contexts = drawn_contexts(graph.items, length)
        check_promises(attention, graph, table, contexts)
        check_promises(attention.eval(), graph, table, contexts)


@settings(max_examples=30, deadline=None)
@given(problems(scales=(0, -20, 20)), st.integers(1, 40))
def test_any_exact_weights_are_exported_rightly_or_refused(problem, length):
    """The graph is what the weights decide, so they are exact, some with scores at τ."""
    weights, _, table = problem
    decided = (
        torch.cat([scores for _, _, scores in weights.all_pairs(table.double())])
        > weights.threshold
    )
    graph = Graph.from_edges(len(table), decided.nonzero().numpy())
    try:
        exported = to_torch(weights, graph, table, context_length=length)
    except InputError as error:
        found = verify(weights, graph, table)
        largest = max(abs(found.threshold), float(weights.scores(table, table).abs().max()))
        assert not found.exact or found.margin <= 1e-4 * largest, error  # noqa: PT017
        return
    repeated = torch.randint(len(table), (50, length), generator=torch.Generator().manual_seed(0))
    check_promises(exported.module(), graph, table, repeated)


def test_the_bounds_are_near_what_happens():
    """One head, scores exactly at τ ± γ: the shares are those of the docstring's formulas."""
    graph = permutation_graph(16, seed=0)
    table = torch.eye(16)
    weights = KeyQuery(
        table[torch.from_numpy(graph.targets.copy())][None], table[None], threshold=0.5
    )
    exported = to_torch(weights, graph, table, context_length=16)
    assert exported.facts["margin"] == 0.5
    assert exported.facts["temperature"] == pytest.approx(0.5 / math.log(8 * 16), rel=1e-4)
    q = math.exp(-0.5 / exported.facts["temperature"])
    share = shares(exported.module(), table, torch.arange(16)[None])[0, 0]
    on_target = share.gather(1, torch.from_numpy(graph.targets.copy())[:, None])
    assert on_target.flatten().tolist() == pytest.approx([1 / (1 + q + 15 * q**2)] * 16, rel=1e-5)
    assert share[:, -1].tolist() == pytest.approx([q / (1 + q + 15 * q**2)] * 16, rel=1e-3)


@pytest.mark.parametrize("widths", [(4, 4, 4), (1, 3, 2)])
def test_softmax_weights_give_the_same_attention(widths):
    table = gaussian_embeddings(30, 16, seed=5)
    generator = torch.Generator().manual_seed(5)
    heads = [
        tuple(2 * torch.randn(16, width, generator=generator) for _ in range(2)) for width in widths
    ]
    weights = KeyQuery.from_heads(heads, 0.75, "softmax")
    exported = to_torch(weights)
    assert (exported.facts["add_bias_kv"], exported.facts["threshold"]) == (False, 0.75)
    assert exported.facts["embed_dim"] >= 16
    attention = exported.module()
    for length in (1, 7, 30):
        contexts = drawn_contexts(30, length, count=20)
        rows = table[contexts]
        wanted = weights.aggregate(weights.scores(rows, rows)).double()
        for module in (attention.train(), attention.eval()):
            assert torch.allclose(shares(module, table, contexts).sum(1), wanted, atol=1e-5)


def test_an_attention_is_trainable_and_draws_nothing():
    state = torch.get_rng_state()
    attention = to_torch(*embedded()).module()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(
        part.requires_grad and part.dtype == torch.float32 for part in attention.parameters()
    )
    assert not attention.in_proj_weight[2 * attention.embed_dim :].any()
    assert torch.equal(attention.out_proj.weight, torch.eye(attention.embed_dim))


def lifted(weights, offset):
    """The same weights with all scores and τ raised by offset²; float32 sees less of the margin."""
    column = torch.full((1, 24, 1), offset, dtype=torch.float64)
    queries, keys = (
        torch.cat([part.double(), column], 2) for part in (weights.queries, weights.keys)
    )
    return KeyQuery(queries, keys, weights.threshold + offset**2)


def test_weights_are_exported_as_far_as_float32_reaches():
    weights, graph, table = permutation()
    exported = []
    for offset in (1.1 * 2.0**power for power in range(20)):
        assert verify(lifted(weights, offset), graph, table).exact
        try:
            attention = to_torch(lifted(weights, offset), graph, table, context_length=LENGTH)
        except InputError as error:
            assert "float32 is too coarse" in str(error)  # noqa: PT017
            break
        check_promises(attention.module(), graph, table, drawn_contexts(graph.items, LENGTH))
        exported.append(attention.facts["temperature"])
    assert 5 < len(exported) < 19
    assert exported == sorted(exported, reverse=True)  # the larger the rounding, the sharper


def test_what_cannot_be_exported_is_refused():
    weights, graph, table = permutation()
    highest = verify(weights, graph, table).highest_non_edge
    assert highest is not None
    at_threshold = KeyQuery(weights.queries, weights.keys, highest.score)
    deaf = KeyQuery(weights.queries, weights.keys, 1e9)
    huge = KeyQuery(1e300 * weights.queries.double(), weights.keys.double(), 0.0, "softmax")
    for bad, sentence in [(at_threshold, "no margin"), (deaf, "wrongly"), (huge, "overflow")]:
        with pytest.raises(InputError, match=sentence):
            to_torch(bad, graph, table)
    with pytest.raises(InputError, match="need their graph"):
        to_torch(weights)
    with pytest.raises(InputError, match="is empty"):
        to_torch(weights, graph, table, context_length=0)
    with pytest.raises(InputError, match="do not fit"):
        padded(torch.zeros(2, 10_000), to_torch(weights, graph, table).module())
