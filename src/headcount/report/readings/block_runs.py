"""What the runs of the transformer block say (Section 7.3): accuracies, collapses, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import fmean

import pandas as pd

from headcount.analysis.curves import curves
from headcount.report.readings.frames import rows
from headcount.report.readings.paper_numbers import paper_value
from headcount.report.rules import shared_number
from headcount.reproduction.evidence import Evidence

COLLAPSED = shared_number("collapsed")  # a run with a lower test accuracy has learnt nothing
NEAR = shared_number("near")  # closer accuracies count as the same; near-perfect is 1 − NEAR
COMPRESSED = int(shared_number("compressed"))  # m/d_model of the paper's experiment
RANDOM = "gaussian"  # the table that is not of tokens
_KEY = ["table", "table_hash", "items", "length", "d_model", "control", "scale"]
_PROTOCOL = ["steps", "batch", "learning_rate"]


@dataclass(frozen=True)
class Cell:
    """The seeds of one (h, D_K): the mean accuracy with its t-interval, and each seed's.

    A run that diverged counts as 0.
    """

    heads: int
    budget: int
    mean: float
    low: float | None  # None with one seed
    high: float | None
    seeds: dict[int, float]
    runs: pd.DataFrame = field(repr=False, compare=False)

    @property
    def collapsed(self) -> int:
        return sum(score < COLLAPSED for score in self.seeds.values())

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval, cut to what an accuracy can be."""
        if self.low is None or self.high is None:
            return None
        return max(self.low, 0.0), min(self.high, 1.0)

    @property
    def near_perfect(self) -> bool:
        return self.mean >= 1 - NEAR

    @property
    def late_gain(self) -> float | None:
        """Mean gain in validation accuracy over the last quarter of training; None if unknown."""
        gains = []
        for text, steps in rows(self.runs.loc[self.runs["diverged"].isna()], "history", "steps"):
            course = json.loads(text)
            before = [accuracy for step, accuracy in course if step <= 0.75 * steps]
            gains += [course[-1][1] - before[-1]] if before else []
        return fmean(gains) if gains else None

    def answers(self, kind: str) -> float:
        """The share of final test answers of one kind.

        Kinds are `correct`, `s`, `q`, `context`, `null` and `other`.
        """
        return fmean(self.runs[f"answer_{kind}"])

    @property
    def errors_s(self) -> float | None:
        """The share of wrong answers that are s, in the runs that did not collapse.

        None below one error in 100.
        """
        learnt = self.runs.loc[self.runs["test"] >= COLLAPSED]
        wrong = sum(1 - correct for correct in learnt["answer_correct"])
        return sum(learnt["answer_s"]) / wrong if wrong >= 0.01 * len(learnt) > 0 else None


@dataclass(frozen=True)
class Setting:
    """Runs that differ in heads, D_K and seed alone, scored by one column."""

    table: str
    items: int
    length: int
    d_model: int
    control: str
    scale: float
    runs: pd.DataFrame = field(repr=False, compare=False)
    metric: str = "test"

    @property
    def name(self) -> str:
        """The table without the number of its rows."""
        return re.sub(r"-top\d+$", "", self.table)

    @property
    def title(self) -> str:
        return f"{self.name} (m = {self.items:,}, d_model = {self.d_model:,})"

    @property
    def short_title(self) -> str:
        """The table with its d_model, for the head of a panel."""
        return f"{self.name} ({self.d_model})"

    @property
    def place(self) -> tuple[str, int, int, int]:
        """What the settings of one table share."""
        return self.table, self.items, self.length, self.d_model

    @property
    def plain(self) -> bool:
        """Whether this is the paper's experiment, without a control.

        The scale of random rows does not matter: they have no natural length.
        """
        return self.control == "none" and (self.scale == 1 or self.table == RANDOM)

    @property
    def compressed(self) -> bool:
        """Whether claims on token embeddings apply: the paper's are compressed, not random."""
        return self.table != RANDOM and self.items >= COMPRESSED * self.d_model

    @property
    def steps(self) -> int:
        return int(self.runs["steps"].iloc[0])

    @cached_property
    def barred_at_test(self) -> Setting:
        """The same runs where neither s nor q may be the answer, in the test alone."""
        return replace(self, metric="barred_test")

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Mean and interval by heads and budget, as `analysis.curves` has them."""
        return curves(self.runs.assign(variant="block", degree=1, value=self.runs[self.metric]))

    @cached_property
    def cells(self) -> dict[tuple[int, int], Cell]:
        """The seeds by (h, D_K)."""
        found, parts = {}, dict(iter(self.runs.groupby(["heads", "budget"])))
        names = ("heads", "budget", "mean", "low", "high")
        for heads, budget, mean, low, high in rows(self.curve, *names):
            part = parts[heads, budget]
            ordered = rows(part.sort_values("seed"), "seed", self.metric, "diverged")
            seeds = {
                seed: 0.0 if score is None or diverged is not None else score
                for seed, score, diverged in ordered
            }
            found[heads, budget] = Cell(heads, budget, mean, low, high, seeds, part)
        return found

    @property
    def budgets(self) -> list[int]:
        return sorted({budget for _, budget in self.cells})

    def one(self, budget: int) -> Cell | None:
        """One head."""
        return self.cells.get((1, budget))

    def several(self, budget: int) -> list[Cell]:
        """Two heads and more."""
        return [cell for (heads, at), cell in self.cells.items() if heads > 1 and at == budget]

    def best(self, budget: int) -> Cell | None:
        """The best of several heads."""
        return max(self.several(budget), key=lambda cell: cell.mean, default=None)

    def gap(self, budget: int) -> float | None:
        """How far the best of several heads is ahead of one; None if one of them is missing."""
        one, best = self.one(budget), self.best(budget)
        return None if one is None or best is None else best.mean - one.mean

    def ahead(self, budget: int) -> bool:
        """Whether the best of several heads is clearly ahead of one.

        Either the 95 % intervals are disjoint, or each of its seeds beats each of one head's; with
        fewer than four seeds, by at least `NEAR`.
        """
        one, best = self.one(budget), self.best(budget)
        if one is None or best is None:
            return False
        # Few seeds may be ordered by chance: without disjoint intervals they must be NEAR apart.
        gap = min(best.seeds.values()) - max(one.seeds.values())
        few = min(len(one.seeds), len(best.seeds)) < 4
        apart = one.high is not None and best.low is not None and best.low > one.high
        return apart or gap >= NEAR or (gap > 0 and not few)

    @property
    def gaps(self) -> dict[int, float]:
        """How far the best of several heads is ahead, by budget."""
        return {budget: gap for budget in self.budgets if (gap := self.gap(budget)) is not None}

    def without_collapsed(self) -> Setting:
        """The same without the runs that collapsed."""
        kept = self.runs["diverged"].isna() & (self.runs[self.metric] >= COLLAPSED)
        return replace(self, runs=self.runs.loc[kept])


def settings(evidence: Evidence) -> list[Setting]:
    """Every setting measured, the tables nearest to the paper's first.

    On each table: the paper's experiment, the controls, and both with scaled rows, all without
    shared keys. Where a setting was run with several step limits, batches or learning rates, those
    of most of its runs count, and of equals the longest.
    """
    return list(_settings(evidence))


@lru_cache(maxsize=8)  # every figure and claim asks
def _settings(evidence: Evidence) -> tuple[Setting, ...]:
    block = evidence.block.loc[evidence.block["key_heads"] == evidence.block["heads"]]
    if block.empty:
        return ()
    keys = list(rows(block, *_KEY))
    found = []
    for place in dict.fromkeys(keys):
        table, _, items, length, d_model, control, scale = place
        runs = _one_protocol(block.loc[[key == place for key in keys]])
        found.append(Setting(table, items, length, d_model, control, scale, runs))
    return tuple(sorted(found, key=_order))


def panels(evidence: Evidence) -> list[Setting]:
    """The settings of Fig. 7, one for each table."""
    return [setting for setting in settings(evidence) if setting.plain]


def judged_panels(evidence: Evidence) -> list[Setting]:
    """Those that the paper's claims are judged by: compressed token embeddings."""
    return [panel for panel in panels(evidence) if panel.compressed]


def block_command(evidence: Evidence) -> str:
    """The command that made the runs, or where it reads a file of its maker's, one like it.

    Without runs it is the command that makes a small part of them.
    """
    made = str(evidence.block_provenance.get("command") or "headcount reproduce --only fig7")
    if not re.search(r"--table \S+\.(safetensors|npy)\b", made):
        return made
    if evidence.provenance.get("preset", "paper") == "paper":
        return "headcount reproduce --preset paper --only fig7 --table smollm2"
    return "headcount reproduce --only fig7"


def collapse_counts(cells: Iterable[Cell]) -> tuple[int, int]:
    """How many runs collapsed, and of how many."""
    found = list(cells)
    return sum(cell.collapsed for cell in found), sum(len(cell.seeds) for cell in found)


def partial_solution(panel: Setting) -> Cell | None:
    """One head at the largest D_K without the runs that collapsed; None below the paper's D_K."""
    cells = [cell for (heads, _), cell in panel.without_collapsed().cells.items() if heads == 1]
    last = max(cells, key=lambda cell: cell.budget, default=None)
    if last is None or last.budget < paper_value("block.single-head.bimodal-from"):
        return None
    return last


def _one_protocol(runs: pd.DataFrame) -> pd.DataFrame:
    counts = runs.groupby(_PROTOCOL).size()
    most = max(counts.index, key=lambda key: (counts[key], key))
    return runs.loc[[key == most for key in rows(runs, *_PROTOCOL)]]


def _order(setting: Setting) -> tuple[object, ...]:
    return (
        setting.table == RANDOM,
        setting.items != paper_value("block.items"),
        setting.d_model != paper_value("block.d-model"),
        setting.place,
        setting.scale,
        ("none", "barred", "two-values").index(setting.control),
    )
