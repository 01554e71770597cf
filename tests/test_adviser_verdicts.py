"""The adviser, followed: the shipped points and runs are those that were committed beforehand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from headcount.reproduction.adviser_verdicts import DRAWS, adviser_verdicts, followed, steps_runs

FOLDER = Path(__file__).parent.parent / "preregistrations" / "adviser"
SPLIT = ["variant", "graph", "items", "degree", "d_model", "heads", "key_dim"]


@pytest.mark.parametrize("draw", DRAWS)
def test_the_points_are_the_preregistered_ones(draw):
    wanted = pd.read_csv(FOLDER / f"points-{draw}.csv")
    ours = followed()
    ours = ours[ours["draw"] == draw][list(wanted)].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours, wanted)


@pytest.mark.parametrize("draw", DRAWS)
def test_every_run_of_a_draw_is_there(draw):
    wanted = pd.read_csv(FOLDER / f"runs-{draw}.csv")
    runs = steps_runs()
    counts = runs[runs["part"] == draw].groupby(SPLIT).size()
    assert counts.to_dict() == wanted.set_index(SPLIT)["seeds"].to_dict()


def test_the_advice_has_six_seeds_and_its_excess_is_read_from_the_runs():
    table = followed()
    assert (table["seeds"] == 6).all()
    row = table[(table["items"] == 787) & (table["draw"] == "first")].iloc[0]
    runs = steps_runs()
    here = runs[(runs["part"] == "first") & (runs["items"] == 787)]
    splits = here.groupby(["heads", "key_dim"])["value"].mean()
    passing = [h * k for (h, k), value in splits.items() if value >= 0.99]
    assert row["smallest"] == min(passing)
    assert row["excess"] == row["heads"] * row["key_dim"] / min(passing) == 1.5


def test_both_draws_are_judged_by_every_rule():
    found = [(one.part, one.verdict) for one in adviser_verdicts()]
    first = ["confirmed", "partly", "confirmed", "confirmed"]
    assert found == [("first", one) for one in first] + [
        ("second", one) for one in ("partly", "partly", "refuted")
    ]
