"""What an audit measures: spectra, overlaps, kept choices, compiled columns, tables, redundancy."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headcount as hc
from headcount.auditing.channel import Channel
from headcount.auditing.compressibility import (
    RANDOM_HEADS,
    compiled_columns,
    kept_choices,
    shared_time,
)
from headcount.auditing.redundancy import (
    THRESHOLDS,
    greedy_removal,
    measured_removal,
    removal_of_choices,
    removal_of_weights,
)
from headcount.auditing.spectra import (
    energy_rank,
    entropy_rank,
    overlap,
    random_values,
    singular_values,
)
from headcount.auditing.token_rows import compared_rows, rows_reading


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(6, 12))
@settings(deadline=None, max_examples=40)
def test_singular_values_are_those_of_the_whole_form(seed, width, rows):
    query, key = torch.randn(2, rows, width, generator=torch.Generator().manual_seed(seed)).double()
    expected = torch.linalg.svdvals(query @ key.T)[:width]
    torch.testing.assert_close(singular_values(query, key), expected)
    shares = expected / expected.sum()
    rank = float(torch.exp(-(shares * shares.log()).sum()))
    assert float(entropy_rank(expected)) == pytest.approx(rank)
    kept = int(energy_rank(expected))
    energy = expected.square() / expected.square().sum()
    assert energy[:kept].sum() >= 0.9 - 1e-9
    assert kept == 1 or energy[: kept - 1].sum() < 0.9


def test_random_weights_have_the_known_ranks():
    """Of d_model 384 and d_k 32 the entropy rank is 31.3; more rows bring it closer to d_k."""
    values = random_values(384, 32, draws=20)
    assert float(entropy_rank(values).mean()) == pytest.approx(31.3, abs=0.1)
    assert float(entropy_rank(random_values(3840, 32, draws=5)).mean()) > 31.9
    assert torch.equal(values, random_values(384, 32, draws=20))


def plain_channel(queries, keys):
    return Channel(
        queries, keys, *(torch.zeros(len(part), part.shape[2]) for part in (queries, keys))
    )


@given(st.integers(0, 10**6), st.sampled_from([(4, 4), (4, 2), (3, 1)]))
@settings(deadline=None, max_examples=20)
def test_overlaps_are_those_of_projections(seed, counts):
    heads, groups = counts
    stream = torch.Generator().manual_seed(seed)
    queries = torch.randn(heads, 9, 3, generator=stream)
    keys = torch.randn(groups, 9, 3, generator=stream)
    shared = overlap(plain_channel(queries, keys))
    keys = keys.repeat_interleave(heads // groups, 0)
    forms = queries @ keys.transpose(1, 2)
    for a in range(heads):
        for b in range(heads):
            left, right = (part[b] @ torch.linalg.pinv(part[b]) for part in (queries, keys))
            whole = forms[a].square().sum()
            expected = (left @ forms[a]).square().sum() / whole
            assert float(shared.queries[a, b]) == pytest.approx(float(expected), abs=1e-3)
            expected = (forms[a] @ right).square().sum() / whole
            assert float(shared.keys[a, b]) == pytest.approx(float(expected), abs=1e-3)
            cosine = (forms[a] * forms[b]).sum() / (forms[a].norm() * forms[b].norm())
            assert float(shared.forms[a, b]) == pytest.approx(float(cosine), abs=1e-3)


def test_random_heads_overlap_by_the_share_of_their_width():
    stream = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 40, 60, 6, generator=stream)
    shared = overlap(plain_channel(queries, keys))
    others = ~torch.eye(40, dtype=torch.bool)
    assert float(shared.queries[others].mean()) == pytest.approx(6 / 60, abs=0.005)
    assert float(shared.forms[others].mean()) == pytest.approx(0, abs=0.01)


@given(st.integers(0, 10**6))
@settings(deadline=None, max_examples=20)
def test_kept_choices_are_those_of_cut_scores(seed):
    query, key = torch.randn(2, 15, 5, generator=torch.Generator().manual_seed(seed)).double()
    query = query * torch.tensor([8.0, 4.0, 1.0, 0.1, 0.01])
    scores = query @ key.T
    left, values, right = torch.linalg.svd(scores)
    for rank, share in enumerate(kept_choices(query, key).tolist(), 1):
        cut = (left[:, :rank] * values[:rank]) @ right[:rank]
        assert share == pytest.approx(float((cut.argmax(1) == scores.argmax(1)).double().mean()))


@pytest.mark.usefixtures("counted_time")
def test_compiled_columns_make_the_choices_of_a_head():
    stream = torch.Generator().manual_seed(0)
    rows = torch.cat([torch.randn(40, 11, generator=stream), torch.ones(40, 1)], dim=1)
    query, key = (rows @ torch.randn(12, 8, generator=stream) for _ in range(2))
    assert compiled_columns(torch.ones(40, 8), key, rows, seconds=30) <= 2  # one word for all
    assert 1 <= compiled_columns(query, key, rows, seconds=3) < 8
    assert compiled_columns(query, key, torch.ones(40, 12), seconds=5) == 8  # equal rows: its own


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0.01, 500))
@settings(deadline=None)
def test_heads_that_are_compiled_keep_to_the_time_in_all(layers, heads, seconds):
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    chosen, each = shared_time(places, seconds)
    assert chosen <= set(places)
    assert each * (len(chosen) + RANDOM_HEADS) == pytest.approx(seconds)
    assert len(chosen) == 1 or each >= 4
    touched = {layer for layer, _ in chosen}
    assert len(touched) >= min(layers, len(chosen)) - 1  # spread over the layers
    assert shared_time(places, 0) == (frozenset(), 0.0)


def test_a_table_is_compared_with_a_gaussian_one():
    leaning = hc.gaussian_embeddings(200, 32, seed=0) + 0.3
    frame = compared_rows(leaning)
    assert list(frame["table"]) == ["model", "model, mean removed", "Gaussian"]
    own, centred, gaussian = (frame.iloc[place] for place in range(3))
    assert own["mean_cosine"] > 0.5 > 0.1 > abs(centred["mean_cosine"])
    assert own["participation"] < centred["participation"]
    assert own["leakage"] > 2 * gaussian["leakage"]
    eye = rows_reading(torch.eye(16), "one-hot")
    assert (eye.theorem_block, eye.margin_block, eye.leakage) == (16, 16, 0)


def test_greedy_removal_finds_a_head_that_adds_nothing():
    graph, table = hc.permutation_graph(24, seed=0), hc.gaussian_embeddings(24, 8, seed=0)
    weights = hc.compile(graph, table, budget=8, heads=2).weights
    pairs = [(weights.queries[head], weights.keys[head]) for head in (0, 1, 1)]
    twice = hc.KeyQuery.from_heads(pairs, weights.threshold)
    left = removal_of_weights(twice, graph, table)
    assert left[1:] == [1.0, 1.0]
    assert left[0] < 1
    assert left[0] == max(
        hc.verify(hc.KeyQuery.from_heads([pair], weights.threshold), graph, table).f1
        for pair in pairs
    )


def test_removal_of_choices_counts_pairs():
    chosen = torch.tensor([[0, 1, 2], [0, 1, 2], [0, 2, 1]])
    assert removal_of_choices(chosen) == pytest.approx([3 / 5, 1.0, 1.0])
    assert greedy_removal(1, lambda kept: 0.25) == [0.25]


def test_the_shipped_study_has_every_ratio():
    frame = measured_removal()
    assert set(frame["kind"]) == set(THRESHOLDS)
    assert set(frame["ratio"]) == {1.0, 1.5, 2.0}
    whole = frame[frame["kept"] == frame["heads"]]
    assert (whole["left"] > 0.95).all()
    assert (frame.groupby(["kind", "ratio"])["left"].diff().dropna() >= -0.02).all()
