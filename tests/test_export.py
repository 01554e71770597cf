"""Exported weights in a stock `torch.nn.MultiheadAttention`: they attend to targets, or rest."""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from headcount import (
    Graph,
    InputError,
    KeyQuery,
    construct,
    gaussian_embeddings,
    permutation_graph,
    regular_graph,
    verify,
)
from headcount.attention.export import load_attention, padded, to_torch
from headcount.problem.edge_list import write_graph
from headcount.problem.tables import save_embeddings
from tests.strategies import problems

LENGTH = 12


@cache
def permutation():
    graph, table = permutation_graph(24, seed=1), torch.eye(24)
    return construct(graph, table, "one-hot"), graph, table


@cache
def embedded():
    graph, table = permutation_graph(24, seed=2), gaussian_embeddings(24, 16, seed=2)
    return construct(graph, table, "general-embedding", heads=6, inverse="pinv"), graph, table


@cache
def regular():
    graph, table = regular_graph(24, 3, seed=3), gaussian_embeddings(24, 16, seed=3)
    return construct(graph, table, heads=24, inverse="pinv"), graph, table


def several_targets_and_loops():
    """Sources of degree 0 to 7, some of them their own target, in a table wider than the heads."""
    pairs = [(i, j) for i in range(8) for j in range(i)] + [(i, i) for i in range(8, 16)]
    graph, table = Graph.from_edges(24, pairs), gaussian_embeddings(24, 20, seed=4)
    return construct(graph, table, heads=12, inverse="pinv"), graph, table


def uneven():
    """The regular problem with a head that is narrower, and one that knows nothing."""
    weights, graph, table = regular()
    heads = [(weights.queries[k], weights.keys[k]) for k in range(weights.heads)]
    return (
        KeyQuery.from_heads([*heads, (torch.zeros(16, 1), torch.zeros(16, 1))], weights.threshold),
        graph,
        table,
    )


def one_summed_head():
    """Permutation by scores that two heads add up."""
    weights, graph, table = permutation()
    half = weights.key_dim // 2
    heads = [
        (weights.queries[0, :, part], weights.keys[0, :, part])
        for part in (slice(half), slice(half, None))
    ]
    return KeyQuery.from_heads(heads, weights.threshold, "sum"), graph, table


PROBLEMS = [permutation, embedded, regular, several_targets_and_loops, uneven, one_summed_head]


def shares(attention, table, contexts):
    """Attention weights [context, head, source, item], the resting place last if there is one."""
    rows = padded(table[contexts], attention)
    with torch.no_grad():
        return attention(rows, rows, rows, need_weights=True, average_attn_weights=False)[
            1
        ].double()


def drawn_contexts(items, length, count=300, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, items, generator=generator).argsort(1)[:, :length]


def check_promises(attention, graph, table, contexts):
    """What the module's docstring promises of every source in every context."""
    share = shares(attention, table, contexts)
    heads, items = share.shape[1], share[..., :-1]
    truth = torch.zeros(graph.items, graph.items, dtype=torch.bool)
    truth[torch.from_numpy(graph.sources.copy()), torch.from_numpy(graph.targets.copy())] = True
    target = truth[contexts[:, :, None], contexts[:, None, :]]
    present = target.any(2)
    on_targets, elsewhere = (
        (items * chosen[:, None]).sum(3) for chosen in (target, ~target)
    )  # [context, head, source]
    assert torch.allclose(share.sum(3), torch.ones(()).double(), atol=1e-5)
    assert torch.equal(on_targets.sum(1) > 0.5, present)  # over heads
    assert torch.equal(on_targets.amax(1) > 0.5, present)  # in the owner alone
    assert bool((elsewhere < 1 / (4 * heads)).all())
    assert torch.equal(
        items.sum((1, 3)) > 0.5, present
    )  # whether a target is there, without knowing which
    winner = items.amax(1).argmax(2, keepdim=True)
    assert torch.equal(target.gather(2, winner).squeeze(2), present)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_heads_attend_to_targets_and_rest_without(problem):
    weights, graph, table = problem()
    assert verify(weights, graph, table).exact
    exported = to_torch(weights, graph, table, context_length=LENGTH)
    embed_dim, heads = exported.facts["embed_dim"], exported.facts["num_heads"]
    attention = torch.nn.MultiheadAttention(embed_dim, heads, add_bias_kv=True, batch_first=True)
    attention.load_state_dict(exported.tensors, strict=True)
    for length in (1, 5, LENGTH):
        contexts = drawn_contexts(graph.items, length)
        check_promises(attention, graph, table, contexts)
        check_promises(attention.eval(), graph, table, contexts)


@settings(max_examples=30, deadline=None)
@given(problems(scales=(0, -20, 20)), st.integers(1, 40))
def test_any_exact_weights_are_exported_rightly_or_refused(problem, length):
    """The graph is what the weights decide, so they are exact, some with scores at τ."""
    weights, _, table = problem
    decided = (
        torch.cat([scores for _, _, scores in weights.all_pairs(table.double())])
        > weights.threshold
    )
    graph = Graph.from_edges(len(table), decided.nonzero().numpy())
    try:
        exported = to_torch(weights, graph, table, context_length=length)
    except InputError as error:
        found = verify(weights, graph, table)
        largest = max(abs(found.threshold), float(weights.scores(table, table).abs().max()))
        assert not found.exact or found.margin <= 1e-4 * largest, error  # noqa: PT017
        return
    repeated = torch.randint(len(table), (50, length), generator=torch.Generator().manual_seed(0))
    check_promises(exported.module(), graph, table, repeated)


def test_the_bounds_are_near_what_happens():
    """One head, scores exactly at τ ± γ: the shares are those of the docstring's formulas."""
    graph = permutation_graph(16, seed=0)
    table = torch.eye(16)
    weights = KeyQuery(
        table[torch.from_numpy(graph.targets.copy())][None], table[None], threshold=0.5
    )
    exported = to_torch(weights, graph, table, context_length=16)
    assert exported.facts["margin"] == 0.5
    assert exported.facts["temperature"] == pytest.approx(0.5 / math.log(8 * 16), rel=1e-4)
    q = math.exp(-0.5 / exported.facts["temperature"])
    share = shares(exported.module(), table, torch.arange(16)[None])[0, 0]
    on_target = share.gather(1, torch.from_numpy(graph.targets.copy())[:, None])
    assert on_target.flatten().tolist() == pytest.approx([1 / (1 + q + 15 * q**2)] * 16, rel=1e-5)
    assert share[:, -1].tolist() == pytest.approx([q / (1 + q + 15 * q**2)] * 16, rel=1e-3)


@pytest.mark.parametrize("widths", [(4, 4, 4), (1, 3, 2)])
def test_softmax_weights_give_the_same_attention(widths):
    table = gaussian_embeddings(30, 16, seed=5)
    generator = torch.Generator().manual_seed(5)
    heads = [
        tuple(2 * torch.randn(16, width, generator=generator) for _ in range(2)) for width in widths
    ]
    weights = KeyQuery.from_heads(heads, 0.75, "softmax")
    exported = to_torch(weights)
    assert (exported.facts["add_bias_kv"], exported.facts["threshold"]) == (False, 0.75)
    assert exported.facts["embed_dim"] >= 16
    attention = exported.module()
    for length in (1, 7, 30):
        contexts = drawn_contexts(30, length, count=20)
        rows = table[contexts]
        wanted = weights.aggregate(weights.scores(rows, rows)).double()
        for module in (attention.train(), attention.eval()):
            assert torch.allclose(shares(module, table, contexts).sum(1), wanted, atol=1e-5)


def test_an_attention_is_trainable_and_draws_nothing():
    state = torch.get_rng_state()
    attention = to_torch(*embedded()).module()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(
        part.requires_grad and part.dtype == torch.float32 for part in attention.parameters()
    )
    assert not attention.in_proj_weight[2 * attention.embed_dim :].any()
    assert torch.equal(attention.out_proj.weight, torch.eye(attention.embed_dim))


def lifted(weights, offset):
    """The same weights with all scores and τ raised by offset²; float32 sees less of the margin."""
    column = torch.full((1, 24, 1), offset, dtype=torch.float64)
    queries, keys = (
        torch.cat([part.double(), column], 2) for part in (weights.queries, weights.keys)
    )
    return KeyQuery(queries, keys, weights.threshold + offset**2)


def test_weights_are_exported_as_far_as_float32_reaches():
    weights, graph, table = permutation()
    exported = []
    for offset in (1.1 * 2.0**power for power in range(20)):
        assert verify(lifted(weights, offset), graph, table).exact
        try:
            attention = to_torch(lifted(weights, offset), graph, table, context_length=LENGTH)
        except InputError as error:
            assert "float32 is too coarse" in str(error)  # noqa: PT017
            break
        check_promises(attention.module(), graph, table, drawn_contexts(graph.items, LENGTH))
        exported.append(attention.facts["temperature"])
    assert 5 < len(exported) < 19
    assert exported == sorted(exported, reverse=True)  # the larger the rounding, the sharper


def test_what_cannot_be_exported_is_refused():
    weights, graph, table = permutation()
    highest = verify(weights, graph, table).highest_non_edge
    assert highest is not None
    at_threshold = KeyQuery(weights.queries, weights.keys, highest.score)
    deaf = KeyQuery(weights.queries, weights.keys, 1e9)
    huge = KeyQuery(1e300 * weights.queries.double(), weights.keys.double(), 0.0, "softmax")
    for bad, sentence in [(at_threshold, "no margin"), (deaf, "wrongly"), (huge, "overflow")]:
        with pytest.raises(InputError, match=sentence):
            to_torch(bad, graph, table)
    with pytest.raises(InputError, match="need their graph"):
        to_torch(weights)
    with pytest.raises(InputError, match="is empty"):
        to_torch(weights, graph, table, context_length=0)
    with pytest.raises(InputError, match="do not fit"):
        padded(torch.zeros(2, 10_000), to_torch(weights, graph, table).module())


@pytest.fixture
def problem_files(tmp_path):
    """weights.safetensors, graph.csv and table.npy of a permutation."""
    weights, graph, table = embedded()
    weights.save(tmp_path / "weights.safetensors")
    write_graph(graph, tmp_path / "graph.csv")
    save_embeddings(table, tmp_path / "table.npy")
    return weights, graph, table


def test_the_command_writes_what_the_function_gives(problem_files, command, tmp_path):
    weights, graph, table = problem_files
    files = ("weights.safetensors", "graph.csv", "table.npy")
    words = ("export", *files, "--context-length", LENGTH)
    code, out, err = command(*words, "--out", "some.safetensors", "--json")
    assert (code, err) == (0, "")
    wanted = to_torch(weights, graph, table, context_length=LENGTH)
    assert json.loads(out) == {**wanted.facts, "file": "some.safetensors"}
    with safe_open(tmp_path / "some.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert (
        metadata["source_sha256"]
        == hashlib.sha256((tmp_path / "weights.safetensors").read_bytes()).hexdigest()
    )
    assert {name: metadata[name] for name in wanted.facts} == {
        name: str(fact) for name, fact in wanted.facts.items()
    }
    written = load_file(tmp_path / "some.safetensors")
    assert all(torch.equal(written[name], part) for name, part in wanted.tensors.items())
    attention = load_attention(tmp_path / "some.safetensors")
    assert attention.batch_first
    check_promises(attention, graph, table, drawn_contexts(graph.items, LENGTH))
    code, out, _ = command(*words)
    assert code == 0
    assert "mha.safetensors" in out


def test_the_command_needs_no_problem_for_softmax(problem_files, command, tmp_path):
    weights, _, _ = problem_files
    KeyQuery(weights.queries, weights.keys, 0.5, "softmax").save(tmp_path / "softmax.safetensors")
    code, out, _ = command("export", "softmax.safetensors", "--json")
    assert code == 0
    assert json.loads(out)["add_bias_kv"] is False
    assert load_attention(tmp_path / "mha.safetensors").bias_k is None
    code, _, err = command("export", "softmax.safetensors", "graph.csv", "table.npy")
    assert code == 0
    assert "not needed" in err


def test_compiled_weights_are_exported_with_their_problem(problem_files, command):
    """The margin among their notes is not enough: what float32 loses of it depends on the table."""
    code, _, err = command(
        "compile", "graph.csv", "table.npy", "--budget", "16", "--out", "compiled.safetensors"
    )
    assert code == 0, err
    code, _, err = command("export", "compiled.safetensors")
    assert code == 2
    assert "add the two files: headcount export compiled.safetensors GRAPH TABLE" in err
    code, out, _ = command("export", "compiled.safetensors", "graph.csv", "table.npy", "--json")
    assert code == 0
    assert json.loads(out)["temperature"] > 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("none.safetensors",), "no such file"),
        (
            ("weights.safetensors",),
            "add the two files: headcount export weights.safetensors GRAPH TABLE",
        ),
        (("weights.safetensors", "graph.csv"), "weights need the graph and the table"),
        (("weights.safetensors", "graph.csv", "narrow.npy"), "the table is 3 wide"),
        (("weights.safetensors", "empty.csv", "table.npy"), "wrongly"),
        (("weights.safetensors", "graph.csv", "table.npy", "--context-length", "0"), "is empty"),
        (
            ("weights.safetensors", "graph.csv", "table.npy", "--out", "mha.pt"),
            "give the file that suffix",
        ),
        (
            ("weights.safetensors", "graph.csv", "table.npy", "--out", "weights.safetensors"),
            "replace the weights",
        ),
    ],
)
def test_bad_input_gets_one_sentence(problem_files, command, tmp_path, words, sentence):
    np.save(tmp_path / "narrow.npy", np.ones((24, 3)))
    (tmp_path / "empty.csv").write_text("source,target\n")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    code, out, err = command("export", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_files_that_hold_no_attention_are_refused(tmp_path):
    exported = to_torch(*embedded())
    whole = tmp_path / "whole.safetensors"
    exported.save(whole)
    with safe_open(whole, framework="pt") as file:
        metadata = file.metadata()
    embedded()[0].save(tmp_path / "weights.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(whole.read_bytes()[:200])
    fewer = {name: part for name, part in exported.tensors.items() if name != "bias_v"}
    save_file(fewer, tmp_path / "fewer.safetensors", metadata)
    for name, heads in (
        ("odd", str(exported.facts["embed_dim"] + 1)),
        ("none", "0"),
        ("word", "two"),
    ):
        save_file(
            exported.tensors, tmp_path / f"{name}.safetensors", {**metadata, "num_heads": heads}
        )
    for name in ("cut", "fewer", "odd", "none", "word"):
        with pytest.raises(InputError, match=f"{name}.safetensors: not a whole attention file"):
            load_attention(tmp_path / f"{name}.safetensors")
    with pytest.raises(InputError, match="does not hold an exported attention"):
        load_attention(tmp_path / "weights.safetensors")
    with pytest.raises(InputError, match="no such file"):
        load_attention(tmp_path / "missing.safetensors")
