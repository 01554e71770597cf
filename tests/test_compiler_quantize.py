"""`compile(bits=…)`: weights on a grid, certified after rounding."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import (
    Graph,
    InputError,
    KeyQuery,
    NoSolution,
    gaussian_embeddings,
    permutation_graph,
    save_embeddings,
    verify,
    write_graph,
)
from headcount.compiler import quantized_search
from headcount.compiler.certificate import certify
from headcount.compiler.compile import compile
from headcount.compiler.grid import Grid, bit_account, heads_of, rotated, round_weights
from headcount.compiler.quantize import Pairs, onto_grid
from headcount.compiler.quantized_search import QuantizedSearch
from headcount.compiler.request import CompileRequest
from tests.counted_time import counting_time


def on_a_grid(part: torch.Tensor, bits: int) -> bool:
    """Whether some scale makes all entries whole numbers of at most 2^(b−1) − 1, exactly."""
    top, part = 2 ** (bits - 1) - 1, part.double()
    largest = float(part.abs().max())
    scales = [largest / level for level in range(top, 0, -1)] if largest else [1.0]
    return any(bool(((part / scale).round() * scale == part).all()) for scale in scales)


def plainly_exact(weights: KeyQuery, graph: Graph, table: torch.Tensor) -> bool:
    """Every pair in float64, as Eq. (5) reads."""
    rows = table.double()
    scores = (rows @ weights.queries.double()) @ (rows @ weights.keys.double()).mT
    truth = torch.zeros(graph.items, graph.items, dtype=torch.bool)
    truth[torch.tensor(graph.sources.copy()), torch.tensor(graph.targets.copy())] = True
    return bool(((scores.amax(0) > weights.threshold) == truth).all())


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(-30, 30))
@settings(max_examples=40, deadline=None)
def test_rounded_entries_lie_on_the_grid(seed, bits, exponent):
    draw = torch.Generator().manual_seed(seed)
    heads = [
        (torch.randn(5, w, generator=draw) * 2.0**exponent, torch.randn(5, w, generator=draw))
        for w in (1, 3)
    ]
    weights = KeyQuery.from_heads(heads, threshold=1.0)
    found = round_weights(weights, bits)
    assert found.queries.dtype == torch.float32
    for before, after in zip(heads_of(weights), heads_of(found), strict=True):
        grid = Grid.of(before, bits)
        levels = grid.levels(after)
        assert levels.abs().max() <= 2 ** (bits - 1) - 1
        assert torch.equal(levels * grid.scales, after)
        inside = before.abs() <= grid.scales * grid.top
        assert ((before - after).abs() <= grid.scales * 0.5000001)[inside].all()


def test_turned_heads_score_alike():
    draw = torch.Generator().manual_seed(0)
    heads = [torch.randn(2, 6, width, generator=draw, dtype=torch.float64) for width in (1, 4, 6)]
    for before, after in zip(heads, rotated(heads, seed=1), strict=True):
        assert torch.allclose(before[0] @ before[1].T, after[0] @ after[1].T)
        assert torch.allclose(after[0].norm(), after[1].norm())


@pytest.mark.parametrize("bits", [8, 4])
def test_certificate_is_of_the_rounded_weights(bits):
    graph, table = permutation_graph(32, seed=1), gaussian_embeddings(32, 16, seed=1)
    found = compile(graph, table, budget=8, bits=bits)
    assert found.weights.budget <= 8
    assert all(on_a_grid(part, bits) for head in heads_of(found.weights) for part in head)
    assert plainly_exact(found.weights, graph, table)
    checked = verify(found.weights, graph, table, precision="float64")
    assert checked.exact
    assert found.certificate.bits == bits
    assert found.certificate.margin == pytest.approx(checked.margin)
    account = bit_account(found.weights, graph, bits)
    assert (
        account["bits_in_all"] == bits * 2 * 16 * found.weights.budget > account["information_bits"]
    )
    assert found.weights.budget >= account["bit_budget_bound"]


def test_fixing_a_few_at_a_time_keeps_what_plain_rounding_breaks():
    graph, table = permutation_graph(32), gaussian_embeddings(32, 16)
    weights = compile(graph, table, budget=8).weights
    pairs, heads = Pairs.of(graph, table, weights.threshold), rotated(heads_of(weights), 0)
    plain = [Grid.of(head, 4).nearest(head) for head in heads]
    careful, gap = onto_grid(pairs, heads, 4, 0.1, lambda: True)
    assert gap == pairs.gap(careful)[0]
    assert gap > pairs.gap(plain)[0]


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_small_graphs_of_any_kind(data):
    items = data.draw(st.integers(2, 6))
    codes = data.draw(st.sets(st.integers(0, items * items - 1)))
    graph = Graph.from_edges(items, [divmod(code, items) for code in codes])
    table = gaussian_embeddings(items, items, seed=data.draw(st.integers(0, 9)))
    bits = data.draw(st.sampled_from([4, 8]))
    try:
        with counting_time():
            found = compile(graph, table, budget=2 * items, bits=bits, time_limit=3)
    except NoSolution:
        assert bits == 4  # on a full-rank table 8 bits are always enough here
        return
    assert found.certificate.bits == bits
    assert all(on_a_grid(part, bits) for head in heads_of(found.weights) for part in head)
    assert plainly_exact(found.weights, graph, table)


def test_too_few_bits_are_an_honest_no():
    graph, table = permutation_graph(32), gaussian_embeddings(32, 16)
    with pytest.raises(NoSolution, match="pairs wrong after rounding"):
        compile(graph, table, budget=7, bits=2)
    with pytest.raises(InputError, match="2…8 bits"):
        compile(graph, table, bits=1)


def test_exact_weights_too_small_to_round_plainly_end_the_way_down(monkeypatch):
    """Plain rounding asks for 11 columns here; fixing a few entries at a time goes on to 8."""
    rounded = list[tuple[int, bool]]()

    def round_with(self, weights, margins):
        plainly = margins is quantized_search._PLAIN
        rounded.append((weights.budget, plainly))
        if weights.budget >= (11 if plainly else 8):
            certificate = certify(weights, self.request.graph, self.request.table)
            assert certificate is not None
            self.accept(weights, certificate)

    monkeypatch.setattr(QuantizedSearch, "_round_with", round_with)
    found = compile(permutation_graph(32, seed=4), gaussian_embeddings(32, 16, seed=4), bits=4)
    assert found.weights.budget == 8
    way_down = rounded[: next(n for n, (_, plainly) in enumerate(rounded) if not plainly) - 1]
    assert all(plainly for _, plainly in way_down)
    assert [budget >= 11 for budget, _ in way_down[-3:]] == [True, False, False]


def test_command_line(tmp_path, command):
    write_graph(permutation_graph(16), tmp_path / "graph.csv")
    save_embeddings(gaussian_embeddings(16, 8), tmp_path / "table.npy")
    options = ("--budget", 8, "--bits", 8, "--json", "-o", "w.safetensors")
    code, out, err = command("compile", "graph.csv", "table.npy", *options)
    assert code == 0, err
    said = json.loads(out)
    assert said["bits"] == 8
    assert said["bits_in_all"] == 8 * 2 * 8 * said["budget"]


def test_attempts_are_timed_one_by_one():
    """Their seconds add up to the time that the search took, and to no more."""
    request = CompileRequest(permutation_graph(16), gaussian_embeddings(16, 8), budget=8, bits=2)
    began, search = time.monotonic(), QuantizedSearch(request)
    with suppress(NoSolution):
        search.run()
    took = time.monotonic() - began
    assert len(search.frontier) > 3
    assert sum(attempt.seconds for attempt in search.frontier) <= took
