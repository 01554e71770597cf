"""`headcount reproduce`: what it trains, keeps, reports and refuses."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import headcount as hc
from headcount.errors import InputError
from headcount.report.figures import FIGURES, chosen_figures, needs
from headcount.report.page import _command as page_command
from headcount.reproduction import presets, results_folder
from headcount.reproduction.evidence import gather
from headcount.reproduction.forecast import expected_runs
from headcount.reproduction.presets import preset, restricted
from headcount.reproduction.results_folder import ResultsFolder
from headcount.store.store import Store
from headcount.sweeps import runner, writer
from headcount.sweeps.block_plan import read_block_plan

from .measured import measured_evidence
from .processes import Forked, forked, headcount, printed

# The commands


ONLY = ("--only", "fig6,table2", "--out", "here", "--engine", "native")
# Of the preset quick, enough of Figure 6 to judge it by.
SMALL = """name = "quick"
[[grid]]
paper = "value"
points = [[64, 16]]
heads = [1, 8]
budget = [8, 16, 24, 32, 40, 48, 56, 64]
"""


@pytest.fixture(scope="module")
def small_preset(tmp_path_factory) -> Iterator[None]:
    """From here to the end of the module."""
    folder = tmp_path_factory.mktemp("presets")
    (folder / "quick.toml").write_text(SMALL)
    shutil.copy(presets._FOLDER / "paper.toml", folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(presets, "_FOLDER", folder)
        preset.cache_clear()
        yield
    preset.cache_clear()


@contextmanager
def reproducing(folder: Path, *words: str) -> Iterator[Forked]:
    """A reproduction at work, which has stored its first runs."""
    store = folder / "here" / "runs.sqlite"
    with forked(_stored_often, "reproduce", *words, folder=folder) as process:
        deadline = time.monotonic() + 120
        while process.running and not (store.exists() and _stored(store)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process


def _stored_often(*words: str) -> None:
    runner._FIRST_PIECE = writer.BEAT = 0.1
    headcount(*words)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory, command_in, small_preset) -> Path:
    """A reproduction of two parts, killed on the way and run again."""
    folder = tmp_path_factory.mktemp("reproduce")
    with reproducing(folder, *ONLY) as process:
        assert process.kill() == -signal.SIGKILL
    stored = _stored(folder / "here" / "runs.sqlite")
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


def test_an_interrupt_keeps_what_is_finished_and_the_preset(tmp_path, command_in, small_preset):
    words = ("--only", "fig6", "--out", "here", "--engine", "native")
    with reproducing(tmp_path, *words) as process:
        process.send_signal(signal.SIGINT)
        code, _, err = process.end()
    assert "the same command continues from there" in err
    assert code == 130
    folder = ResultsFolder(tmp_path / "here")
    assert len(folder.runs()) == folder.history()[0]["trained"] == _stored(folder.store) > 0
    code, _, err = command_in(tmp_path, "reproduce", "--preset", "paper", "--out", "here")
    assert code == 2
    assert "holds a reproduction with --preset quick" in err


def test_figures_are_chosen_without_the_drawing_libraries():
    hide = "import sys; sys.modules |= {'altair': None, 'vl_convert': None}"
    ask = (
        "from headcount.report.figures import chosen_figures, needs; "
        "print(len(needs(chosen_figures(['fig3']))))"
    )
    assert printed(f"{hide}\n{ask}") == "2\n"


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
