"""Results that release 0.1.0 wrote: they open, resume and export as they did then."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

RELEASED = Path(__file__).parent / "data" / "release_0_1_0"


@pytest.fixture
def released(tmp_path) -> Path:
    """A copy of everything that the release wrote."""
    return Path(shutil.copytree(RELEASED, tmp_path / "released"))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_its_export_is_the_same_to_the_byte(released, command):
    code, _, error = command(
        "results", "export", released / "small.sqlite", "--format", "csv", "--out", "again.csv"
    )
    assert (code, error) == (0, "")
    assert (released.parent / "again.csv").read_bytes() == (released / "small.csv").read_bytes()


def test_its_finished_runs_are_not_trained_again(released, command):
    code, out, _ = command("sweep", released / "small.toml", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["trained"], told["known"]) == (0, 29)


def test_its_checkpoints_go_on_where_they_stopped(released, command):
    code, out, _ = command(
        "sweep", released / "long.toml", "--store", released / "small.sqlite", "--json"
    )
    assert code == 0
    assert json.loads(out)["steps"] == 2 * (8000 - 2500)
    command(
        "results",
        "export",
        released / "small.sqlite",
        "--format",
        "csv",
        "--seed",
        "0,1",
        "--out",
        "again.csv",
    )
    again = {row["hash"]: row for row in rows_of(released.parent / "again.csv")}
    for then in rows_of(released / "long.csv"):
        now = again[then["hash"]]
        assert now["spec"] == then["spec"]
        assert json.loads(now["history"])[:5] == json.loads(then["history"])[:5]  # up to the stop
        assert [step for step, _ in json.loads(now["history"])] == list(range(500, 8001, 500))
        assert float(now["value"]) == pytest.approx(float(then["value"]), abs=0.02)
