"""Shared keys in a whole block: the rules of the preregistration, on made accuracies."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, sqrt
from pathlib import Path

import pandas as pd
import pytest

from headcount.report.figures.shared_block import accuracy_chart, costs_text, threshold_table
from headcount.reproduction.shared_block_verdicts import (
    LEVELS,
    mean_accuracies,
    shared_block_runs,
    shared_block_verdicts,
    thresholds,
)
from headcount.sweeps.block_plan import read_block_plan

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "preregistrations" / "shared-keys-block"
PLANS = [read_block_plan(FOLDER / f"{name}.toml") for name in ("large", "small")]
SPECS = [spec for plan in PLANS for spec in plan.specs]
Counts = Callable[[int, int, int], float]  # of heads, key heads and width


def by_sum(h: int, g: int, k: int) -> float:
    return (h + g) * k


def by_queries(h: int, g: int, k: int) -> float:
    return 2 * h * k


def by_keys(h: int, g: int, k: int) -> float:
    return 2 * g * k


def by_gaussian_width(h: int, g: int, k: int) -> float:
    """G for k far below d, scaled to the sum with keys of their own."""
    return k * (sqrt(h) + sqrt(g)) ** 2 / 2


def made(counts: Counts) -> pd.DataFrame:
    """Runs whose accuracy depends on what counts alone, and a little on the seed."""
    names = ("items", "d_model", "control", "heads", "key_heads", "key_dim", "budget", "key_budget")
    rows = []
    for spec in SPECS:
        x = counts(spec.heads, spec.key_heads, spec.key_dim)
        accuracy = 1 - exp(-((x / 120) ** 1.2)) + 0.004 * (spec.seed - 801)
        more = {"seed": spec.seed, "test": accuracy, "diverged": float("nan")}
        rows.append({name: getattr(spec, name) for name in names} | more)
    return pd.DataFrame(rows)


def test_the_plans_are_the_preregistered_grid():
    for plan, sizes in zip(PLANS, ((2048, 256), (1024, 128)), strict=True):
        assert len(plan.specs) == 168
        assert {(spec.items, spec.d_model) for spec in plan.specs} == {sizes}
    assert {spec.key_heads for spec in SPECS} == {1, 2, 4, 8}
    assert {spec.seed for spec in SPECS} == {800, 801, 802}
    assert {spec.control for spec in SPECS} == {"barred", "none"}
    assert {(spec.steps, spec.batch, spec.length) for spec in SPECS} == {(20_000, 1024, 16)}
    own = sorted({spec.budget + spec.key_budget for spec in SPECS if not spec.kv_heads})
    for g in (1, 2, 4):
        sums = sorted({spec.budget + spec.key_budget for spec in SPECS if spec.kv_heads == g})
        assert sums == pytest.approx(own, rel=0.07)
    assert (min(own), max(own)) == (48, 384)


def test_means_are_over_seeds_and_a_diverged_run_counts_as_nothing():
    runs = made(by_sum)
    at = (runs["items"] == 2048) & (runs["control"] == "none") & (runs["key_heads"] == 2)
    at &= runs["key_dim"] == 10
    one = mean_accuracies(runs).query(
        "items == 2048 and control == 'none' and key_heads == 2 and key_dim == 10"
    )
    assert one[["sum", "seeds"]].to_numpy().tolist() == [[100, 3]]
    assert one["accuracy"].item() == pytest.approx(runs.loc[at, "test"].mean())
    runs.loc[at & (runs["seed"] == 800), "diverged"] = 2000.0
    later = mean_accuracies(runs).loc[one.index]
    assert later["accuracy"].item() == pytest.approx(runs.loc[at, "test"].iloc[1:].sum() / 3)
    assert later["low"].item() == 0


def test_a_threshold_is_where_the_accuracy_crosses_the_level():
    runs = made(by_sum).query("items == 2048 and control == 'none' and key_heads == 8")
    found = thresholds(runs)
    assert found["level"].tolist() == list(LEVELS)
    for row in found.to_dict("records"):
        truth = 120 * (-log(1 - row["level"])) ** (1 / 1.2)
        assert row["sum"] == pytest.approx(truth, rel=0.03)
        assert row["q"] == 1
    level = runs.assign(test=0.6)
    assert thresholds(level).empty  # never crossed
    twice = runs.assign(test=runs["key_dim"].map({3: 0.4, 4: 0.6, 6: 0.4, 8: 0.6}).fillna(0.6))
    (last,) = thresholds(twice)["sum"]
    assert 96 < last < 128
    assert last == pytest.approx(sqrt(96 * 128))


@pytest.mark.parametrize(
    ("counts", "verdict", "rival", "weight"),
    [
        (by_sum, "confirmed", "confirmed", 1.0),
        (by_queries, "refuted", "confirmed", 0.0),
        (by_keys, "refuted", "refuted", None),
        (by_gaussian_width, "partly", "refuted", None),
    ],
)
def test_verdicts_tell_what_counts(counts, verdict, rival, weight):
    runs = made(counts)
    found = {one.part: one.verdict for one in shared_block_verdicts(runs)}
    assert found == {"sum": verdict, "whole": verdict, "rival": rival}
    if weight is not None:
        shared = thresholds(runs).query("key_heads < heads")
        assert len(shared) == 36
        assert shared["weight"].to_numpy() == pytest.approx([weight] * 36, abs=0.25)


def test_controls_are_judged_apart():
    runs = made(by_sum)
    other = made(by_queries)
    mixed = pd.concat([runs.query("control == 'barred'"), other.query("control == 'none'")])
    found = {one.part: one for one in shared_block_verdicts(mixed)}
    assert [found[part].verdict for part in ("sum", "whole")] == ["confirmed", "refuted"]
    assert "18 of 18 q within" in found["sum"].number


def test_too_few_thresholds_leave_a_hypothesis_open():
    runs = made(by_sum).query("key_heads in (8, 1)")
    found = shared_block_verdicts(runs)
    assert [one.verdict for one in found] == ["open", "open", "open"]
    assert found[0].number == "6 thresholds to compare"
    one_file = made(by_sum).query("items == 2048")
    assert [one.verdict for one in shared_block_verdicts(one_file)] == [
        "confirmed", "confirmed", "open",
    ]  # fmt: skip
    assert [one.verdict for one in shared_block_verdicts(runs.iloc[:0])] == ["open"] * 3


def test_laws_predict_the_thresholds_they_make():
    """At the larger d_model: the made runs take k far below it."""
    wide = thresholds(made(by_gaussian_width)).query("key_heads < heads and d_model == 256")
    assert len(wide) == 18
    assert (wide["sum"] / wide["by_width"]).to_numpy() == pytest.approx([1] * len(wide), abs=0.06)
    assert (wide["by_width"] > wide["by_freedom"]).all()


def test_the_chart_and_its_table_show_every_configuration_and_threshold():
    runs = made(by_sum)
    (rows,) = accuracy_chart(runs).to_dict()["datasets"].values()
    assert len(rows) == len(SPECS) / 3
    assert {row["panel"] for row in rows} == {
        f"m = {items:,}, d_model = {d}, {control}"
        for items, d in ((2048, 256), (1024, 128))
        for control in ("s barred", "no control")
    }
    table = threshold_table(runs)
    assert len(table) == 2 * 2 * 3 * 4
    own = table.query("g == 8").astype({"D_KV": float, "D_Q + D_KV": float})
    assert (own["q"] == "1.00").all()
    assert (own["D_KV"] * 2).to_numpy() == pytest.approx(own["D_Q + D_KV"].to_numpy(), abs=0.11)
    assert table["q"].astype(float).between(0.95, 1.05).all()
    one = thresholds(runs).iloc[0]
    at = "m == 1024 and accuracy == 0.5 and control == 's barred' and g == 1"
    assert table.query(at)["q by R"].item() == f"{one['by_freedom'] / one['sum'] * one['q']:.2f}"


def test_the_report_says_what_sharing_costs():
    """At the same D_Q + D_KV, one key head of 8 has 2/9 of the key columns."""
    runs = made(by_sum)
    found = thresholds(runs).query("key_heads == 1")["q"]
    text = costs_text(runs)
    assert f"{found.min():.2f} to {found.max():.2f} times for g = 1" in text
    assert f"(keys alone: {found.min() * 2 / 9:.2f} to {found.max() * 2 / 9:.2f})" in text
    measured = costs_text(shared_block_runs())
    assert "1.21 to 1.57 times for g = 1 (keys alone: 0.27 to 0.35)" in measured


def test_the_shipped_runs_are_the_preregistered_ones():
    runs = shared_block_runs()
    assert sorted(runs["hash"]) == sorted(spec.hash for spec in SPECS)
    assert runs["diverged"].isna().all()
    assert runs["test"].between(0, 1).all()
    found = {one.part: one.verdict for one in shared_block_verdicts(runs)}
    assert found == {"sum": "partly", "whole": "partly", "rival": "refuted"}


def test_the_page_states_what_the_runs_say():
    page = (ROOT / "docs" / "shared-keys-block.md").read_text(encoding="utf-8")
    for one in shared_block_verdicts(shared_block_runs()):
        assert f"| {one.part} | {one.hypothesis} | {one.verdict} | {one.number} |" in page
    found = thresholds(shared_block_runs())
    barred = found[found["control"] == "barred"]
    for (items, d_model, level), here in barred.groupby(["items", "d_model", "level"]):
        by_keys = {row["key_heads"]: row for row in here.to_dict("records")}
        cells = [f"{items:,}, {d_model}", str(level)]
        cells += [f"{by_keys[g]['sum']:.0f}" if g in by_keys else "–" for g in (8, 4, 2, 1)]
        cells += [f"{by_keys[g]['q']:.2f}" if g in by_keys else "–" for g in (4, 2, 1)]
        assert f"| {' | '.join(cells)} |" in page
    for g, ends in ((4, "0.87 to\n1.04"), (2, "0.98 to 1.23"), (1, "1.21 to 1.57")):
        q = found.loc[found["key_heads"] == g, "q"]
        assert f"{q.min():.2f} to {q.max():.2f}" == ends.replace("\n", " ")
        assert ends in page
    for g, ends in ((4, "0.38 to 1.26"), (2, "0.94 to 1.93"), (1, "1.57 to 2.76")):
        weight = found.loc[found["key_heads"] == g, "weight"]
        assert f"{weight.min():.2f} to {weight.max():.2f}" == ends
        assert ends in page
