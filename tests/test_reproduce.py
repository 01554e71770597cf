"""Presets, evidence, the results folder, the forecast, and the commands reproduce and report."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import headcount as hc
from headcount.analysis.curves import curves
from headcount.analysis.thresholds import thresholds, thresholds_by_heads
from headcount.errors import InputError
from headcount.paper import data as paper
from headcount.report import reproduce as reproduction
from headcount.report.figures import FIGURES, chosen_figures, needs
from headcount.report.page import _command as page_command
from headcount.reproduction import results_folder, training
from headcount.reproduction.bounds_table import MOST_DEGREE
from headcount.reproduction.evidence import COLUMNS, KEY, Evidence, gather
from headcount.reproduction.fitting import fitting
from headcount.reproduction.forecast import expected_runs
from headcount.reproduction.presets import PRESETS, Need, preset, restricted
from headcount.reproduction.results_folder import ResultsFolder
from headcount.reproduction.shipped import MEASURED, measured_runs
from headcount.store.store import Store
from headcount.sweeps.block_plan import read_block_plan
from headcount.sweeps.grid import paper_runs
from headcount.sweeps.writer import SweepProgress
from headcount.training.engines.selection import choose_engine

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


# The commands


ONLY = ("--only", "fig6,table2", "--out", "here", "--engine", "native")


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory, command_in) -> Path:
    """A reproduction of two parts, killed on the way and run again."""
    folder = tmp_path_factory.mktemp("reproduce")
    words = [sys.executable, "-m", "headcount", "reproduce", *ONLY]
    first = subprocess.Popen(
        words, cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    store = folder / "here" / "runs.sqlite"
    while first.poll() is None and not (store.exists() and _stored(store)):
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    stored = _stored(store)
    code, out, err = command_in(folder, "reproduce", *ONLY, "--json")
    assert code == 0, err
    (folder / "told.json").write_text(json.dumps(json.loads(out) | {"stored": stored}))
    return folder / "here"


def _stored(path: Path) -> int:
    """How many runs a store has that another process may be making."""
    try:
        with Store(path, read_only=True) as store:
            return len(store)
    except InputError:
        return 0


def test_a_figure_that_needs_no_training_says_so(tmp_path, command_in):
    code, _, err = command_in(tmp_path, "reproduce", "--only", "table2", "--out", "here")
    assert code == 0
    assert "table2: nothing to train; drawn from what headcount ships" in err
    page = (tmp_path / "here" / "report.html").read_text()
    assert "<code>headcount report --only table2</code>" in page
    assert "<dt>runs</dt>" not in page.split("Figure 7 and its controls")[0]  # not "runs 0"
    assert "<dt>training time</dt>" not in page.split("Figure 7 and its controls")[0]
    assert "headcount unknown" not in page


def test_the_command_under_a_figure_trains_what_the_figure_shows():
    """Of the whole report of a quick reproduction, each command; none trains nothing."""
    quick = replace(measured_evidence(), provenance={"preset": "quick"})
    for figure in FIGURES:
        words = page_command(figure, quick, "quick").split()
        if words[1] == "report":
            assert not figure.grids
            continue
        if words[1] != "reproduce":
            continue
        assert words[words.index("--only") + 1] == figure.id.replace("block", "fig7")
        if figure.grids:
            asked = words[words.index("--preset") + 1]
            part = restricted(preset(asked), needs([figure]))
            assert part.grids or part.searches, figure.id
            assert asked == ("paper" if figure.id in ("fig4", "fig11") else "quick")


@pytest.mark.parametrize(("seconds", "fits"), [(1e9, True), (60.0, False)])
def test_a_slow_engine_trains_the_points_that_fit(tmp_path, seconds, fits):
    whole, engine = preset("quick"), choose_engine("torch")
    with Store(tmp_path / "runs.sqlite") as store:
        part, left_out = fitting(whole, engine, store, seconds)
    assert (part.all_runs == whole.all_runs) == fits
    assert bool(left_out) != fits
    if fits:
        return
    assert 0 < len(expected_runs(part)) < len(expected_runs(whole))
    points = {(spec.items, spec.d_model) for spec in part.all_runs}
    assert (512, 64) not in points  # the most costly point goes first
    (named,) = [words for words in left_out if words.startswith("thresholds of the grid base at ")]
    assert "(512, 64)" in named
    kept = {spec for one in (*part.grids, *part.searches) for spec in one.runs}
    for one in (*whole.grids, *whole.searches):  # a point is whole or left out
        for point in {(spec.items, spec.d_model, spec.degree) for spec in one.runs}:
            own = {s for s in one.runs if (s.items, s.d_model, s.degree) == point}
            assert own <= kept or not (own & {s for p in part.grids for s in p.runs})


def test_only_quick_as_a_whole_is_cut_and_the_reason_is_said(tmp_path, monkeypatch, capfd):
    limits = []

    def stop(sweep, engine, folder, entry, progress, write_manifest, limit=None):
        limits.append(limit)
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduction, "train_preset", stop)
    for preset_name, only, engine in (
        ("quick", (), "torch"),
        ("quick", ("fig6",), "torch"),
        ("quick", (), "native"),
        ("paper", (), "torch"),
    ):
        with pytest.raises(KeyboardInterrupt):
            hc.reproduce(preset_name, only, tmp_path / f"{preset_name}", engine=engine)
    assert limits == [20 * 60.0, None, None, None]
    monkeypatch.undo()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "run_sweep", lambda *words, **more: SweepProgress("quick"))
        hc.reproduce("quick", "fig6", tmp_path / "slow", engine="torch", report=False)
    told = capfd.readouterr().err
    assert "with the torch engine, which takes 10 to 40 times as long as the native one" in told
    assert "needs a C++ compiler (g++)" in told


@pytest.mark.parametrize("compiler", ["no-such-compiler", "sh"])
def test_make_says_that_the_compiler_is_missing(tmp_path, compiler):
    shutil.copy(Path(__file__).parents[1] / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt", "CMakeLists.txt"):
        (tmp_path / name).touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("python", "pip"):
        program = tmp_path / ".venv" / "bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    done = subprocess.run(
        ["make", ".venv/installed", f"CXX={compiler}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".venv" / "installed").exists()
    missing = "no-such-compiler is missing, so the native engine cannot be built. Going on with"
    assert (missing in done.stdout) == (compiler == "no-such-compiler")


def test_a_killed_reproduction_goes_on(reproduced):
    told = json.loads((reproduced.parent / "told.json").read_text())
    folder = ResultsFolder(reproduced)
    asked = restricted(preset("quick"), needs(chosen_figures(["fig6", "table2"]))).runs
    assert len(folder.runs()) == len(asked)
    assert told["stored"] > 0
    assert told["stored"] + told["trained"] == len(asked)
    manifest = folder.manifest()
    assert manifest["preset"] == "quick"
    assert manifest["seeds"] == [0, 1, 2]
    killed, *later = manifest["made"]  # one entry a command
    assert not killed["complete"]
    assert later[0]["complete"]
    assert later[0]["only"] == ["fig6", "table2"]
    assert later[0]["trained"] == told["trained"]
    assert set(later[0]["seconds"]) == {"runs", "report"}
    assert str(reproduced) not in json.dumps(manifest)  # no machine's paths


def test_it_leaves_the_report_and_the_files_of_each_figure(reproduced):
    told = json.loads((reproduced.parent / "told.json").read_text())
    names = {Path(path).name for path in told["files"]}
    assert {"report.html", "fig6.png", "fig6.svg", "fig6.pdf", "table2.csv"} <= names
    assert all((reproduced.parent / path).stat().st_size > 100 for path in told["files"])
    page = (reproduced / "report.html").read_text()
    assert "headcount reproduce --preset quick --only fig6" in page
    assert '<a href="explorer.html">' in page
    assert '<a href="report.html">' in (reproduced / "explorer.html").read_text()
    here = told["claims"]["C4"]["here"]
    assert (here["verdict"], here["agreement"]) == ("not measured", "not measured here")
    assert told["claims"]["C4"]["verdict"] != "not measured"  # at the scale of the paper
    value = told["claims"]["C7"]["here"]
    assert (value["verdict"], value["agreement"]) == ("partly", "agrees")
    assert value["thin"] == "1 panel where the rule asks for 2"
    assert "At paper scale" in page
    assert "This machine" in page
    assert "agrees: the shipped runs of this part give the same verdict" in page
    evidence = ResultsFolder(reproduced).evidence()
    one = evidence.on("value", heads=1)["mean"].min()
    assert one > 1.2 * evidence.on("value", heads=8)["mean"].min()  # Fig. 6: one head plateaus
    assert math.isfinite(one)


def test_a_second_time_trains_nothing(reproduced, command_in):
    _, again, _ = command_in(reproduced.parent, "reproduce", *ONLY, "--json")
    assert json.loads(again)["trained"] == 0
    _, drawn, _ = command_in(
        reproduced.parent, "report", "here", "--only", "fig6", "--out", "drawn", "--json"
    )
    files = json.loads(drawn)["files"]
    assert sorted(Path(path).suffix for path in files) == [".html", ".pdf", ".png", ".svg"]


def test_the_library_function_does_what_the_command_does(tmp_path, monkeypatch, capfd):
    gathered = []
    monkeypatch.setattr(
        results_folder, "gather", lambda *words: gathered.append(words) or gather(*words)
    )
    found = hc.reproduce(only="table2", out=tmp_path / "here", engine="torch", progress=False)
    assert [path.name for path in found.files] == ["report.html", "table2.csv"]
    assert found.trained == 0
    own = [runs for runs, *_ in gathered if not len(runs)]
    assert len(own) == 2  # the evidence, and the part of the shipped runs beside it
    assert {claim.id for claim in found.claims} >= {"C1", "C14"}
    assert {name for name, one in found.local.items() if one.claim.verdict != "not measured"} == {
        "C22",  # counted, without runs
        "C23",
    }
    first = ResultsFolder(found.folder).history()[0]
    assert first["complete"]
    assert first["only"] == ["table2"]  # a string is one name
    assert first["command"] == "headcount reproduce --preset quick --only table2"
    assert capfd.readouterr().err == ""
    with pytest.raises(InputError, match="a token table is for the runs of Figure 7"):
        hc.reproduce(only=["fig6"], table="smollm2", out=tmp_path / "here")
    again = hc.reproduce(only=["table2"], out=found.folder, report=False)
    assert not again.files


def test_the_report_counts_the_runs_that_it_shows(reproduced):
    manifest = ResultsFolder(reproduced).manifest()
    assert manifest["runs"] > 0
    assert f"<dd>{manifest['runs']:,}</dd>" in (reproduced / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("reproduce", "--only", "fig33"),
            "'fig33' is not a figure or table of the report (did you mean 'fig3'?)",
        ),
        (("reproduce", "--only", ","), "--only names nothing"),
        (("reproduce", "--out", "file"), "file: cannot be a folder"),
        (
            ("reproduce", "--preset", "paper", "--out", "here"),
            "holds a reproduction with --preset quick",
        ),
        (("report", "nowhere"), "nowhere/manifest.json: does not exist"),
        (
            ("reproduce", "--only", "fig4,fig11", "--out", "never"),
            "the preset quick has no runs for fig4, fig11; use --preset paper",
        ),
    ],
)
def test_bad_input_is_one_sentence(reproduced, words, says, command_in):
    (reproduced.parent / "file").touch()
    code, _, err = command_in(reproduced.parent, *words)
    assert code == 2
    assert says in err
    assert err.count("\n") == 1
    assert not os.path.exists(reproduced.parent / "nowhere")


def test_an_interrupt_keeps_what_is_finished_and_the_preset(tmp_path, command_in):
    words = [sys.executable, "-m", "headcount", "reproduce", "--only", "fig6", "--out", "here"]
    running = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    store = tmp_path / "here" / "runs.sqlite"
    while running.poll() is None and not (store.exists() and _stored(store)):
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert "the same command continues from there" in running.communicate()[1]
    assert running.returncode == 130
    folder = ResultsFolder(tmp_path / "here")
    assert len(folder.runs()) == folder.history()[0]["trained"] == _stored(store) > 0
    code, _, err = command_in(tmp_path, "reproduce", "--preset", "paper", "--out", "here")
    assert code == 2
    assert "holds a reproduction with --preset quick" in err


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.id)
def test_the_command_under_a_figure_runs_all_that_its_text_is_made_from(figure, evidence):
    """A figure's text with the runs of `--only` alone is its text with all runs."""
    part = restricted(preset("paper"), needs([figure]))
    alone = gather(
        measured_runs(), part, evidence.bounds if figure.shows_bounds else None, evidence.provenance
    )
    assert figure.meaning(alone) == figure.meaning(evidence)
    assert figure.compare(alone) == figure.compare(evidence)


def test_figures_are_chosen_without_the_drawing_libraries():
    hide = "import sys; sys.modules |= {'altair': None, 'vl_convert': None}"
    ask = (
        "from headcount.report.figures import chosen_figures, needs; "
        "print(len(needs(chosen_figures(['fig3']))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{hide}\n{ask}"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "2\n", done.stderr


def test_a_dry_run_trains_nothing_and_makes_no_file(command, tmp_path):
    words = ("reproduce", "--dry-run", "--only", "fig6,fig7", "--engine", "torch")
    code, out, err = command(*words, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert list(tmp_path.iterdir()) == []
    asked = restricted(preset("quick"), needs(chosen_figures(["fig6", "fig7"])))
    assert (told["runs"], told["known"]) == (len(expected_runs(asked)), 0)
    assert told["figures"] == ["fig6", "fig7"]
    assert told["seconds"] > 0
    assert told["block_runs"] == len(read_block_plan("quick").specs)
    code, out, _ = command(*words)
    assert "a dry run, nothing is trained" in out
    assert f"0 known, {told['runs']:,} to train" in out
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_knows_what_the_folder_holds(reproduced, command_in):
    before = sorted(file.name for file in reproduced.glob("*[!lm]"))  # not SQLite's -wal and -shm
    words = ("reproduce", "--dry-run", "--only", "fig6", "--out", reproduced, "--json")
    told = json.loads(command_in(reproduced, *words)[1])
    with Store(ResultsFolder(reproduced).store, read_only=True) as store:
        assert (told["known"], told["runs"], told["seconds"]) == (len(store), 0, 0)
    assert sorted(file.name for file in reproduced.glob("*[!lm]")) == before
    code, _, err = command_in(
        reproduced, "reproduce", "--dry-run", "--preset", "paper", "--out", reproduced
    )
    assert code == 2
    assert "holds a reproduction with --preset quick" in err


def test_a_store_is_not_taken_for_a_folder(command, filled):
    code, _, err = command("report", filled)
    assert code == 2
    assert "is a file, not a folder that headcount reproduce filled" in err
    assert f"headcount results chart {filled} --out chart.png" in err
    assert f"--out {filled}" not in err


def test_a_dry_run_refuses_what_the_preset_has_no_runs_for(command, tmp_path):
    code, _, err = command("reproduce", "--dry-run", "--only", "fig4", "--out", tmp_path / "new")
    assert code == 2
    assert "the preset quick has no runs for fig4" in err


def test_a_folder_without_runs_says_that_nothing_was_trained(tmp_path):
    found = hc.reproduce("quick", "table2", tmp_path / "here", engine="torch", progress=False)
    page = " ".join(found.files[0].read_text().split())
    assert "This machine trained nothing. Of its verdicts" in page
    assert "This machine ran a part of them" not in page
