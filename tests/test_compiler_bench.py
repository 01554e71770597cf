"""`bench compile`: releases take turns, and every result is checked apart from its certificate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import headcount
from headcount.attention.key_query import KeyQuery
from headcount.bench import compile_worker
from headcount.bench.compile import POINTS, compile_speed
from headcount.errors import InputError, NoSolution

SOURCE = Path(headcount.__file__).parents[1]


def test_a_release_against_itself(command):
    words = ("--points", "12x8x6,12x8x8x2", "--seeds", 2, "--against", SOURCE, "--json")
    code, out, said = command("bench", "compile", *words, "--quiet")
    assert code == 0, said
    rows = json.loads(out)["rows"]
    assert [(row["items"], row["budget"], row["degree"]) for row in rows] == [
        (12, 6, 1),
        (12, 8, 2),
    ]
    for row in rows:
        assert row["ours_exact"] == row["other_exact"] == row["seeds"] == 2
        assert row["ratio"] == pytest.approx(row["other_seconds"] / row["ours_seconds"])
        assert row["ours_cpu_seconds"] > 0
        assert row["ours_slowest"] >= row["ours_seconds"] > 0


def test_rounded_weights_are_timed_and_their_levels_counted(command, monkeypatch):
    words = ("--points", "12x8x8", "--seeds", 1, "--bits", 6, "--json", "--quiet")
    code, out, said = command("bench", "compile", *words)
    assert code == 0, said
    (row,) = json.loads(out)["rows"]
    assert row["ours_exact"] == 1
    assert "ratio" not in row  # a release alone
    job = {"items": 12, "d_model": 8, "budget": 8, "degree": 1, "seed": 3, "device": "cpu"}
    job |= {"time_limit": 9.0}
    assert compile_worker.compiled(job)["exact"]
    assert compile_worker.compiled(job | {"bits": 5})["exact"]
    real = compile_worker.compile
    monkeypatch.setattr(
        compile_worker, "compile", lambda *given, bits, **options: real(*given, **options)
    )
    assert not compile_worker.compiled(job | {"bits": 5})["exact"]  # exact, but not rounded


def test_results_are_checked_and_failures_count(monkeypatch):
    job = {"items": 8, "d_model": 4, "budget": 2, "degree": 1, "seed": 1}
    job |= {"time_limit": 1.0, "device": "cpu"}

    class Wrong:
        weights = KeyQuery(torch.ones(1, 4, 1), torch.ones(1, 4, 1), 0.0)

    monkeypatch.setattr(compile_worker, "compile", lambda *_, **__: Wrong)
    assert compile_worker.compiled(job)["exact"] is False

    def fail(*_, **__):
        raise NoSolution("none")

    monkeypatch.setattr(compile_worker, "compile", fail)
    assert compile_worker.compiled(job)["exact"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--points", "64x16"), "not understood"),
        (("--points", "64x16x0"), "not understood"),
        (("--against", "."), "holds no package headcount"),
        (("--time-limit", 0), "leaves no time"),
        (("--bits", 9), "bits"),
    ],
)
def test_what_is_not_understood_is_refused(words, said, command):
    code, _, err = command("bench", "compile", *words)
    assert code == 2
    assert said in err


def test_a_source_that_cannot_compile_is_refused(tmp_path):
    (tmp_path / "headcount").mkdir()
    (tmp_path / "headcount" / "__init__.py").write_text("")
    (tmp_path / "torch.py").write_text("")  # comes first, and the real one takes seconds
    with pytest.raises(InputError, match="cannot run this benchmark"):
        compile_speed([POINTS[0]], against=tmp_path, seeds=[0])
