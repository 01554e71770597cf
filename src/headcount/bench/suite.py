"""All cases in one file: shapes × variants, engines and peers in turns, written case by case."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from headcount.bench.cases import MAIN, SHAPES, VARIANTS, Case
from headcount.bench.engines import ENGINES, default_engines, timed_cases
from headcount.bench.ratios import ratio_rounds, ratios
from headcount.bench.timing import Report, silent
from headcount.errors import InputError
from headcount.files import existing_file, replacing
from headcount.provenance import commit, cores, machine, package_version, versions

_FORMAT = "headcount benchmark 1"
_QUICK_ROUNDS, _ROUNDS = 2, 5
_SAME = {  # of a file to be continued, and how an error says that it is not
    "machine": "from another machine",
    "commit": "of another commit",
    "versions": "with other versions",
    "settings": "with other settings",
    "planned": "of other cases",
}
_NEEDED = {"machine": str, "date": str, "settings": dict, "planned": list, "cases": list}


@dataclass(frozen=True)
class Benchmark:
    """The cases that were timed, and how: what the file of `bench_all` holds."""

    values: Mapping[str, Any]

    @property
    def cases(self) -> list[dict[str, Any]]:
        """One per case: its sizes and variant, the rows of engines and peers, and the ratios."""
        return list(self.values["cases"])

    @property
    def left(self) -> list[Case]:
        """The cases that are still to be timed."""
        done = {case_of(found) for found in self.cases}
        return [Case(*case) for case in self.values["planned"] if Case(*case) not in done]

    @property
    def ratios(self) -> pd.DataFrame:
        """One row per case and ratio: the median over rounds, the extremes, and the target."""
        rows = [
            {**case_of(found)._asdict(), "ratio": name, **ratio}
            for found in self.cases
            for name, ratio in found["ratios"].items()
        ]
        names = [*Case._fields, "ratio", "value", "low", "high", "target"]
        return pd.DataFrame(rows, columns=pd.Index(names))

    @property
    def times(self) -> pd.DataFrame:
        """One row per case, engine or peer: µs per run-step, GFLOP/s, or why it is missing."""
        return pd.DataFrame([row for found in self.cases for row in found["rows"]])


def case_of(found: Mapping[str, Any]) -> Case:
    """The case that a part of the file is about."""
    return Case(*(found[name] for name in Case._fields))


def all_cases(quick: bool = False) -> list[Case]:
    """Every variant at every shape; quick ones at the smallest shape, and max at the main one."""
    shapes = SHAPES[:1] if quick else SHAPES
    found = [shape._replace(variant=variant) for shape in shapes for variant in VARIANTS]
    return [*found, MAIN] if quick else found


def bench_all(
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    engines: Sequence[str] | None = None,
    peers: bool = True,
    repeats: int | None = None,
    report: Report = silent,
) -> Benchmark:
    """Time engines and peers at every shape and variant, and write `out` and a page beside it.

    `out` is written after every case. A call that is interrupted is continued by the same call;
    a file of another machine, commit or setting is refused. `repeats` are the timed rounds, by
    default 5, or 2 with `quick`. The page is `out` with the suffix .html.
    """
    out = Path(out)
    if out.suffix.lower() != ".json":
        raise InputError(f"{out}: a benchmark is written as .json; give the file that suffix")
    found = _begun(out, _plan(quick, engines, peers, repeats))
    chosen, rounds = found["settings"]["engines"], found["settings"]["repeats"]
    for case, rows in timed_cases(Benchmark(found).left, chosen, peers, rounds, report):
        found["cases"].append(summarised(case, rows))
        _write(out, found)
    benchmark = Benchmark(found)
    from headcount.bench.suite_page import write_benchmark_page  # its charts need more packages

    write_benchmark_page(benchmark, out.with_suffix(".html"))
    return benchmark


def read_benchmark(path: str | os.PathLike[str]) -> Benchmark:
    """Read what `bench_all` wrote."""
    path = existing_file(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        fits = isinstance(found, dict) and found.get("format") == _FORMAT
        fits = fits and all(isinstance(found.get(name), kind) for name, kind in _NEEDED.items())
        benchmark = Benchmark(found) if fits else None
        if benchmark:
            _ = benchmark.left, benchmark.ratios, benchmark.times
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        benchmark = None
    if benchmark is None:
        raise InputError(f"{path}: is not a file of `headcount bench all`; name one that is")
    return benchmark


def _plan(
    quick: bool, engines: Sequence[str] | None, peers: bool, repeats: int | None
) -> dict[str, Any]:
    """The file before the first case."""
    for name in engines or ():
        if name not in ENGINES:
            raise InputError(f"engine {name!r} is unknown; use {', '.join(ENGINES)}")
    rounds = repeats or (_QUICK_ROUNDS if quick else _ROUNDS)
    chosen = list(engines or default_engines())
    return {
        "format": _FORMAT,
        "machine": machine(),
        "cores": cores(),
        "versions": {**versions(), "jax": package_version("jax") or "none"},
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": {"engines": chosen, "peers": peers, "repeats": rounds},
        "planned": [list(case) for case in all_cases(quick)],
        "cases": [],
    }


def _begun(out: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """The plan, or what the file already has of it."""
    if not out.exists():
        _write(out, plan)  # a path that cannot be written is refused before the work
        return plan
    found = dict(read_benchmark(out).values)
    for name, words in _SAME.items():
        if found.get(name) != plan[name]:
            raise InputError(
                f"{out}: holds a benchmark {words}; choose another file, or delete this one"
            )
    return found


def summarised(case: Case, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A case as the file has it: its rows, the machine's load, and the ratios that they give."""
    return {**case._asdict(), "load": _load(), "rows": rows, "ratios": _ratios(rows)}


def _ratios(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """The ratios that could be taken: medians over rounds, with their extremes and targets."""
    goals = {name: ratio["target"] for name, ratio in ratios(rows).items()}
    found = ratio_rounds(rows)
    return {
        name: {
            "value": median(each),
            "low": min(each),
            "high": max(each),
            "target": goals[name],
        }
        for name, each in found.items()
    }


def _load() -> float | None:
    """How many processes want a core, over the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _write(out: Path, found: Mapping[str, Any]) -> None:
    with replacing(out) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
