"""`make browser` installs a browser, says that it cannot, or fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "install_browser.sh"
NEEDED = ("bash", "dirname", "env", "id", "timeout")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="apt-get is Debian's")


@pytest.fixture
def machine(tmp_path):
    """A machine with these programs alone, each a line of bash; gives exit code and output."""

    def run(required: str = "0", **programs: str) -> tuple[int, str]:
        folder, bin = tmp_path / "programs", tmp_path / ".venv" / "bin"
        for place in (folder, bin, tmp_path / "tools"):
            place.mkdir(parents=True)
        for name in NEEDED:
            found = shutil.which(name)
            assert found
            (folder / name).symlink_to(found)
        texts = {"id": "echo 0", "python": "exit 0", "pip": "exit 1"} | programs
        for name, text in texts.items():
            place = bin if name in ("python", "pip") else folder
            file = place / name.replace("_", "-")
            file.unlink(missing_ok=True)
            file.write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
            file.chmod(0o755)
        shutil.copy(SCRIPT, tmp_path / "tools")
        done = subprocess.run(
            [tmp_path / "tools" / SCRIPT.name],
            env={"PATH": str(folder), "HERE": str(folder), "BROWSER_REQUIRED": required},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_one_that_is_there_is_enough(machine):
    assert machine(chromium="exit 0", apt_get="exit 1") == (0, "")


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "there is no chromium, and no apt-get to install it with"),
        ({"apt_get": "exit 0", "id": "echo 1000"}, "and apt-get needs root or sudo"),
        ({"apt_get": "[[ $* != *update* ]]"}, "apt-get cannot fetch its lists of packages"),
        ({"apt_get": "exit 0", "apt_cache": "exit 100"}, "apt has no package chromium"),
        (
            {"apt_get": "[[ $* != *--download-only* ]]", "apt_cache": "exit 0"},
            "apt-get cannot download chromium",
        ),
        ({"chromium": "exit 0", "python": "exit 1"}, "pip cannot install playwright"),
    ],
)
def test_what_cannot_be_installed_is_one_line(machine, programs, reason):
    code, said = machine(**programs)
    assert code == 3
    assert said.startswith("browser: cannot be installed here: ")
    assert reason in said
    assert len(said.splitlines()) == 1


def test_it_is_installed_where_it_can_be(machine):
    made = "[[ $* == *update* || $* == *--download-only* ]] || printf '' > $HERE/chromium"
    chmod = f"{shutil.which('chmod')} +x $HERE/chromium 2>/dev/null; exit 0"
    assert machine(apt_get=f"{made}; {chmod}", apt_cache="exit 0") == (0, "")


@pytest.mark.parametrize("apt", ["exit 0", "[[ $* == *update* || $* == *--download-only* ]]"])
def test_an_installation_that_fails_is_an_error(machine, apt):
    code, _ = machine(apt_get=apt, apt_cache="exit 0")
    assert code == 1


def test_one_that_is_required_must_be_there(machine):
    code, said = machine(required="1")
    assert code == 1
    assert "cannot be installed here" in said
