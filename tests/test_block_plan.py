"""Plans of block runs."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from headcount.errors import InputError
from headcount.problem.token_tables import token_table
from headcount.sweeps import block_plan
from headcount.sweeps.block_folder import BlockFolder
from headcount.sweeps.block_plan import read_block_plan
from tests.tiny_blocks import TINY


def test_a_plan_is_the_product_of_its_grids(tiny):
    plan = read_block_plan(tiny)
    assert plan.name == "tiny"
    assert len(plan.specs) == 9
    assert {(spec.heads, spec.budget) for spec in plan.specs} == {(1, 4), (2, 4), (1, 8), (2, 8)}
    assert {spec.table_hash for spec in plan.specs} == {token_table("gaussian", 24, 8).hash}
    assert [spec.seed for spec in plan.specs if spec.two_values] == [5]


def test_the_paper_preset_is_figure_7(monkeypatch):
    rows = token_table("gaussian", 6144, 768)
    monkeypatch.setattr(block_plan, "token_table", lambda *asked: rows)
    specs = read_block_plan("paper").specs
    assert len(specs) == 4 * 4 * 7
    assert {(spec.items, spec.length, spec.steps, spec.weight_decay) for spec in specs} == {
        (6144, 16, 100_000, 0.01)
    }
    assert {(spec.heads, spec.key_dim) for spec in specs} >= {(1, 512), (8, 8)}


def test_a_plan_may_share_keys(written, tmp_path, command):
    text = TINY.replace("heads = [1, 2]", "heads = [1, 2]\nkv_heads = [1, 2]")
    plan = read_block_plan(written(text))
    # Each g with the head counts that it divides.
    assert {(spec.heads, spec.key_heads) for spec in plan.specs} == {(2, 1), (2, 2), (1, 1)}
    code, out, _ = command("block", written(text), "--out", "mine")
    assert code == 0
    assert "budget 8, 2 heads, 1 key head  " in out
    assert "budget 8, 2 heads  " in out
    folder = BlockFolder(tmp_path / "mine")
    assert {result.spec for result in folder.results()} == set(plan.specs)
    frame = folder.frame()
    assert (frame["key_budget"] == frame["key_heads"] * frame["key_dim"]).all()
    assert sorted(frame.loc[frame["heads"] == 2, "key_heads"]) == [1] * 4 + [2] * 4
    command("results", "export", folder.store, "--out", "runs.csv")
    exported = pd.read_csv(tmp_path / "runs.csv").set_index("hash")
    for spec in plan.specs:
        assert exported.loc[spec.hash, "kv_heads"] == spec.kv_heads
    code, out, _ = command("results", "list", folder.store, "--kv-heads", "1", "--json")
    assert {row["hash"] for row in json.loads(out)["rows"]} == {
        spec.hash for spec in plan.specs if spec.kv_heads == 1
    }
    # Tables from before keys could be shared: every head has its own.
    older = frame.drop(columns=["key_heads", "key_budget"])
    (tmp_path / "older").mkdir()
    older.to_parquet(tmp_path / "older" / "runs.parquet", index=False)
    read = BlockFolder(tmp_path / "older").frame()
    assert (read["key_heads"] == read["heads"]).all()
    assert (read["key_budget"] == read["budget"]).all()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "length = 3\nbatch",
            "length = 3\nkv_heads = 3\nbatch",
            r"kv_heads 3 divides none of heads \[1, 2\]",
        ),
        ("budgets = [4, 8]", "budgets = [4, 9]", "2 heads do not share a budget of 9 evenly"),
        ("batch = 16", "bach = 16", "did you mean 'batch'"),
        ('table = "gaussian"', 'table = "nowhere.npy"', "nowhere.npy"),
        ('table = "gaussian"', "", "names no table"),
        ("[[grid]]", "[[gird]]", "'gird' is not a key here"),
        ("length = 3", "length = 30", "length 30 does not fit"),
    ],
)
def test_a_wrong_plan_is_one_sentence(written, old, new, says):
    with pytest.raises(InputError, match=says):
        read_block_plan(written(TINY.replace(old, new)))


def test_a_small_table_is_counted_with_null_and_the_plan_is_not_blamed(command, tmp_path):
    np.save(tmp_path / "mine.npy", np.eye(40, 8, dtype="f4") + 1)
    code, _, err = command("block", "quick", "--table", "mine.npy", "--out", "mine")
    assert code == 2
    assert err == (
        "error: table mine has 39 items beside its row for NULL, not 512; "
        "choose 1…39 items or a larger table\n"
    )
