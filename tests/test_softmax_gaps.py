"""The softmax certificate on plain gaps (Lemma 8.2), at extremes, and by `headcount verify`."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from headcount import (
    Graph,
    InputError,
    KeyQuery,
    permutation_graph,
    save_embeddings,
    write_graph,
)
from headcount.attention.softmax_certificate import calibration, softmax_certificate


def peaked(graph: Graph, gap: float, threshold: float = 0.5) -> KeyQuery:
    """One head on one-hot items: a target's logit is `gap`, any other 0."""
    items = graph.items
    wanted = torch.zeros(items, items, dtype=torch.float64)
    wanted[torch.tensor(graph.sources), torch.tensor(graph.targets)] = gap * math.sqrt(items)
    return KeyQuery(wanted[None], torch.eye(items, dtype=torch.float64)[None], threshold, "softmax")


@pytest.mark.parametrize("length", [1, 2, 5, 12])
def test_lemma_8_2_is_the_certificate_of_a_plain_gap(length):
    graph, table = permutation_graph(12, seed=1), torch.eye(12, dtype=torch.float64)
    found = softmax_certificate(peaked(graph, 3.0), graph, table, length)
    if length > 1:
        assert found.lowest_edge is not None
        assert found.lowest_edge.score == pytest.approx(calibration(3.0, length), abs=1e-9)
    # A source without its target spreads its mass evenly: 1/ℓ ≤ τ from ℓ = 2 on, up to rounding.
    assert found.verdict == {1: "refuted", 2: "open", 5: "certified", 12: "certified"}[length]


def test_calibration_refuses_an_empty_context():
    assert calibration(-1e6, 3) == pytest.approx(0)
    assert calibration(1e6, 3) == 1
    with pytest.raises(InputError, match="length = 0"):
        calibration(1.0, 0)


def test_ties_stay_open():
    # One item alone: A_ii is exactly h = τ; no float can prove that it is not above.
    weights = KeyQuery(
        torch.ones(2, 1, 1), torch.ones(2, 1, 1), threshold=2.0, aggregation="softmax"
    )
    for graph in (Graph.from_edges(1, []), Graph.from_edges(1, [(0, 0)])):
        assert softmax_certificate(weights, graph, torch.ones(1, 1), 1).verdict == "open"


def test_huge_logits_are_sound_or_refused():
    graph, table = permutation_graph(8, seed=2), torch.eye(8, dtype=torch.float64)
    assert softmax_certificate(peaked(graph, 1e5), graph, table, 4).verdict == "certified"
    spread = replace(peaked(graph, 1e5), keys=torch.diag(torch.linspace(1, 2, 8).double())[None])
    assert softmax_certificate(spread, graph, table, 4).verdict == "certified"
    with pytest.raises(InputError, match="too much for float64"):
        softmax_certificate(peaked(graph, 1e16), graph, table, 4)


def test_a_graph_without_pairs_to_check_has_no_margin():
    graph = Graph.from_edges(3, [(i, i) for i in range(3)])
    weights = KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.5, "softmax")
    found = softmax_certificate(weights, graph, torch.ones(3, 2), 1)
    assert (found.verdict, found.highest_non_edge, found.margin) == (
        "certified",
        None,
        pytest.approx(0.5),
    )


@pytest.mark.parametrize(
    ("change", "length", "sentence"),
    [
        ({"aggregation": "max"}, 2, "use verify"),
        ({}, 0, "choose 1…4"),
        ({}, 5, "choose 1…4"),
    ],
)
def test_bad_input_is_refused(change, length, sentence):
    weights = replace(KeyQuery(torch.ones(1, 2, 1), torch.ones(1, 2, 1), 0.5, "softmax"), **change)
    with pytest.raises(InputError, match=sentence):
        softmax_certificate(weights, permutation_graph(4), torch.ones(4, 2), length)
    with pytest.raises(InputError, match="search = -1"):
        softmax_certificate(
            replace(weights, aggregation="softmax"),
            permutation_graph(4),
            torch.ones(4, 2),
            2,
            search=-1,
        )
    with pytest.raises(InputError, match="one row per item"):
        softmax_certificate(
            replace(weights, aggregation="softmax"), permutation_graph(4), torch.ones(3, 2), 2
        )


@pytest.fixture
def verified(tmp_path, command):
    """`headcount verify` beside a graph, a table and weights: (code, stdout, stderr)."""
    graph, table = permutation_graph(12, seed=1), torch.eye(12)
    write_graph(graph, tmp_path / "graph.csv")
    save_embeddings(table, tmp_path / "table.npy")
    peaked(graph, 4.0).save(tmp_path / "softmax.safetensors")
    replace(peaked(graph, 4.0), aggregation="max").save(tmp_path / "max.safetensors")
    return lambda weights, *words: command("verify", weights, "graph.csv", "table.npy", *words)


def test_verify_with_a_context_length(verified):
    code, stdout, _ = verified("softmax.safetensors", "--context-length", "5", "--json")
    answer = json.loads(stdout)
    assert (code, answer["verdict"], answer["certificate"]["context_length"]) == (0, "certified", 5)
    assert (answer["scope"], answer["contexts"], answer["exact"]) == (
        "sampled contexts",
        2000,
        True,
    )
    assert 0 < answer["certificate"]["margin"] <= answer["margin"]
    code, stdout, _ = verified("softmax.safetensors", "--context-length", "1", "--json")
    answer = json.loads(stdout)
    assert (code, answer["verdict"], answer["scope"], answer["contexts"]) == (
        1,
        "refuted",
        "given contexts",
        1,
    )
    assert len(answer["certificate"]["counterexample"]) == 1
    code, stdout, _ = verified(
        "softmax.safetensors", "--context-length", "2", "--samples", "10", "--search", "0"
    )
    assert code == 1
    assert stdout.startswith("open: ")
    assert "sampled contexts" in stdout


def test_verify_without_a_context_length_says_no_verdict(verified):
    code, stdout, _ = verified("softmax.safetensors", "--json")
    answer = json.loads(stdout)
    assert (code, answer["verdict"], answer["certificate"], answer["scope"]) == (
        0,
        None,
        None,
        "sampled contexts",
    )
    code, stdout, stderr = verified("max.safetensors", "--context-length", "5", "--json")
    assert "not needed" in stderr
    assert json.loads(stdout)["scope"] == "all pairs"
    assert code == 0
    code, _, stderr = verified(
        "softmax.safetensors", "--context-length", "5", "--contexts", "x.npy"
    )
    assert code == 2
    assert "exclude each other" in stderr
