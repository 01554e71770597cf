"""Two benchmarks side by side: which ratios fell by more than the noise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from headcount.bench.cases import Case
from headcount.bench.suite import Benchmark, read_benchmark
from headcount.errors import InputError

NOISE = 0.1  # change of a median that is not taken for one of the software
_KEY = [*Case._fields, "ratio"]


@dataclass(frozen=True)
class BenchmarkComparison:
    """A benchmark before and after a change.

    A ratio is `worse` when its median fell by more than the share `noise`, and every round after is
    below every round before; `better` is the mirror image. So neither a slow round nor a small
    steady shift is called a regression.
    """

    before: Benchmark
    after: Benchmark
    noise: float = NOISE

    @cached_property
    def changes(self) -> pd.DataFrame:
        """One row per case and ratio that both have: `before`, `after`, `change` and `verdict`."""
        both: Any = self.before.ratios.merge(
            self.after.ratios, on=_KEY, suffixes=("_before", "_after"), validate="1:1"
        )
        both["change"] = both["value_after"] / both["value_before"] - 1
        fell = both["high_after"] < both["low_before"]
        rose = both["low_after"] > both["high_before"]
        both["verdict"] = "same"
        both.loc[fell & (both["change"] < -self.noise), "verdict"] = "worse"
        both.loc[rose & (both["change"] > 1 / (1 - self.noise) - 1), "verdict"] = "better"
        names = {"value_before": "before", "value_after": "after"}
        return both.rename(columns=names)[[*_KEY, "before", "after", "change", "verdict"]]

    @property
    def regressions(self) -> pd.DataFrame:
        """The changes that are worse, the largest first."""
        return self._called("worse").sort_values("change")

    @property
    def improvements(self) -> pd.DataFrame:
        """The changes that are better, the largest first."""
        return self._called("better").sort_values("change", ascending=False)

    def _called(self, verdict: str) -> pd.DataFrame:
        changes: Any = self.changes
        return changes[changes["verdict"] == verdict]

    @property
    def notes(self) -> list[str]:
        """What else differs between the two, in words."""
        return list(self._differences())

    def _differences(self) -> Iterator[str]:
        before, after = self.before.values, self.after.values
        if before["machine"] != after["machine"]:
            yield f"other machine: {before['machine']}, then {after['machine']}"
        for name in sorted({*before["versions"], *after["versions"]}):
            one, two = (part["versions"].get(name, "none") for part in (before, after))
            if one != two and name != "headcount":
                yield f"other {name}: {one}, then {two}"
        for part, which in ((self.before, "first"), (self.after, "second")):
            if part.left:
                total = len(part.values["planned"])
                yield f"the {which} file has {len(part.cases)} of its {total} cases"
        gone = len(self.before.ratios) - len(self.changes)
        if gone:
            yield f"{gone} ratios of the first file are not in the second"

    def write_page(self, path: str | os.PathLike[str]) -> Path:
        """Write the table and a chart as one HTML file."""
        from headcount.bench.suite_page import write_comparison_page

        return write_comparison_page(self, Path(path))


def compare_benchmarks(
    before: str | os.PathLike[str] | Benchmark,
    after: str | os.PathLike[str] | Benchmark,
    *,
    noise: float = NOISE,
) -> BenchmarkComparison:
    """Compare two files of `bench_all`."""
    if not 0 <= noise < 1:
        raise InputError(f"noise {noise} is not a share; choose 0 or more, and less than 1")
    one, two = (
        part if isinstance(part, Benchmark) else read_benchmark(part) for part in (before, after)
    )
    found = BenchmarkComparison(one, two, noise)
    if found.changes.empty:
        raise InputError("the two benchmarks have no ratio in common; compare files of one kind")
    return found
