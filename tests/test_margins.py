"""Theorem 9.2 in the norm max ‖x_v U_k‖: Lipschitz, homogeneous, sound, and kept by the paper."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.attention.key_query import KeyQuery
from headcount.attention.verification import verify
from headcount.constructions.compressive_noise import measure_noise
from headcount.constructions.template import Signatures, fill, inverter, split_sources
from headcount.errors import InputError
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.graph import Graph
from headcount.problem.makers import permutation_graph
from headcount.theory.lower_bounds import lower_bounds, margin_bound
from headcount.theory.margins import (
    default_margin,
    factor_norm,
    margin_assumption,
    margin_bits,
    measured_margin,
)

quick = settings(deadline=None, max_examples=60)
seeds = st.integers(0, 2**32 - 1)
sizes = st.fixed_dictionaries(
    {"seed": seeds, "heads": st.integers(1, 4), "width": st.integers(1, 4)}
)


def _factors(rng: np.random.Generator, heads: int, width: int, d_model: int) -> list[torch.Tensor]:
    return [torch.from_numpy(rng.standard_normal((heads, d_model, width))) for _ in "UV"]


def _merged(factors: list[torch.Tensor]) -> list[torch.Tensor]:
    """One head of width D_K, which has the sum of the heads' scores."""
    return [torch.cat(list(factor), dim=1)[None] for factor in factors]


@quick
@given(size=sizes, step=st.floats(0, 2), length=st.integers(2, 6))
def test_scores_are_lipschitz_in_the_norm(size, step, length):
    """Lemma 9.3 with N for ‖·‖_F, rows of any length: max, log-sum-exp, sum, ln of softmax."""
    rng = np.random.default_rng(size["seed"])
    table = torch.from_numpy(rng.standard_normal((6, 3)) * rng.uniform(0.1, 5, (6, 1)))
    start = _factors(rng, size["heads"], size["width"], 3)
    end = [
        a + step * b
        for a, b in zip(start, _factors(rng, size["heads"], size["width"], 3), strict=True)
    ]

    def in_ball(factors):
        return [factor / max(1.0, factor_norm(table, factor)) for factor in factors]

    def moved(one, other):
        return sum(factor_norm(table, a - b) for a, b in zip(one, other, strict=True))

    def scores(factors):
        return torch.einsum("id,hdk,hek,je->hij", table, *factors, table)

    one, other = in_ball(start), in_ball(end)
    allowed = moved(one, other) + 1e-12
    for aggregate in (lambda s: s.amax(0), lambda s: s.logsumexp(0)):
        assert float((aggregate(scores(one)) - aggregate(scores(other))).abs().max()) <= allowed

    def log_weights(factors):
        logits = scores(factors)[:, :, :length] / math.sqrt(size["width"])
        return logits.log_softmax(-1).logsumexp(0)

    change = float((log_weights(one) - log_weights(other)).abs().max())
    assert change <= 2 * allowed / math.sqrt(size["width"])

    one, other = in_ball(_merged(start)), in_ball(_merged(end))
    change = float((scores(one).sum(0) - scores(other).sum(0)).abs().max())
    assert change <= moved(one, other) + 1e-12


@quick
@given(size=sizes, a=st.floats(-10, 10))
def test_the_norm_is_homogeneous_and_keeps_the_triangle_inequality(size, a):
    rng = np.random.default_rng(size["seed"])
    table = torch.from_numpy(rng.standard_normal((6, 3)))
    one, other = _factors(rng, size["heads"], size["width"], 3)
    norm = factor_norm(table, one)
    assert factor_norm(table, a * one) == pytest.approx(abs(a) * norm, rel=1e-12)
    assert factor_norm(table, one + other) <= norm + factor_norm(table, other) + 1e-12
    assert norm > 0
    plain = max(float((x @ head).norm()) for x in table for head in one)
    assert norm == pytest.approx(plain, rel=1e-12)


@quick
@given(
    size=sizes,
    a=st.floats(0.01, 100),
    b=st.floats(0.01, 100),
    c=st.floats(0.01, 100),
    aggregation=st.sampled_from(["max", "sum"]),
)
def test_the_margin_does_not_depend_on_any_scale(size, a, b, c, aggregation):
    """Decisions stay as they are under aU, bV, abτ and cX; so must the margin over N(U)·N(V)."""
    rng = np.random.default_rng(size["seed"])
    table = torch.from_numpy(rng.standard_normal((6, 3)))
    graph = Graph.from_arrays(6, np.arange(6), rng.permutation(6))
    queries, keys = _factors(rng, size["heads"], size["width"], 3)

    def margin(x, u, v, threshold):
        weights = KeyQuery(u, v, threshold, aggregation)
        return measured_margin(weights, x, verify(weights, graph, x))

    found = margin(table, queries, keys, 0.3)
    assert margin(c * table, a * queries, b * keys, a * b * c * c * 0.3) == pytest.approx(
        found, rel=1e-9, abs=1e-12
    )
    turned = torch.from_numpy(rng.standard_normal((3, 3)) + 4 * np.eye(3))  # another basis of R^d
    back = torch.linalg.inv(turned)
    assert margin(table @ turned, back @ queries, back @ keys, 0.3) == pytest.approx(
        found, rel=1e-6, abs=1e-9
    )
    assert -1 - 1e-12 <= found <= 1 + 1e-12


@pytest.mark.parametrize(("items", "d_model"), [(3, 3), (3, 5), (4, 4), (5, 5)])
def test_the_bound_allows_weights_that_recognise_every_permutation(items, d_model):
    """Keys on a circle have a positive margin for all m! graphs: the packing must hold them."""
    table = gaussian_embeddings(items, d_model, seed=1).double()
    angle = 2 * math.pi * np.arange(items) / items
    circle = torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    inverse = torch.linalg.pinv(table)
    margins = []
    for target in permutations(range(items)):
        weights = KeyQuery((inverse @ circle[list(target)])[None], (inverse @ circle)[None], 0.5)
        graph = Graph.from_arrays(items, np.arange(items), np.array(target))
        margins.append(measured_margin(weights, table, verify(weights, graph, table)))
    # Here N(U) = N(V) = 1, and the gap is 1 − cos 2π/m.
    assert min(margins) == pytest.approx((1 - math.cos(angle[1])) / 2, rel=1e-6)
    bits = math.log2(len(margins))
    assert margin_bits(d_model, 2, min(margins)) >= bits
    assert margin_bound(bits, d_model, min(margins)) <= 2


def test_construction_two_keeps_a_constant_margin_in_the_norm_alone():
    """Blocks of 64 edges at d_model = 256: as m grows ‖U‖_F·‖V‖_F does, N(U)·N(V) does not."""
    in_norm, in_frobenius = [], []
    for items in (256, 512, 1024):
        graph, table = permutation_graph(items, 1), gaussian_embeddings(items, 256, 1)
        weights = fill(
            table, split_sources(graph, items // 64), Signatures(seed=1), 192, inverter("transpose")
        )
        found = verify(weights, graph, table)
        in_norm.append(measured_margin(weights, table, found))
        assert found.lowest_edge is not None
        assert found.highest_non_edge is not None
        gap = found.lowest_edge.score - found.highest_non_edge.score
        norms = float(weights.queries.double().norm() * weights.keys.double().norm())
        in_frobenius.append(gap / 2 / norms)
        assert norms == pytest.approx(items * 192, rel=0.05)
    assert min(in_norm) > default_margin(1024, 256)
    assert max(in_norm) / min(in_norm) < 1.5
    assert in_frobenius[0] / in_frobenius[-1] > 3
    # Eq. (26) admits no constant margin for permutations: it is at most ‖X‖²/m.
    spectral = float(torch.linalg.matrix_norm(table.double(), 2))
    assert in_frobenius[-1] < spectral**2 / 1024 < 0.0625


def test_the_noise_of_construction_two_names_its_margin():
    """At the smallest width that 95 % of draws pass (docs/constants.md), it exceeds the default."""
    found = measure_noise(1024, 512, 1400)
    assert found.exact
    assert found.margin == pytest.approx(0.085, abs=0.015)
    assert found.margin > default_margin(1024, 512) == 1 / 16
    assert measure_noise(1, 4, 2).margin == math.inf  # one item has no non-edge


def test_default_margins_and_bounds_by_hand():
    assert default_margin(256, 32) == default_margin(4096, 512) == 1 / 16
    assert default_margin(256, 32, "sum") == pytest.approx(3 / 16 / 17)  # 1 + 2·256/32
    assert default_margin(256, 16, "softmax") == pytest.approx(math.log(3) / 2 / 16)
    for (items, d_model), budget in {(256, 32): 6, (512, 16): 25}.items():
        margin = lower_bounds(items, None, d_model)[1]
        bits = math.log2(math.factorial(items))
        assert margin.budget == budget == math.ceil(bits / (2 * d_model * math.log2(33)))
        assert "0.0625·N(U)·N(V)" in margin.assumptions


def test_a_softmax_margin_cannot_be_measured_from_pairs():
    weights = KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.5, "softmax")
    found = verify(
        weights, Graph.from_arrays(2, np.array([0]), np.array([1])), torch.eye(2), context_length=2
    )
    with pytest.raises(InputError, match="depend on the context"):
        measured_margin(weights, torch.eye(2), found)


def test_no_margin_is_given_where_none_is_proved(unchecked):
    for call in (
        lambda: default_margin(64, 16, "logsumexp"),  # pyright: ignore[reportArgumentType]
        lambda: margin_bits(16, 32, 0.1, "logsumexp"),  # pyright: ignore[reportArgumentType]
        lambda: margin_assumption(0.1, "logsumexp"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(InputError, match="no margin is defined under 'logsumexp'; use max"):
            call()
