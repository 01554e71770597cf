"""Write the tables of docs/performance.md from the files of `headcount bench all`.

    python tools/performance_tables.py

A file docs/benchmarks/NAME.json fills the lines between `<!-- bench NAME -->` and `<!-- end -->`.
tests/test_performance_page.py fails when a table is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from headcount import Benchmark, read_benchmark
from headcount.bench.ratios import SCALING, TITLES
from headcount.bench.suite import case_of
from headcount.report.formatting import num

ROOT = Path(__file__).parents[1]
PAGE, FOLDER = ROOT / "docs" / "performance.md", ROOT / "docs" / "benchmarks"
_PLACE = re.compile(r"(<!-- bench ([\w-]+) -->\n).*?(<!-- end -->)", re.S)
_SHARES = {name for name in TITLES if name.endswith("share_of_sgemm")}


def written(page: str) -> str:
    """The page with its tables made new."""

    def fill_in(place: re.Match[str]) -> str:
        found = read_benchmark(FOLDER / f"{place[2]}.json")
        return f"{place[1]}\n{tables(found, f'docs/benchmarks/{place[2]}.json')}\n\n{place[3]}"

    return _PLACE.sub(fill_in, page)


def tables(found: Benchmark, name: str) -> str:
    """Where the file comes from, the times of max by shape, and a table of every ratio."""
    values, loads = found.values, [case["load"] or 0.0 for case in found.cases]
    software = ", ".join(f"{key} {version}" for key, version in values["versions"].items())
    made = (
        f"`headcount bench all` on {values['machine']} ({software}), {values['date'][:10]}, commit "
        f"{values['commit']}, {values['settings']['repeats']} rounds, `{name}`. The load was "
        f"{min(loads):.1f} to {max(loads):.1f}."
    )
    parts = [fill(made, 100, break_long_words=False, break_on_hyphens=False), _times(found)]
    for ratio, title in TITLES.items():
        if any(ratio in case["ratios"] for case in found.cases):
            parts += [f"{title}:", _by_variant(found, ratio)]
    return "\n\n".join(parts)


def _times(found: Benchmark) -> str:
    """µs per run-step of max, by shape; where an engine was timed with several sizes, by size."""
    names, lines = list[str](), []
    for case in found.cases:
        if case["variant"] != "max":
            continue
        by_name: dict[str, list[Mapping[str, Any]]] = {}
        for row in case["rows"]:
            if row["engine"] != "matmul":
                by_name.setdefault(_engine(row), []).append(row)
        names, (own, *_) = list(by_name), by_name.values()
        for n, row in enumerate(own):
            size = f", {row['runs']:,} runs" if len(own) > 1 else ""
            times = [_time(rows[n]) if n < len(rows) else "–" for rows in by_name.values()]
            shares = [f"{row[name]:.0%}" for name in ("share_evaluation", "share_drawing")]
            lines.append([f"{case_of(case).shape}{size}", *times, *shares])
    return _table(["µs per run-step of max", *names, "check", "draw"], lines)


def _time(row: Mapping[str, Any]) -> str:
    return "–" if row["missing"] else num(row["us_per_run_step"])


def _engine(row: Mapping[str, Any]) -> str:
    return (
        f"{row['engine']}, {row['threads']} threads" if (row["threads"] or 1) > 1 else row["engine"]
    )


def _by_variant(found: Benchmark, ratio: str) -> str:
    """A ratio's medians: variants in rows, shapes in columns."""
    cases = [case for case in found.cases if ratio in case["ratios"]]
    values = {case_of(case): case["ratios"][ratio]["value"] for case in cases}
    said: Callable[[float], str] = "{:.0%}".format if ratio in _SHARES else num
    variants = dict.fromkeys(case.variant for case in values)
    lines = []
    for variant in variants:
        here = {case.shape: value for case, value in values.items() if case.variant == variant}
        lines.append([variant, *(said(here[s]) if s in here else "–" for s in _shapes(found))])
    if ratio == SCALING:
        gains = [_product_scaling(found, shape) for shape in _shapes(found)]
        lines.append(["bare products", *gains])
    return _table(["", *map(str, _shapes(found))], lines)


def _product_scaling(found: Benchmark, shape: tuple[int, ...]) -> str:
    """What all cores gain in bare products, in the rounds of all variants at a shape."""
    gains = []
    for case in found.cases:
        rows = [row for row in case["rows"] if row["engine"] == "matmul" and not row["missing"]]
        if case_of(case).shape == shape and len(rows) == 2:
            one, many = sorted(rows, key=lambda row: row["threads"])
            gains += [b / a for a, b in zip(one["rounds"], many["rounds"], strict=True)]
    return num(median(gains)) if gains else "–"


def _shapes(found: Benchmark) -> list[tuple[int, int, int, int]]:
    return list(dict.fromkeys(case_of(case).shape for case in found.cases))


def _table(names: list[str], lines: Iterable[list[str]]) -> str:
    rows = [names, ["---"] * len(names), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
