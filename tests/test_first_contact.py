"""What a newcomer meets: odd terminals, narrow ones, flags, errors for programs, quiet runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import headcount as hc
from headcount.store.store import Store
from tests.store_writers import result_of

HEADCOUNT = Path(sys.executable).with_name("headcount")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "--items", 64, "--d-model", 16],
        ["bounds", "--items", 64, "--d-model", 16],
        ["bounds", "--help"],
        ["noise", "--items", 32, "--d-model", 8, "--key-dim", 4],
    ],
)
def test_a_terminal_of_ascii_gets_plain_letters(command, words):
    code, text, err = command(*words, encoding="ascii")
    assert code == 0, err
    assert "?" not in text.replace("needs?", "")
    if words[-1] != "--help":
        assert ">= " in text or "gamma" in text or "rms" in text


def test_json_is_whole_on_a_terminal_of_ascii(command):
    words = ["bounds", "--items", "64", "--d-model", "16", "--json"]
    plain, full = (json.loads(command(*words, encoding=name)[1]) for name in ("ascii", ""))
    assert plain == full
    assert any("τ" in bound["assumptions"] for bound in plain["lower"])


def test_json_is_whole_in_a_process_of_ascii(command, path):
    """Whose streams are as the settings make them."""
    with Store(path) as store:
        store.add([replace(result_of(1), device="GPU τ")])
    words = ["results", "list", path.name, "--json"]
    done = subprocess.run(
        [HEADCOUNT, *words],
        cwd=path.parent,
        env=os.environ | ASCII,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    plain, full = json.loads(done.stdout.decode("ascii")), json.loads(command(*words)[1])
    assert plain == full
    assert [row["device"] for row in plain["rows"]] == ["GPU τ"]


def test_a_name_that_is_not_text_is_printed_all_the_same(command):
    name = b"\xff.safetensors".decode("utf-8", "surrogateescape")
    code, _, err = command("show", name, encoding="utf-8")
    assert code == 2
    assert err == "error: \\udcff.safetensors: no such file; check the path\n"


@pytest.mark.parametrize("columns", ["40", "60", "80"])
@pytest.mark.parametrize(
    "words", ["plan --items 4096 --d-model 512", "bounds --items 64 --d-model 16"]
)
def test_tables_are_never_cut(command, monkeypatch, columns, words):
    monkeypatch.setenv("COLUMNS", columns)
    text = command(*words.split())[1]
    assert "pseudo-inverse" in text
    assert "…" not in re.sub(r"\d …", "", text)  # an interval, as in 20 … 42


@pytest.mark.parametrize("command_words", ["verify", "train", "bench engines", "results list", ""])
def test_flags_take_no_value_in_help(command, command_words):
    code, out, _ = command(*command_words.split(), "--help")
    assert code == 0
    assert "--help" in out
    assert "<bool>" not in out


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["bounds"], "max|sum|softmax"),
        (["compile"], "max|softmax"),
        (["compile"], "auto|cpu|cuda"),
        (["block"], "auto|cpu|cuda"),
        (["train"], "max|softmax|value|sum"),
    ],
)
def test_choices_are_shown_in_help(command, monkeypatch, words, shown):
    monkeypatch.setenv("COLUMNS", "200")
    assert shown in command(*words, "--help")[1]


@pytest.mark.parametrize("name", ["train", "bench contexts", "compile", "construct", "verify"])
def test_a_context_length_has_one_name(command, name):
    out = command(*name.split(), "--help")[1]
    assert "--context-length" in out
    assert not re.search(r"--length\b", out)


def test_the_former_length_still_works(command):
    words = "train --items 16 --d-model 4 --heads 1 --key-dim 2 --seeds 1 --steps 5 --engine torch"
    answers = [
        json.loads(command(*words.split(), option, "4", "--json")[1])["mean"]
        for option in ("--length", "--context-length")
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("verify none.safetensors g.csv t.npy", 2, "none.safetensors: no such file"),
        ("verify --nope", 2, "No such option: --nope"),
        ("compile g.csv t.npy --budget 1 --heads 1 --time-limit 0.1", 1, "D_K = 1"),
    ],
)
@pytest.mark.usefixtures("counted_time")
def test_an_error_is_an_object_with_json(command, tmp_path, words, code, said):
    command("make", "graph", "permutation", "--items", 16, "--out", "g.csv")
    command("make", "embeddings", "gaussian", "--items", 16, "--d-model", 4, "--out", "t.npy")
    got, out, err = command(*words.split(), "--json")
    assert got == code
    assert list(json.loads(out)) == ["error"]
    assert said in json.loads(out)["error"]
    assert f"error: {json.loads(out)['error']}\n" in err
    assert command(*words.split())[1] == ""


@pytest.mark.parametrize(
    "words",
    [
        "construct none.csv none.npy --out no/such/w.safetensors",
        "compile none.csv none.npy --out no/such/w.safetensors",
        "export none.safetensors --out no/such/w.safetensors",
        "show none.safetensors g.csv t.npy --scores no/such/w.png",
        "noise --chart no/such/w.png",
        "frontier --chart no/such/w.png",
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(command, words):
    code, _, err = command(*words.split())
    assert code == 2
    assert "no/such/w." in err
    assert "its folder does not exist" in err


def test_a_construction_is_not_searched_for_a_file_of_another_kind(command):
    code, _, err = command("construct", "none.csv", "none.npy", "--out", "w.npy")
    assert code == 2
    assert err == ("error: w.npy: this is written as .safetensors; give the file that suffix\n")


@pytest.mark.parametrize(
    "words",
    [
        "train --items 16 --d-model 4 --heads 1 --key-dim 2 --seeds 1 --steps 5 --engine torch",
        "compile g.csv t.npy --time-limit 0.2",
        "construct g.csv t.npy --inverse pinv",
        "sweep s.toml --engine torch",
        "bench contexts --items 16 --context-length 4 --count 10 --repeats 1",
    ],
)
def test_quiet_says_nothing_beside_the_result(command, tmp_path, words):
    command("make", "graph", "permutation", "--items", 8, "--out", "g.csv")
    command("make", "embeddings", "gaussian", "--items", 8, "--d-model", 8, "--out", "t.npy")
    (tmp_path / "s.toml").write_text(
        "[grid]\nitems = 16\nd_model = 4\nheads = 1\nbudgets = [2, 4]\nseeds = 1\nsteps = 5\n"
    )
    code, out, err = command(*words.split(), "--quiet")
    assert code == 0, err
    assert err == ""
    assert out


def test_long_work_says_how_long_it_takes_on(command):
    lines: list[str] = []
    hc.frontier([(8, 4), (10, 5)], time_limit=0.1, progress=lines.append)
    assert any(re.match(r"2 of 2, about \d+ s left, ", line) for line in lines)
    words = "bench contexts --items 16 --context-length 4 --count 9"
    err = command(*words.split())[2]
    assert re.search(r"round 1 of 3: .* s, about \d+ s left\n", err)
    command("make", "graph", "permutation", "--items", 16, "--out", "g.csv")
    command("make", "embeddings", "gaussian", "--items", 16, "--d-model", 8, "--out", "t.npy")
    _, _, err = command("compile", "g.csv", "t.npy", "--budget", 8, "--time-limit", 600)
    assert re.search(r"at most (\d+ s|10\.0 min|9\.\d min) left\n", err)


def test_the_tour_looks_words_up_and_shows_why_several_heads_are_needed(command, tmp_path):
    code, out, err = command("tour", "--items", 32, "--out", "t", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["exact"]
    assert told["looked_up"] == {
        "hot": ["cold"],
        "cold": ["hot"],
        "rich": ["poor"],
        "poor": ["rich"],
        "night": ["day"],
        "day": ["night"],
        "left": [],
    }
    assert told["one_head_errors"] > 0
    assert told["several_heads_exact"]
    assert told["several_heads"] > 1
    page = (tmp_path / "t" / "report.html").read_text(encoding="utf-8")
    assert "<td>hot</td><td>→ cold</td>" in page
    assert "<td>left</td><td>→ nothing</td>" in page
    assert "That is why attention has several heads." in page
    assert page.count("<img") == 3
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == told["files"]
    words = ("verify", "t/weights.safetensors", "t/graph.csv", "t/table.safetensors")
    assert command(*words)[0] == 0
    for name, exact in (("one-head", 1), ("several-heads", 0)):
        words = ("verify", f"t/{name}.safetensors", "t/permutation.csv", "t/narrow-table.npy")
        assert command(*words)[0] == exact
    assert command("tour", "--items", 8)[0] == 2
