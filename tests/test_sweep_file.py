"""Sweep files: what they expand to, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount import RunSpec
from headcount.errors import InputError
from headcount.paper import data as paper
from headcount.sweeps.file import read_sweep
from tests.sweep_runs import GRID, SPECS, changed


def lists(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values, min_size=1, max_size=3, unique=True)


@settings(deadline=None, max_examples=40)
@given(
    lists(st.integers(16, 99)),
    lists(st.integers(1, 64)),
    lists(st.integers(1, 9)),
    lists(st.integers(1, 9)),
    lists(st.integers(0, 99)),
    lists(st.floats(1e-5, 1.0)),
    lists(st.sampled_from(["max", "sum", "value"])),
)
def test_a_grid_is_the_product_of_its_lists(
    tmp_path_factory, items, d_model, heads, key_dim, seeds, rates, variants
):
    given_ = {
        "items": items, "d_model": d_model, "heads": heads, "key_dim": key_dim, "seeds": seeds,
        "learning_rate": rates, "variant": variants, "steps": 77,
    }  # fmt: skip
    path = tmp_path_factory.mktemp("grid") / "grid.toml"
    path.write_text(
        "[grid]\n" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in given_.items())
    )
    expected = {
        RunSpec(*sizes, variant=variant, learning_rate=rate, steps=77)
        for *sizes, rate, variant in product(items, d_model, heads, key_dim, seeds, rates, variants)
    }
    found = read_sweep(path).runs
    assert len(found) == len(expected)
    assert set(found) == expected


def test_single_values_pairs_counts_and_defaults(written):
    path = written(
        "[grid]\npoints = [[64, 16], [512, 16]]\nheads = 2\nkey_dim = 3\nseeds = 2\n", "pairs.toml"
    )
    sweep = read_sweep(path)
    assert (sweep.name, sweep.engine, sweep.store) == (
        "pairs",
        "auto",
        path.with_name("pairs.sqlite"),
    )
    assert sweep.runs == tuple(
        RunSpec(items, 16, 2, 3, seed, steps=steps)  # Table 2 gives the steps
        for items, steps in ((64, 20_000), (512, 80_000))
        for seed in (0, 1)
    )


def test_several_grids_share_their_runs_once(written):
    text = GRID.replace("[grid]", "[[grid]]")
    path = written(
        f'name = "both"\nengine = "torch"\nstore = "sub/x.sqlite"\n{text}{text}degree = [1, 2]\n'
    )
    sweep = read_sweep(path)
    assert (sweep.name, sweep.engine, sweep.store) == (
        "both",
        "torch",
        path.parent / "sub" / "x.sqlite",
    )
    assert sweep.runs == (*SPECS, *(replace(spec, degree=2) for spec in SPECS))


def test_budgets_are_split_over_the_heads_that_divide_them(written):
    path = written(
        "[grid]\nitems = 64\nd_model = 16\nheads = [1, 2, 4]\nbudget = [4, 6]\nseeds = [7]\n"
    )
    found = [(spec.heads, spec.key_dim, spec.seed) for spec in read_sweep(path).runs]
    assert found == [(1, 4, 7), (1, 6, 7), (2, 2, 7), (2, 3, 7), (4, 1, 7)]


def test_budgets_by_the_law_are_those_of_the_papers_grid(written):
    law = '[grid]\nvariant = "sum"\nseeds = 3\npoints = [[64, 16], [256, 32]]\n'
    law += "heads = [1, 2, 4, 8, 16]\n"
    law += 'budgets = "law"\nspan = [0.3, 2.5]\n'
    expected = {spec for spec in paper.runs("linear") if spec.items != 128}
    assert set(read_sweep(written(law)).runs) == expected
    regular = "[grid]\npoints = [[128, 32]]\ndegree = [4]\nheads = [1, 8]\n"
    regular += 'budgets = "law"\nspan = [0.4, 2.2]\n'
    budgets = {
        h: paper.budgets_for(128, 32, h, degree=4, span=(0.4, 2.2), guide="regular") for h in (1, 8)
    }
    found = {(spec.heads, spec.budget) for spec in read_sweep(written(regular)).runs}
    assert found == {(heads, budget) for heads in budgets for budget in budgets[heads]}


def test_a_grid_of_the_paper_can_be_filtered(written):
    filters = 'paper = "linear"\nitems = [64, 128]\nd_model = 32\nheads = [2, 4]\nseeds = 2'
    runs = paper.runs("linear")
    expected = [
        spec for spec in runs if (spec.items, spec.d_model) == (128, 32) and spec.heads in (2, 4)
    ]
    assert list(read_sweep(written(f"[grid]\n{filters}\n")).runs) == [
        spec for spec in expected if spec.seed < 2
    ]
    pairs = read_sweep(
        written('[grid]\npaper = "linear"\npoints = [[64, 16], [256, 32]]\nbudget = 16\n')
    ).runs
    assert list(pairs) == [spec for spec in runs if spec.items != 128 and spec.budget == 16]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (changed(itms="3"), r"\[grid\]: 'itms' is not a key here; did you mean 'items'"),
        (changed(seed="3"), "'seed' is not a key here; did you mean 'seeds'"),
        ("nam = 'x'\n" + GRID, "'nam' is not a key here; did you mean 'name'"),
        (changed(items="[]"), "items is an empty list"),
        (changed(items='"16"'), "items must be a whole number or a list of them; '16' is not one"),
        (changed(items="[16, true]"), "True is not one"),
        (changed(items="16.0"), "16.0 is not one"),
        (changed(items=""), "items is missing"),
        (changed(heads=""), "heads is missing"),
        (changed(heads="0"), "heads 0 does not fit"),
        (changed(key_dim="0"), "key_dim 0 does not fit"),
        (changed(key_dim=""), "give one of key_dim"),
        (changed(budget="4"), "give one of key_dim"),
        (changed(key_dim="", budgets='"laws"'), "budgets 'laws' is unknown"),
        (changed(key_dim="", budgets="[]"), "budgets is an empty list"),
        (changed(key_dim="", budgets='["8"]'), "budgets must be a whole number or a list of them"),
        (changed(key_dim="", budgets="[8]", span="[1, 2]"), "span belongs to budgets"),
        (changed(key_dim="", budgets='"law"', span="[2, 1]"), r"span \[2, 1\] does not fit"),
        (changed(key_dim="", budgets='"law"', span="3"), "span must be two factors"),
        (changed(span="[1, 2]"), "span belongs to budgets"),
        (changed(key_dim="", budget="[2, 3]", heads="[2, 4]"), "budget 3 is a multiple of none"),
        (changed(key_dim="", budget="[2, 6]", heads="[2, 4]"), "heads 4 divides none"),
        (changed(points="[[16, 8]]"), "points already gives items and d_model"),
        (changed(items="", d_model="", points="[[16]]"), "points must be a list of pairs"),
        (changed(items="", d_model="", points="[]"), "points must be a list of pairs"),
        (changed(items="", d_model="", points='[[16, "8"]]'), "'8' is not one"),
        (changed(seeds="0"), "seeds 0 gives no run"),
        (changed(seeds="[-1]"), "seed -1 does not fit"),
        (changed(seeds="9999999"), "are too many; a sweep takes up to 1,000,000"),
        (changed(variant='"mean"'), "variant 'mean' is unknown; use max"),
        (changed(rate="1.5"), "rate 1.5 is not between 0 and 1"),
        (changed(degree="20"), "degree 20 does not fit"),
        ("[grid]\npaper = 'bas'\n", "'bas' is not a grid of the paper; did you mean 'base'"),
        (
            "[grid]\npaper = 'linear'\nitems = 65\n",
            "items 65 is not in the grid linear; it has 64, 128, 256",
        ),
        ("[grid]\npaper = 'value'\nsteps = 65\n", "'steps' is not a key here"),
        (
            "[grid]\npaper = 'linear'\nbudget = 5\nitems = 256\n",
            "no run of the grid linear passes all of",
        ),
        ("grid = 3\n", r"\[grid\]: must be a table, 3 is not one"),
        ("grid = []\n", "grid is an empty list"),
        (
            "[[grid]]\npaper = 'value'\n[[grid]]\nitems = 3\n",
            r"\[\[grid\]\] number 2: d_model is missing",
        ),
        ("name = 'x'\n", "has neither a .grid. nor a .search. table"),
        ("name = 3\n" + GRID, "name must be a text in quotes; 3 is not one"),
        ("name = 'a/b'\n" + GRID, "name 'a/b' cannot name a file"),
        ("engine = 'fast'\n" + GRID, "engine 'fast' is unknown; use auto, native, torch, triton"),
        ("[grid]\nitems = = 3\n", r"is not valid TOML: .*line 2"),
    ],
)
def test_a_wrong_file_gets_one_sentence_with_its_name(written, command, text, says):
    path = written(text)
    with pytest.raises(InputError, match=says):
        read_sweep(path)
    code, out, err = command("sweep", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {path}")
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_read(tmp_path, command):
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'\n")
    for name, says in (
        ("none.toml", "no such file"),
        (".", "is a folder"),
        ("latin.toml", "is not UTF-8"),
    ):
        code, out, err = command("sweep", tmp_path / name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert says in err


@pytest.mark.parametrize("values", ["[8, 16]", "8", "[16]"])
def test_budgets_may_be_listed_under_either_name(written, values):
    sizes = "[grid]\nitems = 64\nd_model = 16\nheads = [1, 4]\nseeds = 2\n"
    one, other = (
        read_sweep(written(sizes + f"{name} = {values}\n")).runs for name in ("budget", "budgets")
    )
    assert one == other
    assert {spec.budget for spec in one} == set(map(int, values.strip("[]").split(",")))
