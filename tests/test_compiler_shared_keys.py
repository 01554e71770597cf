"""Compiled weights whose heads share keys."""

from __future__ import annotations

import json

import pytest
import torch

from headcount.attention.storage import load_weights
from headcount.attention.verification import verify
from headcount.compiler.compile import compile
from headcount.compiler.head_counts import head_counts, widths_of
from headcount.compiler.whitened import WhitenedProblem
from headcount.errors import InputError
from headcount.problem.edge_list import write_graph
from headcount.problem.embeddings import gaussian_embeddings
from headcount.problem.makers import permutation_graph, regular_graph
from headcount.problem.tables import save_embeddings
from tests.test_compiler import right_everywhere
from tests.test_verify_top import brute_force


@pytest.mark.parametrize("decide", ["threshold", "top"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (4, 1), (3, 3), (None, 2)])
def test_shared_keys_are_shared_and_exact(heads, kv_heads, decide):
    graph, table = permutation_graph(20, seed=1), gaussian_embeddings(20, 10, seed=1)
    found = compile(graph, table, budget=20, heads=heads, kv_heads=kv_heads, decide=decide)
    weights = found.weights
    assert weights.kv_heads == len(weights.keys) == kv_heads
    assert weights.budget <= 20
    assert weights.heads % kv_heads == 0
    own = [weights.keys[k * kv_heads // weights.heads] for k in range(weights.heads)]
    apart = type(weights)(weights.queries, torch.stack(own), weights.threshold, "max")
    if decide == "top":
        assert brute_force(apart, graph, table)[:2] == (0, 0)
    else:
        assert right_everywhere(apart, graph, table)
    assert verify(weights, graph, table).exact


@pytest.mark.parametrize(("kv_heads", "key_dim"), [(1, 4), (2, 3)])
def test_few_keys_are_found_at_once_below_the_width_that_trains(kv_heads, key_dim):
    """Training takes widths of 5.0 and 4.0 at this size (docs/shared-keys.md)."""
    for seed in (720, 721):
        graph, table = permutation_graph(64, seed), gaussian_embeddings(64, 16, seed)
        found = compile(
            graph, table, heads=8, kv_heads=kv_heads, budget=8 * key_dim, seed=seed, device="cpu"
        )
        assert len(found.frontier) <= 2  # descents
        assert verify(found.weights, graph, table, precision="float64").exact


@pytest.mark.usefixtures("counted_time")
def test_a_search_with_shared_keys(tmp_path, command):
    graph, table = regular_graph(24, 2, seed=3), gaussian_embeddings(24, 12, seed=3)
    write_graph(graph, tmp_path / "graph.csv")
    save_embeddings(table, tmp_path / "table.npy")
    words = ("--kv-heads", 2, "--heads", 4, "--time-limit", 1, "--out", "w.safetensors", "--json")
    code, out, said = command("compile", "graph.csv", "table.npy", *words)
    assert code == 0, said
    shown = json.loads(out)
    weights = load_weights(tmp_path / "w.safetensors")
    assert (shown["heads"], shown["kv_heads"]) == (4, 2) == (weights.heads, weights.kv_heads)
    assert verify(weights, graph, table).exact


def test_widths_and_head_counts_fit_the_keys():
    problem = WhitenedProblem.of(
        permutation_graph(128), gaussian_embeddings(128, 8), 1.0, torch.device("cpu")
    )
    for kv_heads in (1, 2, 3, 5):
        for budget in (5, 17, 40):
            for heads in head_counts(problem, budget, None, kv_heads):
                assert heads % kv_heads == 0
                widths = widths_of(budget, heads, 8, kv_heads)
                assert len(widths) == heads
                assert sum(widths) <= budget
                assert min(widths) >= 1
                sharing = heads // kv_heads
                assert all(
                    len(set(widths[first : first + sharing])) == 1
                    for first in range(0, heads, sharing)
                )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kv_heads": 0}, "too few"),
        ({"kv_heads": 3, "heads": 4}, "does not divide 4 heads"),
        ({"kv_heads": 4, "budget": 3}, "budget of at least 4"),
        ({"kv_heads": 2, "bits": 4}, "without rounding"),
        ({"kv_heads": 2, "variant": "softmax", "context_length": 2}, "without rounding"),
    ],
)
def test_what_cannot_be_shared_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        compile(permutation_graph(8), gaussian_embeddings(8, 4), **options)
