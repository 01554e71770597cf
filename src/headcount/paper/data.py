"""The paper as data: its grids, Table 2's steps, and every number with its place in the text.

The data are in `grids.toml`, `steps.toml` and `numbers.toml` beside this file. Where the paper is
open the files say what was decided.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from itertools import product
from math import floor, log
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from headcount.errors import InputError
from headcount.theory.laws import BUDGET, BUDGET_REGULAR, TrainedLaw
from headcount.training.spec import RunSpec, Variant

Guide = Literal["permutations", "regular"]
Kind = Literal["setting", "result", "claim"]
Value = int | float | bool | tuple[Any, ...]

_DATA = Path(__file__).parent
_GUIDES: dict[str, TrainedLaw] = {
    # 1.19·m ln m/d_model: about where the thresholds of wide points are.
    "permutations": replace(BUDGET, slope=BUDGET.slope * log(2)),
    "regular": BUDGET_REGULAR,
}


@dataclass(frozen=True)
class Part:
    """Points of a grid that share seeds and span."""

    pairs: tuple[tuple[int, int], ...]  # (items, d_model)
    seeds: int
    span: tuple[float, float]  # of the guide's budget


@dataclass(frozen=True)
class PaperGrid:
    """One sweep of the paper, as a rule: `expand` gives its runs."""

    name: str
    what: str
    variant: Variant
    guide: Guide
    heads: tuple[int, ...]
    degrees: tuple[int, ...]
    parts: tuple[Part, ...]
    place: str
    quote: str
    ours: str  # what the paper leaves open, and how it was decided

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        """The (items, d_model) pairs, in the order of the parts."""
        return tuple(pair for part in self.parts for pair in part.pairs)

    def expand(self) -> Iterator[RunSpec]:
        """The runs one by one: by point, degree, heads, budget, seed."""
        for part in self.parts:
            for (items, d_model), degree, heads in product(part.pairs, self.degrees, self.heads):
                steps = step_cutoff(items, d_model, self.variant)
                options = {"degree": degree, "span": part.span, "guide": self.guide}
                for budget, seed in product(
                    budgets_for(items, d_model, heads, **options), range(part.seeds)
                ):
                    yield RunSpec(
                        items,
                        d_model,
                        heads,
                        budget // heads,
                        seed,
                        degree=degree,
                        variant=self.variant,
                        steps=steps,
                    )


@dataclass(frozen=True)
class Number:
    """One number of the paper: a setting, a result to compare with, or a claim (true) in words."""

    id: str
    kind: Kind
    what: str
    value: Value
    place: str
    quote: str
    at: tuple[tuple[str, int], ...] = ()  # the sizes it belongs to
    note: str = ""  # where it disagrees with the rest of the paper, or how it was read


def grids() -> tuple[str, ...]:
    """The names of the grids."""
    return tuple(_read("grids"))


@cache
def grid(name: str) -> PaperGrid:
    """A grid by its name.

    >>> grid("diagonal").points[-1]
    (4096, 512)
    """
    data = dict(_known(name, _read("grids"), "grid"))
    parts = tuple(
        Part(
            tuple((m, d) for m, d in part.get("pairs") or product(part["items"], part["d_model"])),
            part["seeds"],
            (float(part["span"][0]), float(part["span"][1])),
        )
        for part in data.pop("parts")
    )
    heads, degrees = tuple(data.pop("heads")), tuple(data.pop("degrees", [1]))
    return PaperGrid(name=name, heads=heads, degrees=degrees, parts=parts, **data)


def runs(name: str) -> list[RunSpec]:
    """Expand a grid to its runs; those that two grids share are equal, so a store runs them once.

    >>> len(runs("value")), runs("value")[0].variant
    (411, 'value')
    """
    return list(grid(name).expand())


def budgets_for(
    items: int,
    d_model: int,
    heads: int,
    *,
    degree: int = 1,
    span: tuple[float, float] = (0.3, 1.6),
    guide: Guide = "permutations",
) -> tuple[int, ...]:
    """The budgets D_K = h·d_k tested for one head count: the one rule behind every grid.

    They cover `span` times the budget of the guide, in steps of 10 % and of at least 1 in d_k. The
    first is at most the lower end (or d_k = 1), the last at least the upper end, so every head
    count has one.

    >>> budgets_for(64, 16, 4)  # the guide says 19.8
    (4, 8, 12, 16, 20, 24, 28, 32)
    """
    low, high = span
    if heads < 1 or not 0 < low <= high:
        raise InputError(
            f"heads {heads} and span {low}…{high} do not fit; use heads ≥ 1 and 0 < low ≤ high"
        )
    centre = _known(guide, _GUIDES, "guide")(items, degree * items, d_model)
    widths = [max(1, floor(low * centre / heads))]
    while widths[-1] * heads < high * centre:
        widths.append(next_key_dim(widths[-1]))
    return tuple(heads * width for width in widths)


def next_key_dim(key_dim: int) -> int:
    """The next d_k of a grid ("one grid step"): 10 % more, rounded down, and at least 1 more."""
    return max(key_dim + 1, key_dim * 11 // 10)


def step_cutoff(items: int, d_model: int, variant: Variant = "max") -> int:
    """The training step limit: Table 2 or its default; 80,000 for softmax (Section 7.1).

    >>> step_cutoff(512, 16), step_cutoff(512, 32), step_cutoff(64, 32, "softmax")
    (80000, 20000, 80000)
    """
    data = _read("steps")
    listed = _cutoffs(data["table"]) | _cutoffs(data["ours"])
    steps: int = listed.get((items, d_model)) or data["default"]
    return max(steps, data["softmax"]) if variant == "softmax" else steps


def table_1() -> pd.DataFrame:
    """Table 1: the per-head key dimension d_k at D_K* of every base point."""
    rows = [
        dict(item.at) | {"key_dim": item.value}
        for item in numbers()
        if item.id.startswith("table-1.")
    ]
    return pd.DataFrame(rows)


def table_2() -> pd.DataFrame:
    """Table 2: the training step cutoff of every point that it lists."""
    cutoffs = _cutoffs(_read("steps")["table"])
    return pd.DataFrame(
        [{"items": m, "d_model": d, "steps": steps} for (m, d), steps in cutoffs.items()]
    )


@cache
def numbers() -> tuple[Number, ...]:
    """Every number of the paper, in the order of the text."""
    return tuple(_number(entry) for entry in _read("numbers")["number"])


def number(name: str) -> Number:
    """One number by its id.

    >>> number("law.budget.slope").value
    1.19
    """
    return _known(name, {item.id: item for item in numbers()}, "number")


def _number(entry: dict[str, Any]) -> Number:
    at = tuple(entry.get("at", {}).items())
    return Number(**(entry | {"value": _frozen(entry["value"]), "at": at}))


def _frozen(value: Any) -> Value:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _cutoffs(rows: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    return {(row["items"], d_model): row["steps"] for row in rows for d_model in row["d_model"]}


def _known(name: str, entries: dict[str, Any], what: str) -> Any:
    if name not in entries:
        near = get_close_matches(name, entries, n=1)
        remedy = (
            f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(list(entries)[:10])}"
        )
        raise InputError(f"{name!r} is not a {what} of the paper; {remedy}")
    return entries[name]


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_DATA / f"{name}.toml").read_text(encoding="utf-8"))
