"""Signal and noise of the scores, Lemma B.3, Eq. (1), and Section 5's chart."""

from __future__ import annotations

import json
from itertools import product
from math import log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import InputError, gaussian_embeddings
from headcount.constructions.template import Matching, Signatures, fill, inverter, split_sources
from headcount.problem.makers import permutation_graph
from headcount.report.chart_files import save_chart
from headcount.report.noise_chart import draw_noise, gaps_by_budget, n3_by_block
from headcount.theory import noise


@st.composite
def heads(draw, max_items=9):
    """(table, sources, targets, scale, seed): any rows, and a matching that may leave items out or be empty."""
    items, d_model = draw(st.integers(1, max_items)), draw(st.integers(1, 5))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    size = draw(st.integers(0, items))
    sources, targets = rng.permutation(items)[:size], rng.permutation(items)[:size]
    if draw(st.booleans()):
        targets = sources.copy()  # fixed points only
    table = torch.from_numpy(rng.standard_normal((items, d_model)))
    return table, sources, targets, draw(st.floats(0.3, 3)), seed


@settings(deadline=None)
@given(heads(), st.integers(1, 6), st.sampled_from(["rademacher", "bernoulli"]))
def test_the_parts_sum_to_the_score(head, key_dim, kind):
    table, sources, targets, scale, seed = head
    signatures = Signatures(kind, seed=seed)
    weights = fill(
        table,
        [Matching(sources, targets)],
        signatures,
        key_dim,
        inverter("transpose", scale),
        notes={},
    )
    drawn = signatures.draw(len(table), key_dim)
    parts = noise.decompose(table, sources, targets, drawn, scale)
    expected = weights.scores(table, table)[0]
    torch.testing.assert_close(parts.score, expected, rtol=1e-9, atol=1e-9)
    rows, columns = np.arange(len(table))[::2], np.arange(len(table))[::-1].copy()
    some = noise.decompose(table, sources, targets, drawn, scale, rows=rows, columns=columns)
    torch.testing.assert_close(some.score, expected[rows][:, columns], rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(heads(max_items=6), st.integers(1, 3))
def test_each_part_is_its_term_in_the_paper(head, key_dim):
    """The display in the proof of Theorem B.2, term by term in plain loops."""
    table, sources, targets, scale, seed = head
    w = Signatures(seed=seed).draw(len(table), key_dim).double()
    parts = noise.decompose(table, sources, targets, w, scale)
    delta = table @ table.T / scale - torch.eye(len(table), dtype=torch.float64)
    target = dict(zip(sources.tolist(), targets.tolist(), strict=True))
    nothing = torch.zeros(key_dim, dtype=torch.float64)
    for i, j in product(range(len(table)), repeat=2):
        own = w[target[i]] if i in target else nothing
        key = w[j] if j in target.values() else nothing
        leaked_query = sum((delta[i, s] * w[t] for s, t in target.items()), nothing)
        leaked_key = sum((delta[j, t] * w[t] for t in target.values()), nothing)
        found = torch.stack([parts.signal[i, j], parts.n1[i, j], parts.n2[i, j], parts.n3[i, j]])
        plain = torch.stack(
            [own @ key, own @ leaked_key, leaked_query @ key, leaked_query @ leaked_key]
        )
        torch.testing.assert_close(found, plain, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=30)
@given(heads(max_items=6), st.integers(1, 3))
def test_expected_is_the_mean_over_all_signatures(head, key_dim):
    """One column takes all 2^m signs; d_k independent columns have d_k times its mean. N₁ and N₂ are not centred."""
    table, sources, targets, scale, _ = head
    means = noise.expected(table, sources, targets, key_dim, scale)
    draws = [
        noise.decompose(table, sources, targets, torch.tensor(signs)[:, None], scale)
        for signs in product([-1.0, 1.0], repeat=len(table))
    ]
    for name in ("signal", "n1", "n2", "n3"):
        average = torch.stack([getattr(draw, name) for draw in draws]).mean(0)
        torch.testing.assert_close(getattr(means, name), key_dim * average, rtol=1e-9, atol=1e-9)


def test_parts_by_hand():
    """x = (1, 0), (0.6, 0.8), (0, 1); the head holds 0 → 1 and 2 → 0; w = (1, −1)ᵀ and so on, d_k = 2."""
    table = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
    w = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    parts = noise.decompose(table, np.array([0, 2]), np.array([1, 0]), w)
    # Pair (0, 1): δ_0 is (0, 0.6, 0), so nothing leaks into sources 0 and 2; δ_1 is (0.6, 0, 0.8), 0.6 at target 0.
    assert [
        float(part[0, 1]) for part in (parts.signal, parts.n1, parts.n2, parts.n3)
    ] == pytest.approx([2, 0, 0, 0])
    # Source 1 is not in V: query leak 0.6 w_1 + 0.8 w_0; key of target 0 is w_0, its leak 0.6 w_1.
    assert float(parts.signal[1, 0]) == float(parts.n1[1, 0]) == 0
    assert (float(parts.n2[1, 0]), float(parts.n3[1, 0])) == pytest.approx((1.6, 0.72))


@settings(deadline=None, max_examples=50)
@given(heads())
def test_concentration_against_loops(head):
    table, sources, targets, scale, _ = head
    found = noise.concentration(table, [(sources, targets), (targets[::-1].copy(), sources)], scale)
    delta = noise.leakage(table, scale=scale).numpy()
    mass, cross = 0.0, 0.0
    for origin, end in ((sources, targets), (targets[::-1], sources)):
        for i, j in product(range(len(table)), repeat=2):
            mass = max(mass, (delta[i, origin[origin != i]] ** 2).sum(), (delta[i, end] ** 2).sum())
            cross = max(cross, abs((delta[i, origin] * delta[j, end]).sum()))
    assert (found.leakage_mass, found.cross_correlation) == pytest.approx((mass, cross), abs=1e-12)
    assert found.diagonal == pytest.approx(np.abs(np.diag(delta)).max(), abs=1e-12)
    i, j, k = found.worst
    origin, end = ((sources, targets), (targets[::-1], sources))[k]
    assert abs((delta[i, origin] * delta[j, end]).sum()) == pytest.approx(cross, abs=1e-12)


def _blocks(pi: np.ndarray, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(block, pi[block]) for block in np.array_split(np.arange(len(pi)), count)]


def test_lemma_b3_holds_for_a_random_permutation_and_fails_for_fixed_points():
    """Item 3 takes the terms for mean-zero; where π(a) = a and i = j they are squares, and sum to about 1."""
    items, d_model = 512, 128
    table = gaussian_embeddings(items, d_model)
    random = noise.concentration(
        table, _blocks(np.random.default_rng(1).permutation(items), items // d_model)
    )
    assert random.diagonal < 1e-6
    assert random.leakage_mass < 2  # the paper's C₂
    assert random.c3 < 2.6
    assert random.c3 == pytest.approx(random.cross_correlation * sqrt(d_model / log(items)))
    fixed = noise.concentration(table, _blocks(np.arange(items), items // d_model))
    assert fixed.worst[0] == fixed.worst[1]
    assert fixed.cross_correlation == pytest.approx(fixed.leakage_mass)
    assert fixed.cross_correlation > 1


def test_theorem_4_1_fails_on_a_permutation_with_many_fixed_points():
    """All items fixed but 0 ↔ 1: head 2 holds fixed points only, and the non-edge (0, 0) stands near d_k in it."""
    items, d_model, key_dim = 512, 128, 512
    table = gaussian_embeddings(items, d_model)
    pi = np.arange(items)
    pi[:2] = 1, 0
    sources, targets = _blocks(pi, items // d_model)[2]
    mean = noise.expected(
        table, sources, targets, key_dim, rows=np.array([0]), columns=np.array([0])
    )
    actual = noise.decompose(
        table,
        sources,
        targets,
        Signatures().draw(items, key_dim),
        rows=np.array([0]),
        columns=np.array([0]),
    )
    assert float(mean.n3) / key_dim == pytest.approx(1, abs=0.3)
    assert float(actual.score) > key_dim / 2


def test_noise_summary_against_the_whole_matrices():
    table = gaussian_embeddings(12, 5).double()
    pi, w = np.random.default_rng(0).permutation(12), Signatures().draw(12, 4)
    found = noise.noise_summary(table, _blocks(pi, 2), w).set_index("part")
    edge = torch.zeros(12, 12, dtype=torch.bool)
    edge[np.arange(12), pi] = True
    gathered = {"signal": [], "n1": [], "n2": [], "n3": []}
    for sources, targets in _blocks(pi, 2):
        parts = noise.decompose(table, sources, targets, w)
        in_sources, in_targets = (
            torch.from_numpy(np.isin(np.arange(12), part)) for part in (sources, targets)
        )
        both = in_sources[:, None] & in_targets
        gathered["signal"].append(parts.signal[both & ~edge])
        gathered["n1"].append(parts.n1[in_sources].ravel())
        gathered["n2"].append(parts.n2[:, in_targets].ravel())
        gathered["n3"].append(parts.n3.ravel())
    for name, values in gathered.items():
        whole = torch.cat(values)
        assert found.loc[name, "max"] == pytest.approx(float(whole.abs().max()))
        assert found.loc[name, "rms"] == pytest.approx(float(whole.square().mean().sqrt()))
    assert found.loc["signal", "max_mean"] == 0


def test_n3_follows_equation_1_where_the_centred_part_is_the_larger():
    found = noise.measure_n3(512, 64, blocks=[64, 512], key_dims=[16, 64, 1024]).set_index(
        ["block", "key_dim", "part"]
    )
    for (block, key_dim), law in found["law"].xs("centred", level="part").items():
        centred = found.loc[(block, key_dim, "centred")]
        assert centred["rms"] == pytest.approx(block / 64 * sqrt(key_dim), rel=0.15)
        assert 1 < centred["max"] / law < 4
    # Eq. (1) leaves out the mean, the larger part once d_k > B: there wider heads no longer help.
    assert found.loc[(64, 1024, "mean"), "rms"] > 3 * found.loc[(64, 1024, "centred"), "rms"]
    assert found.loc[(64, 1024, "mean"), "rms"] / 1024 == pytest.approx(sqrt(64) / 64, rel=0.15)


def test_predictions_by_hand():
    assert noise.predicted_n3(1000, 50, 100, 9) == pytest.approx(2 * 3 * sqrt(6.907755))
    assert noise.predicted_n3_mean(1000, 50, 100, 9) == pytest.approx(9 / 50 * 10 * sqrt(6.907755))


def test_many_heads_beat_one_at_equal_budget(tmp_path):
    gaps = gaps_by_budget(256, 64, heads=(1, 8), budgets=(256, 1024))
    table = gaps.pivot(index="budget", columns="heads", values="gap")
    assert (table[8] > table[1]).all()
    chart = draw_noise(n3_by_block(64, (16, 32), (4, 16)), gaps)
    save_chart(chart, tmp_path / "noise.svg")
    assert "one head against many" in (tmp_path / "noise.svg").read_text()


@pytest.mark.parametrize(
    "make",
    [
        lambda: noise.leakage(torch.eye(2), scale=0.0),
        lambda: noise.decompose(torch.eye(3), np.array([0, 0]), np.array([1, 2]), torch.ones(3, 1)),
        lambda: noise.measure_n3(8, 4, blocks=[9], key_dims=[1]),
        lambda: noise.measure_n3(8, 4, blocks=[1], key_dims=[0]),
        lambda: gaps_by_budget(8, 4, heads=(1, 9), budgets=(16,)),
        lambda: n3_by_block(8, (4,), (4,)),
    ],
)
def test_impossible_sizes_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_the_command(command, tmp_path):
    words = ("noise", "--items", "32", "--d-model", "8", "--key-dim", "4")
    found = json.loads(command(*words, "--chart", "n.png", "--json")[1])
    assert (found["heads"], found["budget"], found["block"]) == (4, 16, 8)
    assert found["parts"]["n3"]["max"] >= found["parts"]["n3"]["rms"] > 0
    assert (tmp_path / "n.png").stat().st_size > 10_000
    assert "n3" in command(*words)[1]


def test_heads_are_rounded_up_where_d_model_does_not_divide_the_items(command):
    _, out, _ = command("noise", "--items", "33", "--d-model", "8", "--key-dim", "4", "--json")
    found = json.loads(out)
    assert (found["heads"], found["block"]) == (5, 7)  # no block above d_model


def test_gaps_are_those_of_all_pairs():
    gaps = gaps_by_budget(24, 8, heads=(3,), budgets=(12,), seed=1).set_index("budget")["gap"]
    graph, table = permutation_graph(24, 1), gaussian_embeddings(24, 8, 1)
    weights = fill(
        table, split_sources(graph, 3), Signatures(seed=1), 4, inverter("transpose"), notes={}
    )
    scores = weights.scores(table, table).amax(0).double()
    edge = torch.zeros(24, 24, dtype=torch.bool)
    edge[graph.sources.copy(), graph.targets.copy()] = True
    assert gaps[12.0] == pytest.approx(
        float(scores[edge].min() - scores[~edge].max()) / 4, abs=1e-5
    )
