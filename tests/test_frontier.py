"""The frontier of compiled weights: table, command, chart, place in the report, and law."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from math import lgamma, log

import pandas as pd
import pytest
import vl_convert

from headcount.errors import InputError, NoSolution
from headcount.report.figures import chosen_figures
from headcount.report.figures.frontier import draw_frontier
from headcount.report.formatting import num
from headcount.report.page import write_report
from headcount.reproduction import frontier as module
from headcount.reproduction.frontier import (
    FrontierPoint,
    compiled_law,
    frontier,
    frontier_points,
    known_budgets,
)
from headcount.reproduction.frontier_file import (
    COLUMNS,
    KEY,
    frontier_table,
    read_frontier,
    write_frontier,
)
from headcount.reproduction.shipped import MEASURED, measured_frontier
from headcount.theory.laws import COMPILED
from tests.made_evidence import NOTHING

PAPER = replace(NOTHING, provenance={"preset": "paper"})
QUICK = replace(NOTHING, provenance={"preset": "quick"})


@pytest.fixture
def known(monkeypatch):
    """Known D_K, without the seconds that judging all runs takes."""
    beside = {"trained": 8, "constructed": None, "lower_bound": 1}
    monkeypatch.setattr(
        module, "known_budgets", lambda points: {point.size: beside for point in points}
    )


@pytest.fixture
def scripted(monkeypatch, known):
    """A compiler that finds nothing; the searches it was asked for."""
    asked = []

    def compile(graph, table, time_limit, seed, progress, device):
        assert device == "auto"
        asked.append(FrontierPoint(graph.items, table.shape[1], graph.edges // graph.items, seed))
        progress("trying")
        raise NoSolution("nothing in time")

    monkeypatch.setattr(module, "compile", compile)
    return asked


# The device


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_device_is_handed_on(device, known, monkeypatch, command):
    seen = []

    def compile(graph, table, **options):
        seen.append(options["device"])
        raise NoSolution("nothing in time")

    monkeypatch.setattr(module, "compile", compile)
    command("frontier", "--points", "16x8", "--device", device, "--quiet")
    assert seen == [device]


# The table


@pytest.mark.usefixtures("counted_time")
def test_a_row_says_what_was_compiled(known):
    table = frontier([(16, 8)], seeds=2, time_limit=1, seed=3)
    assert list(table.columns) == COLUMNS
    assert table[KEY].to_numpy().tolist() == [[16, 8, 1, 3], [16, 8, 1, 4]]
    row = table.iloc[0]
    assert sum(map(int, row["widths"].split())) == row["budget"] <= 6
    assert len(row["widths"].split()) == row["heads"]
    assert row["relative_margin"] > 0
    assert row["bits"] == pytest.approx(lgamma(17) / log(2))
    assert row["bits_per_parameter"] == pytest.approx(row["bits"] / (2 * 8 * row["budget"]))
    assert row[["trained", "lower_bound"]].tolist() == [8, 1]
    assert row["seconds"] < 10


def test_known_budgets_are_those_of_the_measured_results():
    found = known_budgets([FrontierPoint(128, 64), FrontierPoint(128, 32, 4), FrontierPoint(20, 7)])
    bounds = MEASURED.bounds()
    assert bounds is not None
    floors = (
        bounds.loc[bounds["kind"] == "lower bound"]
        .groupby(["items", "d_model", "degree"])["budget"]
        .max()
    )
    assert found[128, 64, 1] == {"trained": 7, "constructed": 88, "lower_bound": floors[128, 64, 1]}
    assert found[128, 32, 4]["trained"] == 64
    assert found[128, 32, 4]["lower_bound"] == floors[128, 32, 4]
    assert found[20, 7, 1] == {"trained": None, "constructed": None, "lower_bound": 1}
    assert not known_budgets([])


def test_a_search_without_weights_is_a_row_without_budget(scripted):
    lines = []
    table = frontier([(16, 8)], degrees=(1, 2), time_limit=1, progress=lines.append)
    assert table["budget"].isna().all()
    assert scripted == frontier_points([(16, 8)], (1, 2))
    assert "1 of 2, (16, 8): nothing in time" in lines


@pytest.mark.parametrize(("point", "degree"), [((1, 4), 1), ((8, 0), 1), ((8, 4), 8), ((8, 4), 0)])
def test_impossible_sizes_are_refused_first(point, degree):
    with pytest.raises(InputError):
        frontier_points([(8, 4), point], [degree])


def test_a_table_comes_back_from_its_file(tmp_path):
    path = tmp_path / "table.csv"
    write_frontier(measured_frontier(), path)
    pd.testing.assert_frame_equal(read_frontier(path), measured_frontier())
    write_frontier(frontier_table([]), path)
    assert read_frontier(path).empty
    path.write_text("items,d_model\n64,16\n")
    with pytest.raises(InputError, match="no column"):
        read_frontier(path)


# The command


def test_the_command_goes_on_from_its_file(command, scripted, tmp_path):
    words = (
        "frontier",
        "--points",
        "64x16,128x32,20x8x2",
        "--out",
        "table.csv",
        "--chart",
        "chart.svg",
    )
    write_frontier(measured_frontier().query("items <= 128"), tmp_path / "table.csv")
    code, out, err = command(*words, "--json")
    assert code == 0, err
    assert "2 of 3 rows are in table.csv" in err
    assert scripted == [FrontierPoint(20, 8, 2)]
    told = json.loads(out)
    assert [(row["items"], row["degree"]) for row in told["rows"]] == [(64, 1), (128, 1), (20, 2)]
    assert told["rows"][2]["budget"] is None
    assert "<path" in (tmp_path / "chart.svg").read_text()
    assert (
        len(read_frontier(tmp_path / "table.csv"))
        == len(measured_frontier().query("items <= 128")) + 1
    )
    code, out, _ = command(*words)
    assert len(scripted) == 2  # what found nothing is tried again
    assert "none" in out
    assert "times the trained D_K*" in out


def test_rows_of_a_shorter_search_are_told(command, scripted, tmp_path):
    rows = measured_frontier().query("items <= 128 and degree == 1 and seed == 0")
    write_frontier(rows.assign(time_limit=[3.0, *[30.0] * (len(rows) - 1)]), tmp_path / "table.csv")
    points = ",".join(f"{m}x{d}" for m, d in rows[["items", "d_model"]].itertuples(index=False))
    words = ("frontier", "--points", points, "--out", "table.csv", "--json", "--time-limit")
    assert (
        "1 of them had less than 30 s; to search these again choose another --out"
        in command(*words, 30)[2]
    )
    assert "less than" not in command(*words, 3)[2]
    assert scripted == []


def test_ctrl_c_keeps_the_rows_that_are_finished(command, known, monkeypatch, tmp_path):
    real = module.compile

    def compile(graph, table, **options):
        if graph.items > 16:
            try:
                os.kill(os.getpid(), signal.SIGINT)  # `compile` answers it with its best so far
            except KeyboardInterrupt:
                raise NoSolution("nothing before the interruption") from None
        return real(graph, table, **options)

    monkeypatch.setattr(module, "compile", compile)
    before = signal.getsignal(signal.SIGINT)
    code, out, err = command(
        "frontier", "--items", "16,17,18", "--d-model", "8", "--time-limit", "1", "-o", "t.csv"
    )
    assert code == 130
    assert "t.csv has every row that is finished" in err
    assert "(16, 8)" in out
    assert read_frontier(tmp_path / "t.csv")["items"].tolist() == [16]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--points", "64"], "--points '64': not understood"),
        (["--points", "64x16", "--items", "64"], "leave out --items"),
        (["--items", "64;128"], "write for instance --items 64,128"),
        (["--items", "8", "--degree", "8"], "8 items allow 1 to 7"),
        (["--time-limit", "0"], "choose more than 0"),
        (["--chart", "chart.gif"], "written as .png, .svg or .pdf"),
        (["--out", "x.xls"], "x.xls: this is written as .csv"),
        (["--out", "absent/table.csv"], "its folder does not exist"),
    ],
)
def test_the_command_refuses(command, words, message):
    code, _, err = command("frontier", *words)
    assert code == 2
    assert message in err


# The chart and the report


def _spec(table: pd.DataFrame) -> dict:
    return draw_frontier(table).to_dict()


def _rows(spec: dict) -> pd.DataFrame:
    return pd.DataFrame(spec["datasets"][spec["data"]["name"]])


def test_the_chart_holds_the_table_in_two_panels():
    table = measured_frontier()
    spec = _spec(table)
    drawn = _rows(spec)
    assert drawn["panel"].nunique() == 2
    compiled = drawn.loc[drawn["name"] == "compiled"]
    found = table.dropna(subset=["budget"])
    assert compiled["value"].tolist() == pytest.approx(
        [*found["budget"], *found["bits_per_parameter"]], rel=1e-3
    )
    assert [param["name"] for param in spec["params"]] == ["m", "d_model_"]
    assert [step["filter"] for step in spec["transform"]] == [
        "m == null || datum.items == m",
        "d_model_ == null || datum.d_model == d_model_",
    ]
    assert "<path" in vl_convert.vegalite_to_svg(spec)


def test_the_chart_needs_no_trained_or_constructed_values():
    whole = measured_frontier()
    gone = pd.Series(pd.NA, index=whole.index, dtype="Int64")
    alone = whole.assign(trained=gone, constructed=gone, degree=2)
    assert set(_rows(_spec(alone))["name"]) == {"compiled", "largest lower bound"}
    for nothing in (alone.iloc[:0], alone.assign(budget=gone)):
        with pytest.raises(InputError, match="nothing to draw"):
            draw_frontier(nothing)


def test_the_report_shows_it_beside_the_papers_results_alone(tmp_path):
    (figure,) = chosen_figures(["frontier"])
    paper = write_report(tmp_path / "paper", PAPER, [figure], [], formats=("svg",))
    assert [path.name for path in paper] == ["report.html", "frontier.svg", "frontier.csv"]
    text = paper[0].read_text(encoding="utf-8")
    assert figure.command is not None
    assert figure.command(PAPER).startswith("headcount frontier --points 64x")
    assert figure.command(PAPER) in text
    assert len(pd.read_csv(paper[2])) == len(measured_frontier())
    (quick,) = write_report(tmp_path / "quick", QUICK, [figure], [])
    assert "Not measured by the preset “quick”." in quick.read_text(encoding="utf-8")


def test_its_meaning_has_two_sentences_with_the_tables_numbers():
    (figure,) = chosen_figures(["frontier"])
    text = figure.meaning(PAPER)
    assert len(re.findall(r"[.!?](?=\s[A-Zh]|$)", text)) == 2, text
    assert f"follows {num(COMPILED.slope)} m log₂ m/d_model" in text
    assert not re.search(r"\bnan\b|None|<NA>", text)
    assert figure.compare(PAPER) == []


# The law


def test_the_compiled_law_is_the_fit_to_the_measured_frontier():
    """The numbers of `COMPILED`, to be written there when measured/frontier.csv has changed:

    python -c "from headcount.reproduction import frontier, shipped;
    print(frontier.compiled_law(shipped.measured_frontier()))"
    """
    fit = compiled_law(measured_frontier())
    assert fit.slope == pytest.approx(COMPILED.slope, abs=5e-4)
    assert fit.r_squared == pytest.approx(COMPILED.r_squared, abs=5e-4)
    assert fit.interval == pytest.approx(COMPILED.interval, abs=5e-4)
    assert (fit.name, fit.quantity, fit.form, fit.intercept, fit.source) == (
        COMPILED.name,
        COMPILED.quantity,
        COMPILED.form,
        COMPILED.intercept,
        COMPILED.source,
    )
