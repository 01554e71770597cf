"""`headcount bench all` and `bench compare`: what the files and pages hold. Nothing is timed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headcount as hc
from headcount.bench import engines, suite, suite_page
from headcount.bench.cases import SHAPES, VARIANTS, Case
from headcount.bench.ratios import TITLES, ratio_rounds, ratios
from tests.made_benchmark import made_rows, write_benchmark

SMALL = [Case(16, 8, 2, 4), Case(16, 8, 2, 4, "sum"), Case(16, 8, 2, 4, "value")]


@pytest.fixture
def timed(monkeypatch):
    """Made-up rows for three cases; gives the cases as they are timed."""
    seen = []

    def compare(subjects, repeats, watch):
        seen.append(subjects[0].case)
        watch(0.5, "warm-up")
        return made_rows(subjects[0].case, rounds=repeats)

    monkeypatch.setattr(engines, "compare", compare)
    monkeypatch.setattr(suite, "all_cases", lambda quick: SMALL)
    return seen


def test_all_cases_are_every_variant_at_every_shape():
    cases = suite.all_cases()
    assert len(set(cases)) == len(SHAPES) * len(VARIANTS)
    assert {case.variant for case in suite.all_cases(quick=True)} == set(VARIANTS)


def test_the_file_has_rows_ratios_and_how_they_were_made(timed, command, tmp_path):
    out = tmp_path / "bench.json"
    code, text, _ = command("bench", "all", "--out", str(out), "--repeats", "3", "--json")
    assert code == 0
    told = json.loads(text)
    found = hc.read_benchmark(out)
    assert told["page"] == str(tmp_path / "bench.html")
    for name in ("machine", "versions", "commit", "date", "load"):
        assert name in found.values or name in found.cases[0]
    assert timed == SMALL
    assert found.left == []
    assert set(found.ratios["variant"]) == {"max", "sum", "value"}
    first = found.ratios.query("ratio == 'native_vs_jax' and variant == 'max'").iloc[0]
    assert first["value"] == pytest.approx(3.4)
    assert first["target"] == 3
    page = (tmp_path / "bench.html").read_text(encoding="utf-8")
    assert TITLES["native_vs_jax"] in page
    assert 'src="http' not in page
    assert 'href="http' not in page


@pytest.fixture
def no_page(monkeypatch):
    """The charts of a page take longer than everything else here."""
    monkeypatch.setattr(suite_page, "write_benchmark_page", lambda benchmark, path: path.touch())


@pytest.mark.usefixtures("no_page")
def test_the_same_command_continues_one_that_was_interrupted(timed, command, tmp_path, monkeypatch):
    out = tmp_path / "bench.json"
    whole = engines.compare

    def interrupted(subjects, repeats, watch):
        if len(timed) == 2:
            raise KeyboardInterrupt
        return whole(subjects, repeats, watch)

    monkeypatch.setattr(engines, "compare", interrupted)
    code, _, err = command("bench", "all", "--out", str(out))
    assert code == 130
    assert "has 2 of 3 cases; the same command continues" in err
    monkeypatch.setattr(engines, "compare", whole)
    assert command("bench", "all", "--out", str(out))[0] == 0
    assert timed == SMALL
    # What is complete is not timed again.
    assert command("bench", "all", "--out", str(out))[0] == 0
    assert timed == SMALL


@pytest.mark.usefixtures("no_page")
def test_another_benchmark_is_not_continued(timed, command, tmp_path):
    out = tmp_path / "bench.json"
    assert command("bench", "all", "--out", str(out))[0] == 0
    before = out.read_bytes()
    code, _, err = command("bench", "all", "--out", str(out), "--repeats", "2")
    assert code == 2
    assert "holds a benchmark with other settings; choose another file" in err
    assert out.read_bytes() == before
    (tmp_path / "notes.json").write_text("[1, 2]", encoding="utf-8")
    code, _, err = command("bench", "all", "--out", str(tmp_path / "notes.json"))
    assert code == 2
    assert "is not a file of `headcount bench all`" in err
    assert command("bench", "all", "--out", str(tmp_path / "bench.csv"))[0] == 2
    code, _, err = command("bench", "all", "--out", str(out), "--engines", "numba")
    assert code == 2
    assert "'numba' is unknown" in err


def test_a_benchmark_against_itself_has_no_changes(command, tmp_path):
    file = str(write_benchmark(tmp_path / "a.json"))
    code, out, _ = command("bench", "compare", file, file, "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["worse"], told["better"], told["notes"]) == (0, 0, [])
    assert len(told["changes"]) == 42 * 6


def test_a_slower_engine_is_a_regression(command, tmp_path):
    before = write_benchmark(tmp_path / "a.json")
    after = write_benchmark(tmp_path / "b.json", {"sum": 1.3, "value": 1.06, "softmax": 0.6})
    page = tmp_path / "compare.html"
    words = ["bench", "compare", str(before), str(after)]
    code, out, _ = command(*words, "--out", str(page))
    assert code == 1
    assert "24 are worse and 24 better, by more than 10%" in out
    assert "Native engine against JAX" in page.read_text(encoding="utf-8")
    found = hc.compare_benchmarks(before, after)
    assert set(found.regressions["variant"]) == {"sum"}
    assert set(found.regressions["ratio"]) == {
        *("native_vs_jax", "native_vs_eager", "native_vs_torch", "native_share_of_sgemm")
    }
    assert found.regressions["change"].tolist() == pytest.approx([1 / 1.3 - 1] * 24)
    assert set(found.improvements["variant"]) == {"softmax"}
    # A larger share of noise leaves nothing to report.
    assert command(*words, "--noise", "0.5")[0] == 0


def test_one_slow_round_is_not_a_regression(tmp_path):
    before = hc.read_benchmark(write_benchmark(tmp_path / "a.json"))
    case = before.cases[0]
    rows = made_rows(suite.case_of(case), slower=1.5)
    calm = made_rows(suite.case_of(case))
    for row, usual in zip(rows, calm, strict=True):
        row["rounds"][0] = usual["rounds"][0]  # one round of three is as before
    cases = [suite.summarised(suite.case_of(case), rows), *before.cases[1:]]
    after = hc.Benchmark({**before.values, "cases": cases})
    found = hc.compare_benchmarks(before, after)
    assert found.changes["change"].min() < -0.3
    assert found.regressions.empty


def test_what_else_differs_is_said(tmp_path):
    one = hc.read_benchmark(write_benchmark(tmp_path / "a.json"))
    other = hc.Benchmark(
        {
            **one.values,
            "machine": "another",
            "versions": {"python": "3.11", "jax": "0.11"},
            "cases": one.cases[:40],
        }
    )
    notes = hc.compare_benchmarks(one, other).notes
    assert notes == [
        "other machine: a machine, 2 cores, then another",
        "other jax: 0.10.2, then 0.11",
        "the second file has 40 of its 42 cases",
        "12 ratios of the first file are not in the second",
    ]
    empty = hc.Benchmark({**one.values, "cases": []})
    with pytest.raises(hc.InputError, match="no ratio in common"):
        hc.compare_benchmarks(one, empty)
    with pytest.raises(hc.InputError, match=r"noise 1\.5 is not a share"):
        hc.compare_benchmarks(one, one, noise=1.5)


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"format": "headcount benchmark 1"}', "[" * 9999],
    ids=["empty", "object", "no parts", "deep"],
)
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    with pytest.raises(hc.InputError, match="is not a file of `headcount bench all`"):
        hc.read_benchmark(tmp_path / "a.json")
    broken = json.loads(write_benchmark(tmp_path / "b.json").read_text(encoding="utf-8"))
    del broken["cases"][3]["ratios"]
    (tmp_path / "b.json").write_text(json.dumps(broken), encoding="utf-8")
    with pytest.raises(hc.InputError, match="is not a file of `headcount bench all`"):
        hc.read_benchmark(tmp_path / "b.json")


@given(factor=st.floats(0.1, 10.0), rounds=st.integers(1, 7))
def test_ratios_of_rounds_agree_with_ratios_of_medians(factor, rounds):
    """Where all rounds wobble together, both ways to take a ratio give the same."""
    rows = made_rows(SHAPES[1], factor, rounds)
    whole = ratios(rows)
    for name, each in ratio_rounds(rows).items():
        if name != "native_share_of_sgemm":  # bare products do not wobble here
            assert each == pytest.approx([whole[name]["value"]] * rounds)
