"""This machine's verdicts beside those at the scale of the paper."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from headcount.report.agreement import LocalVerdict, judge, shipped_claims, tally_text
from headcount.report.figures import chosen_figures
from headcount.report.figures.base import Claim
from headcount.report.page import write_report
from headcount.reproduction.evidence import KEY, Evidence
from headcount.reproduction.presets import Need, preset, restricted
from headcount.reproduction.results_folder import ResultsFolder
from headcount.reproduction.shipped import MEASURED, measured_runs
from headcount.store.frames import specs_frame

from .measured import measured_evidence

NEEDS = [Need("regular"), Need("linear"), Need("value")]


def quick_runs() -> pd.DataFrame:
    """A part of the quick preset's runs, as the shipped ones have them."""
    part = restricted(preset("quick"), NEEDS)
    specs = [specs_frame(one.runs, KEY) for one in (*part.grids, *part.searches)]
    return measured_runs().merge(pd.concat(specs).drop_duplicates(), on=KEY)


def folder_of(path: Path, runs: pd.DataFrame) -> ResultsFolder:
    path.mkdir()
    runs.to_parquet(path / "runs.parquet", index=False)
    entry = MEASURED.history()[-1]
    counts = {"preset": "quick", "runs": len(runs), "run_steps": 0, "seeds": [0]}
    (path / "manifest.json").write_text(json.dumps(counts | {"made": [entry]}))
    return ResultsFolder(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> ResultsFolder:
    return folder_of(tmp_path_factory.mktemp("agreement") / "same", quick_runs())


@pytest.fixture(scope="module")
def found(folder) -> Evidence:
    return folder.evidence()


@pytest.fixture(scope="module")
def judged(folder, found):
    """The claims, and by id this machine's verdicts."""
    return judge(folder, found)


def test_the_same_runs_agree_and_thin_ones_confirm_nothing(found, judged):
    shipped, local = judged
    assert shipped == shipped_claims()
    agreements = {name: one.agreement for name, one in local.items()}
    measured = {name for name, one in local.items() if one.claim.verdict != "not measured"}
    assert {"C5", "C7", "C11", "C21", "K1"} <= measured
    assert {agreements[name] for name in measured} == {"agrees", "counted"}
    assert agreements["C3"] == "not measured here"
    # h* follows m'/d_model at the three degrees of quick, and does not at all six.
    assert local["C11"].claim.thin == "3 degrees where the rule asks for 5"
    assert local["C11"].claim.verdict == "partly"
    assert not [name for name, one in local.items() if one.claim.verdict == "confirmed"]
    # The block's shipped runs are drawn, but they are not this machine's.
    assert len(found.block)
    assert local["C13"].agreement == "not measured here"


def test_a_machine_that_finds_something_else_differs(tmp_path):
    runs = quick_runs()
    dense = (runs["variant"] == "max") & (runs["degree"] > 1)
    runs.loc[dense, "value"] = 0.999  # every budget passes, whatever the degree
    _, local = judge(changed := folder_of(tmp_path / "changed", runs), changed.evidence())
    assert local["C5"].agreement == "differs"
    assert local["C5"].text == "differs: the shipped runs of this part give “partly”"
    assert local["C7"].agreement == "agrees"


def test_the_shipped_runs_have_nothing_beside_them():
    evidence = measured_evidence()
    claims, local = judge(MEASURED, evidence)
    assert list(claims) == list(shipped_claims())
    assert local == {}
    assert evidence.own() is evidence  # its block is its own


def test_the_page_shows_both(found, judged, tmp_path):
    claims, local = judged
    figures = chosen_figures(["table2"])
    [page, *_] = write_report(tmp_path, found, figures, claims, local=local)
    text = page.read_text(encoding="utf-8")
    assert "At paper scale" in text
    assert "Thin evidence: 3 degrees where the rule asks for 5" in text
    assert tally_text(local) in text.replace("\n", " ")
    [page, *_] = write_report(tmp_path / "one", found, figures, claims)
    text = page.read_text(encoding="utf-8")
    assert "At paper scale" not in text
    assert "Theorems and lemmas" in text
    assert "Lemma B.8" in text


def made(verdict, part) -> LocalVerdict:
    claim = Claim("C3", "text", "rule", verdict, "number", ())
    return LocalVerdict(claim, replace(claim, verdict=part))


def test_what_there_is_nothing_to_compare_with_is_said():
    assert made("partly", "not measured").text == "nothing to compare with"
    assert made("not measured", "partly").text == ""
    local = {"a": made("partly", "partly"), "b": made("partly", "confirmed")}
    assert tally_text(local) == "1 agrees and 1 differs"
    local["c"] = made("not measured", "partly")
    assert tally_text(local) == "1 agrees, 1 differs and 1 is not measured here"
