"""The commands that look into a store, and the record of sweeps that `watch` shows."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from headcount import InputError
from headcount.cli import run_lines
from headcount.cli import watch as watch_cli
from headcount.store.store import Store
from headcount.store.sweeps import SweepRecord
from tests.store_writers import result_of, spec_of


def test_list(filled, command):
    code, text, _ = command(
        "results", "list", filled, "--heads", "1,3", "--budget", "2:6", "--limit", "4"
    )
    assert code == 0
    lines = text.splitlines()
    assert lines[1].split() == list(run_lines.RUN_COLUMNS)
    assert len(lines) == 6
    code, text, _ = command(
        "results", "list", filled, "--heads", "1,3", "--budget", "2:6", "--limit", "0", "--json"
    )
    found = json.loads(text)
    plain = {n for n in range(40) if spec_of(n).heads in (1, 3) and 2 <= spec_of(n).budget <= 6}
    assert {row["seed"] for row in found["rows"]} == plain
    assert lines[0] == f"{len(plain)} runs, the first 4"
    code, text, _ = command(
        "results", "list", filled, "--by", "heads,key-dim", "--json", "--limit", "0"
    )
    groups = json.loads(text)["rows"]
    assert sum(group["runs"] for group in groups) == 40
    wanted = np.mean(
        [result_of(n).value for n in range(40) if spec_of(n).heads == 2 and spec_of(n).key_dim == 3]
    )
    assert [g["mean"] for g in groups if (g["heads"], g["key_dim"]) == (2, 3)] == [
        pytest.approx(wanted)
    ]
    assert command("results", "list", filled, "--by", "heads")[0] == 0
    code, text, err = command("results", "list", filled, "--variant", "sum")
    assert (code, text) == (1, "")
    assert "no run passes these filters; its 40 runs have variant max, m " in err
    code, text, err = command("results", "list", filled, "--variant", "sum", "--json")
    assert (code, json.loads(text)["total"]) == (1, 0)
    assert err.count("\n") == 1


def test_a_list_of_an_empty_store_says_so(path, command):
    Store(path).close()
    code, text, err = command("results", "list", path, "--by", "heads")
    assert (code, text) == (1, "")
    assert "holds no finished runs yet" in err
    for words in (["export", path, "--out", "x.csv"], ["chart", path, "--out", "x.png"]):
        code, _, err = command("results", *words)
        assert code == 1
        assert "holds no finished runs yet" in err


def test_a_chart_of_a_store(filled, command, tmp_path):
    code, text, err = command("results", "chart", filled, "--out", "runs.svg", "--json")
    assert code == 0, err
    assert json.loads(text) == {"file": "runs.svg", "runs": 40}
    svg = (tmp_path / "runs.svg").read_text(encoding="utf-8")
    assert "Test F1 against D_K" in svg
    assert "results.sqlite" in svg
    assert "total key dimension" in svg
    assert command("results", "chart", filled, "--out", "x.png", "--title", "Mine")[0] == 0
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
    for words, says in (
        (["--out", "x.bmp"], "written as .png, .svg or .pdf"),
        (["--out", "no/x.png"], "folder does not exist"),
        (["--out", "x.png", "--variant", "foo"], "--variant 'foo' is not known; use max, softmax"),
    ):
        code, _, err = command("results", "chart", filled, *words)
        assert code == 2
        assert says in err


def test_lists_show_runs_that_diverged(path, command):
    with Store(path) as store:
        store.add([replace(result_of(1), value=math.nan, diverged=1500)])
    assert "lost at 1,500" in command("results", "list", path)[1]
    assert json.loads(command("results", "list", path, "--json")[1])["rows"][0]["value"] is None
    assert (
        json.loads(command("results", "list", path, "--by", "heads", "--json")[1])["rows"][0][
            "diverged"
        ]
        == 1
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["list", "S", "--items", "a"], "--items 'a' cannot be read"),
        (["list", "S", "--d-model", "1:2:3"], "--d-model '1:2:3' cannot be read"),
        (["list", "S", "--variant", "foo"], "--variant 'foo' is not known; use max, softmax"),
        (["list", "S", "--by", "colour"], "'colour' is not a column"),
        (["list", "none.sqlite"], "none.sqlite: no such file"),
        (["export", "S", "--out", "S"], "belongs to the store itself"),
        (["export", "S", "--out", "S-wal", "--format", "csv"], "belongs to the store itself"),
        (["export", "S", "--out", "r.txt"], "unknown format 'txt'"),
        (["export", "S", "--out", "none/r.csv"], "cannot write there"),
    ],
)
def test_bad_words(filled, words, sentence, command):
    before = filled.read_bytes()
    code, _, text = command(
        "results", *[f"{filled}{word[1:]}" if word in ("S", "S-wal") else word for word in words]
    )
    assert (code, sentence in text) == (2, True), text
    assert filled.read_bytes() == before


def test_export(filled, tmp_path, command):
    out = tmp_path / "r.csv"
    assert command("results", "export", filled, "--out", out, "--heads", "2")[0] == 0
    found = pd.read_csv(out)
    with Store(filled, read_only=True) as store:
        wanted = store.frame(heads=2)
    names = ["seed", "value", "threshold"]
    pd.testing.assert_frame_equal(found[names], wanted[names])
    assert command("results", "export", filled, "--out", out, "--format", "jsonl")[0] == 0
    assert len(out.read_text().splitlines()) == 40


def test_parquet(filled, tmp_path, command):
    code, *_ = command("results", "export", filled, "--out", tmp_path / "r.parquet")
    assert code == 0
    found = pd.read_parquet(tmp_path / "r.parquet")
    with Store(filled, read_only=True) as store:
        assert found["value"].tolist() == store.frame()["value"].tolist()


def test_watch_shows_a_sweep_and_writes_nothing(filled, command):
    with Store(filled) as store:
        sweep = store.sweeps.begin("base grid", runs=40, steps=1000, known=7)
        store.sweeps.update(sweep, done_runs=10, steps_taken=150, settled_steps=250)
        store.add([result_of(77)])
        before = {
            file: file.read_bytes() for file in (filled, filled.with_name("results.sqlite-wal"))
        }
        code, text, _ = command("watch", filled, "--once")
        assert code == 0
        assert "base grid" in text
        assert all(word in text for word in ("running", "10/40 (+7 known)", "25.0%", "about"))
        latest = text.split("latest runs\n")[1].splitlines()
        assert latest[1].split()[7] == "77"
        assert {file: file.read_bytes() for file in before} == before
        found = json.loads(command("watch", filled, "--json")[1])
        assert (found["sweeps"][0]["share"], found["latest"][0]["seed"]) == (0.25, 77)
        timer = threading.Timer(0.3, lambda: store.sweeps.end(sweep))
        timer.start()
        assert "finished" in command("watch", filled, "--interval", "0.05")[1]
        timer.join()
        assert next(iter(store.sweeps)).share == 1.0


def test_watch_on_a_terminal(filled, monkeypatch, capsys):
    with Store(filled) as store:
        store.sweeps.end(store.sweeps.begin("base grid", runs=1, steps=1), "interrupted")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    watch_cli.watch(filled)
    assert "interrupted" in capsys.readouterr().out


def test_watch_without_sweeps_or_without_a_store(path, command):
    assert command("watch", path) == (2, "", f"error: {path}: no such file; check the path\n")
    Store(path).close()
    assert command("watch", path) == (0, "nothing has been run yet\n", "")


def test_the_record_of_a_sweep(path):
    with Store(path) as store:
        sweep = store.sweeps.begin("search", runs=4, steps=400)
        store.sweeps.update(sweep, 1, 50, total_runs=8, total_steps=800)
        first = next(iter(store.sweeps))
        assert (first.total_runs, first.total_steps, first.settled_steps, first.pid) == (
            8,
            800,
            50,
            os.getpid(),
        )
        time.sleep(0.01)
        store.sweeps.update(sweep, 2, 100)
        second = next(iter(store.sweeps))
        assert (second.total_runs, second.updated > first.updated, second.rate > 0) == (
            8,
            True,
            True,
        )
        with pytest.raises(InputError, match="no sweep 9"):
            store.sweeps.update(9, 1, 1)


def _gone() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_sweep_that_no_longer_writes():
    process, now = (os.getpid(), socket.gethostname()), time.time()
    times = (now, now + 100)  # started, updated
    here = SweepRecord(1, "a", "running", *process, *times, 0, 4, 400, 1, 100, 100, 2.0)
    gone, there = replace(here, pid=_gone()), replace(here, host="elsewhere")
    assert [sweep.state_at(now + 105) for sweep in (here, gone, there)] == [
        "running",
        "running",
        "running",
    ]
    assert [sweep.state_at(now + 150) for sweep in (here, gone, there)] == [
        "running",
        "died",
        "running",
    ]
    assert [sweep.state_at(now + 999) for sweep in (here, gone, there)] == [
        "silent",
        "died",
        "died",
    ]
    assert replace(here, state="finished").state_at(now + 999) == "finished"
    assert here.remaining(now + 110) == pytest.approx(290)
    assert replace(here, settled_steps=0).remaining(now + 110) is None
    assert replace(here, total_steps=0).share == 0
