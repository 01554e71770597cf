"""What a release says about itself: versions, workflows, and where an installation is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.processes import printed

ROOT = Path(__file__).parents[1]
FORMS = sorted([*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_file_names_the_same_version():
    version = PROJECT["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## (\S+)(?: \((\S+)\))?$", changes, re.MULTILINE)
    released = [entry for entry in newest if entry[0] != "Unreleased"]
    assert released[0] == (version, str(citation["date-released"]))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_workflows_and_forms_are_yaml_and_pin_their_actions(path):
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    for action in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", action), action


def test_workflows_name_files_that_exist():
    text = "".join(path.read_text(encoding="utf-8") for path in FORMS)
    named = set(re.findall(r"(?:tests/\w+\.py|\.ci/run|constraints\.txt)", text))
    assert {".ci/run", "constraints.txt", "tests/test_engines.py"} <= named
    assert all((ROOT / name).exists() for name in named)


def test_pythonpath_comes_before_an_editable_install(tmp_path):
    """An import hook of the build would find the installed source first."""
    (tmp_path / "headcount").mkdir()
    (tmp_path / "headcount" / "__init__.py").write_text("print('another')\n")
    done = subprocess.run(
        [sys.executable, "-c", "import headcount"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "another\n"


def test_the_shell_completes_commands(tmp_path):
    words = {"COMP_WORDS": "headcount constr", "COMP_CWORD": "1"}
    done = subprocess.run(
        [Path(sys.executable).with_name("headcount")],
        cwd=tmp_path,
        env={**os.environ, **words, "_HEADCOUNT_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "construct\n"


def test_nothing_needs_the_modules_that_windows_lacks():
    """Locks and limits of memory are left out there; training and verifying are not."""
    code = (
        "import sys; sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        "import headcount as hc, headcount.cli.app, headcount.memory\n"
        "import headcount.sweeps.block_folder, headcount.sweeps.manifest, headcount.bench.verify\n"
        "hc.gaussian_embeddings(8, 4)\n"
        "print(headcount.memory.free_memory() > 0)"
    )
    assert printed(code) == "True\n"
