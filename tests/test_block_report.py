"""The block's runs as readings, charts, tables and pages of the report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from statistics import fmean, stdev

import pandas as pd
import pytest
import vl_convert
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from headcount.errors import InputError
from headcount.report.figures import block, chosen_figures, fig7
from headcount.report.figures.fig7_claims import (
    block_advantage,
)
from headcount.report.page import write_report
from headcount.report.readings.block_controls import controls
from headcount.report.readings.block_runs import COLLAPSED, block_command, panels
from tests.block_evidence import JUDGES, WHOLE, evidence, with_cells
from tests.made_block import MPNET, SMALL, SMOLLM2, Block, block_runs
from tests.made_evidence import NOTHING

# Readings


def test_runs_with_shared_keys_are_not_figure_7():
    whole = evidence(MPNET)
    shared = whole.block.assign(key_heads=1, key_budget=whole.block["key_dim"], test=0.1)
    shared = shared.loc[shared["heads"] > 1]
    mixed = replace(whole, block=pd.concat([shared, whole.block], ignore_index=True))
    assert [panel.cells for panel in panels(mixed)] == [panel.cells for panel in panels(whole)]
    assert panels(replace(whole, block=shared)) == []


def test_means_and_intervals_are_those_of_the_seeds():
    (panel,) = panels(evidence(MPNET))
    for (heads, budget), scores in MPNET.accuracies.items():
        cell = panel.cells[heads, budget]
        half = stats.t.ppf(0.975, 6) * stdev(scores) / 7**0.5
        assert cell.mean == pytest.approx(fmean(scores))
        ends = (fmean(scores) - half, min(fmean(scores) + half, 1))  # no accuracy is above 1
        assert (cell.low, cell.high) == pytest.approx(ends)
        assert list(cell.seeds.values()) == pytest.approx(scores)
        assert cell.collapsed == sum(score < COLLAPSED for score in scores)


def test_a_diverged_run_has_learnt_nothing():
    runs = block_runs([Block({(1, 64): (0.5, 0.7)})])
    runs.loc[1, "diverged"] = 1000
    (panel,) = panels(replace(NOTHING, block=runs))
    assert panel.cells[1, 64].seeds == {0: 0.5, 1: 0.0}
    assert panel.cells[1, 64].mean == pytest.approx(0.25)
    assert panel.cells[1, 64].collapsed == 1
    assert panel.cells[1, 64].late_gain == pytest.approx(0.5 * 0.1)


def test_errors_and_learning_curves_are_read_from_the_runs():
    cell = panels(evidence(Block({(1, 64): (0.5, 0.9, 0.0)}, to_s=0.8)))[0].cells[1, 64]
    assert cell.errors_s == pytest.approx(0.8)  # the collapsed run answers NULL, and is left out
    assert cell.answers("null") == pytest.approx(1 / 3)
    assert cell.late_gain == pytest.approx(0.1 * (0.5 + 0.9) / 3)
    assert panels(evidence(Block({(2, 64): (0.999,)})))[0].cells[2, 64].errors_s is None
    late = block_runs([SMALL]).assign(history=json.dumps([[100, 0.4]]))
    assert panels(replace(NOTHING, block=late))[0].cells[1, 32].late_gain is None


def test_the_protocol_of_most_runs_counts():
    short = Block({(1, 64): (0.1,), (2, 64): (0.2,)}, steps=500)
    other = Block({(1, 64): (0.3,)}, rate=1e-3)
    (panel,) = panels(evidence(short, MPNET, other))
    assert panel.steps == MPNET.steps
    assert panel.cells[1, 64].mean == pytest.approx(0.55)


def test_the_tables_nearest_to_the_papers_come_first():
    gauss = replace(MPNET, table="gaussian")
    found = panels(evidence(SMALL, gauss, SMOLLM2, MPNET, replace(MPNET, table="gpt2")))
    assert [panel.name for panel in found] == [
        "gpt2",
        "mpnet-base",
        "smollm2-135m",
        "smollm2",
        "gaussian",
    ]
    assert [panel.compressed for panel in found] == [True, True, True, False, False]


def test_a_control_closes_the_share_of_the_gap_that_is_gone():
    plain = Block({(1, 128): (0.5, 0.5), (4, 128): (0.9, 0.9)}, to_s=0.5)
    half = Block({(1, 128): (0.7, 0.7)}, control="two-values")
    both = Block({(1, 128): (0.9, 0.9), (4, 128): (1.0, 1.0)}, control="barred")
    found = {control.name: control.share for control in controls(evidence(plain, half, both))}
    assert found == {
        "s and q barred at the test": pytest.approx(1 - (0.95 - 0.75) / 0.4),
        "s barred in training too": pytest.approx(
            1 - 0.1 / 0.4
        ),  # beside several heads with the same control
        "second value path": pytest.approx(0.5),
    }
    level = Block({(1, 128): (0.88,), (4, 128): (0.9,)})
    assert [control.share for control in controls(evidence(level))] == [None]


# Chart and tables


def _rows(spec: dict) -> pd.DataFrame:
    return pd.DataFrame(spec["datasets"][spec["data"]["name"]])


def _symbols(spec: dict) -> int:
    def count(node: dict) -> int:
        if str(node.get("role", "")).startswith(("legend", "title", "axis")):
            return 0
        own = len(node["items"]) if node.get("marktype") == "symbol" else 0
        return own + sum(count(child) for child in node.get("items", []))

    return count(vl_convert.vegalite_to_scenegraph(spec)["scenegraph"])


def test_fig7_has_a_mark_for_every_seed_and_every_mean():
    spec = fig7.draw(evidence(MPNET, SMOLLM2)).to_dict()
    runs, cells = 16 * 7 + 16 * 3, 2 * 16
    assert _symbols(spec) == 2 * (runs + cells)  # in two rows: as they are, and with s and q barred
    drawn = _rows(spec).query(
        "kind == 'seed' and row == 'test accuracy' and panel.str.startswith('mpnet')"
    )
    for (heads, budget), scores in MPNET.accuracies.items():
        here = drawn.query(f"heads == {heads} and budget == {budget}")
        assert sorted(here["value"]) == pytest.approx(sorted(scores))
        assert here["x"].is_unique
    texts = _rows(spec).query("kind == 'collapsed' and panel.str.startswith('mpnet')")["collapsed"]
    assert list(texts) == ["2 of 7", "3 of 7"] * 2


def test_the_papers_line_stands_where_its_setting_was_measured():
    assert set(_rows(fig7.draw(evidence(MPNET)).to_dict()).query("kind == 'paper'")["value"]) == {
        0.81
    }
    small = fig7.draw(evidence(SMALL)).to_dict()
    assert "paper" not in set(_rows(small)["kind"])
    assert "0.81" not in str(small["title"]["subtitle"])


def test_bars_end_where_accuracies_end():
    drawn = _rows(fig7.draw(evidence(SMOLLM2)).to_dict()).query("kind == 'mean'")
    assert drawn["low"].min() == 0
    assert drawn["high"].max() == 1
    assert set(fig7.table(evidence(SMOLLM2)).query("h == 1 and D_K == 512")["95 % interval"]) == {
        "0.0000\u00a0…\u00a01.0000"
    }


def test_the_controls_are_drawn_beside_plain_heads():
    spec = block.draw(WHOLE).to_dict()
    drawn = _rows(spec)
    assert _symbols(spec) == len(drawn)
    names = drawn.query(
        "panel == 'mpnet-base (768)' and budget == 512 and kind == 'mean'"
    ).set_index("name")["value"]
    assert names["one head, second value path"] == pytest.approx(0.99)
    assert names["one head, rows × 1.66"] == 0
    assert names["one head"] == pytest.approx(fmean(MPNET.accuracies[1, 512]))
    assert {
        "2 heads",
        "4 heads",
        "8 heads",
        "one head, s barred in training too",
        "one head, rows × 1.35",
    } <= set(names.index)


def test_table_7_has_the_means_of_the_runs():
    frame = fig7.table(evidence(MPNET))
    assert len(frame) == 16
    line = frame.query("h == 1 and D_K == 256").iloc[0]
    assert line["test accuracy"] == f"{fmean(MPNET.accuracies[1, 256]):.4f}"
    assert (line["runs"], line["collapsed"], line["errors that are s"]) == (7, 2, "95 %")
    barred = [score + 0.95 * (1 - score) if score else 0 for score in MPNET.accuracies[1, 256]]
    assert line["accuracy with s and q barred"] == f"{fmean(barred):.4f}"


def test_the_table_of_controls_begins_with_none():
    frame = block.table(WHOLE).query("table == 'mpnet-base' and D_K == 512").set_index("control")
    assert list(frame.index)[:2] == ["none", "s and q barred at the test"]
    assert frame.loc["none", "gap to several heads closed"] == "0 %"
    assert frame.loc["second value path", "gap to several heads closed"] == "99 %"
    assert frame.loc["rows × 1.66", "answers: NULL"] == "1.0000"
    assert set(frame["h"]) == {1}


# The report


def test_without_runs_the_figures_say_so():
    for module in (fig7, block):
        with pytest.raises(InputError, match="nothing to draw"):
            module.draw(NOTHING)
        assert "not part of this reproduction" in module.meaning(NOTHING)
        assert module.table(NOTHING).empty


def test_a_command_names_no_file_of_its_maker():
    own = {"command": "headcount block a.toml --table mine.safetensors"}
    for preset, says in (
        ("paper", "headcount reproduce --preset paper --only fig7 --table smollm2"),
        ("quick", "headcount reproduce --only fig7"),
    ):
        found = replace(WHOLE, block_provenance=own, provenance={"preset": preset})
        assert block_command(found) == says
    named = {"command": "headcount block paper --table smollm2"}
    assert block_command(replace(WHOLE, block_provenance=named)) == named["command"]


def test_the_page_leaves_out_what_is_unknown_and_what_was_not_trained(tmp_path):
    made = {"runs": 175, "seconds": 1280.0, "versions": {"headcount": "unknown", "torch": "2.11"}}
    own = {"preset": "quick", "runs": 0, "run_steps": 0, "seconds": 0.0, "date": "2026-01-02"}
    found = replace(WHOLE, block_provenance=made, provenance=own)
    (path, *_) = write_report(tmp_path, found, chosen_figures(["fig7"]), [], ("svg",))
    first, other = path.read_text(encoding="utf-8").split("Figure 7 and its controls")
    assert "<dd>2026-01-02</dd>" in first
    for name in ("runs", "run-steps", "training time"):
        assert f"<dt>{name}</dt>" not in first
    assert "<dt>runs</dt><dd>175</dd>" in other
    assert "<dt>training time</dt><dd>21.3 min</dd>" in other
    assert "<dd>torch 2.11</dd>" in other
    assert "unknown" not in other.split("</header>")[0]


def test_prose_and_comparison_round_alike():
    """0.8579 is 0.858 in both."""
    found = evidence(with_cells(MPNET, {(8, 64): (0.8579,) * 7, (4, 64): (0.8849,) * 7}))
    rows = {row.what: row.ours for row in fig7.compare(found)}
    assert "0.858 against 0.885 with 4" in fig7.meaning(found)
    ours = rows["mpnet-base: (h, D_K, d_k) with too many heads"]
    assert ours == "0.858 with 8 heads at D_K = 64, 0.885 with 4"


def test_the_page_shows_both_with_the_command_that_made_the_runs(tmp_path):
    made = {"command": "headcount block full.toml", "date": "2026-01-02", "runs": 175}
    found = replace(WHOLE, block_provenance=made, provenance={"preset": "paper"})
    paths = write_report(
        tmp_path, found, chosen_figures(["fig7", "block"]), [block_advantage(found)], ("svg",)
    )
    assert [path.name for path in paths] == [
        "report.html",
        "fig7.svg",
        "fig7.csv",
        "block.svg",
        "block.csv",
    ]
    text = paths[0].read_text(encoding="utf-8")
    assert text.split("</header>")[1].count("<code>headcount block full.toml</code>") == 2
    assert "<dt>runs</dt><dd>175</dd>" in text
    assert '<option value="6144">' in text
    assert block_command(NOTHING) == "headcount reproduce --only fig7"
    (empty,) = write_report(tmp_path / "none", NOTHING, chosen_figures(["fig7"]), [])
    assert (
        "There is nothing to draw, since the evidence has no runs of the transformer block"
        in empty.read_text()
    )


accuracies = st.dictionaries(
    st.tuples(st.sampled_from([1, 2, 8]), st.sampled_from([64, 256, 512])),
    st.lists(st.floats(0, 1), min_size=1, max_size=3).map(tuple),
    min_size=1,
    max_size=6,
)


@st.composite
def blocks(draw) -> Block:
    found = draw(accuracies)
    control = draw(st.sampled_from(["none", "none", "barred", "two-values"]))
    if control == "two-values":
        found = {(1, budget): scores for (_, budget), scores in found.items()}
    table = draw(st.sampled_from(["mpnet-base-top6144", "gaussian"]))
    return Block(
        found,
        table=table,
        control=control,
        scale=draw(st.sampled_from([1.0, 1.35])),
        to_s=draw(st.floats(0, 1)),
    )


@settings(max_examples=12, deadline=None)
@given(
    st.lists(
        blocks(), max_size=4, unique_by=lambda block: (block.table, block.control, block.scale)
    )
)
def test_any_runs_are_told(parts):
    found = evidence(*parts)
    texts = [fig7.meaning(found), block.meaning(found)]
    texts += [f"{row.ours} {row.difference}" for row in fig7.compare(found)]
    texts += [claim(found).number for claim in (*JUDGES, block.capacity)]
    texts += [fig7.table(found).to_csv(), block.table(found).to_csv()]
    for text in texts:
        assert not re.search(r"\bnan\b|\bNone\b|<NA>|\binf\b", text), text
    for panel in panels(found):
        for cell in panel.cells.values():
            assert min(cell.seeds.values()) - 1e-9 <= cell.mean <= max(cell.seeds.values()) + 1e-9
