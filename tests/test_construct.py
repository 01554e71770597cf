"""`construct`: which method it picks, what it warns of and refuses, and its calibration."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from headcount import (
    Graph,
    InputError,
    binary_embeddings,
    construct,
    gaussian_embeddings,
    one_hot_embeddings,
    permutation_graph,
    random_graph,
    regular_graph,
    verify,
)
from headcount.constructions.calibrate import calibrate, wilson
from headcount.constructions.methods import (
    compressive,
    one_hot,
    softmax,
)
from headcount.constructions.request import (
    default_context_length,
    midpoint,
)
from headcount.constructions.template import Signatures
from headcount.errors import NoSolution, PreconditionWarning


@pytest.mark.parametrize(
    ("graph", "table", "method"),
    [
        (permutation_graph(9), one_hot_embeddings(9), "one-hot"),
        (permutation_graph(9), gaussian_embeddings(9, 9), "compressive"),
        (permutation_graph(9), 2 * gaussian_embeddings(9, 9), "general-embedding"),
        (random_graph(9, 12), gaussian_embeddings(9, 9), "general-graph"),
    ],
)
def test_auto_picks_the_construction_that_applies(graph, table, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PreconditionWarning)
        assert construct(graph, table, key_dim=8).notes["method"] == method


def unmet(*arguments, **options):
    """The warnings of a build, as one text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PreconditionWarning)
        construct(*arguments, **options)
    return " | ".join(str(warning.message) for warning in caught)


def test_a_given_size_is_built_as_asked_and_warned_about():
    graph, table = permutation_graph(32), gaussian_embeddings(32, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PreconditionWarning)
        weights = construct(graph, table, key_dim=5, heads=6)
    assert (weights.heads, weights.key_dim, weights.threshold) == (6, 5, 2.5)


def test_every_precondition_is_warned_about_by_name():
    uniform, table = permutation_graph(32), gaussian_embeddings(32, 8)
    assert "Theorem 4.1 asks for d_model ≥ c₀ ln m" in unmet(uniform, table, key_dim=5)
    assert "Theorem B.9 asks for d_k ≥ C (ln m)^1" in unmet(random_graph(32, 40), table, key_dim=5)
    assert "Theorem B.5 asks for diagonal stability" in unmet(
        uniform, binary_embeddings(32, 40), key_dim=5
    )
    identity = Graph.from_edges(32, [(i, i) for i in range(32)])
    assert "fixed points" in unmet(identity, table, key_dim=5)
    assert "fixed points" not in unmet(uniform, table, key_dim=5)
    assert "Theorem 8.1 asks for ℓ ≥" in unmet(
        uniform, table, "softmax", key_dim=5, context_length=2
    )
    wide = gaussian_embeddings(32, 400)
    assert unmet(uniform, wide, key_dim=2000) == ""
    # No theorem covers pseudo-inverses, so none is named.
    assert unmet(uniform, table, key_dim=5, inverse="pinv") == ""


def test_the_midpoint_has_the_largest_margin():
    graph, table = permutation_graph(40), one_hot_embeddings(40)
    weights = one_hot(graph, table, 40)
    centred = midpoint(weights, graph, table)
    margins = [verify(w, graph, table).margin for w in (weights, centred)]
    assert margins[1] >= margins[0]
    found = verify(centred, graph, table)
    assert found.lowest_edge.score - centred.threshold == pytest.approx(
        centred.threshold - found.highest_non_edge.score
    )


def test_a_search_that_fails_says_how_far_it_got():
    graph, table = permutation_graph(200), gaussian_embeddings(200, 4)
    with pytest.raises(
        NoSolution, match=r"no compressive weights were confirmed up to 50 × .* inverse pinv"
    ):
        construct(graph, table, heads=50, threshold="paper")


def test_softmax_weights_are_construction_ii_read_by_softmax():
    graph, table = permutation_graph(20), gaussian_embeddings(20, 16)
    weights, base = softmax(graph, table, 6), compressive(graph, table, 6)
    assert torch.equal(weights.queries, base.queries)
    assert (weights.aggregation, weights.threshold) == ("softmax", 0.5)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: construct(permutation_graph(4), gaussian_embeddings(5, 4)),
            "4 items, the table 5 rows",
        ),
        (
            lambda: construct(random_graph(5, 7), gaussian_embeddings(5, 4), "compressive"),
            "permutation graph",
        ),
        (lambda: construct(permutation_graph(5), gaussian_embeddings(5, 4), "one-hot"), "identity"),
        (
            lambda: construct(permutation_graph(5), 2 * gaussian_embeddings(5, 4), "compressive"),
            "norm 1",
        ),
        (
            lambda: construct(permutation_graph(5), gaussian_embeddings(5, 4), key_dim=0),
            "key_dim 0",
        ),
        (
            lambda: construct(permutation_graph(5), gaussian_embeddings(5, 4), key_dim=2, heads=6),
            "6 heads",
        ),
        (lambda: construct(permutation_graph(5), gaussian_embeddings(5, 4), heads=0), "0 heads"),
        (
            lambda: construct(permutation_graph(5), one_hot_embeddings(5), heads=2),
            "has one head, not 2",
        ),
        (
            lambda: construct(permutation_graph(5), gaussian_embeddings(5, 4), sparsity=0.1),
            "sparsity belongs to",
        ),
        (
            lambda: construct(permutation_graph(5), gaussian_embeddings(5, 4), context_length=3),
            "belongs to softmax",
        ),
        (
            lambda: construct(
                permutation_graph(5), gaussian_embeddings(5, 4), "softmax", context_length=0
            ),
            "context length 0",
        ),
        (lambda: Signatures("bernoulli", 5.0), "must be between 0 and 1"),
        (
            lambda: construct(random_graph(5, 7), 2 * gaussian_embeddings(5, 4)),
            "row . has 2; use inverse pinv",
        ),
        (lambda: calibrate("compressive", 1, 4), "at least 2"),
        (
            lambda: construct(regular_graph(5, 3), gaussian_embeddings(5, 4), key_dim=2, heads=2),
            "degree 3",
        ),
        (
            lambda: construct(
                permutation_graph(5),
                2 * gaussian_embeddings(5, 4),
                signatures="bernoulli",
                sparsity=0.2,
            ),
            r"\(0, 1/20\]",
        ),
        (
            lambda: construct(
                permutation_graph(5), one_hot_embeddings(5), signatures="bernoulli", sparsity=0.6
            ),
            r"\(0, 1/2\)",
        ),
        (
            lambda: construct(permutation_graph(3), torch.zeros(3, 2), "general-embedding"),
            "row 0 of the table is zero",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::headcount.errors.PreconditionWarning")
def test_failed_preconditions_are_refused_by_name(build, sentence):
    with pytest.raises(InputError, match=sentence):
        build()


def test_calibration_counts_what_verify_says():
    found = calibrate("one-hot", 32, 32, trials=8, seed=3)
    assert found.limit == 1.0
    assert found.key_dim is not None
    for row in found.rates.itertuples():
        wins = 0
        for trial in range(8):
            graph, table = permutation_graph(32, 3 + trial), one_hot_embeddings(32)
            weights = one_hot(graph, table, int(row.key_dim), signatures=Signatures(seed=3 + trial))
            wins += verify(weights, graph, table).exact
        assert wins == row.successes
        assert (row.low, row.high) == wilson(wins, 8)
    assert found.constant == pytest.approx(found.key_dim / math.log(32))


def test_calibration_sees_where_no_width_is_enough():
    assert calibrate("compressive", 64, 16, trials=5).limit == 0.0
    assert calibrate("compressive", 64, 1024, heads=4, trials=5).limit == 1.0


@pytest.mark.filterwarnings("ignore::headcount.errors.PreconditionWarning")
def test_softmax_weights_of_a_given_width_say_their_context_length():
    graph, table = permutation_graph(64), torch.eye(64)
    found = construct(graph, table, method="softmax", key_dim=8, heads=1)
    assert found.context_length == default_context_length(64, 1)
    given = construct(graph, table, method="softmax", key_dim=8, heads=1, context_length=20)
    assert given.context_length == 20
