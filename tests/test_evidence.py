"""Presets, the evidence that follows from their runs, and the folder that holds them."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from headcount.analysis.curves import curves
from headcount.analysis.thresholds import thresholds, thresholds_by_heads
from headcount.errors import InputError
from headcount.paper import data as paper
from headcount.report.figures import FIGURES, chosen_figures, needs
from headcount.reproduction.bounds_table import MOST_DEGREE
from headcount.reproduction.evidence import COLUMNS, KEY, Evidence, gather
from headcount.reproduction.forecast import expected_runs
from headcount.reproduction.presets import PRESETS, Need, preset, restricted
from headcount.reproduction.results_folder import ResultsFolder
from headcount.reproduction.shipped import MEASURED, measured_runs
from headcount.sweeps.grid import paper_runs

from .measured import base_runs, measured_evidence

# Presets


def test_the_paper_preset_is_every_grid_and_the_quick_one_a_part_of_it():
    whole, quick = preset("paper"), preset("quick")
    assert PRESETS == ("quick", "paper")
    assert {part.paper for part in whole.grids} == set(paper.grids())
    assert all(set(part.runs) == set(paper_runs(str(part.paper))) for part in whole.grids)
    asked = {spec for part in (*quick.grids, *quick.searches) for spec in part.runs}
    assert asked < set(whole.runs)
    searched = {(spec.items, spec.d_model) for spec in quick.searches[0].runs}
    assert len(searched) >= 8
    assert {spec.degree for spec in quick.searches[1].runs} == {1, 2, 4}
    with pytest.raises(InputError, match="use quick or paper"):
        preset("fast")


def test_a_part_of_a_preset_has_the_runs_of_its_figures():
    whole = preset("paper")
    first = restricted(whole, needs(chosen_figures(["fig1"])))
    assert [part.paper for part in first.grids] == ["base"]
    assert {(spec.items, spec.d_model) for spec in first.runs} == {(256, 32)}
    two = restricted(whole, needs(chosen_figures(["fig6", "fig13"])))
    assert {part.paper for part in two.grids} == {"value", "regular"}
    assert not restricted(whole, needs(chosen_figures(["table2"]))).runs
    some = restricted(whole, [Need("regular", degrees=(2, 4))])
    assert {spec.degree for spec in some.runs} == {2, 4}


def test_every_grid_is_shown_by_a_figure():
    assert {grid for figure in FIGURES for grid in figure.grids} == set(paper.grids())
    assert [figure.id for figure in FIGURES][:6] == ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6"]
    with pytest.raises(InputError, match="did you mean 'fig3'"):
        chosen_figures(["figure3"])


# Evidence


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return measured_evidence()


def test_evidence_of_the_measured_runs_is_the_analysis_of_each_grid(evidence):
    runs = base_runs()
    names = ["items", "d_model"]
    found = evidence.on("base", "thresholds").sort_values(names, ignore_index=True)
    expected = thresholds(runs)
    for column in ("central", "optimistic", "conservative", "heads", "heads_low", "heads_high"):
        assert found[column].tolist() == expected[column].tolist()
    assert found["runs"].tolist() == [10] * 12
    assert len(evidence.on("base")) == len(curves(runs))
    assert len(evidence.on("base", "by_heads")) == len(thresholds_by_heads(runs))
    assert evidence.on("value", "thresholds").empty  # errors have no F1 threshold
    for name, columns in COLUMNS.items():
        assert getattr(evidence, name).columns.tolist() == columns
    assert evidence.provenance["runs"] == len(measured_runs()) == 20_630


def test_law_points_are_the_base_grid_and_the_second_point_of_compression_32(evidence):
    table = evidence.law_points()
    assert len(table) == 13
    assert (1024, 32) in set(zip(table["items"], table["d_model"], strict=True))


def test_a_search_gives_the_thresholds_of_the_whole_grid(evidence):
    quick = preset("quick")
    asked = expected_runs(quick)
    keys = pd.DataFrame([[getattr(spec, name) for name in KEY] for spec in asked], columns=KEY)
    found = gather(keys.merge(measured_runs(), on=KEY), quick)
    for grid in ("base", "regular"):
        for _, row in found.on(grid, "thresholds").iterrows():
            at = {name: row[name] for name in ("items", "d_model", "degree")}
            full = evidence.on(grid, "thresholds", **at).iloc[0]
            for column in (
                "central",
                "optimistic",
                "conservative",
                "heads",
                "heads_low",
                "heads_high",
            ):
                assert row[column] == full[column], (at, column)
    assert len(found.on("base", "thresholds")) == 10
    three = {(64, 16), (128, 32), (256, 32)}
    assert set(found.on("base")[["items", "d_model"]].itertuples(index=False, name=None)) == three


def test_points_with_a_missing_run_are_left_out():
    whole = preset("paper")
    part = replace(whole, grids=tuple(part for part in whole.grids if part.paper == "value"))
    runs = measured_runs()
    at = (runs["variant"] == "value") & (runs["d_model"] == 16)
    lost = runs.drop(index=runs[at].index[0])
    assert set(gather(lost, part).curves["d_model"]) == {32}
    assert set(gather(runs, part).curves["d_model"]) == {16, 32}
    empty = gather(runs.iloc[:0], whole)
    assert all(
        getattr(empty, name).empty for name in ("curves", "thresholds", "by_heads", "bounds")
    )


# Forecast


def test_the_forecast_asks_for_what_a_search_asks():
    part = restricted(preset("quick"), needs(chosen_figures(["fig12"])))
    asked = expected_runs(part)
    assert 0 < len(asked) < 0.3 * len({spec for one in part.searches for spec in one.runs})
    known = {
        tuple(row[:-1]): row[-1]
        for row in measured_runs()[[*KEY, "steps"]].itertuples(index=False, name=None)
    }
    assert all(
        steps == known[tuple(getattr(spec, name) for name in KEY)] for spec, steps in asked.items()
    )


# The folder


def test_a_folder_says_what_it_lacks(tmp_path):
    folder = ResultsFolder(tmp_path)
    assert folder.history() == []
    assert folder.bounds() is None
    with pytest.raises(
        InputError,
        match=r"manifest.json: does not exist; fill the folder with: headcount reproduce",
    ):
        folder.evidence()
    for text in (
        "{",
        "[]",
        '{"preset": "quick"}',
        '{"preset": "quick", "runs": 0, "run_steps": 0, "made": []}',
    ):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(InputError, match=r"manifest.json: cannot be read"):
            folder.evidence()


def test_measured_results_say_how_they_were_made():
    made = MEASURED.manifest()["made"]
    assert sum(entry["trained"] for entry in made) == 20_630
    for entry in made:
        assert entry["device"] == "NVIDIA H200" or entry["trained"] == 0
        assert {"command", "commit", "date", "seconds", "versions", "machine", "engine"} <= set(
            entry
        )


def test_measured_bounds_stand_beside_every_threshold_under_max(evidence):
    found = evidence.thresholds
    names = ["degree", "items", "d_model"]
    wanted = found.loc[(found["variant"] == "max") & (found["degree"] <= MOST_DEGREE), names]
    assert set(wanted.itertuples(index=False)) == set(
        evidence.bounds[names].itertuples(index=False)
    )


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_the_command_under_a_figure_runs_all_that_its_text_is_made_from(figure, evidence):
    """A figure's text with the runs of `--only` alone is its text with all runs."""
    part = restricted(preset("paper"), needs([figure]))
    alone = gather(
        measured_runs(), part, evidence.bounds if figure.shows_bounds else None, evidence.provenance
    )
    alone = replace(alone, block=evidence.block)  # a folder without block runs shows the shipped
    assert figure.meaning(alone) == figure.meaning(evidence)
    assert figure.compare(alone) == figure.compare(evidence)
