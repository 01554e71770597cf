"""The [grid] and [search] tables of a sweep file: read strictly, expanded to runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import cache, partial
from itertools import product
from math import prod
from operator import attrgetter
from typing import Any, TypeVar, get_args

from headcount.errors import InputError
from headcount.paper import data as paper
from headcount.training.spec import RunSpec, Variant

MOST_RUNS = 1_000_000  # of one sweep
SEEDS = 10  # of a configuration, as in the paper

_KINDS = {
    item.name: {"int": int, "float": float}.get(str(item.type), str) for item in fields(RunSpec)
}
_WORDS = {int: "whole number", float: "number", str: "text in quotes"}
_WIDTHS = ("key_dim", "budget", "budgets")
PROTOCOL = tuple(
    name for name in _KINDS if name not in ("items", "d_model", "heads", "key_dim", "seed")
)
_AXES = tuple(name for name in PROTOCOL if name not in ("degree", "variant", "steps"))
_KEYS = ("points", "items", "d_model", "heads", *_WIDTHS, "span", "seeds", *PROTOCOL)
_FILTERS = ("paper", "points", "items", "d_model", "heads", "key_dim", "budget", "seeds", "degree")

T = TypeVar("T")


class TomlTable:
    """One table of a TOML file, read strictly: its errors name the file and the place."""

    def __init__(self, place: str, values: Any, keys: Sequence[str]) -> None:
        self.place = place
        if not isinstance(values, Mapping):
            raise self.wrong(
                f"must be a table, {values!r} is not one; write its keys on lines of their own below it"
            )
        self._values = values
        for name in values:
            if name not in keys:
                near = get_close_matches(name, keys, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"use {', '.join(keys)}"
                raise self.wrong(f"{name!r} is not a key here; {hint}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        """The value as it stands in the file, None where there is none."""
        return self._values.get(name)

    def wrong(self, text: str) -> InputError:
        """The sentence with its place."""
        return InputError(f"{self.place}: {text}")

    def located(self, make: Callable[[], T]) -> T:
        """What `make` returns; the place is added to its error."""
        try:
            return make()
        except InputError as error:
            raise self.wrong(str(error)) from None

    def one(self, name: str, kind: type, default: Any = None) -> Any:
        """A single value."""
        if name not in self:
            return default
        return self._typed(name, self._values[name], kind, f"{name} must be a {_WORDS[kind]}")

    def several(self, name: str, kind: type, default: Sequence[Any] = ()) -> list[Any]:
        """One value or a list of them, without repetitions."""
        if name not in self:
            return list(default)
        found = self._values[name]
        if found == []:
            raise self.wrong(f"{name} is an empty list; give at least one value or leave it out")
        asked = f"{name} must be a {_WORDS[kind]} or a list of them"
        values = [
            self._typed(name, value, kind, asked)
            for value in (found if isinstance(found, list) else [found])
        ]
        return list(dict.fromkeys(values))

    def required(self, name: str, kind: type) -> list[Any]:
        """Like `several`, for what cannot be left out."""
        if name not in self:
            raise self.wrong(f"{name} is missing; give one value or a list")
        return self.several(name, kind)

    def points(self) -> list[tuple[int, int]]:
        """(items, d_model) pairs: listed, or the product of both."""
        if "points" not in self:
            return list(product(self.required("items", int), self.required("d_model", int)))
        if "items" in self or "d_model" in self:
            raise self.wrong("points already gives items and d_model; leave these out")
        return self.pairs("points", int, "[[64, 16], [128, 32]]")

    def pairs(self, name: str, kind: type, example: str) -> list[tuple[Any, Any]]:
        """A list of pairs, without repetitions."""
        found, asked = self._values[name], f"{name} must be a list of pairs like {example}"
        if (
            not isinstance(found, list)
            or not found
            or any(not isinstance(p, list) or len(p) != 2 for p in found)
        ):
            raise self.wrong(f"{asked}; {found!r} is not one")
        pairs = [tuple(self._typed(name, value, kind, asked) for value in pair) for pair in found]
        return [(one, other) for one, other in dict.fromkeys(pairs)]

    def seeds(self) -> Sequence[int]:
        """A count, for the seeds from 0, or the seeds themselves."""
        found = self._values.get("seeds", SEEDS)
        if isinstance(found, list):
            return self.several("seeds", int)
        count = self._typed("seeds", found, int, "seeds must be a count or a list of seeds")
        if count < 1:
            raise self.wrong(f"seeds {count} gives no run; choose at least 1, or a list of seeds")
        return range(count)

    def span(self) -> tuple[float, float]:
        """The factors of the law between which budgets are tested."""
        if "span" not in self:
            return (0.3, 1.6)
        found, asked = self._values["span"], "span must be two factors of the law like [0.3, 1.6]"
        if not isinstance(found, list) or len(found) != 2:
            raise self.wrong(f"{asked}; {found!r} is not one")
        low, high = (self._typed("span", value, float, asked) for value in found)
        if not 0 < low <= high <= 100:
            raise self.wrong(f"span [{low}, {high}] does not fit; choose 0 < low ≤ high ≤ 100")
        return low, high

    def _typed(self, name: str, value: Any, kind: type, asked: str) -> Any:
        if isinstance(value, bool) or not isinstance(
            value, (int, float) if kind is float else kind
        ):
            raise self.wrong(f"{asked}; {value!r} is not one")
        return value


def grid_table(place: str, values: Any, *more: str) -> TomlTable:
    """A table that describes a grid, and has `more` keys besides."""
    of_paper = isinstance(values, Mapping) and "paper" in values
    return TomlTable(place, values, (*(_FILTERS if of_paper else _KEYS), *more))


def grid_runs(table: TomlTable, by_law: bool = False) -> Iterator[RunSpec]:
    """The runs of a grid, by point, degree, variant, heads, width, protocol and seed; widths may go without saying."""
    return _paper_runs(table) if "paper" in table else _product_runs(table, by_law)


def _product_runs(table: TomlTable, by_law: bool) -> Iterator[RunSpec]:
    points, heads, seeds = table.points(), table.required("heads", int), table.seeds()
    degrees, variants = table.several("degree", int, [1]), _variants(table)
    limits = table.several("steps", int, [0])  # 0: Table 2
    given = {name: table.several(name, _KINDS[name]) for name in _AXES if name in table}
    count = prod(map(len, (points, heads, seeds, degrees, variants, limits, *given.values())))
    if count > MOST_RUNS:
        raise table.wrong(f"{count:,} runs or more are too many; a sweep takes up to {MOST_RUNS:,}")
    widths = _widths(table, heads, by_law)
    for (items, d_model), degree, variant, head_count in product(points, degrees, variants, heads):
        cutoffs = [limit or paper.step_cutoff(items, d_model, variant) for limit in limits]
        for key_dim in widths(items, d_model, degree, head_count):
            for steps, values, seed in product(cutoffs, product(*given.values()), seeds):
                sizes = (items, d_model, head_count, key_dim, seed, degree, variant)
                yield table.located(
                    partial(RunSpec, *sizes, steps=steps, **dict(zip(given, values, strict=True)))
                )


def _variants(table: TomlTable) -> list[Variant]:
    variants = table.several("variant", str, ["max"])
    for variant in variants:
        if variant not in get_args(Variant):
            raise table.wrong(f"variant {variant!r} is unknown; use {', '.join(get_args(Variant))}")
    return variants


def _widths(
    table: TomlTable, heads: list[int], by_law: bool
) -> Callable[[int, int, int, int], Sequence[int]]:
    """What gives the key dimensions to test at (items, d_model, degree, heads)."""
    given = [name for name in _WIDTHS if name in table] or ["budgets"] * by_law
    if len(given) != 1:
        raise table.wrong('give one of key_dim = […], budget = […] and budgets = "law"')
    if "span" in table and given != ["budgets"]:
        raise table.wrong('span belongs to budgets = "law"; leave it out')
    if min(heads) < 1:
        raise table.wrong(f"heads {min(heads)} does not fit; choose at least 1")
    if "key_dim" in table:
        widths = table.several("key_dim", int)
        return lambda items, d_model, degree, head_count: widths
    if "budget" in table:
        budgets = table.several("budget", int)
        _check_fit(table, heads, budgets)
        return lambda items, d_model, degree, head_count: [
            b // head_count for b in budgets if b % head_count == 0
        ]
    if (law := table.one("budgets", str, "law")) != "law":
        raise table.wrong(
            f'budgets {law!r} is unknown; write budgets = "law", or budget = […] with numbers'
        )
    return partial(_law_widths, table, table.span())


def _check_fit(table: TomlTable, heads: list[int], budgets: list[int]) -> None:
    """A budget that a head count does not divide is left out there; one that is left out everywhere is a mistake."""
    for budget in budgets:
        if all(budget % head_count for head_count in heads):
            raise table.wrong(
                f"budget {budget} is a multiple of none of heads {heads}; change one of them"
            )
    for head_count in heads:
        if all(budget % head_count for budget in budgets):
            raise table.wrong(
                f"heads {head_count} divides none of budget {budgets}; change one of them"
            )


def _law_widths(
    table: TomlTable, span: tuple[float, float], items: int, d_model: int, degree: int, heads: int
) -> Sequence[int]:
    guide = "permutations" if degree == 1 else "regular"
    budgets = table.located(
        partial(paper.budgets_for, items, d_model, heads, degree=degree, span=span, guide=guide)
    )
    return [budget // heads for budget in budgets]


@cache
def paper_runs(name: str) -> tuple[RunSpec, ...]:
    """The runs of a grid of the paper, expanded once: presets and their parts ask for the same grids."""
    return tuple(paper.runs(name))


def _paper_runs(table: TomlTable) -> Iterator[RunSpec]:
    """The runs of a grid of the paper that pass every filter; a filter that nothing in the grid passes is a mistake."""
    name = table.one("paper", str)
    runs = table.located(partial(paper_runs, name))
    tests: dict[str, tuple[Callable[[RunSpec], Any], Sequence[Any]]] = {
        field: (attrgetter(field), table.several(field, int))
        for field in ("items", "d_model", "heads", "key_dim", "budget", "degree")
        if field in table
    }
    if "points" in table:
        pairs = table.pairs("points", int, "[[64, 16], [128, 32]]")
        tests["points"] = (lambda spec: (spec.items, spec.d_model), pairs)
    if "seeds" in table:
        tests["seeds"] = (attrgetter("seed"), table.seeds())
    for field, (value_of, wanted) in tests.items():
        there = sorted({value_of(spec) for spec in runs})
        for value in () if isinstance(wanted, range) else wanted:
            if value not in there:
                raise table.wrong(
                    f"{field} {value} is not in the grid {name}; it has {_listed(there)}"
                )
    kept = [
        spec
        for spec in runs
        if all(value_of(spec) in wanted for value_of, wanted in tests.values())
    ]
    if not kept:
        raise table.wrong(
            f"no run of the grid {name} passes all of {', '.join(tests)}; leave one out"
        )
    yield from kept


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values[:20])) + (" …" if len(values) > 20 else "")
