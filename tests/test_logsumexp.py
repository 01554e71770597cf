"""Heads joined by t·log Σ exp(s/t): weights, files, verification, training."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    InputError,
    KeyQuery,
    RunSpec,
    load_weights,
    permutation_graph,
    random_graph,
    train,
    verify,
)
from headcount.attention.exact import PairDecider
from headcount.attention.export import to_torch
from headcount.attention.logsumexp import joined_above
from headcount.sweeps.file import read_sweep
from headcount.training.engines.torch import TorchEngine
from headcount.training.objective import aggregated, pair_weights, score_gradient
from tests.made_engines import assert_same_states, follow_the_reference
from tests.sweep_runs import changed

temperatures = st.sampled_from([0.01, 0.3, 1.0, 7.0])


def some_weights(seed: int, heads: int, temperature: float, threshold: float = 0.2) -> KeyQuery:
    draw = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, heads, 6, 3, generator=draw)
    return KeyQuery(queries, keys, threshold, "logsumexp", temperature=temperature)


def table_of(seed: int, items: int = 12) -> torch.Tensor:
    return torch.randn(items, 6, generator=torch.Generator().manual_seed(seed + 99))


def by_formula(weights: KeyQuery, table: torch.Tensor) -> torch.Tensor:
    """The joined scores in float64 as the formula reads."""
    scores = weights.scores(table.double(), table.double())
    top = scores.amax(0)  # a common factor, which would overflow
    powers = ((scores - top) / weights.temperature).exp()
    return top + weights.temperature * powers.sum(0).log()


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(1, 5), temperatures)
def test_the_formula_and_its_limits(seed, heads, temperature):
    weights, table = some_weights(seed, heads, temperature), table_of(seed)
    scores = weights.scores(table.double(), table.double())
    torch.testing.assert_close(weights.aggregate(scores), by_formula(weights, table))
    largest, mean = scores.amax(0), scores.mean(0)
    cold, hot = (replace(weights, temperature=t).aggregate(scores) for t in (1e-4, 1e6))
    assert float((cold - largest).abs().max()) <= 1e-4 * math.log(heads) + 1e-9
    assert float((hot - 1e6 * math.log(heads) - mean).abs().max()) < 1e-2
    assert (weights.aggregate(scores) >= largest - 1e-12).all()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 99), st.integers(1, 4), temperatures, st.booleans())
def test_verification_decides_every_pair(seed, heads, temperature, wide):
    weights, table = some_weights(seed, heads, temperature), table_of(seed)
    if wide:  # sizes that are rescaled first
        weights = replace(weights, queries=weights.queries * 2.0**120, keys=weights.keys * 2.0**110)
        weights = replace(weights, threshold=0.2 * 2.0**230, temperature=temperature * 2.0**230)
        weights = weights.to(dtype=torch.float64)
    graph = random_graph(12, 40, seed)
    plain = some_weights(seed, heads, temperature)
    above = (plain.aggregate(plain.scores(table.double(), table.double())) > 0.2).numpy()
    edge = np.zeros((12, 12), dtype=bool)
    edge[graph.sources, graph.targets] = True
    for precision in ("float64", "float32"):
        found = verify(weights, graph, table, precision=precision)
        assert found.false_positives == (above & ~edge).sum()
        assert found.false_negatives == (~above & edge).sum()
    tiles = list(plain.all_pairs(table.double(), tile=5))
    for rows, columns, scores in tiles:
        torch.testing.assert_close(scores, by_formula(plain, table)[rows, columns])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 99), st.integers(2, 6), st.sampled_from([1e-3, 0.3, 1.0, 50.0]))
def test_computed_scores_are_within_their_bound(seed, heads, temperature):
    """Against 60 digits."""
    from decimal import Decimal, localcontext

    weights, table = some_weights(seed, heads, temperature), table_of(seed, 5)
    decider = PairDecider.of(weights, table)
    exact = weights.scores(table.double(), table.double())
    with localcontext() as context:
        context.prec = 60
        for dtype in (torch.float64, torch.float32):
            (_, _, tile) = next(decider.parts.tiles(dtype, 8))
            for i, j in ((0, 1), (2, 2), (4, 3)):
                powers = [Decimal(float(s)) / Decimal(temperature) for s in exact[:, i, j]]
                true = Decimal(temperature) * sum(p.exp() for p in powers).ln()
                off = abs(float(true - Decimal(float(tile[i, j]))))
                assert off <= decider.bound.of(dtype) + 1e-13


def test_a_pair_at_the_threshold_is_decided_by_digits():
    """log(e⁰ + e⁰) against the floats on both sides of log 2."""
    weights = some_weights(0, 2, 1.0)
    below, above = math.log(2), math.nextafter(math.log(2), 1)
    assert joined_above(replace(weights, threshold=below), [Fraction(0)] * 2) != joined_above(
        replace(weights, threshold=above), [Fraction(0)] * 2
    )
    tiny = [Fraction(-1, 10**40), Fraction(-(10**9))]
    assert not joined_above(replace(weights, threshold=0.0), tiny)
    assert joined_above(replace(weights, threshold=0.0), [Fraction(0), Fraction(-(10**9))])


def test_one_head_is_the_score_itself():
    graph = permutation_graph(6)
    rows = torch.eye(6)[torch.from_numpy(graph.targets.copy())]
    weights = KeyQuery(rows[None], torch.eye(6)[None], 0.5, "logsumexp", temperature=0.1)
    found = verify(weights, graph, torch.eye(6))
    assert (found.exact, found.margin) == (True, 0.5)
    assert not verify(replace(weights, threshold=1.0), graph, torch.eye(6)).exact


def test_files_keep_the_temperature_and_old_ones_stay(tmp_path):
    weights = some_weights(3, 2, 0.7)
    weights.save(tmp_path / "w.safetensors")
    again = load_weights(tmp_path / "w.safetensors")
    assert (again.aggregation, again.temperature) == ("logsumexp", 0.7)
    assert "temperature=0.7" in repr(again)
    plain = replace(weights, aggregation="max", temperature=1.0)
    plain.save(tmp_path / "max.safetensors")
    text = (tmp_path / "max.safetensors").read_bytes()[:400]
    assert b'"version":"1"' in text
    assert b"temperature" not in text


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_a_wrong_temperature_is_refused(temperature):
    with pytest.raises(InputError, match="is not a positive number"):
        some_weights(0, 2, temperature)


def test_what_cannot_be_is_refused_with_a_sentence():
    weights, table = some_weights(0, 2, 1.0), table_of(0)
    with pytest.raises(InputError, match="do not join heads by logsumexp"):
        to_torch(weights, random_graph(12, 20), table)
    with pytest.raises(InputError, match="too small for scores"):
        verify(replace(weights, temperature=1e-305), random_graph(12, 20), table)


# --- training -------------------------------------------------------------------------------------

TRAINED = {"variant": "logsumexp", "validation": 4, "test": 4, "length": 7}


@pytest.mark.parametrize(
    ("heads", "key_dim", "temperature"), [(1, 5, 0.3), (3, 4, 1.0), (5, 3, 0.05), (2, 9, 20.0)]
)
def test_every_engine_follows_the_reference(fast_engine, heads, key_dim, temperature):
    spec = RunSpec(40, 12, heads, key_dim, temperature=temperature, seed=3, **TRAINED)
    follow_the_reference(fast_engine, spec, 0, steps=6)


def test_many_heads_that_stream(fast_engine):
    """More state than registers hold: triton joins groups of heads one after the other."""
    steps = 2 if fast_engine.name == "triton" else 10
    spec = RunSpec(40, 70, 40, 7, degree=2, temperature=0.4, **TRAINED)
    reference, fleet = TorchEngine("cpu").fleet([spec]), fast_engine.fleet([spec])
    for one in (reference, fleet):
        one.launch(steps)
    assert_same_states(fleet.states([0])[0], reference.states([0])[0])


def test_a_low_temperature_is_max():
    scores = torch.randn(2, 3, 7, 7, generator=torch.Generator().manual_seed(0))
    positive = torch.rand(2, 7, 7, generator=torch.Generator().manual_seed(1)) < 0.2
    cold = RunSpec(40, 12, 3, 4, temperature=1e-5, **TRAINED)
    thresholds, messages = torch.zeros(2), torch.zeros(2, 7, 1)
    found = []
    for spec in (cold, replace(cold, variant="max", temperature=1.0)):
        rest = (positive.float(), pair_weights(spec, positive), thresholds, messages)
        found.append((aggregated(spec, scores), *score_gradient(spec, scores, *rest)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-3)


def test_trained_weights_know_their_temperature(tmp_path):
    spec = RunSpec(24, 12, 2, 6, temperature=0.5, steps=40, check_every=20, **TRAINED)
    (result,) = train([spec], "torch", progress=False, weights=True)
    assert result.weights is not None
    assert (result.weights.aggregation, result.weights.temperature) == ("logsumexp", 0.5)
    result.save_weights(tmp_path / "w.safetensors")
    assert load_weights(tmp_path / "w.safetensors").temperature == 0.5


def test_specs_and_sweeps_name_the_temperature(written):
    spec = RunSpec(24, 12, 2, 6, variant="logsumexp")
    assert "temperature" not in spec.to_json()
    assert RunSpec.from_json(replace(spec, temperature=0.5).to_json()).temperature == 0.5
    with pytest.raises(InputError, match="belongs to the variant logsumexp"):
        RunSpec(24, 12, 2, 6, temperature=0.5)
    with pytest.raises(InputError, match=r"temperature 0\.0 is not a positive number"):
        replace(spec, temperature=0.0)
    text = changed(variant='"logsumexp"', temperature="[0.1, 1.0]")
    assert {run.temperature for run in read_sweep(written(text)).runs} == {0.1, 1.0}


def test_the_command_trains_with_a_temperature(command):
    words = ["--items", "16", "--d-model", "8", "--heads", "2", "--key-dim", "3", "--seeds", "1"]
    words += ["--steps", "20", "--engine", "torch", "--variant", "logsumexp"]
    assert command("train", *words, "--temperature", "0.2")[0] == 0
    code, _, error = command("train", *words[:-2], "--temperature", "0.2")
    assert code == 2
    assert "belongs to the variant logsumexp" in error
