"""Relations: scores against plain computation, permutations, planted heads, false positives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import headcount as hc
from headcount.auditing.audit import audit
from headcount.auditing.opening import open_model
from headcount.auditing.relation_data import Relation, relation_on
from headcount.auditing.relation_scores import RelationTest, p_values, random_sides

from .made_models import D_MODEL, HEADS, WORDS, drawn, write_model

ROWS = hc.gaussian_embeddings(60, 8, seed=0)
FAST = {"permutations": 99, "random_heads": 20, "compile_seconds": 0, "compress_seconds": 0}


def relation_of(graph: hc.Graph) -> Relation:
    return Relation("made", graph, np.arange(graph.items), graph.edges, graph.edges)


def made_graph(seed: int, items: int, edges: int, mutual: bool) -> hc.Graph:
    """A random graph without loops; with `mutual`, every second edge has its reverse."""
    rng = np.random.default_rng(seed)
    pairs = {(a, b) for a, b in rng.integers(items, size=(edges, 2)).tolist() if a != b}
    if mutual:
        pairs |= {(b, a) for a, b in sorted(pairs)[::2]}
    return hc.Graph.from_edges(items, sorted(pairs | {(0, 1), (1, 2)}))


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_scores_are_those_of_the_plain_computation(seed, mutual, width):
    graph = made_graph(seed, 12, 15, mutual)
    relation, stream = relation_of(graph), torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, graph.items, width, generator=stream)
    if seed % 3 == 0:
        query, key = query.round(), key.round()  # with ties
    found = RelationTest(relation, ROWS[:12], permutations=3).judge(query, key).own
    scores = (query @ key.T).numpy()
    edges = set(map(tuple, graph.pairs.tolist()))
    aucs, ranks = [], []
    for source, target in edges:
        rivals = [
            scores[source, other]
            for other in relation.targets
            if other != source and (source, other) not in edges
        ]
        own = scores[source, target]
        above = sum((rival > own) + (rival == own) / 2 for rival in rivals)
        aucs.append(1 - above / len(rivals) if rivals else 0.5)
        ranks.append(1 / (1 + above))
    assert found.auc == pytest.approx(np.mean(aucs), abs=1e-5)
    assert found.mrr == pytest.approx(np.mean(ranks), abs=1e-5)
    others = [
        scores[source, other]
        for source in relation.sources
        for other in relation.targets
        if other != source and (source, other) not in edges
    ]
    on_edges = np.array([scores[pair] for pair in edges])
    best = max(
        2
        * (on_edges >= cut).sum()
        / (len(edges) + (on_edges >= cut).sum() + (np.array(others) >= cut).sum())
        for cut in on_edges
    )
    assert best - 0.06 <= found.f1 <= best + 1e-6  # bins can merge an edge with a non-edge


def test_edges_without_a_rival_count_as_chance():
    """Every source of a star has one edge and no other target: no head can do well or badly."""
    star = hc.Graph.from_edges(12, [(source, 0) for source in range(1, 12)])
    query, key = torch.randn(2, 12, 3, generator=torch.Generator().manual_seed(0))
    found = RelationTest(relation_of(star), ROWS[:12], permutations=3).judge(query, key)
    assert (found.own.auc, found.residual.auc) == (0.5, 0.5)
    assert (found.own.wins == 0.5).all()


@given(st.integers(0, 10**6), st.booleans())
@settings(deadline=None, max_examples=30)
def test_permutations_keep_degrees_and_pairs(seed, mutual):
    graph = made_graph(seed, 10, 20, mutual)
    relation = relation_of(graph)
    moved = relation.targets[relation.permuted_targets(6, seed)]
    assert (moved[:, 0] == graph.targets).all()
    two_way = graph.has_edges(graph.targets, graph.sources)
    for column in moved.T:
        assert sorted(column) == sorted(graph.targets)  # as many edges lead to every word
        now = sorted(zip(graph.sources[two_way].tolist(), column[two_way].tolist(), strict=True))
        assert now == sorted((b, a) for a, b in now)  # both directions go together


def test_a_statistic_is_the_mean_standardised_score():
    graph = made_graph(1, 12, 15, mutual=False)
    relation, stream = relation_of(graph), torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 12, 3, generator=stream).double()
    test = RelationTest(relation, ROWS[:12], permutations=4, seed=9)
    found = test.judge(query.float(), key.float()).own
    moved = relation.permuted_targets(5, 9)
    for column in range(5):
        values = []
        for source, place in zip(graph.sources, moved[:, column], strict=True):
            row = np.array([float(query[source] @ key[other]) for other in relation.targets])
            kept = relation.targets != source
            alone = relation.targets[place] == source
            mean, deviation = row[kept].mean(), row[kept].std()
            values.append(0.0 if alone else (row[place] - mean) / deviation)
        assert found.statistics[column] == pytest.approx(np.mean(values), abs=1e-4)


def test_a_control_takes_out_what_follows_it():
    graph = made_graph(2, 60, 80, mutual=True)
    rows = torch.nn.functional.normalize(ROWS[:60])
    test = RelationTest(relation_of(graph), ROWS[:60], permutations=9)
    own, left = test.judge(rows, 3 * rows)  # nothing but cosines
    assert abs(own.statistics[0]) > 0.01
    assert abs(left.statistics[0]) < 1e-3
    assert np.isnan(left.f1)


def test_a_residual_is_that_of_a_fit_to_the_cosines_of_each_row():
    graph = made_graph(4, 20, 30, mutual=False)
    relation, stream = relation_of(graph), torch.Generator().manual_seed(3)
    query, key = torch.randn(2, 20, 3, generator=stream)
    found = RelationTest(relation, ROWS[:20], permutations=1).judge(query, key).residual
    units = torch.nn.functional.normalize(ROWS[:20]).numpy()
    values = []
    for source, target in graph.pairs.tolist():
        kept = relation.targets[relation.targets != source]
        row = (query[source] @ key[kept].T).numpy()
        cosines = units[kept] @ units[source]
        slope, offset = np.polyfit(cosines, row, 1)
        left = (row - slope * cosines - offset) / row.std()
        values.append(left[list(kept).index(target)])
    assert found.statistics[0] == pytest.approx(np.mean(values), abs=1e-4)


def test_small_tiles_change_nothing(monkeypatch):
    graph = made_graph(3, 40, 90, mutual=True)
    query, key = torch.randn(2, 40, 4, generator=torch.Generator().manual_seed(0))
    whole = RelationTest(relation_of(graph), ROWS[:40], permutations=9).judge(query, key)
    monkeypatch.setattr("headcount.auditing.relation_scores._TILE", 100)
    parts = RelationTest(relation_of(graph), ROWS[:40], permutations=9).judge(query, key)
    for one, other in zip(parts, whole, strict=True):
        assert (one.auc, one.mrr) == pytest.approx((other.auc, other.mrr))
        assert one.statistics == pytest.approx(other.statistics, abs=1e-5)
    assert parts.own.f1 == pytest.approx(whole.own.f1)


def test_p_values_of_noise_are_uniform_and_the_corrected_ones_hold_the_level():
    rng = np.random.default_rng(0)
    alone, any_found = [], 0
    for _ in range(400):
        found, corrected = p_values(rng.standard_normal((5, 40)) * [[1], [10], [1], [3], [1]])
        alone += found.tolist()
        any_found += corrected.min() <= 0.05
    assert np.mean(np.array(alone) <= 0.05) == pytest.approx(0.05, abs=0.02)
    assert any_found <= binom.isf(1e-4, 400, 0.05)


def planted(folder, seed=0, layer=1, head=2):
    """A random model in which one head has weights compiled for a permutation of its words."""
    tensors = drawn("llama", seed)
    bare = open_model(write_model(folder / "bare", "llama", tensors))
    graph = hc.permutation_graph(40, seed=seed)
    rows = bare.inputs(np.arange(40))
    width = D_MODEL // HEADS
    found = hc.compile(graph, rows, budget=width, heads=1, seed=seed).weights
    gain = tensors[f"model.layers.{layer}.input_layernorm.weight"][:, None]
    for kind, weight, place in (("q", found.queries, head), ("k", found.keys, head // 2)):
        part = tensors[f"model.layers.{layer}.self_attn.{kind}_proj.weight"]
        part[place * width : (place + 1) * width] = (weight[0].float() / gain).T
    names = [WORDS[item] for item in range(40)]
    folder = write_model(folder / "planted", "llama", tensors)
    graph = hc.as_graph([(names[a], names[b]) for a, b in graph.pairs.tolist()])
    hc.write_graph(graph, folder / "secret.csv")
    return folder


def test_a_planted_head_is_found_and_no_other(tmp_path):
    folder = planted(tmp_path)
    found = audit(folder, relations=[folder / "secret.csv"], **FAST)
    assert found.findings[["relation", "layer", "head"]].values.tolist() == [["secret", 1, 2]]
    best = found.findings.iloc[0]
    assert (best["auc"], best["mrr"], best["p_corrected"]) == (1.0, 1.0, 0.01)
    assert best["f1"] == pytest.approx(1.0, abs=0.03)
    assert best["beyond_similarity"]
    row = found.relations.iloc[0]
    assert (row["best_layer"], row["best_head"], row["heads_that_know"]) == (1, 2, 1)
    assert row["compiled_budget"] is None
    assert row["compiled"] == "not compiled"


@pytest.mark.usefixtures("counted_time")
def test_what_compiled_weights_need_stands_beside(tmp_path):
    folder = planted(tmp_path)
    options = FAST | {"compile_seconds": 3}
    found = audit(folder, relations=[folder / "secret.csv"], layers=[1], **options)
    row = found.relations.iloc[0]
    assert 1 <= row["compiled_budget"] <= D_MODEL
    assert row["compiled"] == str(row["compiled_budget"])


def test_the_compiler_keeps_to_its_time_and_says_that_it_found_nothing(tmp_path):
    """One head per edge, its last resort, says nothing about a relation and is left out."""
    folder = planted(tmp_path)
    options = FAST | {"compile_seconds": 1e-6}
    found = audit(folder, relations=[folder / "secret.csv"], layers=[1], **options)
    row = found.relations.iloc[0]
    assert row["compiled_budget"] is None
    assert row["compiled"] == "none found in 1e-06 s"
    assert found.to_dict()["relations"]["secret"]["compiled_budget"] is None
    assert row["compiled"] in found.save(tmp_path / "out").read_text(encoding="utf-8")


@pytest.mark.parametrize("mutual", [False, True])
def test_random_heads_are_found_at_the_stated_rate(tmp_path, mutual):
    """1,000 random heads on a Gaussian table: p ≤ 0.05 for about 50, and hardly any is found."""
    layers, heads, width = 4, 250, 6
    stream = torch.Generator().manual_seed(1)
    tensors = {"embed_tokens.weight": torch.randn(len(WORDS), D_MODEL, generator=stream)}
    for layer in range(layers):
        tensors[f"layers.{layer}.input_layernorm.weight"] = torch.ones(D_MODEL)
        for kind in "qk":
            part = torch.randn(heads * width, D_MODEL, generator=stream)
            tensors[f"layers.{layer}.self_attn.{kind}_proj.weight"] = part
    sizes = {"num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": width}
    folder = write_model(tmp_path, "llama", tensors, num_hidden_layers=layers, **sizes)
    graph = made_graph(5, len(WORDS), 150, mutual)
    model = open_model(folder)
    relation = relation_on(model, graph)
    inputs = model.inputs(relation.ids)
    test = RelationTest(relation, inputs, permutations=199)
    statistics = np.stack(
        [
            test.judge(query, key).own.statistics
            for layer in range(layers)
            for query, key in model.channel(layer).sides(inputs)
        ]
    )
    alone, corrected = p_values(statistics)
    low, high = binom.ppf([1e-4, 1 - 1e-4], 1000, 0.05)
    assert low <= (alone <= 0.05).sum() <= high
    assert (corrected <= 0.05).sum() <= 2


def test_random_sides_repeat():
    rows = hc.gaussian_embeddings(10, 6, seed=0)
    first, again = (list(random_sides(rows, 3, 2, seed=4)) for _ in range(2))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], first[1][0])


def test_relations_take_the_words_that_are_tokens(tmp_path):
    model = open_model(write_model(tmp_path, "llama", drawn("llama")))
    words = [WORDS[place] for place in range(20)]
    pairs = [*pairwise(words), ("absent", words[0]), (words[3], words[3])]
    relation = relation_on(model, hc.as_graph(pairs))
    assert (relation.given, relation.known, relation.graph.edges) == (21, 19, 19)
    assert [model.tokens[place] for place in relation.ids] == words
    part = relation_on(model, hc.as_graph(pairs), most_edges=10)
    assert part.graph.edges <= 10
    assert part.known == 19


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("rhymes", "relation 'rhymes' is unknown; use antonyms, hypernyms, meronyms, synonyms"),
        ("antonyms", "relation antonyms: 0 of its 1,331 edges join two tokens of the model"),
        ("none.csv", "no such file"),
        (hc.permutation_graph(500), "token id 499 is beyond the model's 128 tokens"),
    ],
)
def test_relations_that_cannot_be_used_are_refused(tmp_path, source, message):
    model = open_model(write_model(tmp_path, "llama", drawn("llama")))
    with pytest.raises(hc.InputError, match=message):
        relation_on(model, source)


def test_words_need_a_vocabulary(tmp_path):
    folder = write_model(tmp_path, "llama", drawn("llama"))
    (folder / "vocab.txt").unlink()
    with pytest.raises(hc.InputError, match="has no vocabulary beside its weights"):
        audit(folder, relations=["antonyms"])
    found = audit(folder, layers=[0], **FAST)
    assert found.relations.empty
    assert "so no relation was looked for" in found.notes[-1]
    ids = hc.permutation_graph(50)
    assert audit(folder, relations=[ids], layers=[0], **FAST).relations["words"][0] >= 48
