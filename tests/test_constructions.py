"""One contract for every construction, and each one's own lines against a literal transcription."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    ContextSampler,
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
    general_embedding,
    general_graph,
    one_hot,
    softmax,
)
from headcount.constructions.packing import pack
from headcount.constructions.request import (
    default_context_length,
    midpoint,
    sampler_for,
    verify_construction,
)
from headcount.constructions.template import Signatures
from headcount.errors import NoSolution, PreconditionWarning
from headcount.theory.constants import constants


def literal_templates(table, matchings, w):
    """Alg. 1, lines 6–9 (and Alg. 5, lines 5–6) as printed: m × d_k templates, then W = Xᵀ W'."""
    heads = []
    for matching in matchings:
        query = torch.zeros(len(table), w.shape[1])
        key = torch.zeros(len(table), w.shape[1])
        for i, j in zip(matching.sources.tolist(), matching.targets.tolist(), strict=True):
            query[i] = w[j]
            key[j] = w[j]
        heads.append((table.T @ query, table.T @ key))
    return heads


@settings(deadline=None, max_examples=30)
@given(st.integers(5, 40), st.integers(2, 12), st.integers(1, 6), st.integers(0, 99))
def test_algorithm_1_line_by_line(items, d_model, key_dim, seed):
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, d_model, seed)
    weights = compressive(graph, table, key_dim, signatures=Signatures(seed=seed))
    assert weights.heads == math.ceil(items / d_model)
    assert weights.threshold == key_dim / 2
    blocks = np.array_split(np.arange(items), weights.heads)
    assert all(len(block) <= d_model for block in blocks)
    w = Signatures(seed=seed).draw(items, key_dim)
    assert set(w.unique().tolist()) <= {-1.0, 1.0}
    for k, block in enumerate(blocks):
        query, key = torch.zeros(items, key_dim), torch.zeros(items, key_dim)
        for i in block:
            query[i] = w[graph.targets[i]]
            key[graph.targets[i]] = w[graph.targets[i]]
        torch.testing.assert_close(weights.queries[k], table.T @ query)
        torch.testing.assert_close(weights.keys[k], table.T @ key)


@settings(deadline=None, max_examples=20)
@given(st.integers(4, 16), st.integers(0, 60), st.integers(2, 8), st.integers(0, 9))
def test_algorithm_5_line_by_line(items, edges, d_model, seed):
    graph = random_graph(items, min(edges, items * (items - 1)), seed)
    table = gaussian_embeddings(items, d_model, seed)
    weights = general_graph(graph, table, 3, signatures=Signatures(seed=seed))
    heads = literal_templates(table, pack(graph, d_model), Signatures(seed=seed).draw(items, 3))
    assert weights.threshold == 1.5
    for k, (query, key) in enumerate(heads):
        torch.testing.assert_close(weights.queries[k], query)
        torch.testing.assert_close(weights.keys[k], key)


def test_algorithm_3_with_bernoulli_signatures():
    graph, table = permutation_graph(64, seed=1), one_hot_embeddings(64)
    signatures = Signatures("bernoulli", 0.25, seed=0)
    weights = one_hot(graph, table, 400, signatures=signatures)
    assert weights.threshold == pytest.approx((0.25 + 0.25**2) / 2 * 400)
    assert torch.equal(weights.keys[0], signatures.draw(64, 400))
    assert torch.equal(weights.queries[0], weights.keys[0][graph.targets.copy()])
    assert verify(weights, graph, table).exact


def test_algorithm_4_scales_by_mu():
    graph, table = permutation_graph(30, seed=1), binary_embeddings(30, 60, seed=1)
    weights = general_embedding(graph, table, 5, heads=3, signatures=Signatures("bernoulli", 0.05))
    squares = table.square().sum(1)
    scale = float(squares.min() + squares.max()) / 2
    w = Signatures("bernoulli", 0.05).draw(30, 5)
    first = np.array_split(np.arange(30), 3)[0]
    expected = table[first].T @ w[graph.targets[first]] / scale
    torch.testing.assert_close(weights.queries[0], expected)
    assert weights.threshold == pytest.approx((0.05 + 0.05**2) / 2 * 5)


def test_signatures_are_prefixes_of_wider_ones():
    for kind in ("rademacher", "bernoulli"):
        wide = Signatures(kind, 0.3, seed=4).draw(20, 16)
        assert torch.equal(Signatures(kind, 0.3, seed=4).draw(20, 5), wide[:, :5])
        assert not torch.equal(Signatures(kind, 0.3, seed=5).draw(20, 16), wide)


def test_pinv_leaves_no_leakage_inside_a_block():
    graph, table = permutation_graph(24, seed=2), gaussian_embeddings(24, 16, seed=2).double()
    weights = compressive(graph, table, 7, heads=3, inverse="pinv")
    w = Signatures().draw(24, 7).double()
    block = np.arange(8)
    scores = weights.scores(table[block], table[graph.targets[block].copy()])[0]
    expected = w[graph.targets[block].copy()] @ w[graph.targets[block].copy()].T
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


CONTRACT = [
    ("one-hot", permutation_graph(40), one_hot_embeddings(40)),
    ("compressive", permutation_graph(60), gaussian_embeddings(60, 40)),
    ("general-embedding", permutation_graph(40), binary_embeddings(40, 1000, density=0.08)),
    ("general-embedding", permutation_graph(50), 3.0 * gaussian_embeddings(50, 40)),
    ("general-graph", regular_graph(24, 3), gaussian_embeddings(24, 30)),
    ("general-graph", random_graph(30, 45), gaussian_embeddings(30, 24)),
    (
        "general-graph",
        Graph.from_edges(20, [(0, t) for t in range(1, 20)]),
        gaussian_embeddings(20, 16),
    ),
]


@pytest.mark.parametrize("inverse", ["transpose", "pinv"])
@pytest.mark.parametrize(("method", "graph", "table"), CONTRACT)
def test_every_construction_is_confirmed_by_verify(method, graph, table, inverse):
    weights = construct(graph, table, method, inverse=inverse)
    assert weights.notes["method"] == method
    found = verify(weights, graph, table)
    assert found.exact
    assert found.margin > 0
    again = construct(graph, table, method, inverse=inverse)
    assert torch.equal(again.queries, weights.queries)


def test_softmax_weights_hold_on_contexts_that_the_search_never_saw():
    """One head owns every item, contexts hold half the vocabulary: many targets are absent."""
    graph, table = permutation_graph(128), gaussian_embeddings(128, 128)
    weights = construct(graph, table, "softmax", inverse="pinv", heads=1)
    length = int(weights.notes["context_length"])
    assert length == default_context_length(128, 1) == 64
    rows = ContextSampler(graph, length).draw(500, seed=99)
    absent = (torch.from_numpy(graph.targets.copy())[rows][:, :, None] != rows[:, None, :]).all(2)
    assert absent.float().mean() > 0.2
    assert verify(weights, graph, table, contexts=rows).exact
    assert sampler_for(weights, graph) == ContextSampler(graph, length)
    again = verify_construction(weights, graph, table)
    assert (again.correct, again.scope, again.contexts) == (True, "sampled contexts", 1000)
    assert again.exact is None


CALIBRATED = [
    ("compressive", permutation_graph, "transpose", lambda m, d: None, 512, 512),
    ("compressive", permutation_graph, "pinv", lambda m, d: 4 * -(-m // d), 256, 128),
    ("general-embedding", permutation_graph, "transpose", lambda m, d: None, 512, 512),
    (
        "general-graph",
        lambda m, s: regular_graph(m, 2, s),
        "transpose",
        lambda m, d: None,
        512,
        512,
    ),
    (
        "general-graph",
        lambda m, s: regular_graph(m, 3, s),
        "pinv",
        lambda m, d: 4 * -(-3 * m // d),
        128,
        96,
    ),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("method", "maker", "inverse", "heads", "items", "d_model"), CALIBRATED)
@pytest.mark.filterwarnings("ignore::headcount.errors.PreconditionWarning")
def test_constructions_are_exact_at_the_calibrated_constants(
    method, maker, inverse, heads, items, d_model, seed
):
    """Half as much again as the C at which 95 % of the draws succeed."""
    graph, table = maker(items, seed), gaussian_embeddings(items, d_model, seed)
    if method == "general-embedding":
        table = 3.0 * table
    constant = constants()["pseudo-inverse" if inverse == "pinv" else method].C
    key_dim = math.ceil(1.5 * constant * math.log(items))
    threshold = "midpoint" if inverse == "pinv" else "paper"
    options = {
        "key_dim": key_dim,
        "heads": heads(items, d_model),
        "inverse": inverse,
        "threshold": threshold,
    }
    weights = construct(graph, table, method, seed=seed, **options)
    assert verify(weights, graph, table).exact


@settings(deadline=None, max_examples=15)
@given(st.integers(20, 60), st.integers(0, 1000), st.data())
def test_exact_weights_are_right_in_every_context(items, seed, data):
    """Monotonicity under context restriction (Section 4), on contexts of random length."""
    graph, table = permutation_graph(items, seed), gaussian_embeddings(items, items, seed)
    weights = construct(graph, table, inverse="pinv", seed=seed)
    assert verify(weights, graph, table).exact
    length = data.draw(st.integers(1, items))
    rows = ContextSampler(graph, length).draw(20, seed=seed)
    assert verify(weights, graph, table, contexts=rows).exact


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


def test_real_tables_and_graphs_can_be_built():
    """Rows of any norm, any graph: pseudo-inverses do not care."""
    graph, table = (
        random_graph(30, 60),
        gaussian_embeddings(30, 60) * torch.linspace(0.8, 1.5, 30)[:, None],
    )
    assert verify(construct(graph, table, inverse="pinv"), graph, table).exact


@pytest.mark.parametrize("items", [1, 2, 5])
def test_a_graph_without_edges_is_recognised(items):
    graph, table = Graph.from_edges(items, []), gaussian_embeddings(items, 4)
    for inverse in ("transpose", "pinv"):
        assert verify(construct(graph, table, inverse=inverse), graph, table).exact


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
