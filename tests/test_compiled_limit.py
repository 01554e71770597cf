"""How small compiled weights get: the searches, their verdicts and their figure."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from headcount.report.figures.limit import compiled_rows, perceptron_bits, wide_limit
from headcount.reproduction import compiled_limit, compiled_limit_verdicts
from headcount.reproduction.compiled_limit import LimitCase, cases, measure
from headcount.reproduction.compiled_limit_verdicts import limit_verdicts, measured_limit
from headcount.theory.capacity_law import capacity_ratio
from headcount.theory.refined_law import width_ratio


@pytest.mark.parametrize("smallest", [7, 8, 11])  # the first D_K tried is 9
def test_a_search_ends_one_column_above_a_failure(monkeypatch, smallest):
    found = SimpleNamespace(certificate=SimpleNamespace(relative_margin=0.1))
    reach = lambda case, budget: found if budget >= smallest else None  # noqa: E731
    monkeypatch.setattr(compiled_limit, "_compiled", reach)
    case = LimitCase("heads", 128, 32, 1, 2, seed=900)
    assert case.first_budget == 9
    assert case.width_ratio(9) >= 1.15 > case.width_ratio(8)
    row = measure(case)
    assert (row["budget"], row["failed"]) == (smallest, smallest - 1)
    assert row["ratio"] == pytest.approx(case.ratio(smallest), abs=1e-4)


def test_a_search_that_finds_nothing_has_no_budget(monkeypatch):
    monkeypatch.setattr(compiled_limit, "_compiled", lambda case, budget: None)
    assert "budget" not in measure(LimitCase("heads", 128, 32, 1, 2, seed=900))


def test_ratios_of_equal_heads_are_those_of_the_law():
    case = LimitCase("heads", 128, 32, 1, 2, seed=900)
    assert case.ratio(8) == pytest.approx(capacity_ratio(128, 128, 32, 2, 4))
    assert case.width_ratio(8) == pytest.approx(width_ratio(128, 128, 32, 2, 4))


def test_shipped_searches_are_preregistered_and_their_ratios_are_right():
    table, known = measured_limit(), {case: case for case in cases()}
    assert len(known) == 42
    for row in table.to_dict("records"):
        case = LimitCase(*(row[name] for name in LimitCase.__dataclass_fields__))
        assert case in known
        assert row["ratio"] == pytest.approx(case.ratio(row["budget"]), abs=1e-4)
        assert row["failed_width_ratio"] == pytest.approx(case.width_ratio(row["failed"]), abs=1e-4)
    drawn = compiled_rows()
    ours = drawn[drawn["source"] == "preregistered search"]
    assert ours["ratio"].tolist() == pytest.approx(table["ratio"].tolist(), abs=1e-4)


def test_the_shipped_searches_decide_every_hypothesis():
    assert len(measured_limit()) == 42
    assert {one.part: one.verdict for one in limit_verdicts()} == {
        "one head": "confirmed",
        "heads": "confirmed",
        "more heads": "confirmed",
        "growing": "confirmed",
        "degree 4": "refuted",
    }


def test_verdicts_are_open_while_groups_are_missing(monkeypatch):
    some = measured_limit().query("items < 512")
    with monkeypatch.context() as patch:
        patch.setattr(compiled_limit_verdicts, "measured_limit", lambda: some)
        found = {one.part: one.verdict for one in limit_verdicts()}
    assert found["one head"] == found["heads"] == found["growing"] == "open"
    rows = [
        {"part": "one head", "items": m, "d_model": m // 4, "degree": 1, "heads": 1, "seed": seed}
        | {"budget": budget, "ratio": 0.7, "width_ratio": high, "failed": budget - 1}
        | {"failed_ratio": 0.6, "failed_width_ratio": high - 0.1, "seconds": 1.0}
        for m, high in ((128, 1.05), (256, 1.1), (512, 1.2))
        for seed, budget in ((900, 9), (901, 10), (902, 14))
    ]
    monkeypatch.setattr(compiled_limit_verdicts, "measured_limit", lambda: pd.DataFrame(rows))
    groups = compiled_limit_verdicts.limit_groups()
    assert groups["budget"].tolist() == [10, 10, 10]
    assert groups["seeds"].tolist() == [3, 3, 3]
    assert limit_verdicts()[0].verdict == "confirmed"
    for row in rows:
        row["failed_width_ratio"] = 1.16
    assert limit_verdicts()[0].verdict == "refuted"


def test_the_curves_of_the_figure_have_their_known_ends():
    curve = wide_limit()
    assert curve["ratio"].iloc[0] == pytest.approx(1)
    assert 0.5 < curve["ratio"].iloc[-1] < 0.57
    assert perceptron_bits(0.5) == 2
    assert perceptron_bits(1 / 1024) == pytest.approx(1.35, abs=0.005)
