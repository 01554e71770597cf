"""Shared keys: g keys for h heads, in the weights, their files, specs, sweeps and stores."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from headcount import (
    InputError,
    KeyQuery,
    RunSpec,
    Store,
    curve_chart,
    gaussian_embeddings,
    load_weights,
    permutation_graph,
    thresholds,
    train,
    verify,
)
from headcount.compiler.grid import bit_account, round_weights
from headcount.report.score_matrix import plot_scores
from headcount.store.frames import results_frame
from headcount.sweeps.file import read_sweep
from headcount.theory.margins import measured_margin
from headcount.training.engines.base import State
from headcount.training.result import RunResult
from headcount.training.task import first_weights
from tests.strategies import problems


def shared(heads: int, kv_heads: int, d_model: int = 6, key_dim: int = 3, seed: int = 0, **more):
    draw = torch.Generator().manual_seed(seed)
    queries = torch.randn(heads, d_model, key_dim, generator=draw)
    keys = torch.randn(kv_heads, d_model, key_dim, generator=draw)
    return KeyQuery(queries, keys, more.pop("threshold", 0.5), **more)


def spelled_out(weights: KeyQuery) -> KeyQuery:
    """The same weights with a copy of its key for every head."""
    rows = [weights.keys[k * weights.kv_heads // weights.heads] for k in range(weights.heads)]
    return replace(weights, keys=torch.stack(rows))


# --- weights --------------------------------------------------------------------------------------


def test_budgets_count_a_shared_key_once():
    weights = shared(8, 2, key_dim=3)
    assert (weights.heads, weights.kv_heads, weights.budget, weights.key_budget) == (8, 2, 24, 6)
    assert [weights.key_head(k) for k in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert "kv_heads=2, key_dim=3, budget=24, key_budget=6" in repr(weights)
    own = spelled_out(weights)
    assert (own.kv_heads, own.key_budget) == (8, 24)
    assert "kv" not in repr(own)
    assert "key_budget" not in repr(own)


def test_groups_may_differ_in_width_and_heads_of_a_group_may_not():
    queries, keys = torch.ones(4, 2, 3), torch.ones(2, 2, 3)
    queries[2:, :, 2:] = keys[1, :, 2:] = 0
    weights = KeyQuery(queries, keys, 0.5, widths=(3, 3, 2, 2))
    assert (weights.budget, weights.key_budget) == (10, 5)
    queries[1, :, 2:] = 0
    with pytest.raises(InputError, match=r"heads 0…1 share a key and have widths \(3, 2\); .* one"):
        KeyQuery(queries, keys, 0.5, widths=(3, 2, 2, 2))


@pytest.mark.parametrize("kv_heads", [3, 5, 8])
def test_keys_that_heads_cannot_share_are_refused(kv_heads):
    with pytest.raises(
        InputError, match=f"kv_heads {kv_heads} does not divide 4 heads; .* 1, 2, 4"
    ):
        shared(4, kv_heads)


@settings(deadline=None, max_examples=60)
@given(problems(aggregations=("max", "sum", "softmax", "logsumexp")), st.integers(0, 99))
def test_shared_keys_decide_as_their_copies_do(problem, seed):
    weights, graph, table = problem
    own = spelled_out(weights)
    scores = weights.scores(table, table)
    torch.testing.assert_close(scores, own.scores(table, table), rtol=1e-6, atol=1e-6)
    assert scores.shape == (weights.heads, graph.items, graph.items)
    contexts = None
    if weights.aggregation == "softmax":
        contexts = torch.from_numpy(np.random.default_rng(seed).permutation(graph.items)[None])
    found, copied = (verify(part, graph, table, contexts=contexts) for part in (weights, own))
    assert (found.kv_heads, found.key_budget) == (weights.kv_heads, weights.key_budget)
    for name in (
        "exact",
        "false_positives",
        "false_negatives",
        "pairs",
        "budget",
        "failed_contexts",
    ):
        assert getattr(found, name) == getattr(copied, name), name
    assert found.margin == pytest.approx(copied.margin, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("aggregation", ["max", "sum"])
def test_margins_do_not_depend_on_how_keys_are_held(aggregation):
    graph, table = permutation_graph(7), gaussian_embeddings(7, 6)
    weights = shared(4, 2, aggregation=aggregation)
    found = verify(weights, graph, table)
    assert measured_margin(weights, table, found) == pytest.approx(
        measured_margin(spelled_out(weights), table, found), rel=1e-12
    )


def test_rounded_keys_stay_shared():
    weights, graph = shared(6, 2), permutation_graph(7)
    found, copied = round_weights(weights, 4), round_weights(spelled_out(weights), 4)
    assert found.kv_heads == 2
    assert torch.equal(found.keys_per_head, copied.keys)
    assert torch.equal(found.queries, copied.queries)
    spent = bit_account(found, graph, 4)["bits_in_all"]
    assert spent == 4 * 6 * (18 + 6)


def test_the_chart_says_what_is_shared():
    graph, table = permutation_graph(7), gaussian_embeddings(7, 6)
    drawn = plot_scores(shared(4, 1), graph, table).to_dict()
    assert drawn["title"]["text"].endswith("4 heads, D_K 12, shared keys of 3 columns")


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_files_keep_shared_keys(tmp_path, kv_heads):
    weights = shared(4, kv_heads, notes={"method": "by hand"})
    weights.save(tmp_path / "w.safetensors")
    again = load_weights(tmp_path / "w.safetensors")
    assert torch.equal(again.keys, weights.keys)
    assert again.kv_heads == kv_heads


def test_release_0_1_0_is_told_to_upgrade_for_shared_keys_only(tmp_path):
    from safetensors import safe_open

    for kv_heads, version in ((4, "1"), (2, "2")):
        shared(4, kv_heads).save(tmp_path / "w.safetensors")
        with safe_open(tmp_path / "w.safetensors", framework="pt") as file:
            assert file.metadata()["version"] == version


def test_a_file_whose_keys_do_not_fit_gets_a_sentence(tmp_path):
    path = tmp_path / "w.safetensors"
    shared(4, 2).save(path)
    metadata = {"format": "headcount-key-query", "version": "1", "aggregation": "max"}
    metadata |= {"threshold": "0.5", "widths": "[3, 3, 3, 3]", "notes": "{}"}
    save_file({"queries": torch.ones(4, 6, 3), "keys": torch.ones(3, 6, 3)}, path, metadata)
    with pytest.raises(InputError, match=r"w\.safetensors: kv_heads 3 does not divide 4 heads"):
        load_weights(path)


def test_show_names_both_budgets(tmp_path, command):
    shared(4, 2).save(tmp_path / "w.safetensors")
    said = json.loads(command("show", "w.safetensors", "--json")[1])
    assert (said["kv_heads"], said["budget"], said["key_budget"]) == (2, 12, 6)
    assert said["parameters"] == 6 * (12 + 6) + 1
    spelled_out(shared(4, 2)).save(tmp_path / "w.safetensors")
    said = json.loads(command("show", "w.safetensors", "--json")[1])
    assert "kv_heads" not in said
    assert said["parameters"] == 2 * 6 * 12 + 1


# --- specs ----------------------------------------------------------------------------------------


def test_as_many_keys_as_heads_is_the_spec_without_them():
    plain, same = RunSpec(64, 16, 4, 5), RunSpec(64, 16, 4, 5, kv_heads=4)
    assert plain == same
    assert plain.hash == same.hash == "18fdf6259ce0902d248835fc600a4a0c"
    assert "kv_heads" not in same.to_json()
    assert (same.kv_heads, same.key_heads, same.key_budget) == (0, 4, 20)
    some = RunSpec(64, 16, 4, 5, kv_heads=2)
    assert some.hash != plain.hash
    assert RunSpec.from_json(some.to_json()) == some
    assert (some.kv_heads, some.key_heads, some.budget, some.key_budget) == (2, 2, 20, 10)


@pytest.mark.parametrize("kv_heads", [3, -1, 8])
def test_specs_refuse_keys_that_heads_cannot_share(kv_heads):
    with pytest.raises(InputError, match=f"kv_heads {kv_heads} does not divide 4 heads"):
        RunSpec(64, 16, 4, 5, kv_heads=kv_heads)


def test_runs_that_share_keys_begin_with_the_same_queries():
    own, some = (first_weights(RunSpec(64, 16, 4, 5, kv_heads=g)) for g in (0, 2))
    assert own.shape == (8, 16, 5)
    assert torch.equal(some, own[:6])


def test_trained_weights_share_their_keys(tmp_path):
    spec = RunSpec(16, 8, 4, 3, steps=40, check_every=20, validation=5, test=20, kv_heads=2)
    (result,) = train([spec], engine="torch", progress=False, weights=True)
    assert result.weights is not None
    assert (result.weights.heads, result.weights.kv_heads, result.weights.key_budget) == (4, 2, 6)
    moved = result.weights.keys - State.initial(spec).weights[4:]
    assert bool(moved.flatten(1).any(1).all())


# --- sweeps, stores and thresholds ----------------------------------------------------------------


def sweep_of(tmp_path, grid: str):
    path = tmp_path / "sweep.toml"
    path.write_text(f"[grid]\nitems = 16\nd_model = 8\nseeds = 1\n{grid}")
    return read_sweep(path)


def test_a_grid_pairs_each_g_with_the_heads_it_divides(tmp_path):
    runs = sweep_of(tmp_path, "heads = [1, 2, 4]\nkey_dim = 3\nkv_heads = [0, 1, 2]").runs
    found = [(spec.heads, spec.kv_heads) for spec in runs]
    assert found == [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2)]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("heads = [2, 4]\nkey_dim = 3\nkv_heads = [1, 3]", r"kv_heads 3 divides none of heads"),
        ("heads = [2, 3]\nkey_dim = 3\nkv_heads = 2", r"heads 3 is a multiple of none of kv_heads"),
        ("heads = 2\nkey_dim = 3\nkv_heads = -1", r"kv_heads -1 divides none of heads"),
    ],
)
def test_a_grid_refuses_what_never_fits(tmp_path, grid, said):
    with pytest.raises(InputError, match=said):
        sweep_of(tmp_path, grid)


def result_of(spec: RunSpec, value: float) -> RunResult:
    return RunResult(spec, value, 100, 0.5, ((100, value),), None, "torch", "cpu", 1.0)


def made_results() -> list[RunResult]:
    """h = 4 passes at D_K 16 with keys of its own, and at 32 with one key."""
    return [
        result_of(
            RunSpec(64, 16, 4, budget // 4, seed=seed, kv_heads=kv_heads),
            1.0 if budget >= needed else 0.5,
        )
        for kv_heads, needed in ((0, 16), (1, 32))
        for budget in (8, 16, 32)
        for seed in range(3)
    ]


def test_thresholds_never_mix_numbers_of_keys(tmp_path):
    frame = results_frame(made_results())
    found = thresholds(frame)
    assert found[["kv_heads", "central"]].to_numpy().tolist() == [[0, 16], [1, 32]]
    one = thresholds(frame[frame["kv_heads"] == 0])
    assert "kv_heads" not in one
    assert one["central"].tolist() == [16]
    chart = curve_chart(frame).to_dict()
    assert "own keys" in json.dumps(chart, ensure_ascii=False)
    assert "g = 1" in json.dumps(chart, ensure_ascii=False)


def test_stores_filter_and_export_by_g(tmp_path, command):
    path, results = tmp_path / "runs.sqlite", made_results()
    with Store(path) as store:
        store.add(results)
        pd.testing.assert_series_equal(
            store.frame()["kv_heads"].value_counts().sort_index(),
            pd.Series([9, 9], index=pd.Index([0, 1], name="kv_heads"), name="count"),
        )
        assert {run.spec.kv_heads for run in store.results(kv_heads=1)} == {1}
        assert store.count(kv_heads=0) == 9
        assert store.means(["kv_heads"])["runs"].tolist() == [9, 9]
        store.export(tmp_path / "all.csv")
        store.export(tmp_path / "own.csv", kv_heads=0)
    assert "kv_heads" in pd.read_csv(tmp_path / "all.csv")
    assert "kv_heads" not in pd.read_csv(tmp_path / "own.csv")
    code, text, _ = command("results", "list", path, "--kv-heads", "1")
    lines = [line.split() for line in text.splitlines()]
    assert (code, lines[0], lines[1][-1], lines[2][-1]) == (0, ["9", "runs"], "g", "1")
    code, text, _ = command("results", "list", path, "--kv-heads", "0")
    assert (code, text.splitlines()[1].split()[-1]) == (0, "engine")


def test_train_takes_kv_heads(command):
    sizes = ["--items", "16", "--d-model", "8", "--heads", "4", "--key-dim", "3", "--seeds", "1"]
    run = ["train", *sizes, "--steps", "10", "--engine", "torch", "--quiet"]
    said = json.loads(command(*run, "--kv-heads", "2", "--json")[1])
    assert (said["kv_heads"], said["budget"], said["key_budget"]) == (2, 12, 6)
    assert "4 × 3, D_K 12, g 2, D_KV 6, max" in command(*run, "--kv-heads", "2")[1]
    code, _, err = command(*run, "--kv-heads", "3")
    assert (code, err) == (
        2,
        "error: kv_heads 3 does not divide 4 heads; choose one of 1, 2, 4\n",
    )
