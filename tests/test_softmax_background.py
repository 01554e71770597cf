"""The background of Algorithm 2 (Eqs. (7)–(18)): against plain loops, and against the paper."""

from __future__ import annotations

import json
from itertools import product
from math import log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import gaussian_embeddings
from headcount.constructions.methods import softmax
from headcount.constructions.softmax_background import measure_background
from headcount.constructions.template import Signatures, split_sources
from headcount.problem.makers import permutation_graph
from headcount.problem.streams import generator


@settings(deadline=None, max_examples=25)
@given(
    st.integers(4, 24), st.integers(2, 8), st.integers(1, 4), st.integers(1, 9), st.integers(0, 99)
)
def test_the_softmax_background_against_loops(items, d_model, heads, key_dim, seed):
    """Eqs. (12)–(18) in plain loops over the contexts that the function draws."""
    length = max(2, items // 2)
    found = measure_background(items, d_model, key_dim, length, heads=heads, contexts=3, seed=seed)
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, d_model, seed)
    weights = softmax(graph, table, key_dim, heads, Signatures(seed=seed))
    parts = split_sources(graph, heads)
    rng = generator(seed, 0xB1C)
    background, edges, others, absent, shares = [], [], [], [], {True: [], False: []}
    for _ in range(3):
        members = rng.permutation(items)[:length]
        rows = table[torch.tensor(members)].double()
        mass = (weights.scores(rows, rows) / sqrt(key_dim)).softmax(-1).numpy()
        total = weights.aggregate(weights.scores(rows, rows)).numpy()
        for a, b in product(range(length), repeat=2):
            i, j, target = members[a], members[b], graph.targets[members[a]]
            foreign = [k for k, part in enumerate(parts) if i not in part.sources]
            assert len(foreign) == heads - 1
            background.append(sum(mass[k, a, b] for k in foreign))
            for k in foreign:
                shares[j in parts[k].targets].append(length * mass[k, a, b])
            where = edges if j == target else others if target in members else absent
            where.append(total[a, b])
    mean = (heads - 1) / length
    assert found.background_mean == pytest.approx(mean) == pytest.approx(np.mean(background))
    assert found.background_spread == pytest.approx(np.std(background), abs=1e-12)
    off = np.abs(np.array(background) - mean).max()
    unit = (sqrt(heads * log(items)) + log(items)) / length
    assert found.background_deviation == pytest.approx(off, abs=1e-12)
    assert found.least_c2 == pytest.approx(off / unit, abs=1e-12)
    for value, seen in ((found.share_on_own, shares[True]), (found.share_on_others, shares[False])):
        assert value == pytest.approx(np.mean(seen) if seen else np.nan, nan_ok=True)
    for value, seen, most in (
        (found.lowest_edge, edges, min),
        (found.highest_non_edge, others, max),
        (found.highest_without_target, absent, max),
    ):
        assert value == pytest.approx(most(seen) if seen else np.nan, nan_ok=True)


def test_the_background_does_not_shrink_with_the_context_as_equation_16_says():
    """A head that owns neither item can put nearly all its mass on one of them (deviation 18)."""
    short, long = (measure_background(512, 128, 512, length) for length in (32, 256))
    assert long.predicted_deviation == pytest.approx(short.predicted_deviation / 8)
    assert long.background_deviation > short.background_deviation / 2
    assert long.least_c2 > 3 * short.least_c2
    # Eq. (14): a head favours the targets it owns, whatever the source.
    assert long.share_on_own > 1.5 > 1 > long.share_on_others


def test_the_command_measures_softmax_contexts(command):
    options = "noise --items 64 --d-model 32 --key-dim 16 --context-length 16"
    found = json.loads(command(*options.split(), "--json")[1])["softmax"]
    assert found["background_mean"] == pytest.approx(1 / 16)
    assert {"least_c2", "lowest_edge", "highest_without_target"} <= set(found)
    assert "least C₂ of Eq. (16)" in command(*options.split())[1]
    code, _, message = command(*options.split()[:-1], "65")
    assert code == 2
    assert "context_length = 65" in message
