"""The figures of the laws, the adviser, real relations and shared keys in a block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headcount import InputError
from headcount.report.figures import (
    adviser,
    figure,
    laws,
    limit,
    relations,
    separability,
    shared_block,
    shared_keys,
    steps,
)
from headcount.reproduction.adviser_verdicts import followed
from headcount.reproduction.separability import measured_separability
from headcount.reproduction.shared_key_verdicts import shared_key_thresholds
from headcount.reproduction.shipped import measured_evidence

MODULES = (adviser, laws, limit, relations, separability, shared_block, shared_keys, steps)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.FIGURE.id)
def test_the_figures_belong_to_the_shipped_results(module):
    made = replace(measured_evidence(), provenance={"preset": "quick"})
    for make in (module.draw, module.table):
        with pytest.raises(InputError, match="not measured by the preset “quick”"):
            make(made)
    assert "not part of this reproduction" in module.meaning(made)


def rows_of(name: str, column: str) -> list[dict]:
    """The rows of a chart's data that have a column."""
    sets = figure(name).to_dict()["datasets"].values()
    return next(rows for rows in sets if column in rows[0])


def test_the_adviser_shows_every_point_and_its_failures():
    rows = rows_of("adviser", "outcome")
    table = followed()
    table = table[table["variant"] == "max"]
    assert len(rows) == len(table)
    assert sum(row["outcome"] == "fails" for row in rows) == (~table["passed"]).sum()


def test_the_law_of_steps_beats_the_line_at_the_thresholds():
    rows = laws.laws_table().dropna(subset=["steps"])
    error = laws.rms_errors()
    plain = np.sqrt(
        np.mean([np.log(a / b) ** 2 for a, b in zip(rows["steps"], rows["central"], strict=True)])
    )
    assert error["steps"] == pytest.approx(plain)
    assert error["steps"] < error["paper"] / 2
    assert len(rows_of("laws", "law")) == len(rows) + len(laws.laws_table())


def test_the_steps_are_those_of_splits_that_all_seeds_finished():
    table = steps.steps_table()
    assert (table["steps"] < table["limit"]).all()
    assert len(rows_of("steps", "panel")) == 2 * len(table)
    unseen = steps.errors()
    assert len(unseen) <= 28
    assert unseen["error"].abs().median() < 0.25


def test_separability_shows_every_graph_of_part_l_and_every_share():
    table = measured_separability()
    assert len(rows_of("separability", "found")) == (table["part"] == "l").sum()
    shares = rows_of("separability", "share")
    assert sum(row["graphs"] for row in shares) == table["part"].isin(["k", "m"]).sum()


def test_the_ticks_of_relations_are_powers_of_two():
    drawn = figure("relations").to_dict()
    panels = [panel for row in drawn["vconcat"] for panel in row["hconcat"]]
    ticks = [panel["layer"][0]["encoding"]["x"]["axis"]["values"] for panel in panels]
    assert ticks[0] == [16, 32, 64]
    assert ticks[-1] == [128, 256]
    assert "shuffled and hubs are not drawn" in " ".join(drawn["title"]["subtitle"])


def test_relations_have_a_panel_per_relation_and_number_of_steps():
    rows = relations.score_rows()
    assert sorted(set(rows["panel"])) == [
        "antonyms, 100,000 steps",
        "common synonyms, 100,000 steps",
        "hypernyms, 200,000 steps",
        "hypernyms, 60,000 steps",
        "meronyms, 200,000 steps",
    ]
    assert len(rows) == sum(
        len(panel) for panel in figure("relations").to_dict()["datasets"].values() if len(panel) > 1
    )
    passing = rows[(rows["relation"] == "antonyms") & (rows["error"] <= 0.01)]
    assert passing.groupby("problem")["budget"].min().to_dict() == {
        "even": 32,
        "gaussian": 28,
        "minilm": 32,
        "minilm-even": 48,
        "smollm2-gaussian": 24,
        "smollm2-scaled": 32,
    }


def test_shared_keys_show_every_threshold_and_sum():
    known = shared_key_thresholds()
    main = known[(known["part"] == "main") & known["threshold"].notna()]
    assert len(rows_of("shared-keys", "query_columns")) == len(main) == 50
    sums = rows_of("shared-keys", "sum_ratio")
    assert len(sums) == 50  # 35 with shared keys, and 15 of their own at 1
    assert sum(row["sum_ratio"] == 1.0 for row in sums) == 15
    assert {row["kind"] for row in rows_of("shared-keys", "kind")} == set(shared_keys._KINDS)
