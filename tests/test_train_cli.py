"""`headcount train` and `headcount bench engines` as a user types them."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from scipy import stats

from headcount import InputError, RunSpec, load_weights, train
from headcount.bench import cases
from headcount.bench import engines as compare
from headcount.cli import bench
from headcount.training.engines import selection as choose
from headcount.training.engines.torch import TorchEngine, TorchFleet

TINY = [
    "--items",
    "16",
    "--d-model",
    "16",
    "--heads",
    "2",
    "--key-dim",
    "4",
    "--steps",
    "60",
    "--engine",
    "torch",
]


def test_json_gives_every_run_and_the_interval_over_seeds(command):
    code, out, _ = command("train", *TINY, "--seeds", "3", "--first-seed", "5", "--json")
    found = json.loads(out)
    specs = [RunSpec(16, 16, 2, 4, seed=seed, steps=60) for seed in (5, 6, 7)]
    expected = [result.value for result in train(specs, "torch", progress=False)]
    assert code == 0
    assert [run["value"] for run in found["runs"]] == expected
    assert [run["seed"] for run in found["runs"]] == [5, 6, 7]
    assert all(run["steps"] == 60 and run["diverged"] is None for run in found["runs"])
    low, high = stats.t.interval(0.95, 2, loc=sum(expected) / 3, scale=stats.sem(expected))
    assert found["metric"] == "f1"
    assert (found["mean"], found["low"], found["high"]) == pytest.approx(
        (sum(expected) / 3, low, high)
    )
    assert (found["engine"], found["device"], found["budget"]) == (
        "torch",
        choose.choose_engine("torch").device,
        8,
    )
    assert found["run_steps_per_second"] == pytest.approx(180 / found["seconds"])


def test_one_seed_has_no_interval_and_value_retrieval_gives_an_error(command):
    found = json.loads(command("train", *TINY, "--seeds", "1", "--variant", "value", "--json")[1])
    assert found["metric"] == "mse"
    assert found["mean"] == found["runs"][0]["value"] > 0
    assert found["low"] is None
    assert found["high"] is None
    of_two = json.loads(command("train", *TINY, "--variant", "value", "--degree", "2", "--json")[1])
    specs = [RunSpec(16, 16, 2, 4, degree=2, variant="value", steps=60)]
    (expected,) = train(specs, "torch", progress=False)
    assert of_two["runs"][0]["value"] == expected.value


def test_the_table_of_seeds_ends_with_the_mean(command):
    code, out, err = command("train", *TINY, "--seeds", "2")
    lines = out.splitlines()
    assert code == 0
    assert err == ""
    assert lines[0].split() == ["seed", "test", "F1", "steps"]
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1"]
    assert lines[3] == "16 items, d_model 16, 2 × 4, D_K 8, max"
    assert "95 % interval" in lines[4]
    assert "torch on" in lines[6]


@pytest.mark.parametrize("variant", ["max", "softmax", "value"])
def test_weights_of_every_run_are_saved(command, tmp_path, variant):
    code, out, _ = command(
        "train", *TINY, "--seeds", "2", "--variant", variant, "--out", "some/where", "--json"
    )
    assert code == 0
    assert json.loads(out)["folder"] == "some/where"
    for seed in range(2):
        weights = load_weights(tmp_path / "some" / "where" / f"seed-{seed}.safetensors")
        spec = RunSpec(16, 16, 2, 4, seed=seed, steps=60, variant=variant)
        (result,) = train([spec], "torch", progress=False, weights=True)
        assert result.weights is not None
        assert torch.equal(weights.queries, result.weights.queries)
        assert torch.equal(weights.keys, result.weights.keys)
        assert weights.threshold == result.threshold
        assert weights.aggregation == ("max" if variant == "value" else variant)
        assert weights.notes["context_length"] == "16"


def test_a_run_without_weights_cannot_save_them(tmp_path):
    (result,) = train([RunSpec(16, 16, 2, 4, steps=60)], "torch", progress=False)
    with pytest.raises(InputError, match="kept no weights"):
        result.save_weights(tmp_path / "weights.safetensors")


def test_weights_are_of_the_problem_that_make_draws(command):
    """Long enough to learn it: then `verify` must agree on the files that `make` writes."""
    sizes = ["--items", "16", "--d-model", "16"]
    steps = [
        "--heads",
        "2",
        "--key-dim",
        "4",
        "--seeds",
        "1",
        "--first-seed",
        "1",
        "--steps",
        "1000",
    ]
    assert command("train", *sizes, *steps, "--engine", "torch", "--out", "w")[0] == 0
    assert (
        command("make", "graph", "permutation", "--items", "16", "--seed", "1", "--out", "g.csv")[0]
        == 0
    )
    assert (
        command("make", "embeddings", "gaussian", *sizes, "--seed", "1", "--out", "t.npy")[0] == 0
    )
    found = json.loads(command("verify", "w/seed-1.safetensors", "g.csv", "t.npy", "--json")[1])
    assert found["f1"] > 0.9


def test_diverged_runs_are_counted_and_recover_nothing(command):
    code, out, err = command("train", *TINY, "--seeds", "2", "--learning-rate", "1e30", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["diverged"] == 2
    assert found["mean"] == 0.0
    assert all(run["value"] is None and run["diverged"] > 0 for run in found["runs"])
    assert "2 of 2 runs diverged" in err
    assert (
        "diverged at step" in command("train", *TINY, "--seeds", "1", "--learning-rate", "1e30")[1]
    )


def test_an_interrupt_prints_what_is_finished(command, monkeypatch, tmp_path):
    check, calls = TorchFleet.check, []

    def interrupted(self):
        calls.append(self)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return check(self)

    monkeypatch.setattr(TorchEngine, "capacity", lambda self, spec: 1)  # one run after the other
    monkeypatch.setattr(TorchFleet, "check", interrupted)
    code, out, err = command("train", *TINY, "--seeds", "3", "--out", "w", "--json")
    assert code == 130
    assert [run["seed"] for run in json.loads(out)["runs"]] == [0]
    assert "interrupted: 1 of 3 runs are finished" in err
    assert [file.name for file in (tmp_path / "w").iterdir()] == ["seed-0.safetensors"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seeds", "0"], "--seeds 0 trains nothing"),
        (["--steps", "0"], "--steps 0 trains nothing"),
        (["--first-seed", "-1"], "seed -1 does not fit"),
        (["--length", "17"], "length 17 does not fit"),
        (["--rate", "1.5"], "rate 1.5 is not between 0 and 1"),
        (["--degree", "16"], "degree 16 does not fit"),
        (["--variant", "mean"], "--variant"),
        (["--out", "taken"], "taken: cannot be a folder"),
    ],
)
def test_bad_input_gets_one_sentence(command, tmp_path, words, sentence):
    (tmp_path / "taken").write_text("a file")
    code, out, err = command("train", *TINY, *words)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_a_slower_engine_is_one_notice(command, monkeypatch):
    def lacking():
        warnings.warn(
            "no compiler was found. Going on without it.", choose.SlowerEngine, stacklevel=2
        )
        return TorchEngine()

    monkeypatch.setattr(choose, "_fastest", lacking)
    code, _, err = command("train", *TINY[:-2], "--seeds", "1", "--json")
    assert code == 0
    assert err == "no compiler was found. Going on without it.\n"


def test_bench_engines_times_what_is_there_and_names_what_is_not(command, monkeypatch, capsys):
    monkeypatch.setattr(cases, "MAIN", cases.Case(16, 8, 2, 4))
    monkeypatch.setattr(compare, "_TORCH_RUNS", 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, out, err = command(
        "bench", "engines", "--engines", "torch,triton", "--repeats", "1", "--no-peers", "--json"
    )
    found = json.loads(out)
    assert code == 0
    rows = {(row["engine"], row["device"]): row for row in found["rows"]}
    timed, rate = rows["torch", "cpu"], rows["matmul", "cpu"]
    assert timed["us_per_run_step"] > 0
    assert timed["gflops"] == pytest.approx(
        cases.Case(16, 8, 2, 4).flops / timed["us_per_run_step"] / 1e3
    )
    assert 0 <= timed["share_evaluation"] <= 1
    assert rate["gflops"] > 0
    assert rows["triton", "cuda"]["missing"] == "this machine has no CUDA device"
    assert found["ratios"]["triton_vs_jax"] == {"value": None, "target": 3.0}
    assert "warm-up" in err
    bench._print_engines(found)
    out = capsys.readouterr().out
    assert "torch on cpu, 1 thread" in out
    assert "(target 20,000)" in out


def test_bench_engines_refuses_unknown_engines(command):
    code, _, err = command("bench", "engines", "--engines", "native,numba")
    assert code == 2
    assert "'numba' is unknown; use native, torch, triton" in err
    assert command("bench", "engines", "--engines", ",")[0] == 2


def test_a_cuda_machine_times_large_fleets_and_peers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert compare.default_engines() == ("triton", "torch")
    rows = [
        (each.name, each.device, each.runs)
        for each in compare.lineup(cases.MAIN, ("triton", "torch"), True)
    ]
    assert rows == [
        ("triton", "cuda", 560),
        ("triton", "cuda", 4000),
        ("torch", "cuda", 160),
        ("eager", "cuda", 1),
        ("jax", "cuda", 560),
        ("jax", "cuda", 4000),
        ("matmul", "cuda", None),
    ]
    both = compare.lineup(cases.SHAPES[-1], ("native", "triton"), False)
    assert [(each.name, each.device) for each in both if each.runs] == [("native", "cpu")] * (
        1 + (compare.cores() > 1)
    ) + [("triton", "cuda")]


def test_ratios_compare_the_right_rows():
    def row(engine, device, us, gflops, threads=None, missing=None):
        names = ("engine", "device", "us_per_run_step", "gflops", "threads", "missing")
        return dict(zip(names, (engine, device, us, gflops, threads, missing), strict=True))

    found = compare.ratios(
        [
            row("native", "cpu", 5.0, 60.0, 1),
            row("native", "cpu", 2.0, 150.0, 4),
            row("eager", "cpu", 500.0, 0.6, 1),
            row("jax", "cpu", None, None, 1, "not installed"),
            row("matmul", "cpu", None, 100.0, 1),
            row("matmul", "cpu", None, 350.0, 4),
            row("triton", "cuda", 0.05, 6000.0),
            row("triton", "cuda", 0.04, 7500.0),
            row("jax", "cuda", 0.12, 2500.0),
            row("jax", "cuda", 0.10, 3000.0),
        ]
    )
    assert found["native_vs_eager"] == {"value": pytest.approx(100.0), "target": 60.0}
    assert found["native_vs_jax"]["value"] is None
    assert found["native_share_of_sgemm"]["value"] == pytest.approx(0.6)
    assert found["native_scaling"] == {
        "value": pytest.approx(2.5),
        "target": 3.8,
        "per_core": pytest.approx(0.625),
        "products": pytest.approx(3.5),
    }
    assert found["triton_vs_jax"]["value"] == pytest.approx(2.5)
    assert found["triton_vs_eager"]["value"] is None
