"""The context sampler against a literal transcription of A.1 and A.3."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    ContextSampler,
    Graph,
    InputError,
    labels,
    permutation_graph,
    regular_graph,
)
from headcount.problem.contexts import StackedSampler, read_contexts
from headcount.problem.streams import below, halves, stream_key, words
from headcount.problem.vocabulary import Vocabulary
from tests.strategies import graphs


def literal_context(graph: Graph, length: int, rate: float, rng: np.random.Generator) -> list[int]:
    """A.1's three steps as printed, with A.3's change: an out-neighbour of each chosen source."""
    s = rng.permutation(graph.items)[:length].tolist()
    b = rng.binomial(length, rate)
    u = set(rng.choice(length, size=b, replace=False).tolist())
    drawn = list(s)
    for slot in range(length):
        i = drawn[slot]
        if slot not in u or s[slot] != i:
            continue
        neighbors = graph.neighbors(i).tolist()
        if neighbors and length > 1 and not set(neighbors) & set(s):
            others = [place for place in range(length) if place != slot]
            s[others[rng.integers(len(others))]] = neighbors[rng.integers(len(neighbors))]
    return s


@settings(deadline=None, max_examples=60)
@given(graphs(max_items=12), st.integers(0, 99), st.floats(0.05, 0.95))
def test_contexts_hold_distinct_items(graph, seed, rate):
    for length in {1, min(2, graph.items), graph.items}:
        contexts = ContextSampler(graph, length, rate).draw(50, seed=seed)
        assert ((contexts >= 0) & (contexts < graph.items)).all()
        assert all(len(set(row)) == length for row in contexts.tolist())


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 40), st.integers(1, 40), st.integers(0, 9))
def test_any_part_of_a_stream_can_be_drawn_alone(start, count, seed):
    sampler = ContextSampler(permutation_graph(32), length=8)
    whole = sampler.draw(100, seed=seed, stream="train")
    assert torch.equal(
        whole[start : start + count], sampler.draw(count, seed=seed, stream="train", start=start)
    )
    assert not torch.equal(whole, sampler.draw(100, seed=seed, stream="test"))
    assert not torch.equal(whole, sampler.draw(100, seed=seed + 1, stream="train"))


@settings(deadline=None, max_examples=30)
@given(
    degree=st.integers(1, 4),
    seeds=st.lists(st.integers(0, 99), min_size=1, max_size=5),
    start=st.integers(0, 20_000),
)
def test_drawing_on_several_graphs_is_drawing_on_each(degree, seeds, start):
    graphs = [regular_graph(24, degree, seed) for seed in seeds]
    keys = [stream_key(seed, "train") for seed in seeds]
    together = StackedSampler(graphs, 7, 0.7).draw(2100, keys, start)  # more than a chunk of 8192
    for graph, seed, found in zip(graphs, seeds, together, strict=True):
        expected = ContextSampler(graph, 7, 0.7).draw(2100, seed=seed, stream="train", start=start)
        assert torch.equal(found, expected)


def test_chunks_do_not_show():
    sampler = ContextSampler(permutation_graph(64))
    assert torch.equal(sampler.draw(9000, seed=0)[8500:], sampler.draw(500, seed=0, start=8500))


def statistics(graph: Graph, contexts: np.ndarray) -> np.ndarray:
    """Per context: the numbers of positive pairs and of sources with a target, the sum of ids."""
    positive = graph.has_edges(contexts[:, :, None], contexts[:, None, :])
    return np.stack([positive.sum((1, 2)), positive.any(2).sum(1), contexts.sum(1)], axis=1).astype(
        float
    )


CASES = [
    (permutation_graph(16, seed=1), 8, 0.5),
    (permutation_graph(64, seed=1), 16, 0.5),
    (permutation_graph(64, seed=1), 16, 0.1),
    (permutation_graph(64, seed=2), 4, 0.9),
    (permutation_graph(512, seed=1), 16, 0.5),
    (regular_graph(40, 3, seed=1), 10, 0.5),
    (regular_graph(120, 80, seed=1), 5, 0.5),  # degrees beyond the neighbour-by-neighbour limit
    (Graph.from_edges(30, [(0, t) for t in range(1, 30)] + [(t, 0) for t in range(1, 9)]), 6, 0.5),
]


@pytest.mark.parametrize(("graph", "length", "rate"), CASES)
def test_distribution_matches_the_literal_procedure(graph, length, rate):
    """Means and variances of three statistics and item frequencies, within 5 standard errors."""
    count = 6000
    rng = np.random.default_rng(0)
    slow = np.array([literal_context(graph, length, rate, rng) for _ in range(count)])
    fast = ContextSampler(graph, length, rate).draw(4 * count, seed=0, stream="check").numpy()
    of_slow, of_fast = statistics(graph, slow), statistics(graph, fast)
    for power in (1, 2):
        a, b = of_slow**power, of_fast**power
        error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b)) + 1e-9
        assert (abs(a.mean(0) - b.mean(0)) < 5 * error).all()
    a = np.bincount(slow.ravel(), minlength=graph.items) / len(slow)
    b = np.bincount(fast.ravel(), minlength=graph.items) / len(fast)
    error = np.sqrt(a * (1 - a) / len(slow) + b * (1 - b) / len(fast)) + 1e-9
    assert (abs(a - b) < 5 * error).all()


def test_step_one_alone_is_a_uniform_ordered_draw():
    """Without edges only step 1 acts: all 4·3 ordered pairs of 4 items must be equally likely."""
    contexts = ContextSampler(Graph.from_edges(4, []), length=2).draw(24000, seed=5)
    counts = torch.bincount(contexts[:, 0] * 4 + contexts[:, 1], minlength=16).view(4, 4)
    assert (counts.diag() == 0).all()
    off = counts[~torch.eye(4, dtype=torch.bool)]
    assert (abs(off - 2000) < 5 * 43).all()


@settings(deadline=None)
@given(graphs(max_items=8), st.integers(0, 20))
def test_labels_are_the_edges_between_the_items_of_a_context(graph, seed):
    contexts = ContextSampler(graph, length=min(4, graph.items)).draw(20, seed=seed)
    edges = set(zip(graph.sources.tolist(), graph.targets.tolist(), strict=True))
    assert labels(graph, contexts).tolist() == [
        [[(i, j) in edges for j in row] for i in row] for row in contexts.tolist()
    ]


def test_words_are_splitmix64():
    """Against plain-integer SplitMix64 with the reference constants."""
    mask = 2**64 - 1

    def reference(key: int, n: int) -> int:
        z = (key + (n + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    key = stream_key(7, "train")
    drawn = [word & mask for word in words(key, torch.arange(100)).tolist()]
    assert drawn == [reference(key & mask, n) for n in range(100)]
    high, low = halves(words(key, torch.arange(100)))
    assert [
        (top << 32) | bottom for top, bottom in zip(high.tolist(), low.tolist(), strict=True)
    ] == drawn
    assert reference(0, 0) == 0xE220A8397B1DCDAF  # SplitMix64's first output for seed 0
    assert below(torch.tensor([0, 2**32 - 1]), 10).tolist() == [0, 9]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"length": 9}, "does not fit"),
        ({"length": 0}, "does not fit"),
        ({"length": 4, "rate": 1.0}, "rate"),
    ],
)
def test_impossible_contexts_are_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        ContextSampler(permutation_graph(8), **options)


def test_contexts_are_read_from_a_file(tmp_path):
    np.save(tmp_path / "contexts.npy", np.array([[0, 1], [3, 2]], dtype=np.uint8))
    found = read_contexts(tmp_path / "contexts.npy")
    assert found.dtype == torch.int64
    assert found.tolist() == [[0, 1], [3, 2]]
    np.save(tmp_path / "scores.npy", np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"2-D array of item ids, not float64 \(2, 3\)"):
        read_contexts(tmp_path / "scores.npy")


def test_contexts_are_read_as_names_or_ids(tmp_path):
    names = Vocabulary.of(["hot", "cold", "7"])
    (tmp_path / "c.csv").write_text("hot, cold\n\n7,hot\n")
    assert read_contexts(tmp_path / "c.csv", names).tolist() == [[0, 1], [2, 0]]
    (tmp_path / "c.tsv").write_text("3\t1\n")
    assert read_contexts(tmp_path / "c.tsv").tolist() == [[3, 1]]


@pytest.mark.parametrize(
    ("text", "named", "sentence"),
    [
        ("hot,cold\nhot,clod", True, r"c\.csv, line 2: 'clod' is not among the 2 names \(.*'cold'"),
        ("hot,cold\nhot", True, r"c\.csv, line 2: has 1 items, the lines above 2"),
        ("hot,cold", False, r"c\.csv, line 1: 'hot' is not an item id; write ids, or give names"),
        ("1,-2", False, r"c\.csv, line 1: '-2' is not an item id"),
        ("\n , \n", False, r"c\.csv: holds no context"),
    ],
)
def test_bad_files_of_contexts(tmp_path, text, named, sentence):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_contexts(tmp_path / "c.csv", Vocabulary.of(["hot", "cold"]) if named else None)
