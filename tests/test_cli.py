"""The commands as a user types them: in a shell, in a folder of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import headcount as hc
from headcount import KeyQuery, load_weights
from headcount.training.engines.native import library as native_library
from tests.one_hot_files import GRAPH, TABLE, WEIGHTS, write_one_hot


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_one_hot(tmp_path_factory.mktemp("cli"))


def test_verify_answers_by_exit_code_and_json(folder, command_in):
    code, out, _ = command_in(folder, "verify", WEIGHTS, GRAPH, TABLE, "--json")
    answer = json.loads(out)
    assert code == 0
    keys = [
        "exact",
        "margin",
        "threshold",
        "false_positives",
        "false_negatives",
        "f1",
        "budget",
        "heads",
        "key_dim",
    ]
    assert [answer[key] for key in keys] == [True, answer["margin"], 32.0, 0, 0, 1.0, 64, 1, 64]
    assert answer["margin"] > 0
    weights = load_weights(folder / WEIGHTS)
    KeyQuery(weights.queries, weights.keys, threshold=1e9).save(folder / "deaf.safetensors")
    code, out, _ = command_in(folder, "verify", "deaf.safetensors", GRAPH, TABLE, "--json")
    assert code == 1
    assert json.loads(out)["false_negatives"] == 32


def test_softmax_weights_are_checked_on_contexts(folder, command_in):
    weights = load_weights(folder / WEIGHTS)
    sharp = KeyQuery(weights.queries, weights.keys, 0.5, "softmax")
    sharp.save(folder / "softmax.safetensors")
    words = ("verify", "softmax.safetensors", GRAPH, TABLE, "--samples", 100, "--json")
    code, out, _ = command_in(folder, *words)
    answer = json.loads(out)
    # A source whose target is outside the context still spreads its mass: at τ = 1/2, small
    # contexts fail.
    assert code == 1
    assert answer["contexts"] == 100
    assert 0 < answer["failed_contexts"] <= 100
    assert answer["failure_rate_below"] > answer["failed_contexts"] / 100


def test_a_sample_of_contexts_is_said_to_be_one(command, tmp_path):
    graph, table = hc.permutation_graph(16), torch.eye(16)
    target_of = torch.eye(16)[torch.from_numpy(graph.targets.copy())]
    hc.write_graph(graph, tmp_path / "g.csv")
    hc.save_embeddings(table, tmp_path / "t.npy")
    KeyQuery(target_of[None] * 20, table[None], 0.6, "softmax").save(tmp_path / "w.safetensors")
    words = ("verify", "w.safetensors", "g.csv", "t.npy", "--samples", 50)
    code, out, _ = command(*words)
    assert code == 0
    assert "yes" not in out
    assert out.startswith("not proved: no error in 50 sampled contexts of 16 items")
    assert re.search(r"exact +not proved", out)
    answer = json.loads(command(*words, "--json")[1])
    assert (answer["exact"], answer["correct"]) == (None, True)
    code, out, _ = command(*words, "--context-length", 16)
    assert code == 0
    assert out.startswith("certified: every pair is decided correctly in every context of 16")


def test_show_says_what_is_there_and_draws(folder, command_in):
    words = ("show", WEIGHTS, GRAPH, TABLE, "--scores", "picture.svg", "--json")
    answer = json.loads(command_in(folder, *words)[1])
    assert (answer["heads"], answer["budget"], answer["method"]) == (1, 64, "one-hot")
    assert "true edges" in (folder / "picture.svg").read_text()


def test_made_files_follow_the_seed(folder, command_in):
    for name, seed in (("a.csv", "1"), ("b.csv", "1"), ("c.csv", "2")):
        words = ("make", "graph", "random", "--items", 50, "--edges", 70)
        command_in(folder, *words, "--seed", seed, "--out", name)
    a, b, c = ((folder / name).read_text() for name in ("a.csv", "b.csv", "c.csv"))
    assert a == b != c


def test_help_and_version_load_nothing_heavy():
    code = (
        "import sys\n"
        "from headcount.cli import main\n"
        "for option in ('--help', '--version'):\n"
        "    sys.argv = ['headcount', option]\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        "heavy = ('torch', 'numpy', 'pandas', 'scipy', 'altair')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip().endswith("[]")
    assert "\nheadcount 0." in done.stdout


def test_version_says_which_native_engine_there_is(command, monkeypatch):
    """A fast answer, before any run: torch is not asked."""
    code, out, _ = command("--version")
    first, second = out.splitlines()
    assert (code, first) == (0, f"headcount {hc.__version__}")
    if native_library.LIBRARY.exists():
        there = native_library.levels()
        assert second == (f"native engine at level {there[-1]} (levels here: {', '.join(there)})")
        assert there[0] == "plain"
    native_library.library.cache_clear()
    native_library.levels.cache_clear()
    monkeypatch.setattr(native_library, "LIBRARY", Path("missing.so"))
    code, out, _ = command("--version")
    assert code == 0
    assert "no native engine, so runs on a CPU are trained with torch: " in out
    assert "install a C++ compiler (g++ or clang) and reinstall" in out


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "--items", "60", "--d-model", "8", "--heads", "2", "--key-dim", "3"],
        ["contexts", "--items", "32", "--count", "100"],
        ["packing", "--items", "50", "--edges", "200", "--block", "8"],
    ],
)
def test_benchmarks_run_small(command, words):
    code, out, err = command("bench", *words, "--repeats", "1", "--json")
    assert code == 0, err
    timings = [value for name, value in json.loads(out).items() if "second" in name]
    assert timings
    assert all(value > 0 for value in timings)


def test_show_sums_a_certificate_up(command, tmp_path):
    graph, table = hc.permutation_graph(16), hc.gaussian_embeddings(16, 8)
    found = hc.compile(graph, table, budget=8)
    found.save(tmp_path / "w.safetensors")
    assert "certificate  256 pairs, relative margin" in command("show", "w.safetensors")[1]
    shown = json.loads(command("show", "w.safetensors", "--json")[1])["certificate"]
    assert (shown["pairs"], shown["graph_hash"]) == (256, found.certificate.graph_hash)
    changed = replace(found.weights, notes={"certificate": "{damaged"})
    changed.save(tmp_path / "w.safetensors")
    assert "{damaged" in command("show", "w.safetensors")[1]


def test_a_certificate_of_the_first_release_is_read(command, tmp_path):
    """Release 0.1.0 wrote each of its values as a note of its own, as Python prints them."""
    graph, table = hc.permutation_graph(16), hc.gaussian_embeddings(16, 8)
    found = hc.compile(graph, table, budget=8)
    values = found.certificate.as_dict()
    notes = {f"certificate_{name}": str(value) for name, value in values.items()}
    replace(found.weights, notes={"method": "compiled", **notes}).save(tmp_path / "w.safetensors")
    loaded = load_weights(tmp_path / "w.safetensors")
    assert hc.Certificate.from_notes(loaded.notes) == found.certificate
    out = command("show", "w.safetensors")[1]
    assert "certificate  256 pairs, relative margin" in out
    assert "graph hash" not in out
    shown = json.loads(command("show", "w.safetensors", "--json")[1])
    assert shown["certificate"] == values


@pytest.mark.skipif(os.name == "nt", reason="pipes end differently there")
@pytest.mark.parametrize(
    "words", [("results", "list", "results.sqlite", "--json"), ("--version",), ("--help",)]
)
def test_a_reader_that_goes_away_ends_the_command_silently(words, tmp_path, filled):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        done = subprocess.run(
            [sys.executable, "-m", "headcount", *words],
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == ""


def test_the_command_line_leaves_sigpipe_alone(command):
    """Python ignores it; a command that let it act would die with its workers' pipes."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        assert command("--version")[0] == 0
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGPIPE, before)
