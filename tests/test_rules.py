"""The files of rules and statements: whole, in words as in numbers, and up to date in the docs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from headcount.report import claims_docs
from headcount.report import rules as rules_module
from headcount.report.figures import FIGURES
from headcount.report.figures.base import Verdict
from headcount.report.rules import PLACEHOLDER, Rule, rule, rules, shared_number
from headcount.report.statements import VERDICTS, statements
from headcount.theory.footprint import construction_flops, footprint, score_flops, training_flops

from .measured import measured_evidence

ROOT = Path(__file__).parent.parent
FILE = tomllib.loads(Path(rules_module.__file__).with_name("claims.toml").read_text())
STATEMENTS = {
    "Theorem": ["4.1", "8.1", "9.2", "B.1", "B.2", "B.5", "B.9"],
    "Lemma": ["8.2", "8.3", "9.3", "B.3", "B.8"],
    "Corollary": ["B.6", "B.7", "B.10"],
    "Proposition": ["8.4"],
}


@pytest.mark.parametrize("entry", FILE["claim"], ids=lambda entry: entry["id"])
def test_a_rule_says_in_words_every_number_that_the_code_reads(entry):
    named = {name.rstrip("%") for name in PLACEHOLDER.findall(entry["rule"])}
    own, shared = set(entry.get("numbers", {})), set(FILE["shared"])
    assert own <= named
    assert {name for name in named if not name.startswith("paper:")} <= own | shared
    assert not own & shared


@pytest.mark.parametrize("found", rules().values(), ids=rules())
def test_a_rule_is_whole(found: Rule):
    assert found.text
    assert found.place
    assert re.fullmatch(r"2026-\d\d-\d\d", found.date)
    assert not re.search(r"[{}\n]|  ", found.text + found.rule)
    assert set(found.figures) <= {figure.id for figure in FIGURES}
    for before in found.earlier:
        assert {before.before, before.after} <= set(get_args(Verdict))
        assert re.fullmatch(r"[0-9a-f]{7}", before.commit)
        assert before.why
    # A chain of changes: what one change made of the verdict is what the next one found.
    for first, second in zip(found.earlier, found.earlier[1:], strict=False):
        assert first.after == second.before


def test_the_first_rule_of_c5_is_restored():
    changes = [(before.commit, before.before, before.after) for before in rule("C5").earlier]
    assert changes == [("c646a54", "partly", "confirmed"), ("4a4f67e", "confirmed", "partly")]
    assert "over all degrees" in rule("C5").rule


def test_the_last_change_led_to_the_verdict_of_today():
    """Only for the runs on which the changes were judged: others may give other verdicts."""
    if measured_evidence().provenance["date"] != "2026-11-15":
        pytest.skip("the shipped runs are newer than the changes")
    for claim in claims_docs.shipped_claims():
        if rule(claim.id).earlier:
            assert rule(claim.id).earlier[-1].after == claim.verdict, claim.id


def test_shared_numbers_are_those_of_every_rule():
    assert shared_number("tolerance") == rule("C3")["tolerance"] == 0.15
    with pytest.raises(KeyError):
        rule("C3")["nothing"]


def test_every_theorem_and_lemma_has_a_verdict():
    names = [found.id for found in statements()]
    expected = {f"{kind} {number}" for kind, numbers in STATEMENTS.items() for number in numbers}
    assert expected <= set(names)
    assert len(names) == len(set(names))
    assert {found.verdict for found in statements()} <= set(VERDICTS)
    cited = {number for found in statements() for number in found.deviations}
    assert cited == set(range(1, 19))
    items = (ROOT / "docs" / "deviations.md").read_text()
    assert all(re.search(rf"^{number}\. \*\*", items, re.MULTILINE) for number in cited)


def test_a_statement_that_does_not_hold_names_its_deviation():
    for found in statements():
        assert found.deviations or found.verdict == "holds", found.id


def test_what_rests_on_the_background_under_softmax_is_open():
    found = {one.id: one for one in statements()}
    assert found["Lemma 8.3"].verdict == "holds"
    for name in ("Theorem 8.1", "Proposition 8.4"):
        assert 18 in found[name].deviations
        assert found[name].verdict == "open"


def test_what_a_rule_without_runs_rests_on():
    assert rule("C22").without_runs == "counted, without runs"
    assert rule("C23").without_runs == (
        "counted; times of 2026-11-16 on one core of an AMD EPYC, torch 2.13"
    )
    page = claims_docs.reproduction_page()
    assert page.count("*Evidence:* counted, without runs.") == 1
    assert "C15 to C24 were written after the results were known" in " ".join(page.split())


def test_the_page_is_the_one_that_make_docs_writes():
    page = (ROOT / claims_docs.PAGE).read_text()
    assert page == claims_docs.reproduction_page(), "run: make docs"


def test_the_page_is_written_where_it_changed(tmp_path):
    (tmp_path / "docs").mkdir()
    assert claims_docs.write_page(tmp_path)
    page = tmp_path / claims_docs.PAGE
    assert page.read_text() == (ROOT / claims_docs.PAGE).read_text()
    assert not claims_docs.write_page(tmp_path)


def test_flops_of_the_constructions_are_those_of_their_products():
    # Algorithm 1: in each head X_kᵀ (d × B) times signatures (B × d_k), for queries and for keys.
    items, width, key_dim = 256, 32, 8
    heads = items // width
    products = heads * 2 * (2 * width * width * key_dim)
    assert construction_flops(1, items, width, items) == products
    assert construction_flops(2, items, width, items) == 8 * products
    assert construction_flops(5, items, width, 4 * items) > 4 * products
    assert training_flops(width, 64, 16, 10) == 30 * footprint(width, 64).context_flops(16)
    assert score_flops(64, 16) == 64 * score_flops(1, 16)
