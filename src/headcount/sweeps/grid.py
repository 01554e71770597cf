"""The [grid] and [search] tables of a sweep file, expanded to runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice, product
from math import prod
from operator import attrgetter
from typing import Any, get_args

from headcount.paper import data as paper
from headcount.sweeps.toml_table import MOST_RUNS, TomlTable, field_types
from headcount.training.problem_files import ProblemFiles
from headcount.training.spec import RunSpec, Variant, sizes_of

_KINDS = field_types(RunSpec)
_WIDTHS = ("key_dim", "budget", "budgets")
PROTOCOL = tuple(
    name for name in _KINDS if name not in ("items", "d_model", "heads", "key_dim", "seed")
)
_PROBLEM = ("degree", "graph", "table")
_AXES = tuple(name for name in PROTOCOL if name not in (*_PROBLEM, "variant", "steps", "kv_heads"))
_USUAL = ["gaussian"]
_KEYS = (
    "points",
    "items",
    "d_model",
    "heads",
    *_WIDTHS,
    "span",
    "seeds",
    "key",
    "names",
    *PROTOCOL,
)
_FILTERS = ("paper", "points", "items", "d_model", "heads", "key_dim", "budget", "seeds", "degree")


def grid_table(place: str, values: Any, *more: str) -> TomlTable:
    """A table that describes a grid, and has `more` keys besides."""
    of_paper = isinstance(values, Mapping) and "paper" in values
    return TomlTable(place, values, (*(_FILTERS if of_paper else _KEYS), *more))


def grid_runs(
    table: TomlTable,
    files: ProblemFiles | None = None,
    by_law: bool = False,
    most: int = MOST_RUNS,
) -> Iterator[RunSpec]:
    """The runs of a grid, by problem, variant, heads, shared keys, width, protocol and seed.

    `files` reads graphs and tables that are named by path. With `by_law`, a grid without widths
    takes its budgets from the law. More than `most` are refused, most of them before any is made.
    """
    if "paper" in table:
        return _paper_runs(table)
    return _product_runs(table, files or ProblemFiles(), by_law, most)


def _product_runs(
    table: TomlTable, files: ProblemFiles, by_law: bool, most: int
) -> Iterator[RunSpec]:
    problems = list(islice(_problems(table, files), MOST_RUNS + 1))
    heads, seeds, variants = table.required("heads", int), table.seeds(), _variants(table)
    limits = table.several("steps", int, [0])  # 0: Table 2
    given = {name: table.several(name, _KINDS[name]) for name in _AXES if name in table}
    each = prod(map(len, (problems, seeds, variants, limits, *given.values())))
    table.require_count(each * len(heads), most)
    widths, splits = _widths(table, heads, by_law), head_splits(table, heads)
    table.require_count(each * len(splits), most)
    if "key_dim" in table or "budget" in table or isinstance(table.get("budgets"), int | list):
        # These widths are listed, so they are the same for every problem.
        table.require_count(each * sum(len(widths(1, 1, 1, count)) for count, _ in splits), most)
    for problem, variant, (head_count, shared) in product(problems, variants, splits):
        items, d_model, degree = (problem[name] for name in ("items", "d_model", "degree"))
        cutoffs = [limit or paper.step_cutoff(items, d_model, variant) for limit in limits]
        for key_dim in widths(items, d_model, degree, head_count):
            for steps, values, seed in product(cutoffs, product(*given.values()), seeds):
                split = {"heads": head_count, "key_dim": key_dim, "seed": seed}
                split["kv_heads"] = shared
                rest = {"variant": variant, "steps": steps, **dict(zip(given, values, strict=True))}
                yield table.located(partial(RunSpec, **problem, **split, **rest))


def _problems(table: TomlTable, files: ProblemFiles) -> Iterator[dict[str, Any]]:
    """Graph, table and sizes, by graph, table, point and degree.

    A file settles its sizes: they need not be given, and what is given must agree.
    """
    graphs, tables = table.several("graph", str, ["regular"]), table.several("table", str, _USUAL)
    asked = table.several("items", int)
    key, names = table.one("key", str), table.one("names", str)
    table.located(partial(files.require_used, graphs, tables, key, names))
    for graph, rows in product(graphs, tables):
        # A graph beside a table that is drawn may have more items than its edges name.
        if asked and files.is_graph(graph) and not files.is_table(rows):
            for items in asked:
                contents = table.located(partial(files.contents, graph, rows, items, key, names))
                known = table.located(partial(sizes_of, *contents))
                yield from _own_problems(table, known, items)
            continue
        contents = table.located(partial(files.contents, graph, rows, None, key, names))
        known = table.located(partial(sizes_of, *contents))
        if "items" in known:
            yield from _own_problems(table, known)
            continue
        for (m, d_model), degree in product(table.points(), table.several("degree", int, [1])):
            yield known | {"items": m, "d_model": d_model, "degree": degree}


def _own_problems(
    table: TomlTable, known: dict[str, Any], items: int | None = None
) -> Iterator[dict[str, Any]]:
    """The problems on a file's content; `items` is one of several that the table asks for."""
    if "points" in table:
        raise table.wrong("points do not go with a graph or table file; give d_model or nothing")
    for name in ("items", "d_model", "degree"):
        given = table.get(name) if name != "items" or items is None else items
        if name in known and given not in (None, known[name], [known[name]]):
            raise table.wrong(
                f"{name} {given} is not that of the file, {known[name]}; leave it out"
            )
    widths = [known["d_model"]] if "d_model" in known else table.required("d_model", int)
    degrees = [known["degree"]] if "degree" in known else table.several("degree", int, [1])
    for d_model, degree in product(widths, degrees):
        yield known | {"d_model": d_model, "degree": degree}


def _variants(table: TomlTable) -> list[Variant]:
    variants = table.several("variant", str, ["max"])
    for variant in variants:
        if variant not in get_args(Variant):
            raise table.wrong(f"variant {variant!r} is unknown; use {', '.join(get_args(Variant))}")
    return variants


def head_splits(table: TomlTable, heads: list[int]) -> list[tuple[int, int]]:
    """(heads, kv_heads): each g with the head counts that it divides, and with some of them."""
    shared = table.several("kv_heads", int, [0])
    for kv_heads in shared:
        if kv_heads and not any(_shares(head_count, kv_heads) for head_count in heads):
            raise table.wrong(f"kv_heads {kv_heads} divides none of heads {heads}; change one")
    for head_count in heads:
        if not any(_shares(head_count, kv_heads) for kv_heads in shared):
            raise table.wrong(
                f"heads {head_count} is a multiple of none of kv_heads {shared}; change one"
            )
    found = [(h, g % h) for h in heads for g in shared if _shares(h, g)]  # g = h: own keys, as 0
    return list(dict.fromkeys(found))


def _shares(heads: int, kv_heads: int) -> bool:
    return kv_heads == 0 or (0 < kv_heads <= heads and heads % kv_heads == 0)


def _widths(
    table: TomlTable, heads: list[int], by_law: bool
) -> Callable[[int, int, int, int], Sequence[int]]:
    """What gives the key dimensions to test at (items, d_model, degree, heads)."""
    given = [name for name in _WIDTHS if name in table] or ["budgets"] * by_law
    if len(given) != 1:
        raise table.wrong('give one of key_dim = […], budgets = […] and budgets = "law"')
    # `budget` is the former name of a list of `budgets`.
    listed = given == ["budget"] or isinstance(table.get("budgets"), int | list)
    if "span" in table and (listed or given != ["budgets"]):
        raise table.wrong('span belongs to budgets = "law"; leave it out')
    if min(heads) < 1:
        raise table.wrong(f"heads {min(heads)} does not fit; choose at least 1")
    if "key_dim" in table:
        widths = table.several("key_dim", int)
        return lambda items, d_model, degree, head_count: widths
    if listed:
        budgets = table.several(given[0], int)
        _check_fit(table, heads, budgets)
        return lambda items, d_model, degree, head_count: [
            b // head_count for b in budgets if b % head_count == 0
        ]
    if (law := table.get("budgets") or "law") != "law":
        raise table.wrong(
            f'budgets {law!r} is unknown; write budgets = "law", or a list of numbers'
        )
    return partial(_law_widths, table, table.span())


def _check_fit(table: TomlTable, heads: list[int], budgets: list[int]) -> None:
    """Refuse a budget that no head count divides: elsewhere it is left out without a word."""
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
    """The runs of a grid of the paper, expanded once: presets ask for the same grids repeatedly."""
    return tuple(paper.runs(name))


def _paper_runs(table: TomlTable) -> Iterator[RunSpec]:
    """The runs of a grid of the paper that pass every filter.

    A filter that nothing in the grid passes is refused as a mistake.
    """
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
