"""Weights to export, each with its graph and table, and what their attention is held to."""

from __future__ import annotations

from functools import cache

import torch

from headcount import (
    Graph,
    KeyQuery,
    construct,
    gaussian_embeddings,
    permutation_graph,
    regular_graph,
)
from headcount.attention.export import padded

LENGTH = 12


@cache
def permutation():
    graph, table = permutation_graph(24, seed=1), torch.eye(24)
    return construct(graph, table, "one-hot"), graph, table


@cache
def embedded():
    graph, table = permutation_graph(24, seed=2), gaussian_embeddings(24, 16, seed=2)
    return construct(graph, table, "general-embedding", heads=6, inverse="pinv"), graph, table


@cache
def regular():
    graph, table = regular_graph(24, 3, seed=3), gaussian_embeddings(24, 16, seed=3)
    return construct(graph, table, heads=24, inverse="pinv"), graph, table


def several_targets_and_loops():
    """Sources of degree 0 to 7, some of them their own target, in a table wider than the heads."""
    pairs = [(i, j) for i in range(8) for j in range(i)] + [(i, i) for i in range(8, 16)]
    graph, table = Graph.from_edges(24, pairs), gaussian_embeddings(24, 20, seed=4)
    return construct(graph, table, heads=12, inverse="pinv"), graph, table


def uneven():
    """The regular problem with a head that is narrower, and one that knows nothing."""
    weights, graph, table = regular()
    heads = [(weights.queries[k], weights.keys[k]) for k in range(weights.heads)]
    return (
        KeyQuery.from_heads([*heads, (torch.zeros(16, 1), torch.zeros(16, 1))], weights.threshold),
        graph,
        table,
    )


def one_summed_head():
    """Permutation by scores that two heads add up."""
    weights, graph, table = permutation()
    half = weights.key_dim // 2
    heads = [
        (weights.queries[0, :, part], weights.keys[0, :, part])
        for part in (slice(half), slice(half, None))
    ]
    return KeyQuery.from_heads(heads, weights.threshold, "sum"), graph, table


def shares(attention, table, contexts):
    """Attention weights [context, head, source, item], the resting place last if there is one."""
    rows = padded(table[contexts], attention)
    with torch.no_grad():
        return attention(rows, rows, rows, need_weights=True, average_attn_weights=False)[
            1
        ].double()


def drawn_contexts(items, length, count=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, items, generator=generator).argsort(1)[:, :length]


def check_promises(attention, graph, table, contexts):
    """What the module's docstring promises of every source in every context."""
    share = shares(attention, table, contexts)
    heads, items = share.shape[1], share[..., :-1]
    truth = torch.zeros(graph.items, graph.items, dtype=torch.bool)
    truth[torch.from_numpy(graph.sources.copy()), torch.from_numpy(graph.targets.copy())] = True
    target = truth[contexts[:, :, None], contexts[:, None, :]]
    present = target.any(2)
    on_targets, elsewhere = (
        (items * chosen[:, None]).sum(3) for chosen in (target, ~target)
    )  # [context, head, source]
    assert torch.allclose(share.sum(3), torch.ones(()).double(), atol=1e-5)
    assert torch.equal(on_targets.sum(1) > 0.5, present)  # over heads
    assert torch.equal(on_targets.amax(1) > 0.5, present)  # in the owner alone
    assert bool((elsewhere < 1 / (4 * heads)).all())
    assert torch.equal(
        items.sum((1, 3)) > 0.5, present
    )  # whether a target is there, without knowing which
    winner = items.amax(1).argmax(2, keepdim=True)
    assert torch.equal(target.gather(2, winner).squeeze(2), present)
