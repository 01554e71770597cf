"""`headcount sweep`: searches, dry runs, and what the command gives."""

from __future__ import annotations

import json

import pytest

from headcount import train
from headcount.analysis.thresholds import thresholds
from headcount.errors import InputError
from headcount.paper import data as paper
from headcount.store.frames import plain_rows
from headcount.store.store import Store
from headcount.sweeps.file import read_sweep
from tests.sweep_runs import GRID, SPECS, changed, table

# --- searches -------------------------------------------------------------------------------------

SEARCH = (
    "[search]\nitems = 16\nd_model = 8\nheads = [1, 2]\nkey_dim = [1, 2, 3, 4, 6, 8]\nlevel = 0.6\n"
)


SEARCH += "seeds = 3\nsteps = 200\ncheck_every = 50\nlearning_rate = 0.03\n"


def test_a_search_gives_what_its_whole_grid_gives(written, command):
    code, out, _ = command("sweep", written(SEARCH), "--engine", "native", "--json")
    (found,) = json.loads(out)["searches"]
    grid = read_sweep(written(SEARCH.replace("level = 0.6\n", "").replace("search", "grid"))).runs
    with Store(written("").with_name("whole.sqlite")) as store:
        store.add(train(grid, "native", progress=False))
        (expected,) = plain_rows(thresholds(store.frame(), level=0.6))
    assert code == 0
    assert expected["central"] is not None
    assert {name: found[name] for name in expected} == expected
    assert found["settled"]
    assert found["runs"] < found["grid_runs"] == len(grid) == 36


def test_a_search_goes_on_where_it_was(written, command):
    path = written(SEARCH)
    first = json.loads(command("sweep", path, "--engine", "native", "--json")[1])
    with Store(path.with_suffix(".sqlite")) as store:
        half = list(store.results())[::2]
    with Store(path.with_name("half.sqlite")) as store:
        store.add(half)
    again = json.loads(
        command("sweep", path, "--engine", "native", "--store", "half.sqlite", "--json")[1]
    )
    assert (first["known"], again["known"], again["trained"]) == (
        0,
        len(half),
        first["trained"] - len(half),
    )
    assert again["searches"] == first["searches"]
    assert table(path.with_suffix(".sqlite")) == table(path.with_name("half.sqlite"))


def test_a_search_takes_its_budgets_from_the_law_and_a_dry_run_gives_both_ends(written, command):
    path = written("[search]\npoints = [[64, 16]]\nheads = [1, 4]\nseeds = 5\n")
    (part,) = read_sweep(path).searches
    assert {spec.budget for spec in part.runs if spec.heads == 4} == {*paper.budgets_for(64, 16, 4)}
    found = json.loads(command("sweep", path, "--dry-run", "--engine", "native", "--json")[1])
    assert found["to_run"] == found["runs"] == len(part.runs)
    assert 0 < found["least"]["to_run"] < found["to_run"]
    assert found["least"]["seconds"] < found["seconds"]
    assert "search" in command("sweep", path, "--dry-run", "--engine", "native")[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SEARCH.replace("0.6", "1.0"), r"\[search\]: level 1.0 is not between 0 and 1"),
        (SEARCH.replace("level", "levl"), "'levl' is not a key here; did you mean 'level'"),
        (SEARCH + "variant = 'value'\n", r"\[search\]: variant value is judged by squared error"),
        (SEARCH.replace("search", "grid"), r"\[grid\]: 'level' is not a key here"),
    ],
)
def test_a_wrong_search_is_refused(written, text, says):
    with pytest.raises(InputError, match=says):
        read_sweep(written(text))


# --- the command ----------------------------------------------------------------------------------


def test_a_dry_run_counts_and_estimates_and_touches_nothing(written, command):
    path = written(f'engine = "torch"\n{GRID}')
    code, out, err = command("sweep", path, "--dry-run", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["runs"], found["known"], found["to_run"], found["run_steps"]) == (12, 0, 12, 480)
    assert 0 < found["seconds"] < 60
    assert list(path.parent.iterdir()) == [path]
    with Store(path.with_suffix(".sqlite")) as store:
        store.add(train(SPECS[:5], "torch", progress=False))
    found = json.loads(command("sweep", path, "--dry-run", "--json")[1])
    assert (found["runs"], found["known"], found["to_run"], found["run_steps"]) == (12, 5, 7, 280)
    lines = command("sweep", path, "--dry-run")[1].splitlines()
    assert lines[0] == "some"
    assert "12: 5 known, 7 to run" in lines[1]
    assert lines[2].split(maxsplit=1)[1] == "280 at most"
    assert "estimate" in lines[-1]


def test_the_command_gives_the_thresholds_of_its_runs(written, command):
    path = written(f"name = 'first'\n{GRID}")
    code, out, err = command("sweep", path, "--engine", "torch", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["name"], found["runs"], found["known"], found["trained"]) == ("first", 12, 0, 12)
    with Store(path.with_name("first.sqlite"), read_only=True) as store:
        assert {sweep.name for sweep in store.sweeps} == {"first"}
    (told,) = found["thresholds"]
    assert {name: told[name] for name in ("items", "d_model", "variant")} == {
        "items": 16,
        "d_model": 8,
        "variant": "max",
    }
    assert told["central"] is None
    found = json.loads(command("sweep", path, "--engine", "torch", "--json")[1])
    assert (found["known"], found["trained"], found["thresholds"]) == (12, 0, [told])
    lines = command("sweep", path, "--engine", "torch")[1].splitlines()
    assert lines[0].startswith("first: 12 runs, 0 trained in 0 s, 12 known before; all in ")
    assert lines[1].split() == [
        "variant",
        "r",
        "m",
        "d_model",
        "D_K*",
        "interval",
        "h*",
        "interval",
        "d_k",
        "mean",
        "F1",
    ]


def test_value_retrieval_and_single_budgets_get_curves(written, command):
    path = written(changed(variant='["value", "max"]', heads="2", key_dim="2"))
    found = json.loads(
        command("sweep", path, "--store", "x.sqlite", "--engine", "torch", "--json")[1]
    )
    assert found["thresholds"] == []
    assert [
        (row["variant"], row["heads"], row["budget"], row["runs"]) for row in found["curves"]
    ] == [
        ("max", 2, 4, 3),
        ("value", 2, 4, 3),
    ]
    lines = command("sweep", path, "--store", "x.sqlite", "--engine", "torch")[1].splitlines()
    assert lines[1].split()[:6] == ["variant", "r", "m", "d_model", "h", "D_K"]
