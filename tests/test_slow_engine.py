"""A reproduction where the native engine is missing: what fits the time, and what is said."""

from __future__ import annotations

import shutil
import subprocess
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


# A pip that notes what it is asked for, and the compiler it is told of; it may lack zig.
PIP = """#!/bin/sh
echo "$CXX: $*" >> asked
case "$*" in *ziglang) exit ZIG;; esac
"""


@pytest.mark.parametrize("compiler", ["no-such-compiler", "sh"])
@pytest.mark.parametrize("has_zig", [True, False])
def test_make_takes_the_compiler_of_zig_where_there_is_none(tmp_path, compiler, has_zig):
    shutil.copy(Path(__file__).parents[1] / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt", "CMakeLists.txt"):
        (tmp_path / name).touch()
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in (
        ("python", '#!/bin/sh\necho "$@"\n'),
        ("pip", PIP.replace("ZIG", str(int(not has_zig)))),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["make", ".venv/installed", f"CXX={compiler}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".venv" / "installed").exists()
    missing, zig = compiler == "no-such-compiler", programs / "zig-c++"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [words.endswith(" ziglang") for words in asked] == [True, False][not missing :]
    assert asked[-1].startswith(f"{zig if missing else compiler}: install ")
    assert zig.exists() == (missing and has_zig)
    assert ("no C++ compiler (no-such-compiler); PyPI's ziglang" in done.stdout) == missing
    assert ("ziglang cannot be installed either" in done.stdout) == (missing and not has_zig)
    if zig.exists():  # whose words are those of the compiler's caller
        called = subprocess.run([zig, "-o", "a b"], capture_output=True, text=True, check=True)
        assert called.stdout == "-I -m ziglang c++ -o a b\n"
