"""A reproduction where the native engine is missing: what fits the time, and what is said."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

import headcount as hc
from headcount.report import reproduce as reproduction
from headcount.reproduction import fitting, training
from headcount.reproduction.forecast import expected_runs
from headcount.reproduction.presets import preset
from headcount.store.store import Store
from headcount.sweeps import writer
from headcount.training.engines.selection import choose_engine


def test_a_slow_engine_trains_the_points_that_fit(tmp_path, monkeypatch):
    whole, engine = preset("quick"), choose_engine("torch")
    expected = expected_runs(whole)
    monkeypatch.setattr(fitting, "expected_runs", lambda sweep: expected)  # it takes seconds
    with Store(tmp_path / "runs.sqlite") as store:
        part, left_out = fitting.fitting(whole, engine, store, 1e9)
        assert part.all_runs == whole.all_runs
        assert not left_out
        part, left_out = fitting.fitting(whole, engine, store, 60.0)
    assert part.all_runs != whole.all_runs
    assert left_out
    assert 0 < len(expected_runs(part)) < len(expected)
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
        patch.setattr(training, "run_sweep", lambda *words, **more: writer.SweepProgress("quick"))
        hc.reproduce("quick", "fig6", tmp_path / "slow", engine="torch", report=False)
    told = capfd.readouterr().err
    assert "with the torch engine, which takes 2 to 20 times as long as the native one" in told
    assert "needs a C++ compiler (g++)" in told


# A pip that notes the compiler it is told of and what it is asked for. ziglang is there or not, and
# what it compiles leaves a library or fails.
PIP = """#!/bin/sh
echo "$CXX: $*" >> asked
case "$*" in *ziglang) exit {no_zig:d};; esac
case "$CXX" in *zig-c++) [ -x "$CXX" ] && {compiles};; esac
exit 0
"""
NATIVE = "src/headcount/training/engines/native"


@pytest.fixture
def checkout(tmp_path) -> Path:
    """What the target `.venv/installed` needs, and a python that repeats its words."""
    folder = tmp_path / "a folder"
    (folder / NATIVE).mkdir(parents=True)
    shutil.copy(Path(__file__).parents[1] / "Makefile", folder)
    for name in ("pyproject.toml", "constraints.txt", "CMakeLists.txt"):
        (folder / name).touch()
    add_program(folder / ".venv" / "bin" / "python", '#!/bin/sh\necho "$@"\n')
    return folder


def add_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(checkout: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """What `make .venv/installed` printed."""
    done = subprocess.run(
        ["make", ".venv/installed", *words], cwd=checkout, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_takes_the_compiler_that_is_there(checkout, tmp_path):
    add_program(checkout / ".venv" / "bin" / "pip", PIP.format(no_zig=False, compiles="exit 1"))
    mine = tmp_path / "zig"  # users have variables of this name
    told = make(checkout, env=os.environ | {"CXX": "sh", "ZIG": str(mine), "ZIG_CXX": str(mine)})
    assert "no C++ compiler" not in told
    (asked,) = (checkout / "asked").read_text().splitlines()
    assert asked.startswith("sh: install ")
    assert asked.endswith(" -e .")
    assert not mine.exists()


@pytest.mark.parametrize("zig", ["works", "fails", "is not to be had"])
def test_make_takes_the_compiler_of_zig_where_there_is_none(checkout, zig):
    compiles = f"touch {NATIVE}/_native.so" if zig == "works" else "exit 1"
    script = PIP.format(no_zig=zig == "is not to be had", compiles=compiles)
    add_program(checkout / ".venv" / "bin" / "pip", script)
    told = make(checkout, "CXX=no-such-compiler")
    assert (checkout / ".venv" / "installed").exists()
    assert "no C++ compiler (no-such-compiler); PyPI's ziglang" in told
    assert ("The torch engine trains in place of" in told) == (zig != "works")
    first, *asked = (checkout / "asked").read_text().splitlines()
    assert first.endswith(" ziglang")
    program = checkout / ".venv" / "bin" / "zig-c++"
    used = [str(program), *["false"] * (zig == "fails")]  # `false`: without the native engine
    assert [words.partition(": ")[0] for words in asked] == used
    assert program.exists() == (zig != "is not to be had")
    if program.exists():
        called = subprocess.run([program, "-o", "a b"], capture_output=True, text=True, check=True)
        assert called.stdout == "-I -m ziglang c++ -mcpu=baseline -o a b\n"


def test_make_looks_for_every_usual_compiler(checkout, tmp_path):
    programs = {"PATH": str(tmp_path / "programs")}
    (tmp_path / "programs").mkdir()
    for name in ("make", "sh"):
        (tmp_path / "programs" / name).symlink_to(str(shutil.which(name)))
    assert "no C++ compiler (c++ g++ clang++)" in make(checkout, "-n", env=programs)
    add_program(tmp_path / "programs" / "clang++", "#!/bin/sh\n")
    assert "no C++ compiler" not in make(checkout, "-n", env=programs)
