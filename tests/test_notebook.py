"""In a notebook: results are tables, and weights and thresholds draw themselves."""

from __future__ import annotations

from html import escape

import altair as alt
import pandas as pd
import pytest

import headcount as hc
from headcount.analysis.curves import COLUMNS
from headcount.errors import InputError


def frame(*scores: float) -> pd.DataFrame:
    """Runs of one point: a score per budget 2, 4, …, the same for two seeds."""
    at = {"variant": "max", "degree": 1, "items": 64, "d_model": 16, "heads": 2, "diverged": None}
    rows = [
        at | {"key_dim": n, "budget": 2 * n, "seed": seed, "value": score, "steps": 1000}
        for n, score in enumerate(scores, 1)
        for seed in range(2)
    ]
    return pd.DataFrame(rows)[list(COLUMNS)]


def test_results_are_tables():
    graph, table = hc.permutation_graph(16), hc.gaussian_embeddings(16, 8)
    found = hc.compile(graph, table, time_limit=2)
    answers = (found, hc.verify(found.weights, graph, table), hc.plan(64, d_model=16))
    for answer in answers:
        assert answer._repr_html_().startswith("<table>")
    assert "certified" in found._repr_html_()
    assert "exact" in answers[1]._repr_html_()
    assert escape(answers[2].advice) in answers[2]._repr_html_()


@pytest.mark.parametrize(("threshold", "verdict"), [(0.5, "certified"), (0.2, "refuted")])
def test_a_certificate_shows_its_verdict_and_its_context_length(threshold, verdict):
    graph, table = hc.permutation_graph(6), hc.one_hot_embeddings(6)
    targets = table[graph.targets.tolist()]
    weights = hc.KeyQuery(20 * targets[None], table[None], threshold, "softmax")
    found = hc.verify(weights, graph, table, context_length=4, samples=20)
    assert f"<th>{verdict}</th>" in found._repr_html_()
    assert "<td>context length</td><td>4</td>" in found._repr_html_()


def test_a_list_of_runs_is_a_table():
    spec = hc.RunSpec(items=16, d_model=4, heads=1, key_dim=1, steps=1)
    results = hc.train([spec], engine="torch", progress=False)
    assert results == list(results)
    assert results._repr_html_().count("<tr>") == 2
    assert hc.RunResults()._repr_html_().count("<tr>") == 1


def test_a_list_of_block_runs_is_a_table():
    sizes = {"items": 16, "d_model": 8, "heads": 2, "key_dim": 2, "length": 3, "batch": 8}
    spec = hc.BlockSpec(**sizes, steps=2, check_every=2, validation=20, test=20)
    table = hc.token_table("gaussian", 16, 8)
    results = hc.train_blocks([spec], table, device="cpu", progress=False)
    assert isinstance(results, hc.BlockResults)
    assert results == list(results)
    assert results._repr_html_().count("<tr>") == 2
    assert hc.BlockResults()._repr_html_().count("<tr>") == 1


def test_text_is_escaped():
    from headcount.notebook import html_table

    assert "<b>" not in html_table(["<b>"], [["<b>"]], "<b>")


def test_weights_draw_their_scores():
    graph, table = hc.permutation_graph(8), hc.one_hot_embeddings(8)
    chart = hc.construct(graph, table, key_dim=16).plot(graph, table)
    assert isinstance(chart, alt.HConcatChart)
    assert "8 items, 8 edges, d_model 8, 1 head, D_K 16" in str(chart.to_dict())


def test_a_figure_of_the_report_is_a_chart_and_a_table_a_frame():
    assert hc.figure("fig1").to_dict()["$schema"].startswith("https://vega.github.io")
    assert isinstance(hc.figure("table2"), pd.DataFrame)


def test_thresholds_draw_themselves():
    found = hc.thresholds(frame(0.5, 1.0))
    assert found["central"].tolist() == [4]
    assert type(found.head(1)) is pd.DataFrame
    drawn = found.plot().to_dict()
    (rows,) = drawn["datasets"].values()
    assert [(row["central"], row["size"]) for row in rows] == [(4, 64 * 6 / 16)]
    line, point = (layer["encoding"] for layer in drawn["layer"])
    assert {point[axis]["scale"]["type"] for axis in "xy"} == {"log"}
    assert line["y"]["scale"] == point["y"]["scale"]
    assert point["shape"]["field"] == "degree"
    with pytest.raises(InputError, match="nothing to draw"):
        hc.thresholds(frame(0.5)).plot()
