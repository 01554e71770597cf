"""Verdicts on the adviser, by the rules of preregistrations/adviser/README.md."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from headcount.analysis.transitions import LEVEL
from headcount.reproduction.law_verdicts import LawVerdict

Draw = Literal["first", "second"]
DRAWS: tuple[Draw, ...] = ("first", "second")
_FOLDER = Path(__file__).with_name("measured") / "steps"
_PLACE = ["part", "variant", "graph", "items", "degree", "d_model"]  # what a point is
_WASTEFUL = 1.4  # times the smallest D_K that passes


@cache
def steps_runs() -> pd.DataFrame:
    """The runs of the law of steps and of both draws; treat it as read-only."""
    return pd.read_parquet(_FOLDER / "runs.parquet")


@cache
def followed() -> pd.DataFrame:
    """A row per point drawn: the advice, its mean F1, and the smallest D_K that passes there.

    `excess` is the advised D_K over that one; where nothing passes both are missing. Treat it as
    read-only.
    """
    points = pd.read_csv(_FOLDER / "points.csv").rename(columns={"draw": "part"})
    runs: Any = steps_runs()
    sizes = ["heads", "key_dim"]
    splits = runs.groupby([*_PLACE, *sizes])["value"].agg(f1="mean", seeds="size").reset_index()
    splits["budget"] = splits["heads"] * splits["key_dim"]
    passing = splits[splits["f1"] >= LEVEL].groupby(_PLACE)["budget"].min()
    table: Any = points.merge(splits, on=[*_PLACE, *sizes], validate="one_to_one")
    table = table.merge(passing.rename("smallest").reset_index(), on=_PLACE, how="left")
    table["passed"] = table["f1"] >= LEVEL
    table["excess"] = table["budget"] / table["smallest"]
    return table.rename(columns={"part": "draw"})


def adviser_verdicts() -> list[LawVerdict]:
    """The verdicts on both draws; `part` names the draw."""
    found = [one for draw in DRAWS for one in (_passes(draw), _excess(draw), _chance(draw))]
    return [*found[:3], _softmax(), *found[3:]]


def _drawn(draw: Draw, variant: str = "max") -> Any:
    table = followed()
    return table[(table["draw"] == draw) & (table["variant"] == variant)]


def _passes(draw: Draw) -> LawVerdict:
    passed = _drawn(draw)["passed"]
    count = int(passed.sum())
    verdict = "confirmed" if count >= 26 else "refuted" if count < 22 else "partly"
    number = f"{count} of {len(passed)} points, {count / len(passed):.0%}"
    return LawVerdict(draw, "followed, the advice passes", verdict, number.replace("%", " %"))


def _excess(draw: Draw) -> LawVerdict:
    points = _drawn(draw)
    excess = points.loc[points["passed"], "excess"]
    above = int((excess > _WASTEFUL).sum())
    verdict = "confirmed" if above == 0 else "refuted" if excess.median() > _WASTEFUL else "partly"
    number = f"median excess {excess.median():.2f}, largest {excess.max():.2f}, {above} above 1.4"
    return LawVerdict(draw, "it is not wasteful", verdict, number)


def _chance(draw: Draw) -> LawVerdict:
    points = _drawn(draw)
    chance, share = points["chance"].mean(), points["passed"].mean()
    error = np.sqrt(chance * (1 - chance) / len(points))
    verdict = "confirmed" if abs(share - chance) <= 2 * error else "refuted"
    number = f"{share:.3f} pass, {chance:.3f} stated, standard error {error:.3f}"
    return LawVerdict(draw, "the stated chance is right", verdict, number)


def _softmax() -> LawVerdict:
    passed = _drawn("first", "softmax")["passed"]
    count = int(passed.sum())
    verdict = "confirmed" if count >= 5 else "refuted" if count < 4 else "partly"
    number = f"{count} of {len(passed)} points"
    return LawVerdict("first", "softmax: followed, the advice passes", verdict, number)
