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

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import headcount as hc
from headcount import KeyQuery, load_weights
from headcount.problem.edge_list import write_graph
from headcount.training.engines.native import library as native_library

HEADCOUNT = Path(sys.executable).with_name("headcount")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HEADCOUNT, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The graph, table and weights of a one-hot permutation that verifies, and many bad files."""
    path = tmp_path_factory.mktemp("cli")
    graph, one_hot = hc.permutation_graph(32), hc.one_hot_embeddings(32)
    write_graph(graph, path / "graph.csv")
    hc.save_embeddings(one_hot, path / "table.npy")
    hc.construct(graph, one_hot, "one-hot", key_dim=64).save(path / "weights.safetensors")
    (path / "duplicate.csv").write_text("source,target\n0,1\n0,1\n")
    (path / "outside.csv").write_text("source,target\n0,1\n5,99\n")
    (path / "negative.csv").write_text("source,target\n0,-1\n")
    (path / "header.csv").write_text("from,to\n0,1\n")
    (path / "empty.csv").write_text("")
    (path / "words.csv").write_text("source,target\n0,1\none,2\n")
    (path / "fraction.csv").write_text("source,target\n0,1.5\n")
    (path / "three.csv").write_text("source,target\n0,1\n1,2,3\n")
    (path / "huge.csv").write_text("source,target\n0,99999999999999999999\n")
    table = np.load(path / "table.npy")
    np.save(path / "short.npy", table[:20])
    nan = table.copy()
    nan[7, 3] = np.nan
    np.save(path / "nan.npy", nan)
    np.save(path / "narrow.npy", table[:, :16])
    np.save(path / "flat.npy", table.ravel())
    np.save(path / "text.npy", np.array([["a", "b"]]))
    np.save(path / "objects.npy", np.array([[object()]]), allow_pickle=True)
    (path / "cut.npy").write_bytes((path / "table.npy").read_bytes()[:500])
    (path / "cut.safetensors").write_bytes((path / "weights.safetensors").read_bytes()[:300])
    save_file({"a": torch.ones(2, 2)}, path / "other.safetensors")
    metadata = {
        "format": "headcount-key-query",
        "version": "1",
        "aggregation": "max",
        "threshold": "0.0",
    }
    bad = {**metadata, "widths": "[4]", "notes": "{}"}
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 3)},
        path / "widths.safetensors",
        bad,
    )
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 2)},
        path / "shapes.safetensors",
        bad,
    )
    save_file({"queries": torch.ones(1, 2, 3)}, path / "missing.safetensors", bad)
    newer = {**bad, "version": "99"}
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 3)},
        path / "newer.safetensors",
        newer,
    )
    np.save(path / "twice.npy", np.array([[0, 1], [2, 2]]))
    (path / "wide.csv").write_text("source,target\n0,1,2\n1,2,3\n")
    (path / "logic.csv").write_text("source,target\nTrue,False\n")
    (path / "edges.csv.gz").write_bytes(b"\x1f\x8b")
    with (path / "zip.npy").open("wb") as file:
        np.savez(file, a=table)
    np.save(path / "long.npy", table.astype(np.longdouble))
    listed = {**metadata, "widths": "[3]", "notes": "[1]"}
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 3)},
        path / "notes.safetensors",
        listed,
    )
    endless = {**metadata, "widths": "[3]", "notes": "{}", "threshold": "inf"}
    save_file(
        {"queries": torch.ones(1, 2, 3), "keys": torch.ones(1, 2, 3)},
        path / "endless.safetensors",
        endless,
    )
    return path


WEIGHTS, GRAPH, TABLE = "weights.safetensors", "graph.csv", "table.npy"
BAD_INPUT = {
    "no file": (["verify", "none.safetensors", GRAPH, TABLE], "none.safetensors: no such file"),
    "a folder": (["verify", ".", GRAPH, TABLE], "is a folder"),
    "duplicate edge": (
        ["verify", WEIGHTS, "duplicate.csv", TABLE],
        "duplicate.csv, line 3: edge (0, 1) is in line 2 already",
    ),
    "id out of range": (["verify", WEIGHTS, "outside.csv", TABLE], "outside.csv, line 3"),
    "negative id": (["verify", WEIGHTS, "negative.csv", TABLE], "negative.csv, line 2"),
    "wrong header": (
        ["verify", WEIGHTS, "header.csv", TABLE],
        "header.csv, line 1: the header is 'from,to'",
    ),
    "empty graph file": (["verify", WEIGHTS, "empty.csv", TABLE], "empty.csv, line 1"),
    "words for ids": (["verify", WEIGHTS, "words.csv", TABLE], "words.csv, line 3: 'one,2'"),
    "fractions for ids": (["verify", WEIGHTS, "fraction.csv", TABLE], "fraction.csv, line 2"),
    "three columns": (["verify", WEIGHTS, "three.csv", TABLE], "three.csv, line 3"),
    "three columns from the first": (["verify", WEIGHTS, "wide.csv", TABLE], "wide.csv, line 2"),
    "words that pandas would take": (
        ["verify", WEIGHTS, "logic.csv", TABLE],
        "logic.csv, line 2: 'True,False'",
    ),
    "a compressed graph": (["verify", WEIGHTS, "edges.csv.gz", TABLE], "use .csv or .tsv"),
    "an archive of tables": (
        ["verify", WEIGHTS, GRAPH, "zip.npy"],
        "zip.npy: not a whole .npy array",
    ),
    "numbers beyond 64 bits": (["verify", WEIGHTS, GRAPH, "long.npy"], "at most 64 bits"),
    "notes that are none": (["show", "notes.safetensors"], "not a whole weights file"),
    "an endless threshold": (["show", "endless.safetensors"], "the threshold is inf"),
    "a picture not asked for": (["show", WEIGHTS, GRAPH, TABLE], "add --scores"),
    "a negative seed": (
        ["make", "graph", "permutation", "--items", "4", "--seed", "-1", "--out", "x.csv"],
        "seed -1",
    ),
    "too many items": (
        ["make", "graph", "permutation", "--items", "10000000000", "--out", "x.csv"],
        "too many",
    ),
    "an unknown option": (["verify", "--qqq"], "No such option: --qqq; see --help"),
    "an unknown command": (["nonsense"], "No such command 'nonsense'"),
    "a missing option": (["make", "graph", "permutation"], "Missing option '--items'"),
    "construct nothing": (["construct"], "give a graph and a table"),
    "calibrate nothing": (
        ["construct", "--trials", "3", "--method", "compressive"],
        "--trials needs",
    ),
    "both contexts and length": (
        ["verify", WEIGHTS, GRAPH, TABLE, "--contexts", "twice.npy", "--context-length", "3"],
        "exclude each other",
    ),
    "a bench of nothing": (
        ["bench", "packing", "--items", "16", "--edges", "8", "--block", "0"],
        "--block",
    ),
    "a table beyond memory": (
        ["make", "embeddings", "one-hot", "--items", "1000000000000", "--out", "x.npy"],
        "choose smaller sizes or a larger machine",
    ),
    "a width beyond numbers": (
        [
            "make",
            "embeddings",
            "gaussian",
            "--items",
            "1",
            "--d-model",
            "10000000000000000000",
            "--out",
            "x.npy",
        ],
        "choose smaller sizes or a larger machine",
    ),
    "hardly a bit": (
        ["plan", "--items", "64", "--d-model", "16", "--bits", "1e-308"],
        "1e-6 to 1e6 bits",
    ),
    "an id beyond 64 bits": (["verify", WEIGHTS, "huge.csv", TABLE], "huge.csv, line 2"),
    "too few rows": (["verify", WEIGHTS, GRAPH, "short.npy"], "graph.csv, line"),
    "a NaN row": (["verify", WEIGHTS, GRAPH, "nan.npy"], "nan.npy, row 7"),
    "another width": (["verify", WEIGHTS, GRAPH, "narrow.npy"], "the table is 16 wide"),
    "a flat table": (["verify", WEIGHTS, GRAPH, "flat.npy"], "items × d_model"),
    "text in a table": (["verify", WEIGHTS, GRAPH, "text.npy"], "must be real numbers"),
    "pickled objects": (
        ["verify", WEIGHTS, GRAPH, "objects.npy"],
        "objects.npy: not a whole .npy array",
    ),
    "a truncated table": (["verify", WEIGHTS, GRAPH, "cut.npy"], "cut.npy: not a whole .npy array"),
    "truncated weights": (
        ["verify", "cut.safetensors", GRAPH, TABLE],
        "cut.safetensors: not a whole weights file",
    ),
    "no weights inside": (["show", "other.safetensors"], "does not hold key-query weights"),
    "widths that do not fit": (["show", "widths.safetensors"], "widths (4,)"),
    "a tensor missing": (
        ["show", "missing.safetensors"],
        "missing.safetensors: not a whole weights file",
    ),
    "a newer format": (["show", "newer.safetensors"], "upgrade"),
    "unknown table format": (["verify", WEIGHTS, GRAPH, "edges.csv.gz"], "use .npy, .npz,"),
    "contexts with repeats": (
        ["verify", WEIGHTS, GRAPH, TABLE, "--contexts", "twice.npy"],
        "context 1 holds the same",
    ),
    "no samples": (["verify", WEIGHTS, GRAPH, TABLE, "--samples", "0"], "--samples 0"),
    "degree too large": (
        ["make", "graph", "regular", "--items", "8", "--degree", "8", "--out", "x.csv"],
        "degree 8 does not fit 8 items",
    ),
    "degree missing": (
        ["make", "graph", "regular", "--items", "8", "--out", "x.csv"],
        "needs --degree",
    ),
    "degree misplaced": (
        ["make", "graph", "permutation", "--items", "8", "--degree", "2", "--out", "x.csv"],
        "--degree does not apply",
    ),
    "too many edges": (
        ["make", "graph", "random", "--items", "3", "--edges", "9", "--out", "x.csv"],
        "choose 0…6",
    ),
    "no items": (["make", "graph", "permutation", "--items", "0", "--out", "x.csv"], "too few"),
    "no such folder": (
        ["make", "graph", "permutation", "--items", "4", "--out", "no/x.csv"],
        "cannot write there",
    ),
    "no width": (
        ["make", "embeddings", "gaussian", "--items", "4", "--out", "x.npy"],
        "needs --d-model",
    ),
    "bad density": (
        [
            "make",
            "embeddings",
            "binary",
            "--items",
            "4",
            "--d-model",
            "4",
            "--density",
            "2",
            "--out",
            "x.npy",
        ],
        "density 2.0",
    ),
    "a picture without a graph": (
        ["show", WEIGHTS, "--scores", "x.png"],
        "needs a graph and a table",
    ),
    "an unknown picture": (["show", WEIGHTS, GRAPH, TABLE, "--scores", "x.bmp"], "written as .png"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gets_one_sentence_and_code_2(folder, case, command_in):
    words, sentence = BAD_INPUT[case]
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    code, stdout, stderr = command_in(folder, *words)
    assert code == 2, stderr
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert sentence in stderr
    assert stdout == ""
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_weights_of_differing_shapes_are_refused(folder, command_in, unchecked):
    code, _, err = command_in(folder, "show", "shapes.safetensors")
    assert code == 2
    assert "must have one shape" in err


def test_verify_answers_by_exit_code_and_json(folder, command_in):
    done = run(folder, "verify", WEIGHTS, GRAPH, TABLE, "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 0
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
    "words", [("bounds", "--items", "64", "--d-model", "16", "--json"), ("--version",), ("--help",)]
)
def test_a_reader_that_goes_away_ends_the_command_silently(words, tmp_path):
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
