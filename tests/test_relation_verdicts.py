"""Real tables and skewed graphs: the preregistered rules, the shipped runs and their document."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pandas as pd
import pytest

from headcount.reproduction.relation_verdicts import (
    budget_ranges,
    in_words,
    mean_scores,
    relation_runs,
    verdicts,
)

ROOT = Path(__file__).parent.parent
BUDGETS = (40, 44, 48, 50, 60, 80)
PROBLEMS = ("minilm", "shuffled", "gaussian", "even", "hubs")


def made_runs(**needed: int) -> pd.DataFrame:
    """Runs of two relations that reach F1 0.99 from the given budget on, by problem."""
    return pd.DataFrame(
        {
            "relation": relation,
            "problem": problem,
            "budget": budget,
            "seed": seed,
            "value": 0.995 if budget >= needed.get(problem, 40) else 0.98,
            "diverged": None,
        }
        for relation in ("antonyms", "meronyms")
        for problem in PROBLEMS
        for budget in BUDGETS
        for seed in range(2)
    )


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        ({}, ["refuted", "confirmed", "confirmed", "confirmed"]),
        ({"minilm": 50}, ["confirmed", "confirmed", "confirmed", "refuted"]),  # q = 1.25
        ({"minilm": 44}, ["open", "confirmed", "confirmed", "open"]),  # q = 1.1
        ({"minilm": 48, "shuffled": 60}, ["open", "confirmed", "confirmed", "refuted"]),  # q = 0.8
        ({"gaussian": 60, "hubs": 48}, ["refuted", "refuted", "open", "confirmed"]),
        ({"minilm": 99}, ["confirmed", "confirmed", "confirmed", "refuted"]),  # never reached
        ({"gaussian": 99, "even": 99}, ["refuted", "open", "confirmed", "confirmed"]),
    ],
)
def test_rules(needed, expected):
    assert [found.verdict for found in verdicts(made_runs(**needed))] == expected


def test_relations_that_differ_leave_a_hypothesis_open():
    agree, differ = made_runs(), made_runs(minilm=60)
    runs = agree.where(agree["relation"] == "antonyms", differ)
    found = verdicts(runs)[0]
    assert found.verdict == "open"
    assert found.ratios == {"antonyms": (1.0, 1.0), "meronyms": (1.5, 1.5)}


def test_a_budget_that_no_run_reaches_is_a_bound():
    ranges = budget_ranges(made_runs(hubs=99))
    assert ranges["antonyms", "hubs"] == (80, inf)
    assert verdicts(made_runs(hubs=99))[2].ratios["antonyms"] == (2.0, inf)


def test_a_run_that_diverged_counts_as_zero():
    runs = made_runs()
    first = (runs["problem"] == "hubs") & (runs["seed"] == 0)
    runs.loc[first, "diverged"] = 500
    hubs = mean_scores(runs).query("problem == 'hubs'")
    assert hubs["f1"].to_numpy() == pytest.approx(0.995 / 2)
    assert set(hubs["runs"]) == {2}


def test_the_document_has_the_verdicts_of_the_shipped_runs():
    for found in verdicts(relation_runs()):
        (line,) = rows_beginning(f"| {found.hypothesis.part} |")
        assert line.endswith(f"| {found.verdict} |")
        shown = ", ".join(f"{name} {in_words(q)}" for name, q in found.ratios.items())
        assert f"| {shown} |" in line


def test_the_document_has_every_smallest_budget():
    for (relation, problem), budget in budget_ranges(relation_runs()).items():
        (line,) = rows_beginning(f"| {relation} | {problem} |")
        assert f"| {in_words(budget)} |" in line


def rows_beginning(start: str) -> list[str]:
    """Rows of the tables in the document's section on the first part."""
    text = (ROOT / "docs" / "relations.md").read_text(encoding="utf-8")
    text = text.partition("## The first part")[2]
    return [line for line in text.splitlines() if line.startswith(start)]
