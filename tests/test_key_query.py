"""KeyQuery: scores, aggregation, widths, files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from headcount import InputError, KeyQuery, load_weights, permutation_graph, verify
from tests.strategies import problems


@settings(deadline=None)
@given(problems(aggregations=("sum",)))
def test_sum_is_one_head_of_width_d_k(problem):
    """Section 3's remark: linear aggregation equals one head with concatenated projections."""
    weights, _, table = problem
    query = torch.cat([weights.queries[k, :, :width] for k, width in enumerate(weights.widths)], 1)
    keys = weights.keys_per_head
    key = torch.cat([keys[k, :, :width] for k, width in enumerate(weights.widths)], 1)
    single = KeyQuery(query[None], key[None], weights.threshold, "max")
    joined = weights.aggregate(weights.scores(table, table))
    torch.testing.assert_close(
        joined, single.aggregate(single.scores(table, table)), rtol=1e-4, atol=1e-4
    )
    assert single.budget == weights.budget


@settings(deadline=None)
@given(problems(aggregations=("max", "sum")))
def test_all_pairs_and_decide_agree_with_scores(problem):
    weights, _, table = problem
    joined = weights.aggregate(weights.scores(table, table))
    for rows, columns, tile in weights.all_pairs(table, tile=3):
        torch.testing.assert_close(tile, joined[rows, columns], rtol=1e-4, atol=1e-4)
    assert torch.equal(weights.decide(table), joined > weights.threshold)


def test_softmax_is_scaled_by_each_heads_own_width():
    heads = [(torch.ones(1, 4), torch.ones(1, 4)), (torch.ones(1, 1), torch.ones(1, 1))]
    weights = KeyQuery.from_heads(heads, 0.5, "softmax")
    table = torch.tensor([[1.0], [2.0]])
    # Head 1: logits (4·x·y)/2, head 2: x·y. For x = 1: (2, 4) and (1, 2).
    expected = torch.tensor([2.0, 4.0]).softmax(0) + torch.tensor([1.0, 2.0]).softmax(0)
    torch.testing.assert_close(weights.aggregate(weights.scores(table, table))[0], expected)


@settings(deadline=None, max_examples=30)
@given(problems(aggregations=("max", "sum", "softmax")))
def test_files_keep_every_bit(tmp_path_factory, problem):
    weights, _, _ = problem
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    weights.save(path)
    again = load_weights(path)
    assert torch.equal(again.queries, weights.queries)
    assert torch.equal(again.keys, weights.keys)
    assert again.queries.dtype == weights.queries.dtype
    assert (again.threshold, again.aggregation, again.widths) == (
        weights.threshold,
        weights.aggregation,
        weights.widths,
    )


def test_notes_travel(tmp_path):
    KeyQuery(torch.ones(1, 1, 1), torch.ones(1, 1, 1), 0.1, notes={"method": "by hand"}).save(
        tmp_path / "w.safetensors"
    )
    assert load_weights(tmp_path / "w.safetensors").notes == {"method": "by hand"}


def test_padding_never_counts():
    weights = KeyQuery.from_heads(
        [(torch.ones(2, 3), torch.ones(2, 3)), (torch.ones(2, 1), torch.ones(2, 1))], 0.0
    )
    assert (weights.heads, weights.key_dim, weights.budget, weights.widths) == (2, 3, 4, (3, 1))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: KeyQuery(torch.ones(1, 2, 3), torch.ones(1, 2, 3), 0.0, widths=(2,)),
            "non-zero columns",
        ),
        (lambda: KeyQuery(torch.ones(1, 2, 3), torch.ones(1, 2, 3), 0.0, widths=(4,)), "widths"),
        (
            lambda: KeyQuery(torch.ones(1, 2, 3), torch.ones(1, 2, 3), float("nan")),
            "threshold is nan",
        ),
        (lambda: KeyQuery(torch.full((1, 1, 1), torch.nan), torch.ones(1, 1, 1), 0.0), "NaN"),
        (lambda: KeyQuery.from_heads([], 0.0), "at least one head"),
        (
            lambda: KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.0).decide(
                torch.ones(3, 5)
            ),
            "d_model 2",
        ),
    ],
)
def test_impossible_weights_are_refused(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


def test_softmax_has_no_table_of_all_pairs():
    weights = KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.0, "softmax")
    with pytest.raises(InputError, match="depends on the context"):
        next(weights.all_pairs(torch.ones(3, 2)))


def test_arrays_become_tensors_and_other_weights_are_refused(unchecked):
    part = np.random.default_rng(0).standard_normal((2, 4, 3))
    weights = KeyQuery(part, part, 0.5)  # pyright: ignore[reportArgumentType]
    assert torch.equal(weights.queries, torch.from_numpy(part))
    assert weights.queries.dtype == torch.float64
    with pytest.raises(InputError, match="queries is a list; give a tensor or an array"):
        KeyQuery(part.tolist(), part, 0.5)  # pyright: ignore[reportArgumentType]
    pair = (torch.ones(1, 4, 3), torch.ones(1, 4, 3))
    with pytest.raises(InputError, match="the weights are a tuple; give a KeyQuery"):
        verify(pair, permutation_graph(4), torch.eye(4))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("aggregation", ["max", "sum", "softmax"])
def test_a_temperature_belongs_to_logsumexp(aggregation):
    part = torch.ones(1, 4, 3)
    with pytest.raises(InputError, match=f"temperature 2 belongs to logsumexp.*{aggregation}"):
        KeyQuery(part, part, 0.5, aggregation, temperature=2.0)
    assert KeyQuery(part, part, 0.5, "logsumexp", temperature=2.0).temperature == 2
